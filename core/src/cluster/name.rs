//! How one object of the cluster names another.
//!
//! Here belong names that lead to an object; the objects themselves are elsewhere. The invariant: a name that carries a
//! UID leads to that very object, and to no other of the same name.

use std::sync::Arc;

/// A namespace and a name in it.
pub type NamespacedName = (Arc<str>, Arc<str>);

/// The controller of a pod (its owner reference with `controller: true`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// API group and version: `apps/v1`.
    pub api_version: Arc<str>,
    /// Kind: `ReplicaSet`.
    pub kind: Arc<str>,
    /// Name in the pod's namespace.
    pub name: Arc<str>,
    /// Its UID: another object of the same name is another controller.
    pub uid: Arc<str>,
}
