//! A toy cluster for tests of what is decided: each write happens at once, and only where it may.
//!
//! Here belongs what happens to nodes, pods and budgets; what else a drain or an upgrade keeps stays with its tests.
//! The invariant: pods leave no node that we did not cordon, none leaves twice, and nobody goes past a budget unasked.

use std::ops::{Deref, DerefMut};

use jiff::Timestamp;

use crate::cluster::{Cluster, NodeRef, Pod};
use crate::disruption::Permit;
use crate::fixture::terminating;

pub(crate) struct ToyCluster(pub(crate) Cluster);

impl Deref for ToyCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl DerefMut for ToyCluster {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.0
    }
}

impl ToyCluster {
    pub(crate) fn cordon(&mut self, node: &NodeRef, mark: &str) {
        self.change_node(&node.name, |live| {
            assert!(!live.unschedulable && live.uid == node.uid, "{} is another, or cordoned", node.name);
            (live.unschedulable, live.cordoned_by) = (true, Some(mark.into()));
        });
    }

    pub(crate) fn uncordon(&mut self, node: &NodeRef, mark: &str) {
        self.change_node(&node.name, |live| {
            assert_eq!(live.cordoned_by.as_deref(), Some(mark), "only what we cordoned");
            (live.unschedulable, live.cordoned_by) = (false, None);
        });
    }

    /// Carries an eviction out, so that the pod is gone at `gone_at`. Whether the budget let it go.
    pub(crate) fn evict(&mut self, permit: &Permit, gone_at: Timestamp) -> bool {
        let node = self.node(permit.node()).unwrap();
        assert!(node.unschedulable && node.cordoned_by.is_some(), "pods leave only a node that we cordoned");
        if let Some(charge) = permit.charge() {
            let (namespace, name) = &charge.budget;
            if self.budget(namespace, name).unwrap().disruptions_allowed < 1 {
                return false;
            }
            self.change_budget(name, |budget| {
                budget.disruptions_allowed -= 1;
                budget.current_healthy -= 1;
                budget.resource_version = format!("{}+", budget.resource_version).into();
            });
        }
        self.delete(permit.uid(), gone_at);
        true
    }

    /// Deletes a pod, so that it is gone at `gone_at`.
    pub(crate) fn delete(&mut self, uid: &str, gone_at: Timestamp) {
        self.change_pod(uid, |pod| {
            assert!(pod.deleting().is_none(), "{} is deleted twice", pod.name);
            *pod = Pod { ready: false, ..terminating(pod.clone(), gone_at) };
        });
    }

    /// Takes the pods away that are gone at `now`, and returns them.
    pub(crate) fn pass(&mut self, now: Timestamp) -> Vec<Pod> {
        let is_gone = |pod: &Pod| pod.deleting().is_some_and(|at| at <= now);
        let gone = self.pods().filter(|pod| is_gone(pod)).cloned().collect();
        self.retain_pods(|pod| !is_gone(pod));
        gone
    }
}
