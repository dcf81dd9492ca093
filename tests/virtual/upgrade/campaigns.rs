//! What happens to an upgrade: every fault at every request, deaths, failovers, lost events, people. What must hold is
//! checked by the module above.
//!
//! A run takes a second, so that a change is tried with a few of each kind, and `EVENKEEL_CAMPAIGN=long` with all.

use std::collections::BTreeSet;

use evenkeel_sim::faults::Call;

use super::super::campaign::{chance, is_long};
use super::super::script::{self, Step};
use super::{campaign, run};

pub const LEADER: &str = "evenkeel-a";
/// How long the upgrade takes without faults, in milliseconds.
const WHOLE: u64 = 190_000;

pub fn call(nth: u64, times: u64, fault: &str) -> Step {
    Step::Call { agent: LEADER.to_owned(), nth, times, fault: fault.to_owned() }
}

pub fn at(millis: u64, deed: &str) -> Step {
    Step::At { millis, deed: deed.to_owned() }
}

/// What the operator asked in a run without faults.
fn asked() -> Vec<Call> {
    run(1, &[]).calls.into_iter().filter(|call| call.agent == LEADER).collect()
}

/// All of it in a long campaign; else `some` of it, spread over the whole.
pub fn spread<T>(all: Vec<T>, some: usize) -> Vec<T> {
    if is_long() || all.len() <= some {
        return all;
    }
    let count = all.len();
    // A step without a common divisor meets every kind, whatever repeats.
    let picked: BTreeSet<usize> = (0..some).map(|at| (at * count / some + at * 7) % count).collect();
    all.into_iter().enumerate().filter(|(at, _)| picked.contains(at)).map(|(_, one)| one).collect()
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
    let asked = run.calls.iter().filter(|call| call.agent == LEADER).count();
    assert!(asked < 550, "{asked}");
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
    let mut scripts = Vec::new();
    for write in asked().iter().filter(|call| call.is_write()) {
        for fault in ["crash-before", "crash-after"] {
            scripts.push((1, vec![call(write.nth, 1, fault)]));
        }
    }
    campaign("upgrade: a crash at every write", spread(scripts, 10));
}

#[test]
fn every_fault_at_every_request() {
    let calls = asked();
    let mut scripts = Vec::new();
    for nth in 0..calls.len() as u64 {
        for fault in script::statuses() {
            scripts.push((1, vec![call(nth, 1, &fault)]));
        }
    }
    let mut scripts = spread(scripts, 10);
    let kinds: BTreeSet<String> = calls.iter().map(script::kind_of).collect();
    let mut lasting = Vec::new();
    for line in kinds {
        for fault in script::statuses() {
            lasting.push((1, vec![Step::Like { agent: LEADER.to_owned(), line: line.clone(), fault }]));
        }
    }
    scripts.extend(spread(lasting, 4));
    campaign("upgrade: every fault", scripts);
}

#[test]
fn a_failover_at_every_write() {
    let (mut pauses, mut cuts) = (Vec::new(), Vec::new());
    let calls = asked();
    let begun = calls.first().map(|call| call.at).unwrap();
    for write in calls.iter().filter(|call| call.is_write()) {
        // It is stopped, another leads, and it wakes with the request that it was about to send.
        for seconds in [12, 40] {
            pauses.push((1, vec![call(write.nth, 1, &format!("pause:{seconds}"))]));
        }
        let millis = (write.at - begun).as_millis() as u64 + 1;
        cuts.push((1, vec![at(millis, "cut evenkeel-a 60")]));
    }
    campaign("upgrade: a leader that is stopped at every write", spread(pauses, 5));
    campaign("upgrade: a leader that is cut off at every write", spread(cuts, 4));
}

#[test]
fn stale_reads_and_late_requests() {
    let mut scripts = Vec::new();
    for nth in 0..asked().len() as u64 {
        for fault in
            ["stale:1", "stale:7", "stale:40", "compact", "bookmarks", "silence", "late:3", "late:30"]
        {
            scripts.push((1, vec![call(nth, 1, fault)]));
        }
        scripts.push((1, vec![call(nth, 1, "crash-after"), call(nth + 1, 12, "stale:9")]));
    }
    campaign("upgrade: stale reads", spread(scripts, 8));
}

pub const WATCHED: [&str; 10] = [
    "nodes",
    "pods",
    "poddisruptionbudgets.policy",
    "persistentvolumes",
    "volumeattachments.storage.k8s.io",
    "endpointslices.discovery.k8s.io",
    "leases.coordination.k8s.io",
    "clusterupgrades.evenkeel.dev",
    "nodeupgrades.evenkeel.dev",
    "jobs.batch",
];

#[test]
fn events_that_are_lost_doubled_late_or_swapped() {
    let mut scripts = Vec::new();
    let told = run(1, &[]).told;
    for resource in WATCHED {
        let count = told.get(resource).copied().unwrap_or_default();
        // A lease tells the same all the time.
        let most = if resource.starts_with("leases") { 40 } else { 120 };
        let step = count.div_ceil(most).max(1);
        for nth in (0..count).step_by(step as usize) {
            for fault in ["drop", "duplicate", "delay:4", "swap", "gone", "end", "reset", "garbage"] {
                let told =
                    Step::Told { agent: LEADER.into(), resource: resource.into(), nth, fault: fault.into() };
                scripts.push((1, vec![told]));
            }
        }
    }
    campaign("upgrade: events lost or swapped", spread(scripts, 8));
}

#[test]
fn clocks_that_jump_and_servers_that_are_cut_off() {
    let mut scripts = Vec::new();
    let steps = if is_long() { 60 } else { 8 };
    for step in 0..steps {
        let millis = step * WHOLE / steps + 700;
        for deed in ["jump 3600", "jump -3600", "blackout 1", "blackout 30", "blackout 600", "compact"] {
            scripts.push((1, vec![at(millis, deed)]));
        }
    }
    campaign("upgrade: clocks and blackouts", spread(scripts, 6));
}

#[test]
fn machines_that_go_away_and_come_back() {
    let mut scripts = Vec::new();
    let steps = if is_long() { 60 } else { 8 };
    for step in 0..steps {
        let millis = step * WHOLE / steps + 300;
        for seconds in [20, 120] {
            let again = millis + seconds * 1000;
            scripts.push((1, vec![at(millis, "zone c silent"), at(again, "zone c again")]));
        }
        for component in ["kube-apiserver", "kube-controller-manager"] {
            let again = millis + 20_000;
            scripts.push((
                1,
                vec![
                    at(millis, &format!("take cp-2 {component}")),
                    at(again, &format!("start cp-2 {component}")),
                ],
            ));
        }
    }
    campaign("upgrade: machines go away", spread(scripts, 6));
}

#[test]
fn people_interfere_at_every_step() {
    let mut scripts = Vec::new();
    let steps = if is_long() { 60 } else { 10 };
    for step in 0..steps {
        let millis = step * WHOLE / steps + 500;
        let later = |seconds: u64, deed: &str| at(millis + seconds * 1000, deed);
        for deeds in [
            vec![at(millis, "cordon main-3"), later(60, "uncordon main-3")],
            vec![at(millis, "cordon main-3")],
            vec![at(millis, "uncordon main-1")],
            vec![at(millis, "leave main-2"), later(5, "rejoin main-2")],
            vec![at(millis, "leave main-6")],
            // So quickly that nobody sees it gone.
            vec![at(millis, "leave main-2"), at(millis, "rejoin main-2")],
            vec![at(millis, "budget cart maxUnavailable 0"), later(90, "budget cart maxUnavailable 2")],
            vec![at(millis, "budget cart maxUnavailable 100%")],
            vec![at(millis, "suspend up"), later(60, "resume up")],
            vec![at(millis, "suspend up")],
            vec![at(millis, "upgrade second"), later(30, "delete-upgrade second")],
            vec![at(millis, "invalid broken")],
            vec![at(millis, "hold main-4"), later(60, "unhold main-4")],
            vec![at(millis, "hold main-4")],
        ] {
            scripts.push((1, deeds));
        }
    }
    campaign("upgrade: people interfere", spread(scripts, 10));
}

#[test]
fn seeds_with_many_faults() {
    let mut scripts = Vec::new();
    for seed in 0..if is_long() { 2000 } else { 4 } {
        scripts.push((seed % 3, chance(seed, &["evenkeel-a", "evenkeel-b"], &WATCHED, 350)));
    }
    campaign("upgrade: many faults", scripts);
}
