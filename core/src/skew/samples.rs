//! How a line names a few of many, and counts the others.
//!
//! The invariant: a line does not grow with the cluster, and says how many it does not name.

use std::sync::Arc;

/// How many names a row or finding shows as examples.
pub const SAMPLES: usize = 5;

/// `a, b, c and 17 more`.
pub fn sample_names(count: usize, samples: &[Arc<str>]) -> String {
    let listed = samples.join(", ");
    match count.saturating_sub(samples.len()) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}
