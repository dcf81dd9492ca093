//! What a Node says of its drain, in conditions (KEP-5683).
//!
//! Here belongs which conditions a change of a node's state writes. The invariant: `DrainInProgress` is true only while
//! the pods of a node leave, whoever cordoned it.

use super::request::NodeState;

/// The conditions to write, each as its type and whether it is true.
pub type DrainConditions = &'static [(&'static str, bool)];

impl NodeState {
    /// What is to be written into the conditions of a node that is in this state, and was in another one `before`.
    pub fn conditions(&self, before: Option<&Self>) -> Option<DrainConditions> {
        match self {
            Self::Draining(_) if matches!(before, Some(Self::Draining(_))) => None,
            Self::Draining(_) => Some(&[("DrainInProgress", true), ("Drained", false)]),
            Self::Drained { .. } => Some(&[("DrainInProgress", false), ("Drained", true)]),
            Self::Failed { .. } => Some(&[("DrainInProgress", false)]),
            Self::Waiting | Self::Cordoned(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::{InLine, NodeDrain, NotDrained};
    use crate::fixture::at;

    #[test]
    fn a_node_is_said_to_drain_from_when_its_pods_are_asked_until_it_is_drained_or_given_up() {
        let (cordoned, draining) =
            (NodeState::Cordoned(InLine::new(at(0))), NodeState::Draining(NodeDrain::new(at(0), at(1))));
        let begins: DrainConditions = &[("DrainInProgress", true), ("Drained", false)];
        assert_eq!(cordoned.conditions(Some(&NodeState::Waiting)), None, "it waits for its turn");
        assert_eq!(draining.conditions(Some(&cordoned)), Some(begins));
        assert_eq!(draining.conditions(None), Some(begins), "whoever cordoned it");
        let later = NodeState::Draining(NodeDrain { stalled: Some(at(9)), ..NodeDrain::new(at(0), at(1)) });
        assert_eq!(later.conditions(Some(&draining)), None, "once");
        let why = NotDrained::Because("interrupted".to_owned());
        let ended = NodeState::Failed { why }.conditions(Some(&draining));
        assert_eq!(ended, Some(&[("DrainInProgress", false)][..]), "nobody drains it any more");
    }
}
