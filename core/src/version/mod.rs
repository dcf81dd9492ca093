//! What a Kubernetes version string means.
//!
//! Here belong parsing and the comparisons: by minor for the skew policy, by release inside a minor, and by build
//! inside one distribution's line. What a version *allows* is decided in [`crate::skew`]. The invariant: a
//! string that cannot be read with certainty is [`Observed::Unknown`], never a guess and never minor 0. Skew is never
//! judged by semantic-version order, which sorts `v1.33.4-eks-99d6cc0` below `v1.33.4` although it is that release.

mod effective;
pub mod grammar;
mod kube;
mod minor;
mod observed;
mod order;
mod person;
mod text;

pub use effective::{Effective, Floors};
pub use kube::KubeVersion;
pub use minor::Minor;
pub use observed::{Observed, Unknown};
pub use person::{area_and_label, image_tag};
pub use text::{MAX_VERSION_BYTES, ParseError, escape};

#[cfg(test)]
mod tests;
