//! What the observer has to know of a cluster that the API alone does not tell.

use evenkeel_devcluster::{AuditEntry, Cluster, Failure, Handle, Release, Role};
use kube::Client;

/// A control-plane component, and what it runs; an error where it does not answer.
pub struct Component {
    /// As its static pod is called: `kube-apiserver-cp-1`.
    pub name: String,
    pub role: Role,
    pub release: Result<Release, String>,
}

/// A cluster that an observer can follow.
pub trait Watched {
    fn client(&self) -> Client;

    /// What runs of the control plane now, asked of each component itself where that is possible.
    fn components(&self) -> impl Future<Output = Vec<Component>>;

    /// The kube-apiservers that controllers on `node` may talk to.
    fn asked_by_controllers_of(&self, node: &str) -> impl Future<Output = Vec<Component>>;

    /// What a node lacks that is called upgraded and whose kubelet is; nothing where it is whole.
    fn lacks(&self, node: &str) -> impl Future<Output = Option<String>>;

    /// Every request so far.
    fn audit_log(&self) -> Result<Vec<AuditEntry>, Failure>;
}

async fn ask(handle: Handle<'_>) -> Component {
    let release = handle.release().await.map_err(|error| error.to_string());
    Component { name: handle.name().clone(), role: handle.role(), release }
}

/// A control plane of processes, whose controllers talk to the balancer before all kube-apiservers.
impl Watched for Cluster {
    fn client(&self) -> Client {
        self.client()
    }

    async fn components(&self) -> Vec<Component> {
        futures::future::join_all(self.components().map(ask)).await
    }

    async fn asked_by_controllers_of(&self, _: &str) -> Vec<Component> {
        futures::future::join_all(self.components().filter(|h| h.role() == Role::Apiserver).map(ask)).await
    }

    async fn lacks(&self, _: &str) -> Option<String> {
        None
    }

    fn audit_log(&self) -> Result<Vec<AuditEntry>, Failure> {
        Ok(self.audit_log()?)
    }
}
