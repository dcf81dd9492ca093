//! What the observer has to know of a cluster that the API alone does not tell.

use evenkeel_devcluster::{AuditEntry, Cluster, Failure, Handle, Release, Role};
use k8s_openapi::jiff::Timestamp;
use kube::Client;

/// A control-plane component, and what it runs; an error where it does not answer.
pub struct Component {
    /// As its static pod is called: `kube-apiserver-cp-1`.
    pub name: String,
    pub role: Role,
    /// The node that it is on.
    pub node: String,
    pub release: Result<Release, String>,
    /// What it said when it last answered, where that is remembered: a static pod is away while its kubelet restarts.
    pub last: Option<Release>,
}

/// A static pod of a node.
pub struct Part {
    pub name: String,
    /// Since when it is ready; nothing where it is not.
    pub ready_since: Option<Timestamp>,
    /// What it runs where it should run another version.
    pub behind: Option<String>,
}

/// A cluster that an observer can follow.
pub trait Watched {
    fn client(&self) -> Client;

    /// What runs of the control plane now, asked of each component itself where that is possible.
    fn components(&self) -> impl Future<Output = Vec<Component>>;

    /// The kube-apiservers that controllers on `node` may talk to.
    fn asked_by_controllers_of(&self, node: &str) -> impl Future<Output = Vec<Component>>;

    /// The static pods that a node has to have when it is called upgraded; none on a worker. An error where nobody answers.
    fn parts(&self, node: &str) -> impl Future<Output = Result<Vec<Part>, Failure>>;

    /// Every request so far.
    fn audit_log(&self) -> Result<Vec<AuditEntry>, Failure>;
}

async fn ask(handle: Handle<'_>) -> Component {
    let release = handle.release().await.map_err(|error| error.to_string());
    let (name, node) = (handle.name().clone(), handle.node().clone());
    Component { name, role: handle.role(), node, release, last: None }
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

    async fn parts(&self, _: &str) -> Result<Vec<Part>, Failure> {
        Ok(Vec::new())
    }

    fn audit_log(&self) -> Result<Vec<AuditEntry>, Failure> {
        Ok(self.audit_log()?)
    }
}
