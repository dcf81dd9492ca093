//! What the operator asked of the API, by the audit log: counted by kind, and what it must not have asked.

use std::collections::BTreeMap;

use evenkeel_devcluster::AuditEntry;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::lease::{Leading, leading};

/// What the operator asked for.
#[derive(Default, Debug, Clone)]
pub struct Requests {
    pub by_kind: BTreeMap<String, usize>,
    /// Of those, the ones whose precondition failed.
    pub lost: BTreeMap<String, usize>,
    pub writes: usize,
    pub evictions: usize,
    pub refused: usize,
    /// Answers to evictions by HTTP status.
    pub answers: BTreeMap<u16, usize>,
    /// Which of its pods led, where it runs in pods.
    pub leading: Leading,
}

impl Requests {
    pub fn of(&self, kind: &str) -> usize {
        self.by_kind.get(kind).copied().unwrap_or_default()
    }

    pub fn lost_of(&self, kind: &str) -> usize {
        self.lost.get(kind).copied().unwrap_or_default()
    }
}

/// Counts what `user` asked for. The lines say what it must not have done: evictions and nothing else take pods away, it may
/// do what it tries, and who lost the lease writes nothing.
pub fn of(log: &[AuditEntry], user: &str) -> (Requests, Vec<String>) {
    let mut requests = Requests { leading: leading(log, user), ..Requests::default() };
    let mut wrong = requests.leading.wrong.clone();
    for entry in log.iter().filter(|entry| entry.user == user) {
        let kind = kind(entry);
        if entry.code == 409 {
            *requests.lost.entry(kind.clone()).or_default() += 1;
        }
        *requests.by_kind.entry(kind.clone()).or_default() += 1;
        if entry.is_write() {
            requests.writes += 1;
        }
        if entry.resource == "pods" && entry.subresource == "eviction" {
            *requests.answers.entry(entry.code).or_default() += 1;
            match entry.code {
                200..=299 => requests.evictions += 1,
                429 => requests.refused += 1,
                _ => {}
            }
        } else if entry.resource == "pods" && entry.is_write() {
            wrong.push(format!("the operator did {} on pod {}/{}", entry.verb, entry.namespace, entry.name));
        }
        // An apiserver that just started refuses everybody until it has read the roles.
        let allowed = || log.iter().any(|e| e.user == user && same(e, entry) && e.code < 300);
        if entry.code == 403 && !allowed() {
            wrong.push(format!("the operator was not allowed to {kind}"));
        }
    }
    (requests, wrong)
}

/// What one phase cost.
#[derive(Default, Debug, Clone)]
pub struct Cost {
    pub seconds: f64,
    /// Of that, with nodes that were given to their executors, one after the other.
    pub executors: f64,
    /// Everything that was asked.
    pub all: usize,
    /// Of that, what nobody would have asked without an upgrade.
    pub for_upgrade: usize,
    pub evictions: usize,
    pub refused: usize,
    /// Writes of statuses by resource.
    pub statuses: BTreeMap<String, usize>,
    /// What was asked for the upgrade, by kind.
    pub kinds: BTreeMap<String, usize>,
    /// What moved the pods and the claims meanwhile, whoever did it, a line each.
    pub moves: Vec<String>,
}

/// What `user` asked from its first write about a claim of a worker's kubelet to its last one; nothing where there is none.
/// Left out of what is for the upgrade: what replicas ask without one, too, for their lease, and each kube-apiserver for its
/// version and health.
pub fn of_workers(log: &[AuditEntry], user: &str) -> Option<Cost> {
    let own = || log.iter().filter(|entry| entry.user == user);
    let of_workers = || own().filter(|entry| entry.name.contains(".kubelet.worker") && entry.is_write());
    let first = of_workers().map(|entry| entry.received).min()?;
    let last = of_workers().map(|entry| entry.received).max()?;
    let mut cost = Cost { seconds: last.duration_since(first).as_secs_f64(), ..Cost::default() };
    let mut claims: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    for entry in of_workers().filter(|entry| entry.subresource == "status") {
        claims.entry(&entry.name).or_default().push(entry.received);
    }
    for times in claims.values_mut() {
        times.sort();
        // The last one says that the node is upgraded, the one before that its executor may work.
        if let [.., given, upgraded] = times[..] {
            cost.executors += upgraded.duration_since(given).as_secs_f64();
        }
    }
    let meanwhile = |entry: &&AuditEntry| (first..=last).contains(&entry.received);
    let mut moves: Vec<&AuditEntry> = log.iter().filter(|entry| meanwhile(entry) && is_move(entry)).collect();
    moves.sort_by_key(|entry| entry.received);
    cost.moves = moves.into_iter().map(|entry| moved(entry, entry.received.duration_since(first))).collect();
    for entry in own().filter(meanwhile) {
        cost.all += 1;
        let eviction = entry.subresource == "eviction";
        cost.evictions += usize::from(eviction && (200..300).contains(&entry.code));
        cost.refused += usize::from(eviction && entry.code == 429);
        if entry.subresource == "status" && entry.is_write() {
            *cost.statuses.entry(entry.resource.clone()).or_default() += 1;
        }
        if !entry.resource.is_empty() && entry.resource != "leases" {
            cost.for_upgrade += 1;
            *cost.kinds.entry(kind(entry)).or_default() += 1;
        }
    }
    Some(cost)
}

/// Whether it is about where a pod is, or a claim: evictions, where the scheduler sends pods, their end by their kubelet.
fn is_move(entry: &AuditEntry) -> bool {
    let of_pod =
        matches!((&*entry.verb, &*entry.subresource), ("create", "eviction" | "binding") | ("delete", ""));
    entry.resource == "pods" && of_pod || entry.resource == "nodeupgrades" && entry.is_write()
}

/// One line: when, counted from the beginning, who did what, and a refusal.
fn moved(entry: &AuditEntry, since: SignedDuration) -> String {
    let AuditEntry { user, namespace, name, code, .. } = entry;
    let refused = if *code < 300 { String::new() } else { format!(": {code}") };
    let (seconds, who) = (since.as_secs_f64(), user.rsplit(':').next().unwrap_or(user));
    let of = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    format!("{seconds:>7.1} s  {who}: {} {of}{name}{refused}", kind(entry))
}

/// The verb and what it is about.
fn kind(entry: &AuditEntry) -> String {
    let AuditEntry { verb, resource, subresource, .. } = entry;
    if subresource.is_empty() {
        format!("{verb} {resource}")
    } else {
        format!("{verb} {resource}/{subresource}")
    }
}

/// The same verb on the same kind of thing.
fn same(a: &AuditEntry, b: &AuditEntry) -> bool {
    (&a.verb, &a.resource, &a.subresource) == (&b.verb, &b.resource, &b.subresource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::tests::entry;

    #[test]
    fn workers_cost_what_was_asked_while_they_moved() {
        let of_worker = |second| AuditEntry {
            name: "to.kubelet.worker-1".to_owned(),
            subresource: "status".to_owned(),
            ..entry(second, "a", "patch", "nodeupgrades")
        };
        let eviction = |second, code| AuditEntry {
            subresource: "eviction".to_owned(),
            code,
            ..entry(second, "a", "create", "pods")
        };
        let log = [
            eviction(1, 201),
            of_worker(10),
            eviction(11, 201),
            eviction(12, 429),
            entry(13, "a", "update", "leases"),
            entry(13, "a", "get", ""),
            AuditEntry {
                user: "system:node:worker-1".to_owned(),
                code: 200,
                ..entry(13, "", "delete", "pods")
            },
            AuditEntry { user: "somebody".to_owned(), ..entry(14, "", "get", "pods") },
            of_worker(12),
            of_worker(30),
            entry(31, "a", "list", "nodes"),
        ];
        let cost = of_workers(&log, "up").unwrap_or_default();
        assert!((cost.seconds - 20.0).abs() < 0.01, "{cost:?}");
        assert!((cost.executors - 18.0).abs() < 0.01, "{cost:?}");
        assert_eq!((cost.all, cost.for_upgrade, cost.evictions, cost.refused), (7, 5, 1, 1), "{cost:?}");
        assert_eq!(cost.statuses, BTreeMap::from([("nodeupgrades".to_owned(), 3)]));
        let moves: Vec<&str> = cost.moves.iter().map(String::as_str).collect();
        let expected = [
            "    0.0 s  up: patch nodeupgrades/status to.kubelet.worker-1",
            "    1.0 s  up: create pods/eviction x",
            "    2.0 s  up: create pods/eviction x: 429",
            "    2.0 s  up: patch nodeupgrades/status to.kubelet.worker-1",
            "    3.0 s  worker-1: delete pods x",
            "   20.0 s  up: patch nodeupgrades/status to.kubelet.worker-1",
        ];
        assert_eq!(moves, expected);
        assert!(of_workers(&log[..1], "up").is_none());
    }
}
