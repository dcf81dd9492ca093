//! The model of a cluster that everything is decided from.
//!
//! The model is made of plain values in a fixed order, pruned to what some decision reads. Where they come from
//! (watches, a file, the virtual cluster) is not known here, and nothing here judges them. The invariant, kept by
//! [`Parts::seal`] and by every change of a [`Cluster`]: two models of the same cluster are equal whatever order the
//! objects arrived in, so a decision never depends on that order.

mod budget;
mod capacity;
mod component;
mod evidence;
mod guards;
mod incarnation;
mod instance;
mod leader;
mod name;
mod node;
mod placement;
mod pod;
mod reference;
mod sealed;
mod select;
mod selector;
mod surroundings;
mod webhook;

pub use budget::{Budget, Demand, Disrupted, Quantity, UnhealthyPolicy};
pub use capacity::{Amounts, Capacity, Lack, VolumeZones};
pub use component::Component;
pub use evidence::Evidence;
pub use incarnation::{RunMark, incarnation};
pub use instance::{Instance, Reach};
pub use leader::{Leader, Renewals};
pub use name::{NamespacedName, Owner};
pub use node::{CORDON_ANNOTATION, HOLD_ANNOTATION, Node, OUTDATED_TAINT};
pub use placement::{AntiAffinityTerm, Namespaces, NodeSelectorTerm, Placement};
pub use pod::{HostPort, Phase, Pod, Traits};
pub use reference::NodeRef;
pub use sealed::{Cluster, Parts};
pub use selector::{Expression, Selector};
pub use surroundings::{
    Attachment, Autoscaler, FullQuota, PodWebhook, Scale, Surroundings, Workload, Workloads,
};
pub use webhook::Webhook;
