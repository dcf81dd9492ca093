//! Nodes that a person names by their labels.

use std::str::FromStr;

use evenkeel_core::cluster::{Node, Selector};
use evenkeel_core::version::escape;

/// A selector of nodes, and how a person wrote it.
#[derive(Clone, Debug)]
pub(super) struct NodeLabels {
    text: String,
    selector: Selector,
}

impl FromStr for NodeLabels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let selector = text.parse::<Selector>().map_err(|error| error.to_string())?;
        Ok(Self { text: text.to_owned(), selector })
    }
}

impl NodeLabels {
    /// Whether `node` has them.
    pub(super) fn are_on(&self, node: &Node) -> bool {
        self.selector.matches(&node.labels)
    }

    /// What is said where no node has them.
    pub(super) fn absent(&self) -> String {
        let labels = escape(&self.text);
        format!("no node has the labels {labels}; kubectl get nodes --show-labels says which there are")
    }
}
