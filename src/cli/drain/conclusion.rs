//! The end of a drain: what a person is told, and the exit code.
//!
//! It changes nothing in the cluster. The invariant: every node that a drain leaves cordoned and not drained is named, and
//! so is every node of which nobody knows whether it is cordoned, because somebody quit before that was answered.

use evenkeel_core::drain::NodeState;

use super::super::exit::{EXIT_FINDINGS, EXIT_INTERRUPTED, EXIT_OK};
use super::display::{DrainTold, OfNode};
use super::draining::Draining;
use super::narrate::ours;

impl Draining {
    /// Says how it ended, and what is left behind.
    pub(super) fn finish(mut self) -> Result<u8, String> {
        let cluster = self.watches.cluster();
        let mut told =
            DrainTold { evictions: self.kept.evictions, refused: self.kept.refused, nodes: Vec::new() };
        let (mut cordoned, mut unanswered) = (Vec::new(), Vec::new());
        for name in &self.request.nodes {
            let state = self.kept.states.get(name).cloned().unwrap_or_default();
            let drained = matches!(state, NodeState::Drained { .. });
            let node = cluster.node(name);
            let is_cordoned = node.is_some_and(|node| node.unschedulable);
            let perhaps = !is_cordoned && self.kept.cordoning.contains(name);
            if !drained && is_cordoned && ours(&cluster, name) {
                cordoned.push(name.to_string());
            } else if perhaps {
                unanswered.push(name.to_string());
            }
            told.nodes.push(OfNode {
                node: name.to_string(),
                drained,
                cordoned: is_cordoned || perhaps,
                seconds: match &state {
                    NodeState::Drained { took, .. } => Some(took.as_secs()),
                    _ => None,
                },
                reason: match state {
                    _ if perhaps => Some("interrupted before the answer to its cordon".to_owned()),
                    NodeState::Failed { why } => Some(why.to_string()),
                    NodeState::Drained { .. } => None,
                    _ if self.kept.interrupted.is_some() => Some("interrupted".to_owned()),
                    _ => None,
                },
            });
        }
        self.teller.end(&told)?;
        if !cordoned.is_empty() {
            self.teller.note(&format!("left cordoned and not drained: {}", cordoned.join(" ")))?;
        }
        if !unanswered.is_empty() {
            let line = format!("perhaps left cordoned, because no answer came yet: {}", unanswered.join(" "));
            self.teller.note(&line)?;
        }
        let undo = [cordoned, unanswered].concat();
        if !undo.is_empty() {
            self.teller.note(&format!("to undo: evenkeel uncordon {}", undo.join(" ")))?;
        }
        Ok(if self.kept.interrupted.is_some() {
            EXIT_INTERRUPTED
        } else if told.nodes.iter().all(|node| node.drained) {
            EXIT_OK
        } else {
            EXIT_FINDINGS
        })
    }
}
