//! Which of the nodes that are out of the rollout are named where not all of them can be.
//!
//! Here belongs that choice alone; how many are named is the caller's to say. The invariant: no node that failed is left out
//! for another one, and no parked node for a held one.

use evenkeel_core::rollout::OutOf;

/// The ways of being out of the rollout, the one that most needs a person first.
const GRAVEST_FIRST: [OutOf; 3] = [OutOf::Failed, OutOf::Parked, OutOf::Held];

/// At most `most` of `all`, in the order of `all`: first those that failed are kept, then parked ones, then held ones, and
/// last those in a state that this release does not know. `state` is the word for the state of one.
pub fn named<T>(all: &[T], most: usize, state: impl Fn(&T) -> &str) -> Vec<&T> {
    let gravity = |out: &T| GRAVEST_FIRST.iter().position(|known| known.name() == state(out));
    let mut kept: Vec<(usize, &T)> = all.iter().enumerate().collect();
    // The sort is stable: of nodes in one state the first are kept.
    kept.sort_by_key(|(_, out)| gravity(out).unwrap_or(GRAVEST_FIRST.len()));
    kept.truncate(most);
    kept.sort_by_key(|(place, _)| *place);
    kept.into_iter().map(|(_, out)| out).collect()
}
