//! A second judge of a plan, which uses nothing of what made it.
//!
//! It walks every state of the cluster that the plan leads through: between two steps, in the middle of a step that
//! moves several components and fails there, after somebody took a kube-apiserver back, and with a node that joins late
//! at any version that is still allowed. In each of them it judges every pair by the skew policy. The invariant: a
//! write that makes a pair worse than it was refutes the plan; what was wrong before the plan is not held against it.

mod refutation;
mod state;
mod walk;
mod waves;

pub use refutation::Refutation;
pub use walk::{Checked, check};
pub use waves::check_waves;
