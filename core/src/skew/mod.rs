//! The Kubernetes version skew policy, and the judgement of a cluster by it.
//!
//! [`policy`] holds the rules as data and the one function that applies them to a pair; [`assess()`] applies that
//! function to a whole [`Cluster`](crate::cluster::Cluster), groups what it sees, and says what is wrong
//! (`findings.rs`) and what is in the way of the next minor (`next.rs`). [`lifecycle`] knows when maintenance ends.
//! Nothing here says how to print or store a judgement. The invariant: adding a component never removes a violation,
//! unless it tells which kube-apiserver another talks to, and an unknown version never adds one; it only makes the
//! verdict [`Verdict::Unknown`] where no violation is certain.

mod assess;
mod census;
mod findings;
pub mod lifecycle;
mod next;
mod one_service;
pub mod policy;
mod row;
mod samples;
mod servers;
mod target;
mod verdict;

pub use assess::{Assessment, assess, assess_counted};
pub use census::Census;
pub use findings::{Severity, SkewFinding};
pub use next::{NextMinor, webhooks_in_the_way};
pub(crate) use one_service::{OneService, comes_with_kubelet};
pub use row::Row;
pub use samples::{SAMPLES, sample_names};
pub(crate) use servers::effective;
pub use servers::kubelets_ceiling;
pub use target::blockers_of_minor;
pub use verdict::{Standing, Verdict};

#[cfg(test)]
mod tests;
