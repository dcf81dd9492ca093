//! What a person chooses that ends an upgrade early, or lets it begin late: each with a crash before and after each write.
//! Where it stands in the end depends on when it died, so that only the reason of its end is compared.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_sim::faults::Call;
use serde_json::json;

use super::super::campaign::Wrong;
use super::super::script::line;
use super::attacks::{Attacked, Script, at, spread, steps};
use super::base::FROM;
use super::ends::{claim, ends, said};
use super::{Run, judged, run};

const DONE: (&str, bool, &str) = ("Completed", false, "9/9");

/// Every script ends with `reason` as the reason of condition Ready.
pub fn end_as(name: &str, reason: &str, scripts: Vec<Script>) {
    judged(&format!("upgrade: {name}"), scripts, |_, _, done| {
        let mut wrong = done.wrong.clone();
        let found = said(&done).0;
        if found != reason {
            wrong.push(format!("invariant 14: ends as {found}, not as {reason}: {:#}", done.end["upgrades"]));
        }
        wrong
    });
}

/// A crash before and after each write of the upgrade that begins so, or `some` of them.
fn crashes(begins: &str, some: usize) -> Vec<Script> {
    spread(Attacked::of(steps(begins)).crashes(), some)
}

/// What was touched in a run in which nothing may be: nodes, pods, claims, Jobs, and anything else that is not said of the
/// upgrade or of who leads.
pub fn touched(run: &Run) -> Wrong {
    let mut wrong = Wrong::new();
    let said = [
        "clusterupgrades.evenkeel.dev",
        "clusterskewreports.evenkeel.dev",
        "events.events.k8s.io",
        "events",
        "leases.coordination.k8s.io",
    ];
    let ours = |call: &&Call| call.agent.starts_with("evenkeel") && call.is_write();
    // A trial of a Job is carried out by nobody: no Job is there in the end.
    let trial = |call: &Call| call.verb == "create" && call.resource == "jobs.batch";
    let other = |call: &&Call| !said.contains(&call.resource.as_str()) && !trial(call);
    wrong.extend(run.calls.iter().filter(ours).filter(other).map(|call| format!("touches {}", call.line())));
    if run.end["claims"] != json!({}) || run.evicted > 0 || !run.given.is_empty() {
        wrong.push(format!("is at work: {:#}, {} evicted", run.end["claims"], run.evicted));
    }
    for (name, node) in run.end["nodes"].as_object().into_iter().flatten() {
        if node["kubelet"] != FROM
            || node["cordoned"] == true
            || node["marked"] == true
            || node["avoided"] == true
        {
            wrong.push(format!("touches node {name}: {node}"));
        }
    }
    for (name, server) in run.end["servers"].as_object().into_iter().flatten() {
        if server[0] != FROM {
            wrong.push(format!("touches {name}: {server}"));
        }
    }
    wrong
}

#[test]
fn an_upgrade_that_only_plans_touches_nothing() {
    let begins = "at 0 plan-only; at 0 lasts 3600";
    for more in ["", "; at 0 jobs", "; at 0 hosts; at 0 accept; at 0 approves up 20"] {
        let run = ends(&format!("{begins}{more}"));
        assert_eq!((said(&run).0, touched(&run)), ("PlanOnly", Wrong::new()), "{more}");
    }
    // A run that is not told so does touch something.
    assert!(!touched(&ends("")).is_empty());
    // The plan is made anew every now and then, and so is everything that is asked for it: after ten minutes each of these
    // requests was sent several times.
    let attacked = Attacked::of(steps(begins)).until(Duration::from_mins(10));
    judged("upgrade: only planned", spread(attacked.faults(), 4), |_, _, done| {
        let (mut wrong, found) = (done.wrong.clone(), said(&done).0);
        wrong.extend(touched(&done));
        if found != "PlanOnly" {
            wrong.push(format!("invariant 14: ends as {found}"));
        }
        wrong
    });
}

/// A person says by which release the minor on the way is passed.
#[test]
fn the_versions_on_the_way_are_those_that_were_asked_for() {
    let begins = "at 0 target v1.38.1; at 0 via v1.37.0";
    let run = ends(begins);
    assert_eq!(said(&run), DONE);
    let claims = |call: &&Call| call.verb == "create" && call.resource == "nodeupgrades.evenkeel.dev";
    let to = |call: &Call| call.sent()["spec"]["toVersion"].as_str().unwrap_or_default().to_owned();
    let versions: BTreeSet<String> = run.calls.iter().filter(claims).map(to).collect();
    assert_eq!(versions.into_iter().collect::<Vec<_>>(), ["v1.37.0", "v1.38.1"]);
    super::campaign("upgrade: by a release that was asked for", crashes(begins, 3));
}

#[test]
fn a_crash_keeps_a_halt() {
    for begins in ["at 0 halt; at 0 drain 60; at 0 returning", "at 0 halt; at 0 impossible"] {
        end_as("a halt", "NodesHalted", crashes(begins, 4));
    }
}

#[test]
fn a_crash_keeps_what_the_failure_policy_stopped() {
    let failed = "at 0 deadline 60; at 0 executor kubelet/canary-1 hang; at 0 executor kubelet/* after 50; at 0 limit maxFailed";
    for limit in ["1", "10%"] {
        end_as("too many failures", "FailurePolicy", crashes(&format!("{failed} {limit}"), 3));
    }
    // A fifth of nine nodes is one.
    let parked = "at 0 limit maxParked 20%; at 0 drain 60; at 0 returning";
    end_as("too many parked nodes", "FailurePolicy", crashes(parked, 3));
    // Two of ten may not be failed, and one is.
    let fewer = ends(&format!("{failed} 25%"));
    assert_eq!((said(&fewer).0, said(&fewer).2), ("NodesFailed", "6/9"), "two of nine may not, and one did");
}

/// A node that runs the new version and is not ready has failed as much as any other.
#[test]
fn nobody_follows_what_broke_at_the_new_version() {
    let breaks = "at 0 deadline 60; at 0 executor kubelet";
    let group = format!("{breaks}/canary-1 breaks; at 0 soak canary 60");
    let run = ends(&group);
    assert_eq!(said(&run), ("NodesFailed", true, "0/9"), "{:#}", run.end);
    let canary = format!("{breaks}/* breaks; at 0 canary rest 1");
    let run = ends(&canary);
    assert_eq!(said(&run), ("NodesFailed", true, "0/9"));
    assert_eq!(run.end["upgrades"]["up"]["progress"]["failed"], 2, "one of each group: {:#}", run.end);
    for begins in [&group, &canary] {
        end_as("what broke", "NodesFailed", crashes(begins, 4));
    }
    // Whoever deletes the claim does not say that the node is well, and neither does whoever uncordons it.
    for begins in [
        format!("{group}; at 600000 delete-claim kubelet canary-1"),
        format!("{group}; at 600000 delete-claim kubelet canary-1; at 620000 uncordon canary-1"),
        format!("{breaks}/main-1 breaks; at 0 canary rest 1; at 600000 delete-claim kubelet main-1"),
    ] {
        assert_eq!(said(&ends(&begins)).0, "NodesHeld", "{begins}");
    }
}

#[test]
fn nobody_follows_a_canary_that_is_lost_while_it_soaks() {
    let soak = "at 0 soak canary 600; at 500000 silent canary-1";
    let run = ends(soak);
    assert_eq!((said(&run).0, said(&run).2), ("NodesHeld", "3/9"), "{:#}", run.end);
    let run = ends(&format!("{soak}; at 1800000 again canary-1"));
    assert_eq!(said(&run), DONE, "{:#}", run.end);
}

#[test]
fn a_crash_does_not_end_the_wait_for_a_pod_that_completes() {
    let begins = "at 0 drain 3000; at 0 rule batch WaitCompleted; at 0 batch; at 600000 finish batch";
    end_as("a pod that completes", "Completed", crashes(begins, 4));
}

#[test]
fn nothing_begins_before_a_person_approves_the_plan_as_it_is() {
    let late = "at 0 approval; at 300000 approves up 5";
    let run = ends(late);
    assert_eq!(said(&run), DONE);
    assert!(run.reasons.contains("AwaitingApproval") && run.took.as_secs() > 300, "{:?}", run.took);
    end_as("a late approval", "Completed", crashes(late, 4));
    // What was approved is another plan than this one, and then none that ever was.
    let stale = r#"at 0 approval; at 20000 spec up {"approval":{"planHash":"0123456789abcdef0123456789abcdef"}}; at 300000 approves up 1"#;
    assert!(ends(stale).took.as_secs() > 300);
    end_as("a stale approval", "Completed", crashes(stale, 3));
}

#[test]
fn another_plan_on_the_way_needs_another_approval() {
    for millis in [30_000, 100_000, 140_000] {
        let other = format!(r#"at {millis} spec up {{"version":"v1.37.2"}}"#);
        let waits = ends(&format!("at 0 approval; at 0 approves up 5; {other}"));
        assert_eq!(said(&waits), DONE, "{:#}", waits.end["upgrades"]);
        assert!(
            waits.end["servers"].as_object().unwrap().values().all(|server| server[0] == "v1.37.2"),
            "{:#}",
            waits.end["servers"]
        );
    }
}

/// A node is out of it for a while when it is its zone's turn, and so is a zone.
#[test]
fn zones_go_in_order_whatever_becomes_free_later() {
    for millis in [60_000, 100_000, 125_000] {
        let later = millis + 45_000;
        for (does, undoes) in [
            ("hold main-4", "unhold main-4"),
            ("cordon main-1", "uncordon main-1"),
            ("zone c silent", "zone c again"),
            ("budget cart maxUnavailable 0", "budget cart maxUnavailable 1"),
        ] {
            let run = ends(&format!("at 0 zones rest; at {millis} {does}; at {later} {undoes}"));
            assert_eq!(said(&run), DONE, "{millis} {does}: {:#}", run.end["upgrades"]);
        }
    }
}

/// What an executor does is part of what was approved, and so is how nodes are drained and grouped.
#[test]
fn what_becomes_otherwise_on_the_way_waits_for_another_approval() {
    let approved = "at 0 approval; at 0 approves up 45";
    for deed in [
        "change-executor machines 400",
        r#"spec up {"drain":{"timeoutSeconds":900}}"#,
        r#"spec up {"drain":{"barePods":"Evict"}}"#,
    ] {
        for millis in [60_000, 118_000, 150_000] {
            let run = ends(&format!("{approved}; at {millis} {deed}"));
            assert_eq!(said(&run), DONE, "{millis} {deed}: {:#}", run.end["upgrades"]);
        }
    }
    let by_jobs = format!("at 0 jobs; {approved}; at 150000 change-executor machines 400");
    end_as("another executor", "Completed", crashes(&by_jobs, 5));
    let taken_back = format!("{approved}; at 130000 spec up {{\"approval\":null}}");
    end_as("an approval that is taken back", "Completed", crashes(&taken_back, 3));
}

/// The zone of windows and freezes is not where the cluster is.
#[test]
fn windows_and_freezes_hold_in_their_time_zone() {
    for zone in ["Asia/Kolkata", "Pacific/Honolulu"] {
        let run = ends(&format!("at 0 time-zone {zone}; at 0 window 5 700; at 0 window 40 3600"));
        assert_eq!(said(&run), DONE, "{zone}");
        assert!(
            run.reasons.contains("WaitingForWindow") && run.took.as_secs() > 270,
            "{zone} {:?}",
            run.took
        );
        let run = ends(&format!("at 0 time-zone {zone}; at 0 freeze 60 1000"));
        assert_eq!(said(&run), DONE, "{zone}");
        assert!(run.reasons.contains("Frozen") && run.took.as_secs() > 1000, "{zone} {:?}", run.took);
    }
}

#[test]
fn a_risk_that_is_accepted_lets_the_upgrade_begin_until_it_ends() {
    let refused = ends("at 0 webhook");
    assert_eq!((said(&refused).1, said(&refused).2), (true, "0/9"), "{:#}", refused.end["upgrades"]);
    assert_eq!(claim(&refused, "kube-apiserver", "cp-1"), "none");
    let accepted = "at 0 webhook; at 0 risk O5/guard/guard.example.com 86400";
    assert_eq!(said(&ends(accepted)), DONE);
    end_as("an accepted webhook", "Completed", crashes(accepted, 3));
    let hidden = |until: u64| {
        ends(&format!(
            "at 0 hosts; at 0 risk H1/kube-controller-manager 86400; at 0 risk H1/kube-scheduler {until}"
        ))
    };
    assert_eq!(said(&hidden(86_400)), DONE);
    // It ends before the first kubelet may be moved.
    let early = hidden(20);
    assert_eq!((said(&early).1, said(&early).2), (true, "0/9"), "{:#}", early.end["upgrades"]);
    // It ends while nodes move: what was given to an executor is finished, and nothing more is begun.
    let midway = hidden(60);
    assert_eq!(said(&midway).0, "ControlPlaneHeld", "{:#}", midway.end["upgrades"]);
    let cordoned = midway.end["nodes"].as_object().unwrap().values().filter(|node| node["cordoned"] == true);
    assert_eq!(cordoned.count(), 0, "{:#}", midway.end["nodes"]);
    // It ends while a node is empty that its executor may not begin with any more.
    let drained = hidden(80);
    assert_eq!(
        (said(&drained).0, said(&drained).1),
        ("ControlPlaneHeld", true),
        "{:#}",
        drained.end["upgrades"]
    );
}

#[test]
fn a_node_that_may_stay_behind_ends_nothing_and_calls_for_nobody() {
    let accepted = "at 0 impossible; at 0 risk U3/PodDisruptionBudget/shop/frozen";
    let run = ends(&format!("{accepted} 86400"));
    assert_eq!(said(&run), ("CompletedWithExceptions", false, "8/9"), "{:#}", run.end["upgrades"]);
    assert_eq!(claim(&run, "kubelet", "main-6"), "none");
    let why = run.end["upgrades"]["up"]["conditions"]["Ready"].clone();
    let line = why[2].to_string();
    assert!(why[0] == "True" && line.contains("main-6: ") && line.contains("(accepted until "), "{line}");
    end_as("an accepted exception", "CompletedWithExceptions", crashes(&format!("{accepted} 86400"), 3));
    // Halt does not stop at it, no group waits for it, and it does not count as parked.
    let strict = format!("{accepted} 86400; at 0 halt; at 0 limit maxParked 1");
    assert_eq!(said(&ends(&strict)).0, "CompletedWithExceptions");
    // Its budget is mended, or the acceptance ends.
    let mended = format!("{accepted} 86400; at 400000 budget frozen maxUnavailable 1");
    let run = ends(&mended);
    assert_eq!(said(&run), DONE);
    assert!(run.reasons.contains("CompletedWithExceptions"), "{:?}", run.reasons);
    let run = ends(&format!("{accepted} 500; at 600000 compact"));
    assert_eq!(said(&run), ("NodesParked", true, "8/9"), "{:#}", run.end["upgrades"]);
    assert!(run.reasons.contains("CompletedWithExceptions"), "{:?}", run.reasons);
    // A drain that was begun in vain.
    let returning = "at 0 drain 60; at 0 returning; at 0 risk X/Pod/shop/returning 86400";
    assert_eq!(said(&ends(returning)).0, "NodesParked", "that is no pod's name");
}

#[test]
fn pods_that_would_be_lost_keep_their_node_or_leave_it_as_was_chosen() {
    let parked = |script: &str, node: &str, pod: &str| {
        let run = ends(script);
        assert_eq!(
            (said(&run).0, said(&run).2),
            ("NodesParked", "8/9"),
            "{script}: {:#}",
            run.end["upgrades"]
        );
        assert_eq!(claim(&run, "kubelet", node), "none", "{script}");
        let why = run.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
        assert!(why.contains(node) && why.contains(pod), "{why}");
    };
    parked("at 0 bare main-6", "main-6", "shop/alone");
    parked("at 0 empty-dir Refuse; at 0 cache main-4", "main-4", "shop/cache");
    // A deadline makes nobody lose what was refused.
    parked("at 0 force; at 0 drain 60; at 0 bare main-6", "main-6", "shop/alone");
    let lost = ends("at 0 bare-pods Evict; at 0 bare main-6");
    assert_eq!((said(&lost), lost.end["ready"]["alone"].is_null()), (DONE, true), "{:#}", lost.end["ready"]);
    assert_eq!(said(&ends("at 0 cache main-4")), DONE);
}

#[test]
fn zones_canaries_and_percentages_end_well() {
    for begins in [
        "at 0 zones rest; at 0 zones canary; at 0 everything",
        "at 0 canary rest 2; at 0 canary canary 1",
        "at 0 zones rest; at 0 canary rest 1; at 0 most rest 50%",
        "at 0 most rest 10%",
    ] {
        let run = ends(begins);
        assert_eq!((said(&run).0, said(&run).1), ("Completed", false), "{begins}");
        let scripts = crashes(begins, 2);
        super::campaign(&format!("upgrade: {}", line(&steps(begins))), scripts);
    }
    let alone = run(1, &[at(0, "most rest 100%"), at(0, "zones rest")]);
    assert!(alone.wrong.is_empty(), "{:#?}", alone.wrong);
}
