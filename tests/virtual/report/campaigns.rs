//! What happens to the report's controller: every fault at every request, deaths, lost events, lies. What must hold is
//! checked by the module above.

use std::collections::BTreeSet;

use evenkeel_sim::faults::Call;
use serde_json::Value;

use super::super::campaign::{chance, is_long};
use super::super::script::{self, Step};
use super::{EVIL, LIFE, base, campaign, run};

/// What each program asked in a run without faults.
fn asked(agent: &str) -> Vec<Call> {
    run(1, &[]).calls.into_iter().filter(|call| call.agent == agent).collect()
}

fn call(agent: &str, nth: u64, times: u64, fault: &str) -> Step {
    Step::Call { agent: agent.to_owned(), nth, times, fault: fault.to_owned() }
}

/// As long as something happens that the operator has to notice.
fn while_it_lives(calls: &[Call]) -> u64 {
    let Some(first) = calls.first() else { return 0 };
    calls.iter().take_while(|call| call.at < first.at + LIFE).count() as u64
}

#[test]
fn a_run_without_faults_reports_what_is() {
    let run = run(1, &[]);
    assert!(run.wrong.is_empty(), "{:#?}", run.wrong);
    let status = &run.report["status"];
    assert_eq!(
        (status["supported"].as_str(), status["nodes"].as_i64()),
        (Some("True"), Some(6)),
        "{status:#}"
    );
    assert_eq!(status["kubelets"], "v1.35.2..v1.37.1", "{status:#}");
    let line = |call: &Call| format!("{} {}", call.agent, call.line());
    let asked: Vec<String> = run.calls.iter().map(line).collect();
    let leads = asked.iter().filter(|line| line.starts_with("evenkeel-a ")).count();
    assert!((20..80).contains(&leads), "{asked:#?}");
}

#[test]
fn a_crash_at_every_request() {
    let mut scripts = Vec::new();
    for agent in ["evenkeel-a", "evenkeel-a-lease"] {
        for nth in 0..while_it_lives(&asked(agent)) {
            for fault in ["crash-before", "crash-after"] {
                scripts.push((1, vec![call(agent, nth, 1, fault)]));
            }
        }
    }
    campaign("report: a crash at every request", scripts);
}

#[test]
fn every_fault_at_every_request() {
    let calls = asked("evenkeel-a");
    let count = while_it_lives(&calls);
    let mut scripts = Vec::new();
    for nth in 0..count {
        for (at, fault) in script::statuses().iter().enumerate() {
            // Each fault meets each kind of request; all of them together take long.
            if is_long() || (nth as usize + at).is_multiple_of(7) {
                scripts.push((1, vec![call("evenkeel-a", nth, 1, fault)]));
            }
            if is_long() {
                scripts.push((1, vec![call("evenkeel-a", nth, 5, fault)]));
            }
        }
    }
    // What lasts: every request of a kind, until the end of the faults.
    let kinds: BTreeSet<String> = calls.iter().map(script::kind_of).collect();
    for line in kinds {
        for (at, fault) in script::statuses().into_iter().enumerate() {
            if is_long() || at.is_multiple_of(5) {
                scripts.push((
                    1,
                    vec![Step::Like { agent: "evenkeel-a".to_owned(), line: line.clone(), fault }],
                ));
            }
        }
    }
    campaign("report: every fault", scripts);
}

#[test]
fn stale_and_compacted_reads() {
    let mut scripts = Vec::new();
    for nth in 0..while_it_lives(&asked("evenkeel-a")) {
        for (at, fault) in
            ["stale:1", "stale:2", "stale:40", "compact", "bookmarks", "silence"].iter().enumerate()
        {
            if is_long() || (nth as usize + at).is_multiple_of(2) {
                scripts.push((1, vec![call("evenkeel-a", nth, 1, fault)]));
            }
        }
        // It dies, and what it then reads is older than what it knew.
        scripts.push((
            1,
            vec![call("evenkeel-a", nth, 1, "crash-after"), call("evenkeel-a", nth + 1, 12, "stale:9")],
        ));
    }
    campaign("report: stale reads", scripts);
}

const WATCHED: [&str; 5] = [
    "nodes",
    "pods",
    "endpointslices.discovery.k8s.io",
    "leases.coordination.k8s.io",
    "clusterskewreports.evenkeel.dev",
];

#[test]
fn events_that_are_lost_doubled_late_or_swapped() {
    let mut scripts = Vec::new();
    for resource in WATCHED {
        for nth in 0..if is_long() { 40 } else { 3 } {
            for fault in ["drop", "duplicate", "delay:4", "swap", "gone", "end", "reset", "garbage"] {
                // An event of these is told once in a cluster's life, and so is a node's deletion, the sixth of the nodes';
                // if that is lost, so is what it says.
                let beats = matches!(resource, "nodes" | "leases.coordination.k8s.io");
                let forgotten = !beats || resource == "nodes" && nth == 5;
                if forgotten && matches!(fault, "drop" | "swap") {
                    continue;
                }
                scripts.push((
                    1,
                    vec![Step::Told {
                        agent: "evenkeel-a".into(),
                        resource: resource.into(),
                        nth,
                        fault: fault.into(),
                    }],
                ));
            }
        }
    }
    campaign("report: events lost or swapped", scripts);
}

#[test]
fn blackouts_partitions_and_failovers() {
    let mut scripts = Vec::new();
    let at = |millis: u64, deed: String| Step::At { millis, deed };
    let steps = if is_long() { 60 } else { 8 };
    for step in 0..steps {
        let millis = step * LIFE.as_millis() as u64 / steps + 250;
        for seconds in [1, 30, 600] {
            scripts.push((1, vec![at(millis, format!("blackout {seconds}"))]));
            // Who leads is cut off: the other takes over.
            scripts.push((1, vec![at(millis, format!("cut evenkeel-a {seconds}"))]));
        }
        scripts.push((1, vec![at(millis, "compact".into())]));
        for component in ["kube-apiserver", "kube-controller-manager"] {
            let again = millis + 3000;
            scripts.push((
                1,
                vec![
                    at(millis, format!("stop cp-2 {component}")),
                    at(again, format!("start cp-2 {component}")),
                ],
            ));
        }
    }
    campaign("report: blackouts", scripts);
}

#[test]
fn nodes_that_vanish_and_return_and_clocks_that_jump() {
    let mut scripts = Vec::new();
    let at = |millis: u64, deed: String| Step::At { millis, deed };
    let steps = if is_long() { 30 } else { 7 };
    for step in 0..steps {
        let millis = step * 28_000 / steps + 300;
        for back in [100, 5000] {
            let steps = vec![at(millis, "leave old-1".into()), at(millis + back, "join old v1.36.4".into())];
            // Not when it is the old kubelet's turn to change.
            if millis > 8_000 || millis + back < 8_000 {
                scripts.push((1, steps));
            }
        }
        scripts.push((
            1,
            vec![at(millis, "silent cp-2".into()), at(millis + 3000, "again cp-2 v1.37.1".into())],
        ));
        for seconds in [3600, -3600] {
            scripts.push((1, vec![at(millis, format!("jump {seconds}"))]));
        }
        for seconds in [3, 12, 40] {
            for fault in ["late", "pause"] {
                scripts.push((1, vec![call("evenkeel-a", step * 4, 1, &format!("{fault}:{seconds}"))]));
            }
        }
    }
    campaign("report: nodes and clocks", scripts);
}

/// The paths of an object's leaves, without its identity.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    const IDENTITY: [&str; 6] = [
        "/apiVersion",
        "/kind",
        "/metadata/uid",
        "/metadata/name",
        "/metadata/namespace",
        "/metadata/resourceVersion",
    ];
    match value {
        // A pod is on its node for good.
        _ if IDENTITY.contains(&path)
            || path == "/spec/nodeName"
            || path == "/metadata/managedFields"
            || path.contains(' ') => {}
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                leaves(value, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (at, value) in list.iter().enumerate() {
                leaves(value, &format!("{path}/{at}"), found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

#[test]
fn every_field_that_is_read_can_say_anything() {
    let mut deeds = Vec::new();
    for (kind, name) in [
        ("Node", "cp-2"),
        ("Pod", "kube-apiserver-cp-2"),
        ("Pod", "kube-scheduler-cp-2"),
        ("Lease", "kube-controller-manager"),
        ("EndpointSlice", "kubernetes"),
    ] {
        let object = base().find(kind, name).unwrap();
        let mut found = Vec::new();
        leaves(&object, "", &mut found);
        // A kubelet ends a pod that need not be started again, and then it is over whatever the field says later.
        found.retain(|pointer| pointer != "/spec/restartPolicy");
        for (at, pointer) in found.into_iter().enumerate() {
            let all = if is_long() { 0..EVIL } else { at % EVIL..at % EVIL + 1 };
            for value in all {
                deeds.push((
                    format!("mutate {kind} {name} {pointer} {value}"),
                    format!("mend {kind} {name} {pointer}"),
                ));
            }
        }
    }
    // Eight in each run, one after the other.
    let scripts = deeds.chunks(8).map(|deeds| {
        let steps = deeds.iter().enumerate().flat_map(|(nth, (mutate, mend))| {
            let millis = 5000 + 3000 * nth as u64;
            [
                Step::At { millis, deed: mutate.clone() },
                Step::At { millis: millis + 2500, deed: mend.clone() },
            ]
        });
        (1, steps.collect())
    });
    campaign("report: every field says anything", scripts.collect());
}

#[test]
fn seeds_with_many_faults() {
    let mut scripts = Vec::new();
    for seed in 0..if is_long() { 2000 } else { 40 } {
        scripts.push((seed, chance(seed, &["evenkeel-a", "evenkeel-b"], &WATCHED, 60)));
    }
    campaign("report: many faults", scripts);
}
