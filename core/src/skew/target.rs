//! What stands in the way of a minor that somebody chose.
//!
//! Here belongs which findings do not stand in the way because the upgrade itself mends them; the others come from
//! `next.rs`. The invariant: a target that is let through leaves nothing outside the policy that the way to it does not
//! bring back.

use super::assess::assess;
use super::next::blockers;
use super::policy::Policy;
use super::row::Row;
use super::servers::servers_of;
use crate::cluster::Cluster;
use crate::version::{KubeVersion, Minor};

/// What stands in the way of taking every kube-apiserver to `target`, one line each; empty when nothing does.
///
/// A component that is newer than the oldest kube-apiserver, and not newer than `target`, is not in the way: taking the
/// kube-apiservers to `target` brings it back inside the policy. That happens under kubeadm, which moves a node's
/// controllers together with its kube-apiserver.
pub fn blockers_of_minor(cluster: &Cluster, policy: &Policy, target: Minor) -> Vec<String> {
    let rows = assess(cluster, policy).rows;
    let cured = |row: &Row| {
        let running = row.version.known().map(KubeVersion::minor);
        let ahead = row.judged.is_some_and(|judged| judged.servers.oldest < judged.running.binary);
        ahead && running.is_some_and(|running| running <= target)
    };
    let rows: Vec<Row> = rows.into_iter().filter(|row| !cured(row)).collect();
    blockers(cluster, policy, &rows, servers_of(cluster), target)
}
