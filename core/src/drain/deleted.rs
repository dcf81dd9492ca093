//! A node whose Node was deleted in the middle of its drain.
//!
//! Its pods outlive the Node for a while, and nobody can say that they have ended. Here belongs what it leaves behind;
//! what becomes of it is decided in `request`. The invariant: nothing is asked of its pods any more, because no kubelet
//! would confirm their end.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::emptying::pods_left;
use super::policy::DrainPolicy;
use super::volumes::attached_at;
use crate::cluster::Cluster;
use crate::disruption::{Budgets, Memory};

/// Such a node is given up by what was read no longer ago.
const READ_LASTS: SignedDuration = SignedDuration::from_secs(10);

/// What a drain finds of a node whose Node was deleted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deleted {
    /// Its pods are to be read by a request of their own, because a watch may lack one or have lost the end of one.
    Unread,
    /// Nothing that had to leave.
    Empty,
    /// What had to leave and had not, in one line.
    Left(String),
}

/// What is left of the node called `name`. Its pods were last read at `read`, and `confirmed` says that a read since the
/// last decision found none that has to leave.
pub(super) fn left_behind(
    cluster: &Cluster,
    name: &Arc<str>,
    policy: &DrainPolicy,
    (memory, budgets): (&Memory, &Budgets<'_>),
    (read, confirmed): (Option<Timestamp>, bool),
    now: Timestamp,
) -> Deleted {
    let rules = &policy.rules;
    let left = pods_left(cluster, name, rules, memory, budgets, now);
    let why = match left.as_slice() {
        [] => {
            let volumes = policy.await_volumes.then(|| attached_at(cluster, name, rules, now)).flatten();
            volumes.map(|volumes| format!("its Node was deleted with {volumes}; see that it is detached"))
        }
        [pod] => Some(format!(
            "its Node was deleted while pod {} was still on it; see that another one runs in its place",
            pod.pod.full_name()
        )),
        [first, ..] => Some(format!(
            "its Node was deleted while {} pods were still on it, {} first; see that others run in their place",
            left.len(),
            first.pod.full_name()
        )),
    };
    let lately = read.is_some_and(|at| at <= now && now.duration_since(at) < READ_LASTS);
    match why {
        None if confirmed => Deleted::Empty,
        Some(why) if lately => Deleted::Left(why),
        _ => Deleted::Unread,
    }
}
