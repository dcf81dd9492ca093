//! One write, as a test sees it that checks its invariants after every write.
//!
//! Here belongs what a test may read of a write; it can change nothing. The invariant: the objects before and after are
//! those of the store, not of a watch that may be behind.

use serde_json::Value;

use crate::store::Change;

/// One write, when it is done.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    resource: &'a str,
    change: &'a Change,
    author: &'a str,
}

impl<'a> Write<'a> {
    pub(crate) fn new(resource: &'a str, change: &'a Change, author: &'a str) -> Self {
        Self { resource, change, author }
    }

    /// The store's revision after this write.
    pub fn revision(&self) -> u64 {
        self.change.revision
    }

    /// The resource, such as `pods` or `deployments.apps`.
    pub fn resource(&self) -> &str {
        self.resource
    }

    /// Who wrote: a client's program, or a part of the cluster such as `kubelet` or `kube-controller-manager`.
    pub fn author(&self) -> &str {
        self.author
    }

    /// The object's namespace; empty if it is in none.
    pub fn namespace(&self) -> &str {
        self.change.record.namespace()
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.change.record.name()
    }

    /// The object's UID.
    pub fn uid(&self) -> &str {
        &self.change.record.uid
    }

    /// Whether it is a heartbeat, which changes nothing that anybody decides by.
    pub fn is_heartbeat(&self) -> bool {
        self.change.quiet
    }

    /// The object before the write; `None` if it was created.
    pub fn before(&self) -> Option<Value> {
        self.change.before.as_ref().map(|record| record.copy())
    }

    /// The object after the write; `None` if it was deleted.
    pub fn after(&self) -> Option<Value> {
        (!self.change.deleted).then(|| self.change.record.copy())
    }
}
