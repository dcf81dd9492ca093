//! Sums of moments and lengths of time.
//!
//! Here belongs arithmetic alone; what is waited for, and how long, is decided elsewhere. The invariant: no sum fails, so that
//! no length that a person or an object names can stop a decision.

use jiff::{SignedDuration, Timestamp};

/// `at` plus `wait`, or the last moment that can be written where the sum lies beyond it.
pub(crate) fn after(at: Timestamp, wait: SignedDuration) -> Timestamp {
    at.saturating_add(wait).unwrap_or(Timestamp::MAX)
}
