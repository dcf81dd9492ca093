//! The kinds that are watched: as the API sends them, and what is kept of each.
//!
//! Here belong field names and nothing that judges them. Every field is optional on the wire, so that an object of
//! an older or newer server is read rather than refused; an absent field becomes the value that permits least. The
//! invariant: annotations that `wire` does not name are never parsed; of managedFields only the managers that own a
//! Node's `spec.unschedulable` are kept.

mod lease;
mod node;
mod pod;
mod pod_spec;
mod pod_traits;
mod small_kinds;
mod stateful_set;
mod volume;
mod webhook;
mod wire;

pub use lease::{CandidateSeen, Lease, LeaseCandidate, LeaseSeen};
pub use node::{Node, NodeSeen};
pub use pod::{Pod, PodSeen, Runs};
pub(super) use pod_spec::Container;
pub use pod_traits::EXECUTOR_LABEL;
pub use small_kinds::{EndpointSlice, EndpointsSeen, Job, JobSeen, PodDisruptionBudget, VolumeAttachment};
pub use stateful_set::StatefulSet;
pub use volume::{PersistentVolume, VolumeSeen};
pub use webhook::{MutatingWebhooks, ValidatingWebhooks, WebhooksSeen};
pub(super) use wire::meta;

#[cfg(test)]
mod tests;
