//! What happens to a drain: every fault at every request, deaths, lost events, people. What must hold is checked by the
//! module above.

use std::collections::BTreeSet;

use evenkeel_sim::faults::Call;

use super::super::campaign::{chance, is_long};
use super::super::deeds::SPECIAL;
use super::super::script::{self, Step};
use super::{DRAINER, TARGETS, campaign, run};

fn call(nth: u64, times: u64, fault: &str) -> Step {
    Step::Call { agent: DRAINER.to_owned(), nth, times, fault: fault.to_owned() }
}

fn at(millis: u64, deed: &str) -> Step {
    Step::At { millis, deed: deed.to_owned() }
}

fn requests() -> u64 {
    run(1, &[]).calls.len() as u64
}

#[test]
fn a_drain_without_faults() {
    let run = run(1, &[]);
    assert!(run.wrong.is_empty(), "{:#?}\n{}", run.wrong, run.said);
    assert_eq!(run.codes, [Ok(0)]);
    assert!((5..12).contains(&run.went.len()), "{:?}", run.went);
    let lines: Vec<String> = run.calls.iter().map(Call::line).collect();
    // Two cordons, an eviction each, two last looks, and what is watched.
    assert!(lines.len() < run.went.len() + 2 + 2 + 10, "{lines:#?}");
}

/// For the first minute. Nobody can tell the command that it may not cordon the node at all.
#[test]
fn a_node_whose_cordon_is_refused_for_good_is_given_up_and_the_other_one_is_drained() {
    for (fault, why) in [("refuse:403", "(HTTP 403)"), ("refuse:422", "(HTTP 422)"), ("deny", "no.example")] {
        let line = "patch nodes worker-2".to_owned();
        let run = run(1, &[Step::Like { agent: DRAINER.to_owned(), line, fault: fault.to_owned() }]);
        assert!(run.wrong.is_empty(), "{:#?}\n{}", run.wrong, run.said);
        assert_eq!(
            run.codes,
            [Ok(2), Ok(0)],
            "the second is of the time when it is allowed again\n{}",
            run.said
        );
        let told: Vec<&str> = run.said.lines().filter(|line| line.contains("not drained: ")).collect();
        let begins = "node/worker-2: not drained: the API server refuses to cordon it: ";
        assert!(told.len() == 1 && told[0].starts_with(begins) && told[0].contains(why), "{}", run.said);
        assert!(told[0].ends_with("; run the drain again when it allows that"), "{}", run.said);
        let first = run.said.split(told[0]).next().unwrap_or_default();
        assert!(first.contains("node/worker-1: drained in "), "{}", run.said);
    }
}

/// The look at an empty node says nothing about a pod that comes a moment after it.
#[test]
fn a_node_that_a_pod_comes_to_after_the_last_look_is_looked_at_again() {
    let whole = run(1, &[]);
    let ends = whole.said.lines().rfind(|line| line.contains(": drained in ")).unwrap();
    let node = ends.strip_prefix("node/").and_then(|line| line.split(':').next()).unwrap();
    let looks = |run: &super::Run| {
        let lists = run.calls.iter().filter(|call| script::kind_of(call) == "list pods");
        lists.map(|call| call.at).max().unwrap()
    };
    let look = looks(&whole).duration_since(whole.calls[0].at).as_millis();
    let mut came = 0;
    for millis in (u64::try_from(look).unwrap() - 30..).step_by(5).take(20) {
        let run = run(1, &[at(millis, &format!("late-pod {node}"))]);
        let evicted = run.calls.iter().find(|call| call.line() == "create pods/eviction shop/late");
        // It came when the node was called drained already.
        let Some(evicted) = evicted else { continue };
        assert!(run.wrong.is_empty(), "at {millis}: {:#?}\n{}", run.wrong, run.said);
        came += 1;
        assert!(
            looks(&run) > evicted.at,
            "at {millis}: {node} is called drained without a look\n{}",
            run.said
        );
    }
    assert!(came > 4, "{came}");
}

#[test]
fn a_crash_at_every_request() {
    let mut scripts = Vec::new();
    for nth in 0..requests() {
        for fault in ["crash-before", "crash-after", "reset-after", "hang-after"] {
            scripts.push((1, vec![call(nth, 1, fault)]));
        }
    }
    campaign("drain: a crash at every request", scripts);
}

#[test]
fn special_pods_and_a_crash_at_every_request() {
    let mut scripts = Vec::new();
    for kind in SPECIAL {
        let begins = at(0, &format!("pods {kind}"));
        let requests = run(1, std::slice::from_ref(&begins)).calls.len() as u64;
        for nth in 0..requests.min(40) {
            for (number, fault) in
                ["crash-before", "crash-after", "reset-after", "refuse:500"].into_iter().enumerate()
            {
                if is_long() || (nth as usize + number).is_multiple_of(8) {
                    scripts.push((1, vec![begins.clone(), call(nth, 1, fault)]));
                }
            }
        }
    }
    campaign("drain: special pods", scripts);
}

#[test]
fn a_crash_and_then_another() {
    let mut scripts = Vec::new();
    let count = requests();
    for first in 0..count {
        for second in 1..count {
            if is_long() || (first + 3 * second) % 7 == 0 {
                let fault = ["crash-before", "crash-after"][(second % 2) as usize];
                scripts.push((1, vec![call(first, 1, "crash-after"), call(first + second, 1, fault)]));
            }
        }
    }
    campaign("drain: two crashes", scripts);
}

#[test]
fn every_fault_at_every_request() {
    let calls = run(1, &[]).calls;
    let mut scripts = Vec::new();
    for nth in 0..calls.len() as u64 {
        for (at, fault) in script::statuses().iter().enumerate() {
            if is_long() || (nth as usize + at).is_multiple_of(3) {
                scripts.push((1, vec![call(nth, 1, fault)]));
            }
            if is_long() || (nth as usize + at).is_multiple_of(9) {
                scripts.push((1, vec![call(nth, 5, fault)]));
            }
        }
    }
    let kinds: BTreeSet<String> = calls.iter().map(script::kind_of).collect();
    for line in kinds {
        for (at, fault) in script::statuses().into_iter().enumerate() {
            if is_long() || line.contains("eviction") || at.is_multiple_of(3) {
                scripts.push((1, vec![Step::Like { agent: DRAINER.to_owned(), line: line.clone(), fault }]));
            }
        }
    }
    campaign("drain: every fault", scripts);
}

#[test]
fn stale_and_compacted_reads() {
    let mut scripts = Vec::new();
    for nth in 0..requests() {
        for fault in
            ["stale:1", "stale:3", "stale:30", "compact", "bookmarks", "late:3", "late:30", "pause:30"]
        {
            scripts.push((1, vec![call(nth, 1, fault)]));
        }
        scripts.push((1, vec![call(nth, 1, "crash-after"), call(nth + 1, 12, "stale:5")]));
    }
    campaign("drain: stale reads", scripts);
}

#[test]
fn events_that_are_lost_doubled_late_or_swapped() {
    let mut scripts = Vec::new();
    for resource in ["nodes", "pods", "poddisruptionbudgets.policy"] {
        for nth in 0..if is_long() { 60 } else { 7 } {
            for fault in ["drop", "duplicate", "delay:4", "swap", "gone", "end", "reset", "garbage"] {
                scripts.push((
                    1,
                    vec![Step::Told {
                        agent: DRAINER.into(),
                        resource: resource.into(),
                        nth,
                        fault: fault.into(),
                    }],
                ));
            }
        }
    }
    campaign("drain: events lost or swapped", scripts);
}

#[test]
fn people_and_other_programs_interfere_at_every_step() {
    let mut scripts = Vec::new();
    let steps = if is_long() { 60 } else { 6 };
    for step in 0..=steps {
        let millis = step * 24_000 / steps;
        for node in TARGETS {
            for deed in ["cordon", "uncordon", "leave", "silent"] {
                scripts.push((1, vec![at(millis, &format!("{deed} {node}"))]));
            }
        }
        for deed in [
            "budget cart maxUnavailable 0",
            "budget cart maxUnavailable 100%",
            "budget db minAvailable 4",
            "unbudget cart",
            "second-budget cart",
            "second-budget web",
            "scale cart 3",
            "scale web 9",
            "delete-pod 2",
            "leave worker-4",
            "silent worker-5",
            "blackout 1",
            "blackout 30",
            "compact",
            "jump 3600",
            "jump -3600",
        ] {
            scripts.push((1, vec![at(millis, deed)]));
        }
        scripts.push((1, vec![at(millis, "leave worker-2"), at(millis + 100, "join worker")]));
        scripts.push((1, vec![at(millis, "leave worker-2"), at(millis + 4000, "join worker")]));
        scripts.push((1, vec![at(millis, "silent worker-1"), at(millis + 90_000, "again worker-1")]));
        scripts.push((
            1,
            vec![
                at(millis, "budget cart maxUnavailable 0"),
                at(millis + 60_000, "budget cart maxUnavailable 2"),
            ],
        ));
    }
    campaign("drain: people interfere", scripts);
}

#[test]
fn seeds_with_many_faults() {
    let mut scripts = Vec::new();
    for seed in 0..if is_long() { 2000 } else { 100 } {
        let watched = ["nodes", "pods", "poddisruptionbudgets.policy"];
        // A cluster of another seed needs a run without faults to be compared with.
        scripts.push((seed % 10, chance(seed, &[DRAINER], &watched, 40)));
    }
    campaign("drain: many faults", scripts);
}

/// Whoever is told by the server that a pod is gone need not wait for the watch that lost its end, nor for the deadline.
#[test]
fn a_watch_that_tells_of_no_pod_any_more_holds_up_no_drain() {
    let watches = |call: &&Call| call.verb == "watch" && call.resource == "pods";
    let calls = run(1, &[]).calls;
    let each: Vec<u64> = calls.iter().filter(watches).take(TARGETS.len()).map(|call| call.nth).collect();
    assert_eq!(each.len(), TARGETS.len());
    for nth in each {
        let run = run(1, &[call(nth, 1, "bookmarks")]);
        assert!(run.wrong.is_empty(), "{:#?}\n{}", run.wrong, run.said);
        assert_eq!(run.codes, [Ok(0)], "{}", run.said);
        let took = |line: &str| line.split_once(": drained in ")?.1.split_once(' ')?.0.parse::<u64>().ok();
        let took: Vec<u64> = run.said.lines().filter_map(took).collect();
        assert!(took.len() == TARGETS.len() && took.iter().all(|seconds| *seconds < 120), "{}", run.said);
    }
}
