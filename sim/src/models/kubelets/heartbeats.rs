//! Heartbeats: thousands a second are most of what happens in a big cluster at rest.
//!
//! Here belong when a kubelet sends a heartbeat and what it says. How the store keeps such a version does not.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::super::model::ModelStep;
use super::super::objects::condition;
use super::KubeletModel;
use crate::clock;

const NODE_LEASES: &str = "kube-node-lease";
const LEASE: Duration = Duration::from_secs(10);
/// After how many renewals of its lease a kubelet reports its node's status again, even if nothing changed.
const STATUS: u32 = 30;

impl KubeletModel {
    /// Renews the lease, and now and then the node's status. `false` if the node is gone, or is another one of its
    /// name.
    pub(super) fn beat(
        &self,
        node: &Arc<str>,
        kubelet: u32,
        now: Timestamp,
        world: &mut ModelStep<'_>,
    ) -> bool {
        let state = self.kubelets.with(|fleet| {
            let found = fleet.nodes.get_mut(node).filter(|found| found.address == kubelet)?;
            let count = found.beats;
            found.beats += u32::from(!found.down);
            Some((found.down, count % STATUS == 0, found.well))
        });
        let Some((down, says_all, well)) = state else { return false };
        if !down {
            self.renew(node, now, world);
            if says_all || !well {
                self.report(node, well, now, world);
            }
        }
        true
    }

    /// Sets a timer for the next heartbeats of these nodes. Heartbeats that are due at the same moment share a timer.
    pub(super) fn again(&mut self, mut nodes: Vec<(Arc<str>, u32)>, world: &mut ModelStep<'_>) {
        if nodes.is_empty() {
            return;
        }
        let now = world.state.clock.elapsed();
        let (at, timer) = self.next_beats;
        if let Some(others) = self.beats.get_mut(&timer).filter(|_| at == now) {
            others.append(&mut nodes);
            return;
        }
        self.next_beats = (now, timer + 1);
        self.beats.insert(timer + 1, nodes);
        world.after(LEASE, format!("beats|{}", timer + 1));
    }

    fn renew(&self, node: &str, now: Timestamp, world: &mut ModelStep<'_>) {
        let key = [NODE_LEASES, "/", node].concat();
        if world.state.store.beat("leases.coordination.k8s.io", &key, now).is_some() {
            return;
        }
        let Some(record) = world.record("nodes", node) else { return };
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": &*record.uid}]);
        let lease = json!({"metadata": {"name": node, "ownerReferences": owner},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": clock::micros(now)}});
        // A lease that is there without a renewTime is somebody else's.
        let _ = world.create("leases.coordination.k8s.io", Some(NODE_LEASES), lease);
    }

    /// Reports the node's conditions.
    fn report(&self, node: &str, well: bool, now: Timestamp, world: &mut ModelStep<'_>) {
        if well && world.state.store.beat("nodes", node, now).is_some() {
            return;
        }
        let Some(mut object) = world.record("nodes", node).map(|record| record.copy()) else { return };
        let now = clock::seconds(now);
        for (kind, word, reason, message) in [
            (
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ] {
            let wanted = json!({"type": kind, "status": word, "reason": reason, "message": message, "lastHeartbeatTime": now});
            condition(&mut object["status"], &wanted, &now);
        }
        world.put("nodes", node, object, well);
        if !well {
            // The lifecycle controller may have marked its pods unready meanwhile.
            for pod in world.state.store.pods_of(node) {
                world.after(Duration::ZERO, format!("pod|{}", pod.key));
            }
        }
    }
}
