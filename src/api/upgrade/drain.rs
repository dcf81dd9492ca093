//! `spec.drain` of a `ClusterUpgrade`: its schema, and the core's value of it.
//!
//! The comments on these fields are what `kubectl explain` prints. What the options do is decided in the core.

use evenkeel_core::cluster::Selector;
use evenkeel_core::disruption;
use evenkeel_core::drain::{self, DrainOptions};
use k8s_openapi::jiff::SignedDuration;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::selector::{InvalidExpression, LabelSelector, selector};
use crate::api::checks;

/// How nodes are drained.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// How long the drain of one node may take, in seconds. Default 1800.
    #[serde(default = "half_an_hour")]
    #[schemars(schema_with = "checks::drain_seconds")]
    pub timeout_seconds: i32,
    /// What happens to a node that is not drained in time, or that cannot be drained at all. With `Park` and `Halt` it is made
    /// schedulable again, and the status names it with what blocks it. `Park` (the default): the other nodes go on, and this
    /// node is tried again later. `Halt`: nothing more is begun and no more pod is asked to leave; other nodes that are
    /// draining are made schedulable again; the upgrade goes on when what blocks the node has left it, somebody holds
    /// the node, raises `timeoutSeconds` or sets another value here, or deletes the NodeUpgrade. `Force`: the pods that
    /// are left are deleted, past their PodDisruptionBudgets, with at least one second of grace; the upgrade goes on by
    /// itself. `Force` needs the right to delete pods, which only `kubectl apply -k config/force` gives; without it the
    /// node is parked. It never deletes pods that `emptyDir` or `barePods` refuses.
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// Before which upgrades of its kubelet a node is drained. `Always` (the default): before each. `MinorOnly`: only
    /// before an upgrade to another minor; where only the patch changes, the node is cordoned while its kubelet
    /// restarts, and its pods stay.
    #[serde(default)]
    pub mode: DrainMode,
    /// What is done with pods that have an `emptyDir`, whose data an eviction destroys. `Evict` (the default): they
    /// leave like others. `Refuse`: a node with such a pod is not begun, and the status names the pod.
    #[serde(default = "evict")]
    pub empty_dir: MayLeave,
    /// What is done with pods that have no controller, which nothing would make again. `Refuse` (the default): a node
    /// with such a pod is not begun, and the status names the pod. `Evict`: they leave like others, and are lost.
    #[serde(default = "refuse")]
    pub bare_pods: MayLeave,
    /// Whether a node counts as drained while volumes of pods that left are still attached to it. `Ignore` (the default): it
    /// does, because a restart of the kubelet keeps no volume from a pod's next node. `Detach`: the node's executor begins
    /// when these volumes are detached, as is right where it reboots or replaces the machine. Volumes of pods that stay do
    /// not count. A volume that is not detached in time is treated like a pod that does not leave: see `onTimeout`.
    #[serde(default)]
    pub volumes: Volumes,
    /// What is done with some pods; the first rule that selects a pod decides, and a pod that no rule selects leaves.
    /// Pods of `DaemonSets` and static pods stay in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "atomic"))]
    pub pod_rules: Vec<PodRule>,
}

fn half_an_hour() -> i32 {
    1800
}

fn evict() -> MayLeave {
    MayLeave::Evict
}

fn refuse() -> MayLeave {
    MayLeave::Refuse
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            timeout_seconds: half_an_hour(),
            on_timeout: OnTimeout::default(),
            mode: DrainMode::default(),
            empty_dir: evict(),
            bare_pods: refuse(),
            volumes: Volumes::default(),
            pod_rules: Vec::new(),
        }
    }
}

/// Whether pods of a kind leave a node.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayLeave {
    /// They leave like others.
    Evict,
    /// A node with such a pod is not begun.
    Refuse,
}

/// Whether attached volumes are waited for.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Volumes {
    /// They are not.
    #[default]
    Ignore,
    /// Until those of pods that left are detached.
    Detach,
}

/// What is done with some pods. A pod falls under the rule when the selector matches its labels and its namespace is one
/// of `namespaces`.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.namespaces) && self.namespaces.size() > 0 || has(self.selector.matchLabels) && self.selector.matchLabels.size() > 0 || has(self.selector.matchExpressions) && self.selector.matchExpressions.size() > 0").message("a rule must say which pods it is for: set `selector` or `namespaces`; without both it would be for every pod"))]
pub struct PodRule {
    /// The labels of the pods that the rule selects; `{}`, the default, selects all pods of `namespaces`.
    #[serde(default)]
    pub selector: LabelSelector,
    /// The names of the pods' namespaces. If none is named, the rule is for all namespaces: then whoever can set the labels of
    /// a pod decides whether it falls under this rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub namespaces: Vec<String>,
    /// What is done with the pods that the rule selects. `Drain`: they leave, as if no rule selected them; so a rule can take
    /// pods out of a wider rule after it. `Skip`: they stay on the node, and run on while its kubelet is upgraded.
    /// `WaitCompleted`: they are not evicted, and the node is drained when they have finished; new ones do not come, because
    /// the node is cordoned. `onTimeout` holds for them too: with `Force` they are deleted when the time of the drain is over.
    pub behavior: PodBehavior,
}

/// What is done with pods.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodBehavior {
    /// They leave.
    Drain,
    /// They stay.
    Skip,
    /// They are waited for until they have finished.
    WaitCompleted,
}

/// What happens when a drain does not end in time.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTimeout {
    /// The other nodes go on, and this node is tried again later.
    #[default]
    Park,
    /// Nothing more is begun until somebody changes something.
    Halt,
    /// The pods that are left are deleted.
    Force,
}

/// Before which upgrades of its kubelet a node is drained.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainMode {
    /// Before each.
    #[default]
    Always,
    /// Only before an upgrade to another minor.
    MinorOnly,
}

/// What is wrong with a pod rule, which its index names.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPodRule {
    /// It would be for every pod.
    #[error("drain.podRules[{0}]: say which pods it is for, by selector or namespaces")]
    ForEveryPod(usize),
    /// Its selector cannot be.
    #[error("drain.podRules[{0}]: {1}")]
    Selector(usize, InvalidExpression),
}

/// The core's value of `spec`.
///
/// # Errors
/// [`InvalidPodRule`], which the server lets nobody write.
pub(super) fn options(spec: &Drain) -> Result<DrainOptions, InvalidPodRule> {
    let rule = |(at, rule): (usize, &PodRule)| {
        let selector = selector(&rule.selector).map_err(|wrong| InvalidPodRule::Selector(at, wrong))?;
        if selector == Selector::default() && rule.namespaces.is_empty() {
            return Err(InvalidPodRule::ForEveryPod(at));
        }
        Ok(disruption::PodRule {
            selector,
            namespaces: rule.namespaces.iter().map(|name| name.as_str().into()).collect(),
            behavior: match rule.behavior {
                PodBehavior::Drain => disruption::Behavior::Drain,
                PodBehavior::Skip => disruption::Behavior::Skip,
                PodBehavior::WaitCompleted => disruption::Behavior::WaitCompleted,
            },
        })
    };
    Ok(DrainOptions {
        timeout: SignedDuration::from_secs(i64::from(spec.timeout_seconds)),
        on_timeout: match spec.on_timeout {
            OnTimeout::Park => drain::OnTimeout::Park,
            OnTimeout::Halt => drain::OnTimeout::Halt,
            OnTimeout::Force => drain::OnTimeout::Force,
        },
        mode: match spec.mode {
            DrainMode::Always => drain::DrainMode::Always,
            DrainMode::MinorOnly => drain::DrainMode::MinorOnly,
        },
        refuse_empty_dir: spec.empty_dir == MayLeave::Refuse,
        evict_bare: spec.bare_pods == MayLeave::Evict,
        await_volumes: spec.volumes == Volumes::Detach,
        pods: spec.pod_rules.iter().enumerate().map(rule).collect::<Result<_, _>>()?,
    })
}
