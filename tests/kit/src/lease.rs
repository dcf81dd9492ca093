//! Who led, by the audit log alone, and what was written by whoever did not.
//!
//! A pod leads from when the API took its write of the lease until it took another pod's. The invariant that is looked at:
//! whoever lost the lease changes nothing any more.

use evenkeel_devcluster::AuditEntry;

/// What the log tells of the pods that act as one user.
#[derive(Default, Debug, Clone)]
pub struct Leading {
    /// Writes by pods, those of the lease left out.
    pub writes: usize,
    /// How often another pod took the lease.
    pub changes: usize,
    /// One line for each write by a pod that did not hold the lease.
    pub wrong: Vec<String>,
}

/// Looks at every write that `user` sent from a pod and that the API took.
pub fn leading(log: &[AuditEntry], user: &str) -> Leading {
    let taken = |entry: &&AuditEntry| {
        entry.user == user && !entry.pod.is_empty() && entry.is_write() && entry.code < 300
    };
    let mut entries: Vec<_> = log.iter().filter(taken).collect();
    // A write of the lease counts from when it was answered; any other from when it came in, and first. So what is on its
    // way while the lease changes hands is given the benefit of the doubt.
    entries.sort_by_key(|entry| {
        let lease = is_lease(entry);
        (if lease { entry.answered } else { entry.received }, lease)
    });
    let mut found = Leading::default();
    let mut holder = "";
    for entry in entries {
        if is_lease(entry) {
            found.changes += usize::from(!holder.is_empty() && holder != entry.pod);
            holder = &entry.pod;
            continue;
        }
        found.writes += 1;
        if entry.pod != holder {
            let AuditEntry { pod, verb, resource, name, received, .. } = entry;
            found.wrong.push(format!("{received}: {pod} did {verb} {resource} {name}, and {holder:?} led"));
        }
    }
    found
}

fn is_lease(entry: &AuditEntry) -> bool {
    entry.resource == "leases"
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn entry(second: i64, pod: &str, verb: &str, resource: &str) -> AuditEntry {
        let at = |second| format!("2026-11-21T10:00:{second:02}Z").parse().unwrap_or_default();
        AuditEntry {
            apiserver: 0,
            received: at(second),
            answered: at(second + 1),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            subresource: String::new(),
            namespace: String::new(),
            name: "x".to_owned(),
            user: "up".to_owned(),
            pod: pod.to_owned(),
            user_agent: String::new(),
            uri: String::new(),
            code: 200,
            open: false,
        }
    }

    #[test]
    fn a_write_after_another_pod_took_the_lease_is_wrong() {
        let lease = |second, pod| entry(second, pod, "update", "leases");
        let node = |second, pod| entry(second, pod, "patch", "nodes");
        let log = [lease(0, "a"), node(2, "a"), lease(10, "b"), node(11, "a"), node(12, "b"), node(13, "a")];
        let found = leading(&log, "up");
        assert_eq!((found.writes, found.changes), (4, 1));
        assert_eq!(found.wrong.len(), 1, "{:?}", found.wrong);
        assert!(found.wrong.iter().all(|line| line.starts_with("2026-11-21T10:00:13Z: a did patch nodes x")));
    }

    #[test]
    fn a_write_that_was_refused_or_only_reads_changes_nothing() {
        let refused = AuditEntry { code: 409, ..entry(5, "a", "patch", "nodes") };
        let found = leading(&[refused, entry(6, "a", "get", "nodes")], "up");
        assert_eq!((found.writes, found.wrong.len()), (0, 0));
    }
}
