//! The end of a drain: what a person is told, and the exit code.
//!
//! It changes nothing in the cluster. The invariant: every node that a drain leaves cordoned and not drained is named.

use evenkeel_core::drain::NodeState;

use super::super::exit::{EXIT_FINDINGS, EXIT_INTERRUPTED, EXIT_OK};
use super::display::{DrainTold, OfNode};
use super::draining::Draining;
use super::narrate::ours;

impl Draining {
    /// Says how it ended, and what is left behind.
    pub(super) fn finish(mut self) -> Result<u8, String> {
        let cluster = self.cluster();
        let mut told =
            DrainTold { evictions: self.kept.evictions, refused: self.kept.refused, nodes: Vec::new() };
        let mut cordoned = Vec::new();
        for name in &self.request.nodes {
            let state = self.kept.states.get(name).cloned().unwrap_or_default();
            let drained = matches!(state, NodeState::Drained { .. });
            let node = cluster.node(name);
            let is_cordoned = node.is_some_and(|node| node.unschedulable);
            if !drained && is_cordoned && ours(&cluster, name) {
                cordoned.push(name.to_string());
            }
            told.nodes.push(OfNode {
                node: name.to_string(),
                drained,
                cordoned: is_cordoned,
                seconds: match &state {
                    NodeState::Drained { took, .. } => Some(took.as_secs()),
                    _ => None,
                },
                reason: match state {
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
            self.teller.note(&format!("to undo: evenkeel uncordon {}", cordoned.join(" ")))?;
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
