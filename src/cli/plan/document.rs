//! JSON and YAML: an `UpgradePlan`, from which every other form is made.
//!
//! Here belong its fields alone. Its schema is kept in `docs/plan.schema.json`. The invariants: what a later release
//! adds or leaves out spoils no older document, because every field has a default; and no text in it could act on a
//! terminal.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::vocabulary::{About, ApprovalMode, Gravity, How, PickedBy, Verdict};

pub(super) const API_VERSION: &str = "cli.evenkeel.dev/v1alpha1";
pub(super) const KIND: &str = "UpgradePlan";

/// What an upgrade of a cluster, or of the cluster in some files, would do, in which order, and what is in its way.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(in super::super) struct UpgradePlan {
    /// `cli.evenkeel.dev/v1alpha1`.
    pub(super) api_version: String,
    /// `UpgradePlan`.
    pub(super) kind: String,
    /// What was looked at: the cluster, or the files.
    pub(super) subject: BTreeMap<String, String>,
    /// What an approval is bound to: versions, order, groups, executors; not the nodes that there are at the moment.
    /// Absent where no kube-apiserver's version is known, or not every UpgradeExecutor that the upgrade names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hash: Option<String>,
    /// Whether a person approved it; absent without a ClusterUpgrade that asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval: Option<Approval>,
    /// The oldest kube-apiserver's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    /// The version to reach.
    pub(super) to: String,
    /// What of the control plane moves in one step: `Component` or `Node`.
    #[schemars(extend("enum" = ["Component", "Node"]))]
    pub(super) unit: String,
    /// `Ready`; `Stops`: it can begin, and stops on its way until somebody changes something; `Blocked`: nothing may
    /// begin; `Refuted`: the check of the plan found an error in it, and it must not be carried out; `Done`: there is
    /// nothing to do.
    #[schemars(with = "String", extend("enum" = ["Ready", "Stops", "Blocked", "Refuted", "Done"]))]
    pub(super) verdict: Verdict,
    /// The verdict in one line.
    pub(super) summary: String,
    /// How much moves.
    pub(super) size: Size,
    /// What is done, in order.
    pub(super) hops: Vec<Hop>,
    /// The groups of nodes, in order of precedence.
    pub(super) groups: Vec<Group>,
    /// What stands in the way or should be known, the gravest first; of those that warn, the accepted ones first.
    pub(super) findings: Vec<Finding>,
    /// What the check of the plan found wrong with it; empty unless `verdict` is `Refuted`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) refuted: Vec<String>,
    /// How long it takes; absent where there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<Time>,
    /// What it waits for besides, in words: windows, freezes, soaks, gates, and limits of failures. `time` is without
    /// them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) waits: Vec<String>,
    /// What could not be read; the plan is made without it.
    pub(super) not_seen: Vec<String>,
    /// Components that this platform does not show, and why.
    pub(super) not_visible: Vec<String>,
    /// What changed since the document that `--diff` names; absent without `--diff`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) changes: Option<Vec<Change>>,
}

/// Whether a person approved the plan.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Approval {
    /// `PlanOnly`, `RequireApproval` or `Automatic`.
    #[schemars(with = "String")]
    pub(super) mode: ApprovalMode,
    /// The hash that is approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approved: Option<String>,
    /// Whether work may begin as far as the approval goes.
    pub(super) given: bool,
}

/// How much moves.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Size {
    /// kube-apiservers.
    pub(super) servers: usize,
    /// Nodes whose kubelet moves, each once.
    pub(super) nodes: usize,
    /// Waves of nodes, of all hops.
    pub(super) waves: usize,
}

/// The way of the whole cluster to one minor, or to another patch of its minor.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Hop {
    /// What the control plane runs when the hop is done.
    pub(super) version: String,
    /// Who picked that version: `Target`, `Person`, `Cluster` (kube-apiservers run it already), `Catalogue` (it is the
    /// newest release of its minor that is known) or `Anyone` (any release of its minor will do).
    #[schemars(with = "String", extend("enum" = ["Target", "Person", "Cluster", "Catalogue", "Anyone"]))]
    pub(super) picked_by: PickedBy,
    /// What others have to have moved before the first step.
    pub(super) needs: Vec<Need>,
    /// The steps of the control plane, one after the other.
    pub(super) steps: Vec<Step>,
    /// The kubelets that move after them.
    pub(super) kubelets: Kubelets,
}

impl Hop {
    /// `1.37` of `v1.37.1`: what a hop is known by.
    pub(super) fn minor(&self) -> String {
        let digits = self.version.trim_start_matches('v');
        digits.split('.').take(2).collect::<Vec<_>>().join(".")
    }
}

/// Something that somebody else moves, which has to be at a minor before a hop begins.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Need {
    /// kube-proxy, or kubelets that take no part.
    pub(super) component: String,
    /// The oldest minor that it may be: `1.34`.
    pub(super) least: String,
}

/// One step of the control plane: what is moved together, in this order.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Step {
    /// What moves together, by the components' names.
    pub(super) components: Vec<String>,
    /// Their Node, or the component's own name where no Node is visible.
    pub(super) place: String,
    /// What they run before the step, the oldest of them.
    pub(super) from: String,
}

/// Which kubelets move in a hop. Nodes that join later are meant too.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Kubelets {
    /// Only those before this minor move, because the next hop would leave them outside the version skew policy; absent
    /// where all move that are not at the hop's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<String>,
    /// The nodes as they are now, in waves.
    pub(super) waves: Vec<Wave>,
}

/// Nodes of one group that may be under way at the same time.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Wave {
    /// Its place in the order of the hop's waves, from 1; waves of the same place may be under way at the same time.
    pub(super) order: usize,
    /// The group's name.
    pub(super) group: String,
    /// They go first, before the others of their group.
    pub(super) canary: bool,
    /// Their zone, where zones go one after the other; empty for nodes without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) zone: Option<String>,
    /// How many nodes of the group may be unavailable at once.
    pub(super) at_once: usize,
    /// What their kubelets run before, the oldest first.
    pub(super) from: Vec<String>,
    /// The nodes, in the order in which they are taken up.
    pub(super) nodes: Vec<String>,
}

/// A group of nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Group {
    /// As `spec.nodeGroups` names it.
    pub(super) name: String,
    /// How many nodes it has now.
    pub(super) nodes: usize,
    /// How many of them may be unavailable at once, as it was written: `1`, `10%`.
    pub(super) max_unavailable: String,
    /// So many of its nodes go first.
    pub(super) canary: usize,
    /// Its zones go one after the other.
    pub(super) zones_one_at_a_time: bool,
    /// The groups whose nodes come first.
    pub(super) depends_on: Vec<String>,
    /// Who changes the versions of its nodes.
    pub(super) executor: String,
}

/// One thing to know.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Finding {
    /// The rule, and what it is about; by it a person accepts the finding.
    pub(super) id: String,
    /// `blocks`: nothing may begin; `stops`: it begins, and stops there or leaves nodes behind; `warns`.
    #[schemars(with = "String", extend("enum" = ["blocks", "stops", "warns"]))]
    pub(super) weight: Gravity,
    /// The minor of the hop that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hop: Option<String>,
    /// What is so.
    pub(super) what: String,
    /// What to do.
    pub(super) remedy: String,
    /// The first few of what it is about.
    pub(super) names: Vec<String>,
    /// How many there are.
    pub(super) count: usize,
    /// Whether a person may accept it.
    pub(super) acceptable: bool,
    /// That a person did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) accepted: Option<Accepted>,
}

/// A person took a finding upon them.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Accepted {
    /// Until when.
    pub(super) until: String,
    /// Why, in the person's words.
    pub(super) reason: String,
    /// What the finding would do otherwise: `blocks` or `stops`.
    #[schemars(with = "String")]
    pub(super) instead_of: Gravity,
}

/// How long the plan takes when nothing is in its way. Gates, parked nodes and what others have to move are not counted,
/// and windows, freezes and soaks in `untilDoneSeconds` alone.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Time {
    /// The shortest time that is possible, in seconds.
    pub(super) least_seconds: i64,
    /// The median of the expected time, in seconds.
    pub(super) p50_seconds: i64,
    /// The time that is enough in nine of ten cases, in seconds.
    pub(super) p90_seconds: i64,
    /// About how many seconds go by until it is done if it begins now, closed windows, freezes and soaks included. Absent where there are
    /// none in its way, and where no end is in sight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until_done_seconds: Option<i64>,
    /// How long each hop takes.
    pub(super) hops: Vec<HopTime>,
    /// What sets the least time, the longest first.
    pub(super) bounds: Vec<Bound>,
    /// Which durations it rests on, and where each comes from.
    pub(super) basis: Vec<String>,
}

/// How long one hop takes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HopTime {
    /// The minor that the hop leads to.
    pub(super) hop: String,
    /// The shortest time that is possible, in seconds.
    pub(super) least_seconds: i64,
    /// The median of the expected time, in seconds.
    pub(super) p50_seconds: i64,
    /// The time that is enough in nine of ten cases, in seconds.
    pub(super) p90_seconds: i64,
}

/// A time that a hop takes at least.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Bound {
    /// The minor of the hop.
    pub(super) hop: String,
    /// `UpgradingApiservers`, `UpgradingControllers` or `UpgradingNodes`. Stages follow each other, so their bounds add
    /// up; the bounds of one stage do not.
    pub(super) stage: String,
    /// What sets it: `budget shop/cart`.
    pub(super) subject: String,
    /// Why, in words.
    pub(super) what: String,
    /// The time.
    pub(super) least_seconds: i64,
}

/// One difference from an older document.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Change {
    /// What it is about: `hash`, `version`, `unit`, `verdict`, `hop`, `need`, `step`, `wave`, `group`, `finding`, `time`,
    /// `wait` or `sight` (what could be read).
    #[schemars(with = "String")]
    pub(super) about: About,
    /// `added`, `removed` or `changed`.
    #[schemars(with = "String", extend("enum" = ["added", "removed", "changed"]))]
    pub(super) how: How,
    /// It in words.
    pub(super) line: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_in_docs_is_that_of_the_code() {
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(UpgradePlan)).unwrap();
        expect_test::expect_file!["../../../docs/plan.schema.json"].assert_eq(&(schema + "\n"));
    }
}
