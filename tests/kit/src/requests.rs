//! What the operator asked of the API, by the audit log: counted by kind, and what it must not have asked.

use std::collections::BTreeMap;

use evenkeel_devcluster::AuditEntry;

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
        let what = if entry.subresource.is_empty() {
            entry.resource.clone()
        } else {
            format!("{}/{}", entry.resource, entry.subresource)
        };
        let kind = format!("{} {what}", entry.verb);
        if entry.code == 409 {
            *requests.lost.entry(kind.clone()).or_default() += 1;
        }
        *requests.by_kind.entry(kind).or_default() += 1;
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
            wrong.push(format!("the operator was not allowed to {} {what}", entry.verb));
        }
    }
    (requests, wrong)
}

/// The same verb on the same kind of thing.
fn same(a: &AuditEntry, b: &AuditEntry) -> bool {
    (&a.verb, &a.resource, &a.subresource) == (&b.verb, &b.resource, &b.subresource)
}
