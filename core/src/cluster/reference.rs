//! A Node as it was when something was decided about it: the precondition of every write to it.
//!
//! Here belongs only what a write is guarded by, nothing that a decision reads. The invariant: a write with it reaches
//! that very Node, by its UID, and only while its resourceVersion is the one that was looked at.

use std::sync::Arc;

use super::node::Node;

/// A Node as it was when the decision was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRef {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`: another Node of the same name is not written to.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`: a Node that has changed is not written to.
    pub resource_version: Arc<str>,
}

impl Node {
    /// This Node, as it is now.
    pub fn reference(&self) -> NodeRef {
        NodeRef {
            name: Arc::clone(&self.name),
            uid: Arc::clone(&self.uid),
            resource_version: Arc::clone(&self.resource_version),
        }
    }
}
