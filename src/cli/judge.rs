//! One look at what is to be judged, a cluster or files, and its judgement.
//!
//! A cluster is seen through the same observer that the operator uses. Nothing here is a rule.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::cluster::Cluster;
use evenkeel_core::disruption::preflight::closed;
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_core::skew::policy::Policy;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use kube::Config;
use tokio_util::sync::CancellationToken;

use super::args::ObserveArgs;
use super::connect;
use super::output::Report;
use super::releases;
use crate::clients::{Connect, effects_client, one_line, probe_client, read_client, within};
use crate::judgement::{Basis, judge};
use crate::observe::cache::Shared;
use crate::observe::files::{ObjectFiles, Snapshot, shown_path};
use crate::observe::stated_versions::StatedVersion;
use crate::observe::version_answer::VersionAnswer;
use crate::observe::{Inventory, Observer, PodScope, Source, stated_versions};

/// How long the first answer of the cluster may take, and then all sources together.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long after its start the look waits for sources that it can do without.
const LATECOMERS: Duration = Duration::from_secs(2);

/// Looks at the cluster or the files that `args` name, and judges what was seen; `command` goes into the user agent.
pub(super) async fn report_of(args: &ObserveArgs, command: &str) -> Result<Report, String> {
    let releases = releases::read(args.releases.as_deref())?;
    if !args.files.is_empty() {
        return files(&args.files, &args.given(), &releases);
    }
    let config = connect::config(&args.cluster, command).await?;
    let (cluster, inventory) = observe(&config).await?;
    if let Some(nothing) = nothing(&cluster, &inventory) {
        return Err(nothing);
    }
    let cluster = stated_versions::add(cluster, &args.given())?;
    let subject = vec![("Cluster", config.cluster_url.to_string())];
    Ok(judged(subject, &cluster, &inventory, &releases, Timestamp::now()))
}

/// Judges what was seen of a cluster.
pub(super) fn judged(
    subject: Vec<(&'static str, String)>,
    cluster: &Cluster,
    inventory: &Inventory,
    releases: &Catalogue,
    now: Timestamp,
) -> Report {
    // Unread EndpointSlices are no gap: the answer of the cluster's own address then stands for the kube-apiservers.
    let unseen = inventory.reason(Source::Nodes).or(inventory.reason(Source::Pods));
    let basis = Basis {
        policy: &Policy::default(),
        platform: inventory.platform,
        releases,
        today: Some(now.to_zoned(TimeZone::UTC).date()),
        unseen,
        webhooks: inventory.reason(Source::Webhooks),
    };
    Report {
        subject,
        places: ObjectFiles::default(),
        missing: inventory.missing.iter().map(|missing| missing.reason.to_string()).collect(),
        without_servers: [Source::Versions, Source::Endpoints]
            .into_iter()
            .find_map(|source| inventory.reason(source).map(str::to_owned)),
        nodes: cluster.nodes().len(),
        seen: Some(now),
        platform: inventory.platform,
        hidden: inventory.hidden(cluster),
        budgets: inventory.reason(Source::Budgets).is_none().then(|| closed(cluster, now)),
        judged: judge(cluster, &basis),
    }
}

/// Why there is nothing to judge: Nodes are not seen, and at most one component is. `None` if there is something.
pub(super) fn nothing(cluster: &Cluster, inventory: &Inventory) -> Option<String> {
    let front_door_alone = cluster.nodes().is_empty() && cluster.instances().len() <= 1;
    let refused = || inventory.missing.iter().map(|missing| missing.reason.as_ref());
    (front_door_alone && inventory.reason(Source::Nodes).is_some())
        .then(|| refused().collect::<Vec<_>>().join("; "))
}

/// Looks into files, and judges what is in them.
pub(super) fn files(
    files: &[PathBuf],
    given: &[StatedVersion],
    releases: &Catalogue,
) -> Result<Report, String> {
    let snapshot = Snapshot::read(files).map_err(|error| error.to_string())?;
    let cluster = stated_versions::add(snapshot.cluster(), given)?;
    let names: Vec<_> = files.iter().map(|path| shown_path(path)).collect();
    let mut subject = vec![("Files", names.join(", ")), ("Read", read(&snapshot))];
    subject.extend(snapshot.unused().into_iter().map(|line| ("Unused", line)));
    let (told, today) = as_of(&snapshot, releases);
    subject.push(("As of", told));
    let platform = snapshot.platform();
    let missing = snapshot.missing(&cluster);
    // A source that is not in the files may hold something that blocks the next minor.
    let webhooks = missing.first().map(String::as_str).or(snapshot.without_webhooks());
    let basis = Basis { policy: &Policy::default(), platform, releases, today, unseen: None, webhooks };
    let judged = judge(&cluster, &basis);
    Ok(Report {
        subject,
        places: snapshot.places().clone(),
        missing,
        without_servers: snapshot.without_servers(&cluster),
        platform,
        hidden: snapshot.hidden(&cluster),
        // Files without budgets may come from a cluster that has some.
        budgets: (snapshot.counts().budgets > 0)
            .then(|| closed(&cluster, snapshot.taken().unwrap_or(Timestamp::MAX))),
        nodes: cluster.nodes().len(),
        seen: snapshot.taken(),
        judged,
    })
}

/// When the files were written, in words, and the day by which the maintenance of minors is judged. Where the files do
/// not say, that is the day of the release data: a maintenance that had ended by then has ended now.
fn as_of(snapshot: &Snapshot, releases: &Catalogue) -> (String, Option<Date>) {
    match (snapshot.taken(), releases.as_of()) {
        (Some(taken), _) => {
            let today = taken.to_zoned(TimeZone::UTC).date();
            (format!("{taken} (newest heartbeat of a node)"), Some(today))
        }
        (None, Some(known)) => (
            format!(
                "not known, for no node has a heartbeat; what has ended is told for {known}, the day of the release data"
            ),
            Some(known),
        ),
        (None, None) => {
            ("not known, for no node has a heartbeat; so what has ended is not told".to_owned(), None)
        }
    }
}

/// `4 nodes, 12 pods of kube-system, 1 version in 3 files; passed over: 31 other objects`.
fn read(snapshot: &Snapshot) -> String {
    let many = |count: usize, one: &str, more: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {more}"),
    };
    let counts = snapshot.counts();
    let some = |all: &[(usize, &str, &str)]| -> Vec<String> {
        let some = all.iter().filter(|(count, ..)| *count > 0);
        some.map(|(count, one, more)| many(*count, one, more)).collect()
    };
    let used = some(&[
        (counts.nodes, "node", "nodes"),
        (counts.pods, "pod of kube-system", "pods of kube-system"),
        (counts.versions, "version", "versions"),
        (counts.webhooks, "webhook configuration", "webhook configurations"),
        (counts.budgets, "PodDisruptionBudget", "PodDisruptionBudgets"),
        (counts.operators, "ClusterOperator", "ClusterOperators"),
    ]);
    let mut line = format!("{} in {}", used.join(", "), many(counts.files, "file", "files"));
    let passed = some(&[
        (counts.other_objects, "other object", "other objects"),
        (counts.other_files, "other file", "other files"),
    ]);
    if !passed.is_empty() {
        line.push_str("; passed over: ");
        line.push_str(&passed.join(", "));
    }
    line
}

/// Takes one look at the cluster, through the same observer that the operator uses.
pub(super) async fn observe(config: &Config) -> Result<(Cluster, Inventory), String> {
    let read = read_client(config).map_err(|error| one_line(&error))?;
    let asking = effects_client(config).map_err(|error| one_line(&error))?;
    // One request first, so that a problem of the connection is told once, and not by every watch.
    let version = within(PATIENCE, asking.apiserver_version()).await;
    let answer: VersionAnswer = version
        .map(VersionAnswer::from)
        .map_err(|error| format!("cannot reach {}: {}", config.cluster_url, one_line(&error)))?;
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let shared = Shared::until(stop.clone());
    let mut changed = shared.changes.subscribe();
    let connect: Connect = {
        let config = config.clone();
        Arc::new(move |address: &str| probe_client(&config, address))
    };
    let observer = Observer::start(&read, connect, PodScope::KubeSystem, &shared);
    let begun = tokio::time::Instant::now();
    loop {
        let seen = observer.cluster(Timestamp::now());
        let late = begun.elapsed() > PATIENCE;
        match seen {
            Ok((cluster, inventory)) if inventory.is_settled() || late || begun.elapsed() > LATECOMERS => {
                let cluster = Arc::unwrap_or_clone(cluster);
                return Ok((by_the_front_door(cluster, config, &answer), inventory));
            }
            Err(not_ready) if late => return Err(not_ready.to_string()),
            _ => {}
        }
        let _ = tokio::time::timeout(Duration::from_millis(200), changed.changed()).await;
    }
}

/// `cluster`, with `answer` as its only kube-apiserver if no kube-apiserver told its version itself: from outside, their
/// own addresses are often not reachable. The instance has the host name of the configured address, the front door.
fn by_the_front_door(mut cluster: Cluster, config: &Config, answer: &VersionAnswer) -> Cluster {
    if !stated_versions::is_server_known(&cluster) {
        let name = config.cluster_url.host().unwrap_or("apiserver");
        stated_versions::front_door(&mut cluster, name, answer);
    }
    cluster
}
