//! The `ClusterUpgrades` and `NodeUpgrades` of a cluster, or of files that hold some.
//!
//! The invariant: what cannot be read is named, and is never taken for absent.

use std::sync::Arc;
use std::time::Duration;

use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::super::args::WhereArgs;
use super::super::connect;
use crate::api::{ClusterUpgrade, GROUP, NodeUpgrade, decode};
use crate::clients::{one_line, read_client, within};
use crate::observe::files::{List, Piece, Read, Use, pieces, shown_path};

/// Longest wait for one list.
const PATIENCE: Duration = Duration::from_secs(15);

/// The stored objects of all upgrades, and what of them could not be read.
#[derive(Default)]
pub(super) struct StoredUpgrades {
    pub(super) upgrades: Vec<ClusterUpgrade>,
    pub(super) claims: Vec<NodeUpgrade>,
    /// Where it was read: titles and lines.
    pub(super) about: Vec<(&'static str, String)>,
    /// What could not be read, one line each.
    pub(super) not_seen: Vec<String>,
    /// Why there may be more in `upgrades` than was read, in one line; `None` if that is all of them.
    pub(super) lacks: Option<String>,
}

/// What the cluster or the files of `place` hold; `command` is who asks.
///
/// # Errors
/// Why there is nothing to read, in one line.
pub(super) async fn stored(place: &WhereArgs, command: &str) -> Result<StoredUpgrades, String> {
    if !place.files.is_empty() {
        return of_files(place);
    }
    let config = connect::config(&place.cluster, command).await?;
    let client = read_client(&config).map_err(|error| one_line(&error))?;
    let about = vec![("Cluster", config.cluster_url.to_string())];
    let mut stored = StoredUpgrades { about, ..StoredUpgrades::default() };
    let upgrades = list::<ClusterUpgrade>(&client).await.map_err(|line| connect::told(&config, line))?;
    stored.upgrades = read(&upgrades, &mut stored.not_seen);
    stored.lacks = stored.not_seen.first().cloned();
    // Without them everything is told but what is in flight.
    match list::<NodeUpgrade>(&client).await {
        Ok(claims) => stored.claims = read(&claims, &mut stored.not_seen),
        Err(why) => stored.not_seen.push(why),
    }
    Ok(stored)
}

async fn list<K: Resource<DynamicType = ()>>(client: &Client) -> Result<Vec<DynamicObject>, String> {
    let resource = ApiResource::erase::<K>(&());
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match within(PATIENCE, all.list(&ListParams::default())).await {
        Ok(list) => Ok(list.items),
        // The kind is not installed, so there is none.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(format!("cannot list {}: {}", resource.plural, one_line(&error))),
    }
}

fn read<K>(objects: &[DynamicObject], not_seen: &mut Vec<String>) -> Vec<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let one = |object| decode(object).map_err(|why| not_seen.push(why)).ok();
    objects.iter().filter_map(one).collect()
}

/// Whether an empty `list` says that there is no ClusterUpgrade: `kubectl get` writes a `List` of no kind then.
fn may_be_of_upgrades(list: &List) -> bool {
    match list.kind.as_deref() {
        Some(kind) => kind == "ClusterUpgrade",
        None => list.api_version.is_some(),
    }
}

fn of_files(place: &WhereArgs) -> Result<StoredUpgrades, String> {
    let (mut upgrades, mut claims) = (Vec::new(), Vec::new());
    let mut none_is_said = false;
    let mut each = |file: &Arc<str>, piece: &Piece<'_>| {
        let Piece::Object { raw, .. } = piece else {
            none_is_said |= matches!(piece, Piece::EmptyList(list) if may_be_of_upgrades(list));
            return Use::None;
        };
        // Most of a dump is of other kinds.
        if !raw.get().contains(GROUP) {
            return Use::None;
        }
        let object = match serde_json::from_str::<DynamicObject>(raw.get()) {
            Ok(object) => object,
            Err(error) => return Use::Fault(format!("{file}: {error}")),
        };
        let types = object.types.clone().unwrap_or_default();
        let ours = types.api_version.split('/').next() == Some(GROUP);
        match types.kind.as_str() {
            "ClusterUpgrade" if ours => upgrades.push(object),
            "NodeUpgrade" if ours => claims.push(object),
            _ => return Use::None,
        }
        Use::Some
    };
    let Read { faults, mut unused, not_objects } =
        pieces(&place.files, &mut each).map_err(|error| error.to_string())?;
    unused.retain(|line| !not_objects.contains(line));
    // Where objects were asked for and something else came, some may exist.
    let mut not_seen = [faults, not_objects].concat();
    let upgrades = read(&upgrades, &mut not_seen);
    let names: Vec<_> = place.files.iter().map(|path| shown_path(path)).collect();
    let silent = || {
        let have = if names.len() == 1 { "has" } else { "have" };
        format!("{} {have} neither one nor an empty list of them", names.join(", "))
    };
    let is_silent = upgrades.is_empty() && !none_is_said;
    let lacks = not_seen.first().cloned().or_else(|| is_silent.then(silent));
    let mut about = vec![("Files", names.join(", "))];
    about.extend(unused.into_iter().map(|line| ("Unused", line)));
    Ok(StoredUpgrades { upgrades, claims: read(&claims, &mut not_seen), about, not_seen, lacks })
}
