//! Which pods a drain moves, and what a `PodDisruptionBudget` allows.
//!
//! [`class()`] says what a drain does with a pod, [`Budgets::take`] says whether it may leave now and hands out the
//! [`Permit`] that its eviction consumes, [`answer`] reads what the eviction handler said and [`Sent`] remembers it;
//! [`arithmetic`] is the disruption controller's. Emptying a node is [`crate::drain`]. Nothing here sends anything. The
//! invariant: a permit exists only when the budget's own status, as last seen and not stale, allows the eviction. The
//! handler decides in the end; a permit only keeps us from asking what it must refuse.

pub mod answer;
pub mod arithmetic;
mod asked_pod;
mod budget_name;
mod class;
mod mark;
mod memory;
mod permit;
mod pod_rule;
pub mod preflight;
mod refusal;
mod refused_requests;

pub use asked_pod::AskedPod;
pub use budget_name::BudgetName;
pub(crate) use budget_name::budget_name;
pub use class::{Class, Handling, Rules, class, handling, may_stay, orphan, pinned, warnings};
pub use mark::{CORDON_MANAGER, CordonMark};
pub use memory::{Memory, Origin, PodMemory, Sent};
pub use permit::{Budgets, Busy, Charge, Permit, Taken, WhenCounted};
pub use pod_rule::{Behavior, PodRule};
pub use refusal::{Refusal, StatusLacks};
pub use refused_requests::Refused;
