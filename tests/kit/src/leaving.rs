//! How long pods took to leave nodes, by the audit log alone, and so the same for whoever asked them to.
//!
//! An eviction is answered at once; the pod's kubelet deletes it when its containers have ended. The invariant: what a
//! kubelet takes longer than pods need is nobody's merit or fault, and is told apart.

use std::collections::BTreeMap;

use evenkeel_devcluster::AuditEntry;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How the pods left one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    pub node: String,
    /// From the first time that one of its pods was asked to leave until the last one was gone.
    pub took: SignedDuration,
    /// How much of that was longer than if each pod had been gone soon after it was evicted.
    pub overdue: SignedDuration,
}

/// How the pods left whose evictions are `asked` for, by node, where a kubelet deleted them within `log`. A pod needs
/// `at_most` to end.
pub fn leaving(
    log: &[AuditEntry],
    asked: impl Fn(&AuditEntry) -> bool,
    at_most: SignedDuration,
) -> Vec<Leaving> {
    let name = |entry: &AuditEntry| (entry.namespace.clone(), entry.name.clone());
    let mut gone = BTreeMap::new();
    for entry in log.iter().filter(|entry| (&*entry.resource, &*entry.verb) == ("pods", "delete")) {
        if let Some(node) = entry.user.strip_prefix("system:node:").filter(|_| entry.code < 300) {
            gone.insert((name(entry), node), entry.received);
        }
    }
    let mut nodes: BTreeMap<&str, Vec<(Timestamp, bool, Timestamp)>> = BTreeMap::new();
    for eviction in log.iter().filter(|entry| entry.subresource == "eviction" && asked(entry)) {
        let of =
            |((pod, _), at): &(&(_, &str), &Timestamp)| *pod == name(eviction) && **at >= eviction.received;
        if let Some(((_, node), at)) = gone.iter().filter(of).min_by_key(|(_, at)| **at) {
            nodes.entry(node).or_default().push((eviction.received, eviction.code < 300, *at));
        }
    }
    let took = |(node, pods): (&str, Vec<(Timestamp, bool, Timestamp)>)| {
        let first = pods.iter().map(|(asked, ..)| *asked).min()?;
        let last = pods.iter().map(|(.., gone)| *gone).max()?;
        let in_time = |(asked, evicted, gone): &(Timestamp, bool, Timestamp)| {
            evicted.then(|| (*gone).min(asked.saturating_add(at_most).unwrap_or(*gone)))
        };
        let in_time = pods.iter().filter_map(in_time).max()?;
        let (took, overdue) = (last.duration_since(first), last.duration_since(in_time));
        Some(Leaving { node: node.to_owned(), took, overdue })
    };
    nodes.into_iter().filter_map(took).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tests::entry;

    #[test]
    fn what_a_kubelet_takes_too_long_is_told_apart() {
        let eviction = |second, pod: &str, code| AuditEntry {
            name: pod.to_owned(),
            subresource: "eviction".to_owned(),
            code,
            ..entry(second, "", "create", "pods")
        };
        let end = |second, pod: &str, user: &str| AuditEntry {
            name: pod.to_owned(),
            user: user.to_owned(),
            ..entry(second, "", "delete", "pods")
        };
        let log = [
            eviction(1, "a", 429),
            eviction(2, "b", 201),
            eviction(6, "a", 201),
            end(7, "b", "system:node:worker-1"),
            // Deleted by somebody else, and not gone yet.
            end(8, "a", "somebody"),
            end(40, "a", "system:node:worker-1"),
            eviction(41, "db-0", 201),
            end(45, "db-0", "system:node:worker-2"),
            eviction(50, "stays", 201),
            AuditEntry { user: "another".to_owned(), ..eviction(0, "b", 201) },
        ];
        let asked = |entry: &AuditEntry| entry.user == "up";
        let of = |node: &str, took, overdue| Leaving {
            node: node.to_owned(),
            took: SignedDuration::from_secs(took),
            overdue: SignedDuration::from_secs(overdue),
        };
        let expected = [of("worker-1", 39, 40 - 16), of("worker-2", 4, 0)];
        assert_eq!(leaving(&log, asked, SignedDuration::from_secs(10)), expected);
    }
}
