//! Who leads, by client-go's timing rules.
//!
//! This module does no I/O and reads no clock: the driver reads and writes the Lease and tells the time. The invariant,
//! given that the server refuses a write whose resourceVersion is not the current one: no two candidates believe at the
//! same moment that they lead. It rests on two rules. A record expires only by our own clock, counted from when *we*
//! saw it change, so that other machines' clocks do not matter. And a leader believes in itself only until
//! [`LeaseTiming::renew_deadline`] after it *sent* its last successful write, which is shorter than anyone else waits.

use std::sync::Arc;
use std::time::Duration;

/// How long things take. `lease > renew_deadline > retry` must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How long others wait for a sign of life before they take over.
    pub lease: Duration,
    /// How long a leader goes on without a successful renewal.
    pub renew_deadline: Duration,
    /// How long between two looks at the record, or between two renewals.
    pub retry: Duration,
}

impl Default for LeaseTiming {
    /// client-go's defaults: 15 s, 10 s and 2 s.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// The part of a Lease that matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
    /// `spec.holderIdentity`; empty when it was released.
    pub holder: Arc<str>,
    /// `spec.leaseDurationSeconds`.
    pub duration: Option<Duration>,
    /// `spec.leaseTransitions`.
    pub transitions: i32,
    /// `spec.renewTime` as it is written, compared for equality only: it is another machine's clock.
    pub renewed: Arc<str>,
}

impl LeaseRecord {
    /// Whether both records show the same sign of life: the holder did not renew in between. A label that somebody puts
    /// on the Lease is no sign of life.
    fn same_sign_of_life(&self, other: &Self) -> bool {
        (&self.holder, self.transitions, &self.renewed) == (&other.holder, other.transitions, &other.renewed)
    }
}

/// A write that would make or keep us the leader, or give leadership up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseWrite {
    /// The precondition: the write replaces exactly this version. `None`: it creates the Lease, because there is none.
    pub resource_version: Option<Arc<str>>,
    /// `spec.holderIdentity`: ours, or empty to release.
    pub holder: Arc<str>,
    /// `spec.leaseDurationSeconds`.
    pub duration: Duration,
    /// `spec.leaseTransitions`.
    pub transitions: i32,
    /// Whether the holder changes, so that `spec.acquireTime` becomes now.
    pub acquires: bool,
}

/// What one candidate knows. Times are durations since any origin of its own monotonic clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateView {
    identity: Arc<str>,
    timing: LeaseTiming,
    /// The last record, and when it was first seen with that sign of life.
    seen: Option<(LeaseRecord, Duration)>,
    /// When the last write that made or kept us the leader was sent.
    renewed_at: Option<Duration>,
}

impl CandidateView {
    /// A candidate that has seen nothing. `identity` must be unique to each start of a process.
    pub fn new(identity: &str, timing: LeaseTiming) -> Self {
        Self { identity: identity.into(), timing, seen: None, renewed_at: None }
    }

    /// Until when we may believe that we lead, unless another write succeeds.
    pub fn leads_until(&self) -> Option<Duration> {
        self.renewed_at.map(|sent| sent + self.timing.renew_deadline)
    }

    /// Whether we may believe at `now` that we lead.
    pub fn leads(&self, now: Duration) -> bool {
        self.leads_until().is_some_and(|until| now < until)
    }

    /// The record as it was last seen. A leader renews from it without reading again.
    pub fn record(&self) -> Option<&LeaseRecord> {
        self.seen.as_ref().map(|(record, _)| record)
    }

    /// Records that the write sent at `sent` succeeded at `now`, and that the Lease is now `record`.
    #[must_use]
    pub fn wrote(mut self, record: LeaseRecord, sent: Duration, now: Duration) -> Self {
        self.renewed_at = (record.holder == self.identity).then_some(sent);
        self.seen = Some((record, now));
        self
    }

    /// Stops leading. Returns the write that lets others take over at once, if we held the Lease.
    ///
    /// Nothing may be done as the leader after this was called.
    #[must_use]
    pub fn release(mut self) -> (Self, Option<LeaseWrite>) {
        self.renewed_at = None;
        let held =
            self.seen.as_ref().map(|(record, _)| record).filter(|record| record.holder == self.identity);
        let write = held.map(|record| LeaseWrite {
            resource_version: Some(Arc::clone(&record.resource_version)),
            holder: "".into(),
            duration: Duration::from_secs(1),
            transitions: record.transitions,
            acquires: false,
        });
        (self, write)
    }

    fn see(&mut self, record: LeaseRecord, now: Duration) {
        if record.holder != self.identity {
            self.renewed_at = None;
        }
        let since = match &self.seen {
            Some((before, since)) if before.same_sign_of_life(&record) => *since,
            _ => now,
        };
        self.seen = Some((record, since));
    }
}

/// Takes one look: `observed` is the Lease as it is at `now` (`None`: there is none). Returns what we know after it,
/// and the write to try, if it is our turn.
pub fn step(
    mut view: CandidateView,
    observed: Option<LeaseRecord>,
    now: Duration,
) -> (CandidateView, Option<LeaseWrite>) {
    let Some(record) = observed else {
        (view.seen, view.renewed_at) = (None, None);
        let write = LeaseWrite {
            resource_version: None,
            holder: Arc::clone(&view.identity),
            duration: view.timing.lease,
            transitions: 0,
            acquires: true,
        };
        return (view, Some(write));
    };
    view.see(record, now);
    let Some((record, since)) = &view.seen else { return (view, None) };
    let ours = record.holder == view.identity;
    let expired = now >= *since + record.duration.unwrap_or(view.timing.lease);
    let write = (ours || record.holder.is_empty() || expired).then(|| LeaseWrite {
        resource_version: Some(Arc::clone(&record.resource_version)),
        holder: Arc::clone(&view.identity),
        duration: view.timing.lease,
        transitions: if ours { record.transitions } else { record.transitions.saturating_add(1) },
        acquires: !ours,
    });
    (view, write)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn record(version: u32, holder: &str, renewed: &str) -> LeaseRecord {
        LeaseRecord {
            resource_version: version.to_string().into(),
            holder: holder.into(),
            duration: Some(s(15)),
            transitions: 3,
            renewed: renewed.into(),
        }
    }

    fn me() -> CandidateView {
        CandidateView::new("me", LeaseTiming::default())
    }

    #[test]
    fn an_absent_lease_is_created() {
        let (view, write) = step(me(), None, s(100));
        let write = write.unwrap();
        assert_eq!((write.resource_version, write.holder.as_ref(), write.transitions), (None, "me", 0));
        assert!(!view.leads(s(100)), "only a successful write makes a leader");
        let view = view.wrote(record(1, "me", "a"), s(100), s(104));
        assert!(view.leads(s(109)));
        assert!(!view.leads(s(110)), "the deadline counts from when the write was sent");
    }

    #[test]
    fn another_leader_is_given_the_whole_lease_since_we_saw_a_sign_of_life() {
        let (view, write) = step(me(), Some(record(1, "other", "a")), s(100));
        assert_eq!(write, None, "its renewTime may be years ago: that is its clock");
        let (view, write) = step(view, Some(record(2, "other", "b")), s(114));
        assert_eq!(write, None, "renewed");
        let (view, write) = step(view, Some(record(3, "other", "b")), s(128));
        assert_eq!(write, None);
        let (_, write) = step(view, Some(record(3, "other", "b")), s(129));
        let write = write.expect("a new resourceVersion alone is no sign of life");
        assert_eq!(
            (write.resource_version.as_deref(), write.transitions, write.acquires),
            (Some("3"), 4, true)
        );
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        let (_, write) = step(me(), Some(record(7, "", "a")), s(5));
        assert_eq!(write.map(|write| write.transitions), Some(4));
    }

    #[test]
    fn renewal_keeps_the_transitions() {
        let view = me().wrote(record(1, "me", "a"), s(0), s(0));
        let (_, write) = step(view.clone(), view.record().cloned(), s(2));
        let write = write.unwrap();
        assert_eq!(
            (write.resource_version.as_deref(), write.transitions, write.acquires),
            (Some("1"), 3, false)
        );
    }

    #[test]
    fn whoever_sees_another_holder_no_longer_leads() {
        let view = me().wrote(record(1, "me", "a"), s(0), s(0));
        let (view, write) = step(view, Some(record(2, "other", "b")), s(1));
        assert!(!view.leads(s(1)));
        assert_eq!(write, None);
    }

    #[test]
    fn release_leaves_the_lease_to_anyone() {
        let view = me().wrote(record(1, "me", "a"), s(0), s(0));
        let (view, write) = view.release();
        let write = write.unwrap();
        assert_eq!(
            (write.holder.as_ref(), write.duration, write.resource_version.as_deref()),
            ("", s(1), Some("1"))
        );
        assert!(!view.leads(s(0)));
        assert_eq!(me().release().1, None, "what was never held is not released");
    }

    /// What happens to one look of one candidate.
    #[derive(Clone, Debug)]
    #[allow(clippy::struct_excessive_bools, reason = "independent things that go wrong")]
    struct CandidateLook {
        who: usize,
        /// Seconds since the look before, of either candidate.
        after: u64,
        /// Seconds the write takes to the server, and its answer back.
        there: u64,
        back: u64,
        /// The write, or only its answer, is lost.
        lost: bool,
        unanswered: bool,
        /// A leader renews from what it remembers; else it reads first.
        reads: bool,
        releases: bool,
    }

    fn candidate_look() -> impl Strategy<Value = CandidateLook> {
        let chance = |of: f64| proptest::bool::weighted(of);
        (0..2usize, 0..9u64, 0..25u64, 0..25u64, chance(0.2), chance(0.2), chance(0.5), chance(0.05))
            .prop_map(|(who, after, there, back, lost, unanswered, reads, releases)| CandidateLook {
                who,
                after,
                // Most requests are fast.
                there: there.saturating_sub(12),
                back: back.saturating_sub(12),
                lost,
                unanswered,
                reads,
                releases,
            })
    }

    /// A server that enforces resourceVersion.
    #[derive(Default)]
    struct Server {
        lease: Option<LeaseRecord>,
        writes: u32,
    }

    impl Server {
        fn accept(&mut self, write: &LeaseWrite) -> Option<LeaseRecord> {
            let current = self.lease.as_ref().map(|lease| Arc::clone(&lease.resource_version));
            if current != write.resource_version {
                return None;
            }
            self.writes += 1;
            self.lease = Some(LeaseRecord {
                resource_version: self.writes.to_string().into(),
                holder: Arc::clone(&write.holder),
                duration: Some(write.duration),
                transitions: write.transitions,
                renewed: self.writes.to_string().into(),
            });
            self.lease.clone()
        }
    }

    struct InFlight {
        who: usize,
        write: LeaseWrite,
        sent: u64,
        arrives: u64,
        back: u64,
        lost: bool,
        answered: bool,
    }

    struct LeaseAnswer {
        who: usize,
        record: LeaseRecord,
        sent: u64,
        at: u64,
    }

    proptest! {
        #[test]
        fn never_two_leaders(looks in proptest::collection::vec(candidate_look(), 1..120), offsets in (0..1000u64, 0..1000u64)) {
            // Each candidate's clock has an origin of its own.
            let offsets = [offsets.0, offsets.1];
            let clock = |who: usize, at: u64| s(at + offsets[who]);
            let mut views = [CandidateView::new("a", LeaseTiming::default()), CandidateView::new("b", LeaseTiming::default())];
            let mut server = Server::default();
            let (mut flying, mut answers): (Vec<InFlight>, Vec<LeaseAnswer>) = (Vec::new(), Vec::new());
            let (mut now, mut next) = (0, 0);
            let mut looks = looks.into_iter().peekable();
            while looks.peek().is_some() || !flying.is_empty() || !answers.is_empty() {
                for arrived in flying.extract_if(.., |write| write.arrives <= now) {
                    let accepted = if arrived.lost { None } else { server.accept(&arrived.write) };
                    if let Some(record) = accepted.filter(|_| arrived.answered) {
                        answers.push(LeaseAnswer { who: arrived.who, record, sent: arrived.sent, at: now + arrived.back });
                    }
                }
                for answer in answers.extract_if(.., |answer| answer.at <= now) {
                    let LeaseAnswer { who, record, sent, at: _ } = answer;
                    views[who] = views[who].clone().wrote(record, clock(who, sent), clock(who, now));
                }
                while let Some(look) = looks.next_if(|look| next + look.after <= now) {
                    next += look.after;
                    let who = look.who;
                    // One request at a time, as the driver does it.
                    if flying.iter().any(|write| write.who == who) || answers.iter().any(|answer| answer.who == who) {
                        continue;
                    }
                    let write = if look.releases {
                        let (view, write) = views[who].clone().release();
                        views[who] = view;
                        write
                    } else {
                        let remembered = !look.reads && views[who].leads(clock(who, now));
                        let observed = if remembered { views[who].record().cloned() } else { server.lease.clone() };
                        let (view, write) = step(views[who].clone(), observed, clock(who, now));
                        views[who] = view;
                        write
                    };
                    if let Some(write) = write {
                        flying.push(InFlight {
                            who, write, sent: now, arrives: now + look.there, back: look.back,
                            lost: look.lost, answered: !look.unanswered,
                        });
                    }
                }
                prop_assert!(!(views[0].leads(clock(0, now)) && views[1].leads(clock(1, now))), "two leaders at {}", now);
                now += 1;
            }
        }
    }
}
