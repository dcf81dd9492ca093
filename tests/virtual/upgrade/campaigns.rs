//! What happens to the usual upgrade (static pods, an external executor, `controlPlane.unit: Component`): faults at requests,
//! deaths, failovers, lost events, people. What must hold is checked by the module above.
//!
//! A run takes a second, so that a change is tried with a few of each kind. `EVENKEEL_CAMPAIGN=long` plays each fault at
//! each request; of watches that end at most 120 for each kind, of events of Leases at most 40; and what clocks, machines
//! and people do at 60 moments, spread over the upgrade. docs/virtual-cluster.md lists all that is left out.

use evenkeel_sim::faults::Call;

use super::super::campaign::{chance, is_long};
use super::super::script::Step;
use super::attacks::{Attacked, LEADER, WATCHED, at, call, clocks, machines, people, spread, told};
use super::{campaign, run};

/// How long the upgrade takes without faults, in milliseconds.
const WHOLE: u64 = 190_000;

/// The upgrade that nothing is otherwise of than usual.
fn usual() -> Attacked {
    Attacked::of(Vec::new())
}

#[test]
fn an_upgrade_without_faults() {
    let run = run(1, &[]);
    assert!(run.wrong.is_empty(), "{:#?}", run.wrong);
    let up = &run.end["upgrades"]["up"];
    assert_eq!(up["progress"]["summary"], "9/9", "{up:#}");
    assert_eq!(up["conditions"]["Ready"][1], "Completed", "{up:#}");
    assert_eq!(run.end["claims"].as_object().map(serde_json::Map::len), Some(18));
    // Each pod moves, once or twice, and nothing is asked again and again.
    assert!((40..100).contains(&run.evicted), "{}", run.evicted);
    assert_eq!(run.parked, 0, "nodes whose pods are tied to them wait for their turn");
    let asked: Vec<&Call> = run.calls.iter().filter(|call| call.agent == LEADER).collect();
    assert!(asked.len() < 550, "{}", asked.len());
    // One in five seconds, and one for each reason and time that must be stored at once.
    let told = asked.iter().filter(|call| call.is_write() && call.line().contains("clusterupgrades")).count();
    assert!(told < 45, "{told} statuses");
}

#[test]
fn with_spare_nodes_pods_move_once() {
    let run = run(1, &[at(0, "spare canary"), at(0, "spare main")]);
    assert!(run.wrong.is_empty(), "{:#?}", run.wrong);
    assert_eq!(run.end["upgrades"]["up"]["progress"]["summary"], "11/11");
    let pods = run.end["ready"].as_object().unwrap().iter().filter(|(app, _)| *app != "logs");
    let pods: u64 = pods.filter_map(|(_, ready)| ready.as_u64()).sum();
    assert!(run.evicted as u64 * 100 <= pods * 102, "{} evictions of {pods} pods", run.evicted);
}

/// A target that is two minors away.
fn far() -> Step {
    at(0, "target v1.38.1")
}

#[test]
fn an_upgrade_over_two_minors_moves_kubelets_once() {
    let run = run(1, &[far()]);
    assert!(run.wrong.is_empty(), "{:#?}", run.wrong);
    let up = &run.end["upgrades"]["up"];
    assert_eq!(up["progress"]["summary"], "9/9", "{up:#}");
    assert_eq!(up["conditions"]["Ready"][1], "Completed", "{up:#}");
    assert!((40..100).contains(&run.evicted), "{}", run.evicted);
    let servers = run.end["servers"].as_object().unwrap();
    // Each was moved twice, and nothing stayed at the minor between.
    assert!(servers.values().all(|server| server[0] == "v1.38.1"), "{servers:#?}");
}

#[test]
fn two_minors_with_crashes_and_people() {
    let calls: Vec<Call> = run(1, &[far()]).calls;
    let mut scripts = Vec::new();
    for write in calls.iter().filter(|call| call.agent == LEADER && call.is_write()) {
        for fault in ["crash-before", "crash-after", "refuse:500"] {
            scripts.push((1, vec![far(), call(write.nth, 1, fault)]));
        }
    }
    let mut scripts = spread(scripts, 8);
    for millis in (0..WHOLE).step_by(if is_long() { 5_000 } else { 60_000 }) {
        let (gone, back) = (millis + 700, millis + 20_700);
        for deeds in [
            vec![at(gone, "take cp-2 kube-apiserver"), at(back, "start cp-2 kube-apiserver")],
            vec![at(gone, "suspend up"), at(back, "resume up")],
            vec![at(gone, "blackout 30")],
        ] {
            scripts.push((1, [vec![far()], deeds].concat()));
        }
    }
    campaign("upgrade: two minors", scripts);
}

#[test]
fn a_crash_at_every_write() {
    campaign("upgrade: a crash at every write", spread(usual().crashes(), 10));
}

#[test]
fn every_fault_at_every_request() {
    let usual = usual();
    let mut scripts = spread(usual.faults(), 10);
    scripts.extend(spread(usual.lasting(), 4));
    campaign("upgrade: every fault", scripts);
}

#[test]
fn a_failover_at_every_write() {
    let usual = usual();
    campaign("upgrade: a leader that is stopped at every write", spread(usual.pauses(), 5));
    campaign("upgrade: a leader that is cut off at every write", spread(usual.cuts(), 4));
}

#[test]
fn stale_reads_and_late_requests() {
    campaign("upgrade: stale reads", spread(usual().stale(), 8));
}

#[test]
fn events_that_are_lost_doubled_late_or_swapped() {
    campaign("upgrade: events lost or swapped", spread(usual().events(), 8));
}

/// Nothing of an upgrade tells of executors and webhooks. A person takes one away and brings it back, changes it, or makes
/// one.
#[test]
fn executors_and_webhooks_that_change_while_nobody_hears_of_it() {
    let mut scripts = Vec::new();
    let executors = "upgradeexecutors.evenkeel.dev";
    let webhooks = "validatingwebhookconfigurations.admissionregistration.k8s.io";
    for millis in (0..WHOLE).step_by(if is_long() { 10_000 } else { 60_000 }) {
        let (begins, ends) = (millis + 700, millis + 30_700);
        for (resource, deeds) in [
            (executors, ["uninstall machines", "install machines"]),
            (executors, ["change-executor machines 400", "change-executor machines 300"]),
            (webhooks, ["webhook", "webhook gone"]),
        ] {
            let deeds = [at(begins, deeds[0]), at(ends, deeds[1])];
            let of = |told: Step| (1, [&deeds[..], &[told]].concat());
            scripts.extend((0..2).flat_map(|nth| told(resource, nth)).map(of));
        }
    }
    campaign("upgrade: executors and webhooks change", spread(scripts, 6));
}

/// So many moments of an upgrade, or in a change that is not tried for long only some of them.
fn moments(some: u64) -> u64 {
    if is_long() { 60 } else { some }
}

#[test]
fn clocks_that_jump_and_servers_that_are_cut_off() {
    let scripts = usual().happens(moments(8), 700, clocks);
    campaign("upgrade: clocks and blackouts", spread(scripts, 6));
}

#[test]
fn machines_that_go_away_and_come_back() {
    let scripts = usual().happens(moments(8), 300, |millis| machines(millis, "cp-2"));
    campaign("upgrade: machines go away", spread(scripts, 6));
}

#[test]
fn people_interfere_at_every_step() {
    let scripts = usual().happens(moments(10), 500, |millis| people(millis, "cp-2"));
    campaign("upgrade: people interfere", spread(scripts, 16));
}

#[test]
fn seeds_with_many_faults() {
    let mut scripts = Vec::new();
    for seed in 0..if is_long() { 2000 } else { 4 } {
        scripts.push((seed % 3, chance(seed, &["evenkeel-a", "evenkeel-b"], &WATCHED, 350)));
    }
    campaign("upgrade: many faults", scripts);
}
