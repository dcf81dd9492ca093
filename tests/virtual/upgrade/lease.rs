//! What happens to leader election: every fault at every request for the lease, answers that are lost, late or say that
//! somebody else wrote first, and leaders that lose the lead by it while they live.
//!
//! Here belong the scripts alone. That whoever lost the lead changes nothing, and that the upgrade ends as ever, is checked
//! as in every run.

use evenkeel_sim::faults::Call;

use super::super::campaign::is_long;
use super::super::script::{self, Step};
use super::attacks::{LEADER, LEASE, Script, spread};
use super::{campaign, run};

/// The second replica, which waits for the lease.
const OTHER: &str = "evenkeel-b-lease";
/// Renewals that fail one after the other, until the lead is lost.
const LOST: u64 = 8;

/// Faults that are not answers: requests that come late, reads of what was, and programs that stop or die.
const MORE: [&str; 10] = [
    "late:3",
    "late:12",
    "late:30",
    "delay:9",
    "stale:1",
    "stale:7",
    "pause:12",
    "pause:40",
    "crash-before",
    "crash-after",
];

/// Faults by which a leader loses the lead when each of its renewals meets them, whether or not they are carried out.
const LASTING: [&str; 10] = [
    "refuse:500",
    "refuse:409",
    "refuse:403",
    "throttle:1",
    "reset-before",
    "reset-after",
    "hang-before",
    "hang-after",
    "answer-after:500",
    "delay:9",
];

fn of(agent: &str, nth: u64, times: u64, fault: &str) -> Step {
    Step::Call { agent: agent.to_owned(), nth, times, fault: fault.to_owned() }
}

/// What the leader asks of the lease in a run without faults.
fn asked() -> Vec<Call> {
    run(1, &[]).calls.into_iter().filter(|call| call.agent == LEASE).collect()
}

/// One script for each of the leader's requests and each of these faults.
fn at_each(steps: impl Fn(u64, &str) -> Vec<Step>, faults: &[String]) -> Vec<Script> {
    let count = asked().len() as u64;
    let of = |nth: u64| faults.iter().map(move |fault| (nth, fault));
    (0..count).flat_map(of).map(|(nth, fault)| (1, steps(nth, fault))).collect()
}

fn owned(faults: &[&str]) -> Vec<String> {
    faults.iter().map(|fault| (*fault).to_owned()).collect()
}

#[test]
fn a_leader_asks_for_its_lease_all_the_time() {
    let asked = asked();
    let count = |verb: &str| asked.iter().filter(|call| call.verb == verb).count();
    assert!(count("get") > 0 && count("create") == 1 && count("update") > 60, "{}", asked.len());
}

#[test]
fn every_fault_at_every_request_for_the_lease() {
    // One renewal is as another, so that every answer is tried at the first ones, and at each of the others one of each class.
    let mut scripts = at_each(|nth, fault| vec![of(LEASE, nth, 1, fault)], &owned(&MORE));
    for call in asked() {
        let all = if call.nth < 12 { script::statuses_of(&call) } else { script::classes_of(&call) };
        scripts.extend(all.into_iter().map(|fault| (1, vec![of(LEASE, call.nth, 1, &fault)])));
    }
    campaign("upgrade: every fault at the lease", spread(scripts, 10));
}

#[test]
fn a_leader_that_cannot_renew_is_replaced() {
    for fault in ["refuse:500", "hang-before"] {
        let run = run(1, &[of(LEASE, 40, LOST, fault)]);
        assert!(run.wrong.is_empty(), "{fault}: {:#?}", run.wrong);
        let led = |call: &Call| call.agent == "evenkeel-b" && call.is_write();
        assert!(run.calls.iter().any(led), "{fault}: the other replica never led");
    }
    let scripts = at_each(|nth, fault| vec![of(LEASE, nth, LOST, fault)], &owned(&LASTING));
    campaign("upgrade: a leader that cannot renew", spread(scripts, 8));
    let both = |nth: u64, fault: &str| vec![of(LEASE, nth, LOST, fault), of(OTHER, nth, 2 * LOST, fault)];
    let scripts = at_each(both, &owned(&LASTING));
    campaign("upgrade: nobody can renew", spread(scripts, 4));
}

/// It is not known to whoever asks whether a renewal was carried out, and its process dies or stops beside it.
#[test]
fn a_leader_that_loses_the_lease_while_it_writes() {
    let count = asked().len() as u64;
    let calls = run(1, &[]).calls.iter().filter(|call| call.agent == LEADER).count() as u64;
    let mut scripts = Vec::new();
    for nth in 0..count {
        // About at the same time.
        let write = nth * calls / count;
        for (renewals, writes) in
            [("hang-after", "late:12"), ("hang-before", "delay:9"), ("refuse:409", "hang-after")]
        {
            scripts.push((1, vec![of(LEASE, nth, LOST, renewals), of(LEADER, write, 3, writes)]));
        }
    }
    campaign("upgrade: the lease is lost on the way of a write", spread(scripts, 4));
}

#[test]
fn faults_that_last_at_the_lease() {
    let mut scripts = Vec::new();
    for verb in ["get", "update", "create"] {
        for fault in script::statuses() {
            let line = format!("{verb} leases.coordination.k8s.io");
            scripts.push((1, vec![Step::Like { agent: LEASE.to_owned(), line, fault }]));
        }
    }
    campaign("upgrade: faults that last at the lease", spread(scripts, if is_long() { 99 } else { 6 }));
}
