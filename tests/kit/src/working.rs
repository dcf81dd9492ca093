//! Whether the controllers were at work when pods were asked to leave, by the audit log alone.
//!
//! kube-controller-manager makes a pod anew that was evicted, and kube-scheduler finds it a place; each renews its lease
//! every second or two while it works. The invariant that is looked at: nobody asks a pod to leave while that has stopped.

use std::time::Duration;

use evenkeel_devcluster::AuditEntry;

const CONTROLLERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// One line for each eviction of `user` that the API granted and before which a controller had not renewed its lease for
/// longer than `most`.
pub fn idle_evictions(log: &[AuditEntry], user: &str, most: Duration) -> Vec<String> {
    let renewals = CONTROLLERS.map(|controller| {
        let renews = |entry: &&AuditEntry| {
            entry.resource == "leases"
                && entry.namespace == "kube-system"
                && entry.name == controller
                && entry.is_write()
                && entry.code < 300
        };
        let mut times: Vec<_> = log.iter().filter(renews).map(|entry| entry.answered).collect();
        times.sort();
        (controller, times)
    });
    let mut wrong = Vec::new();
    let granted = |entry: &&AuditEntry| {
        entry.user == user && entry.subresource == "eviction" && (200..300).contains(&entry.code)
    };
    for eviction in log.iter().filter(granted) {
        for (controller, times) in &renewals {
            let before = &times[..times.partition_point(|at| *at <= eviction.received)];
            let silent = before.last().map(|last| eviction.received.duration_since(*last).unsigned_abs());
            if silent.is_none_or(|silent| silent > most) {
                let AuditEntry { namespace, name, received, .. } = eviction;
                wrong.push(format!(
                    "{received}: pod {namespace}/{name} was evicted, and {controller} had renewed nothing for {silent:?}"
                ));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tests::entry;

    #[test]
    fn an_eviction_is_wrong_while_a_controller_renews_nothing() {
        let lease = |second, name: &str| AuditEntry {
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            ..entry(second, "", "update", "leases")
        };
        let eviction = |second| AuditEntry {
            subresource: "eviction".to_owned(),
            code: 201,
            ..entry(second, "a", "create", "pods")
        };
        let log = [
            // Nobody was seen yet.
            eviction(0),
            lease(1, "kube-controller-manager"),
            lease(1, "kube-scheduler"),
            eviction(4),
            lease(9, "kube-scheduler"),
            eviction(12),
            AuditEntry { code: 429, ..eviction(20) },
            AuditEntry { user: "somebody".to_owned(), ..eviction(21) },
        ];
        let wrong = idle_evictions(&log, "up", Duration::from_secs(5));
        assert_eq!(wrong.len(), 3, "{wrong:#?}");
        assert!(wrong[..2].iter().all(|line| line.starts_with("2026-11-21T10:00:00Z")), "{wrong:#?}");
        assert!(wrong[2].starts_with("2026-11-21T10:00:12Z") && wrong[2].contains("kube-controller-manager"));
    }
}
