//! What was written, for whoever watches the cluster from outside of it: an invariant is checked after every write.

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

    /// The store's revision with it.
    pub fn revision(&self) -> u64 {
        self.change.revision
    }

    /// `pods`, `deployments.apps`.
    pub fn resource(&self) -> &str {
        self.resource
    }

    /// Who wrote: a client's program, or a part of the cluster such as `kubelet` or `kube-controller-manager`.
    pub fn author(&self) -> &str {
        self.author
    }

    /// The namespace; empty for what is in none.
    pub fn namespace(&self) -> &str {
        self.change.record.namespace()
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.change.record.name()
    }

    /// The UID.
    pub fn uid(&self) -> &str {
        &self.change.record.uid
    }

    /// Is it a heartbeat, which changes nothing that anybody decides by?
    pub fn is_heartbeat(&self) -> bool {
        self.change.quiet
    }

    /// What was there before.
    pub fn before(&self) -> Option<Value> {
        self.change.before.as_ref().map(|record| record.copy())
    }

    /// What is there now.
    pub fn after(&self) -> Option<Value> {
        (!self.change.deleted).then(|| self.change.record.copy())
    }
}
