//! What is said where an object that somebody named is not there.
//!
//! The invariant: the line says what to do next.

use std::sync::Arc;

use evenkeel_core::skew::sample_names;
use evenkeel_core::version::escape;

/// How many of the others are named.
const OTHERS: usize = 5;

/// There is no `what`; `list` is the command that says which others there are.
pub(super) fn absent(what: &str, list: &str) -> String {
    format!("there is no {what}; {list} says which there are")
}

/// `what` is there, but cannot be read; `look` is the command that shows it.
pub(super) fn unreadable(what: &str, why: &str, look: &str) -> String {
    format!("{what} cannot be read: {why}; {look} shows it as the cluster has it")
}

/// There is no node called `name`.
pub(super) fn absent_node(name: &str) -> String {
    absent(&format!("node {}", escape(name)), "kubectl get nodes")
}

/// There is no `what`, and these are all the `others`; `without_others` is what to do where there is none.
pub(super) fn absent_beside(what: &str, mut others: Vec<Arc<str>>, without_others: &str) -> String {
    others.sort_unstable();
    let count = others.len();
    others.truncate(OTHERS);
    match count {
        0 => format!("there is no {what}, and no other one; {without_others}"),
        1 => format!("there is no {what}; there is {}", others.join("")),
        _ => format!("there is no {what}; there are {}", sample_names(count, &others)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_what_is_not_there_is_told_what_is() {
        let told = |count: usize| {
            let others = (0..count).rev().map(|n| format!("up-{n}").into()).collect();
            absent_beside("ClusterUpgrade x", others, "make one")
        };
        assert_eq!(told(0), "there is no ClusterUpgrade x, and no other one; make one");
        assert_eq!(told(1), "there is no ClusterUpgrade x; there is up-0");
        assert_eq!(told(2), "there is no ClusterUpgrade x; there are up-0, up-1");
        assert_eq!(
            told(9),
            "there is no ClusterUpgrade x; there are up-0, up-1, up-2, up-3, up-4 and 4 more"
        );
    }
}
