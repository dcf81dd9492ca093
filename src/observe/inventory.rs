//! Which sources a model was made without, and the state of each source.
//!
//! Here belong the names of sources and of their troubles; how a source is read does not. The invariant: a source
//! that cannot be relied on is named, with the reason and whether only a person can change that.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::cluster::Cluster;

use super::fold::SyncState;
use super::leaders::Leading;
use super::platform::{self, Platform};

/// A source of the model, as status, logs and metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Nodes, with the versions of their kubelets.
    Nodes,
    /// `EndpointSlices` of the Service `default/kubernetes`.
    Endpoints,
    /// The answers of the kube-apiservers to `/version`.
    Versions,
    /// Pods of kube-system, or of all namespaces.
    Pods,
    /// Leases of kube-system: who the kube-apiservers are, and which controllers lead.
    Leases,
    /// `PodDisruptionBudgets`.
    Budgets,
    /// `ValidatingWebhookConfigurations` and `MutatingWebhookConfigurations`.
    Webhooks,
    /// `PersistentVolumes`: which pods can run on one node only.
    Volumes,
    /// `VolumeAttachments`: which volumes a node holds.
    Attachments,
    /// `StatefulSets`: how many pods are still to be made.
    StatefulSets,
}

impl Source {
    /// Every source that is watched where the pods of `scope` are.
    pub fn of(scope: PodScope) -> impl Iterator<Item = Self> {
        let everywhere = [
            Self::Nodes,
            Self::Endpoints,
            Self::Versions,
            Self::Pods,
            Self::Leases,
            Self::Budgets,
            Self::Webhooks,
        ];
        let where_nodes_are_drained =
            (scope == PodScope::All).then_some([Self::Volumes, Self::Attachments, Self::StatefulSets]);
        everywhere.into_iter().chain(where_nodes_are_drained.into_iter().flatten())
    }

    /// Its name: `nodes`, `endpointslices`, `version`, `pods`, `leases`, `pdbs`, `webhooks`,
    /// `persistentvolumes`, `volumeattachments`, `statefulsets`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Endpoints => "endpointslices",
            Self::Versions => "version",
            Self::Pods => "pods",
            Self::Leases => "leases",
            Self::Budgets => "pdbs",
            Self::Webhooks => "webhooks",
            Self::Volumes => "persistentvolumes",
            Self::Attachments => "volumeattachments",
            Self::StatefulSets => "statefulsets",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A source that cannot be relied on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The source, as status, logs and metrics name it.
    pub source: Source,
    /// Why, in one line that says what to do about it.
    pub reason: Arc<str>,
    /// Whether waiting helps, or only a person.
    pub trouble: Trouble,
}

/// Why a source cannot be relied on, as far as it matters to whoever waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A first list or answer is on its way.
    Pending,
    /// It fails, or something of it cannot be read. It is tried again.
    Failing,
    /// We may not read it. Only a person changes that.
    Refused,
}

/// What a [`Cluster`] was made without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The sources that could not be relied on; the model has nothing of theirs.
    pub missing: Vec<Missing>,
    /// The platform of the cluster; `None` if it was not recognised.
    pub platform: Option<Platform>,
    /// Whether the pods of kube-system are known.
    pub pods_known: bool,
    /// Controllers that lead where they cannot be seen.
    pub leading: Vec<Leading>,
}

impl Inventory {
    /// What `cluster` shows nothing of, and why, one line each.
    pub fn hidden(&self, cluster: &Cluster) -> Vec<String> {
        platform::hidden(self.platform, cluster, &self.leading, self.pods_known)
    }

    /// Why the model has nothing of `source`, if it has not.
    pub fn reason(&self, source: Source) -> Option<&str> {
        self.missing.iter().find(|missing| missing.source == source).map(|missing| missing.reason.as_ref())
    }

    /// Why components may have gone unseen, so that nothing can be said of the cluster as a whole.
    pub fn unseen(&self) -> Option<&Missing> {
        let components = [Source::Nodes, Source::Endpoints, Source::Pods];
        self.missing.iter().find(|missing| components.contains(&missing.source))
    }

    /// Whether waiting changes nothing: the server refuses every source that is missing.
    pub fn is_settled(&self) -> bool {
        self.missing.iter().all(|missing| missing.trouble == Trouble::Refused)
    }
}

/// Why no model can be made: the sources that it needs and that cannot be relied on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not ready: {}", .0.iter().map(|missing| missing.reason.as_ref()).collect::<Vec<_>>().join("; "))]
pub struct NotReady(pub Vec<Missing>);

impl NotReady {
    /// Whether nothing is wrong yet: every source waits only for its first list or answer.
    pub fn is_pending(&self) -> bool {
        self.0.iter().all(|missing| missing.trouble == Trouble::Pending)
    }
}

/// The state of a source, for metrics and readiness.
#[derive(Clone, Debug)]
pub struct SourceStanding {
    /// The source, as status, logs and metrics name it.
    pub source: Source,
    /// How far what is held of it can be relied on.
    pub state: SyncState,
    /// How long ago the server last told anything.
    pub age: Option<Duration>,
}

/// How long ago each source was last told of as a whole: the watch of it that was silent the longest. A source of which a watch
/// cannot be relied on is left out.
pub fn ages(standing: &[SourceStanding]) -> BTreeMap<Source, Duration> {
    let mut ages: BTreeMap<Source, Option<Duration>> = BTreeMap::new();
    for SourceStanding { source, state, age } in standing {
        let age = age.filter(|_| *state == SyncState::Synced);
        let oldest = ages.entry(*source).or_insert(age);
        *oldest = oldest.zip(age).map(|(one, other)| one.max(other));
    }
    ages.into_iter().filter_map(|(source, age)| Some((source, age?))).collect()
}

/// Whose pods are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodScope {
    /// Those of kube-system: enough for a report.
    KubeSystem,
    /// Those of all namespaces: needed to drain nodes.
    All,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_of_two_watches_is_as_old_as_the_older_one() {
        let of = |source: Source, works: bool, seconds: Option<u64>| {
            let failing = || SyncState::Failing { why: "no connection".into(), code: None };
            let state = if works { SyncState::Synced } else { failing() };
            SourceStanding { source, state, age: seconds.map(Duration::from_secs) }
        };
        let hooks = |one: (bool, Option<u64>), other: (bool, Option<u64>)| {
            let standing = [
                of(Source::Webhooks, one.0, one.1),
                of(Source::Nodes, true, Some(1)),
                of(Source::Webhooks, other.0, other.1),
            ];
            let ages = ages(&standing);
            assert_eq!(ages.get(&Source::Nodes).map(Duration::as_secs), Some(1));
            ages.get(&Source::Webhooks).map(Duration::as_secs)
        };
        for (one, other, age) in [
            ((true, Some(3)), (true, Some(70)), Some(70)),
            ((true, Some(3)), (false, Some(70)), None),
            ((true, Some(3)), (true, None), None),
        ] {
            assert_eq!((hooks(one, other), hooks(other, one)), (age, age), "{one:?} {other:?}");
        }
    }
}
