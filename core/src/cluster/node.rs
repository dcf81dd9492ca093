//! A Node, its kubelet, and what we and others write on it.
//!
//! Here belong plain values, pruned to what some decision reads; nothing here judges them. The invariant: a Node's
//! annotation counts as ours only where it is about the cordon that the Node has now.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::evidence::Evidence;
use crate::version::Observed;

/// Annotation that marks a Node which Evenkeel cordoned: `<NodeUpgrade name>/<NodeUpgrade UID>` for an upgrade,
/// `drain:<since>/<by>` for a person's drain ([`CordonMark`](crate::disruption::CordonMark)).
///
/// One read of the Node tells whose cordon it is. A kubelet may write the annotation too, so the most it ever permits
/// is an uncordon.
pub const CORDON_ANNOTATION: &str = "evenkeel.dev/cordoned-by";

/// Annotation by which a person delays one Node: it is reported as held, and never as done.
pub const HOLD_ANNOTATION: &str = "evenkeel.dev/hold";

/// Key of the taint, with effect `PreferNoSchedule`, of a node whose kubelet is to be upgraded yet: pods that leave other
/// nodes go elsewhere where they can, and move only once. Its value is the UID of the `ClusterUpgrade`.
pub const OUTDATED_TAINT: &str = "evenkeel.dev/outdated";

/// A Node and its kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the Node, read on its own")]
pub struct Node {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`. A Node re-created under the same name is another node.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`: the precondition of any write to it.
    pub resource_version: Arc<str>,
    /// The pool shown for it, from well-known pool labels.
    pub pool: Arc<str>,
    /// `metadata.labels`, for node groups' selectors.
    pub labels: Arc<BTreeMap<String, String>>,
    /// `status.nodeInfo.kubeletVersion`: the node's own claim.
    pub kubelet: Observed,
    /// Where that was read: [`Evidence::Kubelet`], or a person's word.
    pub evidence: Evidence,
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// When the kubelet last posted that condition.
    pub heartbeat: Option<Timestamp>,
    /// Since when that condition has been another one, while it is.
    pub not_ready_since: Option<Timestamp>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// The value of [`CORDON_ANNOTATION`], if it is about the cordon that the Node has now
    /// ([`CordonMark::is_current`](crate::disruption::CordonMark::is_current)).
    pub cordoned_by: Option<Arc<str>>,
    /// [`HOLD_ANNOTATION`] is present.
    pub held: bool,
    /// Labelled as a control-plane node.
    pub control_plane: bool,
    /// Labelled as a node that a member of etcd runs on, with or without the rest of a control plane.
    pub etcd: bool,
    /// `spec.taints` as JSON; empty where there are none. A write of one taint has to repeat the others.
    pub taints: Arc<str>,
    /// The value of its [`OUTDATED_TAINT`].
    pub outdated_for: Option<Arc<str>>,
}
