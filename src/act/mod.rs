//! Writes: each `Action` of the core becomes a request with its precondition, and the answer becomes an [`Outcome`].
//!
//! Nothing here decides. A write whose precondition failed is [`Outcome::Lost`] and is never repeated from here: the
//! caller reads the cluster again and decides again. The invariant: every function that sends a write does so through
//! an [`Authority`], which alone reaches the client for writes and is checked right before each request. Only the
//! election ([`elect`]) writes without one, because it is what gives the authority of a leader.

mod actions;
mod authority;
mod claim;
pub mod elect;
pub mod event;
pub mod evict;
mod evictions;
mod finalizer;
mod gate;
mod job;
pub mod node;
mod outcome;
mod reread;
pub mod status;

pub use actions::{Hands, Known};
pub use authority::{Authority, Effects, EvictionPlace, NotDone};
pub use event::Events;
pub use evictions::{EvictionQueue, Evictions, Leaves};
pub use job::ATTEMPT_LABEL;
pub(crate) use outcome::refusal;
pub use outcome::{FIELD_MANAGER, JobNow, Outcome, ReadNow};
