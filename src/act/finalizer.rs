//! Finalizers: an upgrade or a claim that somebody deletes stays until what is in flight has settled.
//!
//! Here belongs only our own finalizer; those of others are left where they are.

use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use super::actions::Hands;
use super::outcome::{FIELD_MANAGER, Outcome, Stop, stop};
use crate::api::ClusterUpgrade;
use crate::api::upgrade::FINALIZER;

impl Hands {
    /// Puts our finalizer on the upgrade, or takes it off; fails when it has changed.
    pub(super) async fn protect(&self, upgrade: &ClusterUpgrade, protect: bool) -> Result<Outcome, Stop> {
        let name = upgrade.name_any();
        let others = upgrade.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER);
        let mut finalizers: Vec<&str> = others.map(String::as_str).collect();
        if protect {
            finalizers.push(FINALIZER);
        }
        let version = upgrade.resource_version().unwrap_or_default();
        let patch = Patch::Merge(patch(&upgrade.uid().unwrap_or_default(), &version, &finalizers));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        let upgrades = |client| -> Api<DynamicObject> {
            Api::all_with(client, &ApiResource::erase::<ClusterUpgrade>(&()))
        };
        let sent = self.send(async |client| upgrades(client).patch(&name, &params, &patch).await).await;
        let what = format!("finalizers of {} {name}", ClusterUpgrade::kind(&()));
        sent.map(|object| Outcome::Upgrade(Box::new(object))).map_err(|error| stop(&what, &error))
    }
}

/// The merge patch that makes `finalizers` the finalizers of the object of that UID and version.
pub(super) fn patch(uid: &str, resource_version: &str, finalizers: &[&str]) -> Value {
    json!({ "metadata": { "uid": uid, "resourceVersion": resource_version, "finalizers": finalizers } })
}
