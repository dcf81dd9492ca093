//! Executors of every kind, and control planes of both: how each run ends, and what it says then.

use evenkeel_sim::faults::Call;
use serde_json::Value;

use super::super::script;
use super::attacks::steps;
use super::{Run, run};

/// Runs a script as it is written; what the watcher says fails the test.
pub fn ends(script: &str) -> Run {
    let steps = steps(script);
    let run = run(1, &steps);
    assert!(run.wrong.is_empty(), "{}: {:#?}\n{:#}", script::line(&steps), run.wrong, run.end["upgrades"]);
    run
}

/// The reason of condition Ready, whether only a person can help, and the progress.
pub fn said(run: &Run) -> (&str, bool, &str) {
    let up = &run.end["upgrades"]["up"];
    let stalled = up["conditions"]["Stalled"][0] == "True";
    let text = |value: &'_ Value| value.as_str().map(str::to_owned);
    let reason = up["conditions"]["Ready"][1].as_str().unwrap_or_default();
    debug_assert!(text(&up["progress"]["summary"]).is_some());
    (reason, stalled, up["progress"]["summary"].as_str().unwrap_or_default())
}

pub fn claim<'a>(run: &'a Run, component: &str, node: &str) -> &'a str {
    run.end["claims"][format!("up.{component}.{node}")].as_str().unwrap_or("none")
}

const DONE: (&str, bool, &str) = ("Completed", false, "9/9");

#[test]
fn jobs_that_are_good() {
    assert_eq!(said(&ends("at 0 jobs")), DONE);
}

/// What an executor does after everything is seen to be there may still disturb its node.
#[test]
fn a_step_is_done_when_its_job_has_ended() {
    for (what, whole) in [("kubelet", ""), ("kube-scheduler", ""), ("control-plane", "at 0 whole; ")] {
        let run = ends(&format!("{whole}at 0 jobs; at 0 everything; at 0 executor {what}/* lingers 70"));
        assert_eq!((said(&run).0, said(&run).1), ("Completed", false), "{what}");
        let when = |claim: &str, state: &str| {
            run.turns.iter().find(|turn| turn.claim == claim && turn.state == state).unwrap().at
        };
        let all = run.end["claims"].as_object().unwrap().keys();
        let all: Vec<&String> = all.filter(|name| name.contains(&format!(".{what}."))).collect();
        assert!(all.len() >= 3, "{all:?}");
        for claim in all {
            let took = when(claim, "Upgraded").saturating_sub(when(claim, "Upgrading"));
            assert!(took.as_secs() > 70, "{claim} took {took:?}");
        }
    }
}

#[test]
fn an_external_executor_in_time_and_too_late() {
    assert_eq!(
        said(&ends("at 0 executor kubelet/main-3 after 200; at 0 executor kube-scheduler/cp-1 after 200")),
        DONE
    );
    // Seen at the target after all.
    let run = ends("at 0 deadline 60; at 0 executor kubelet/main-3 after 66");
    assert_eq!(said(&run), DONE, "{:#}", run.end);
    assert_eq!(said(&ends("at 0 deadline 60; at 0 executor kube-apiserver/cp-2 after 66")), DONE);
}

#[test]
fn an_external_executor_that_never_comes_stops_its_node_alone() {
    for way in ["hang", "wrong v1.36.9"] {
        let run = ends(&format!("at 0 deadline 60; at 0 executor kubelet/main-3 {way}"));
        assert_eq!(said(&run), ("NodesFailed", true, "8/9"), "{way}");
        assert_eq!(claim(&run, "kubelet", "main-3"), "Failed", "{way}");
        assert_eq!(run.end["nodes"]["main-3"]["cordoned"], true, "{way}");
    }
}

#[test]
fn a_budget_that_never_allows_anything_keeps_its_node_alone_until_somebody_changes_it() {
    let run = ends("at 0 impossible");
    assert_eq!(said(&run), ("NodesParked", true, "8/9"), "{:#}", run.end);
    assert_eq!(claim(&run, "kubelet", "main-6"), "none", "its other pods are not disturbed for nothing");
    let said_of = run.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
    assert!(said_of.contains("main-6") && said_of.contains("shop/frozen"), "{said_of}");
    let run = ends("at 0 impossible; at 400000 budget frozen maxUnavailable 1");
    assert_eq!(said(&run), DONE, "{:#}", run.end);
}

#[test]
fn a_server_that_does_not_come_stops_everything() {
    for component in ["kube-apiserver", "kube-controller-manager"] {
        for way in ["hang", "wrong v1.36.9", "gone"] {
            let run = ends(&format!("at 0 deadline 60; at 0 executor {component}/cp-2 {way}"));
            assert_eq!(said(&run), ("ControlPlaneFailed", true, "0/9"), "{component} {way}");
            assert_eq!(claim(&run, "kubelet", "canary-1"), "none", "{component} {way}");
        }
    }
}

/// The same where kube-apiservers are processes of the host, seen only at their endpoints.
#[test]
fn a_process_of_the_host_that_does_not_come_stops_everything() {
    for way in ["hang", "wrong v1.36.9", "gone"] {
        let run =
            ends(&format!("at 0 hosts; at 0 accept; at 0 deadline 60; at 0 executor kube-apiserver/* {way}"));
        assert_eq!(said(&run), ("ControlPlaneFailed", true, "0/9"), "{way}");
        assert_eq!(claim(&run, "kubelet", "canary-1"), "none", "{way}");
    }
}

#[test]
fn a_job_that_fails_or_says_what_is_not_so_stops_its_node_alone() {
    for way in ["fail", "hang", "lie", "wrong v1.36.9", "gone"] {
        let run = ends(&format!("at 0 jobs; at 0 deadline 60; at 0 executor kubelet/main-3 {way}"));
        assert_eq!(said(&run), ("NodesFailed", true, "8/9"), "{way}");
        assert_eq!(claim(&run, "kubelet", "main-3"), "Failed", "{way}");
    }
}

#[test]
fn an_image_that_never_comes_and_a_job_that_is_refused_end_too() {
    let run = ends("at 0 jobs; at 0 deadline 60; at 0 image missing");
    assert_eq!(said(&run), ("ControlPlaneFailed", true, "0/9"));
    // A missing permission, and a namespace that is missing.
    for code in [403, 404] {
        let run =
            ends(&format!("at 0 jobs; at 0 deadline 60; like evenkeel-a create~jobs.batch refuse:{code}"));
        assert_eq!(said(&run), DONE, "{code}");
    }
}

#[test]
fn a_job_that_somebody_deletes_is_made_again() {
    for (millis, end) in [(10_000, DONE), (120_000, DONE)] {
        let run = ends(&format!("at 0 jobs; at {millis} delete-jobs"));
        assert_eq!(said(&run), end, "at {millis} ms");
    }
    // The old pod has its grace period, and works until its end.
    for seconds in [180, 240, 300] {
        ends(&format!(
            "at 0 jobs; at 0 deadline 600; at 0 executor kubelet/* hang; at {seconds}000 delete-jobs"
        ));
    }
}

/// Argo CD's prune deletes in the foreground: first what the object owns, and only then the object.
#[test]
fn a_deletion_in_the_foreground_kills_no_executor() {
    let usual = ends("at 0 jobs");
    let works = |turn: &&super::Turn| turn.claim == "up.kubelet.main-1" && turn.state == "Upgrading";
    let millis = usual.turns.iter().find(works).unwrap().at.as_millis() + 2000;
    for deleted in ["delete-claim kubelet main-1", "delete-upgrade up"] {
        let run = ends(&format!("at 0 jobs; at {millis} {deleted} foreground"));
        let is_job = |call: &&Call| call.verb == "create" && call.resource == "jobs.batch";
        let body = |call: &Call| serde_json::from_slice::<Value>(&call.body).unwrap();
        let made: Vec<String> = run
            .calls
            .iter()
            .filter(is_job)
            .map(body)
            .map(|job| job["metadata"]["name"].to_string())
            .collect();
        let of_node = made.iter().filter(|name| made.iter().filter(|other| other == name).count() > 1);
        assert_eq!(
            of_node.filter(|name| !name.contains("dry-run")).count(),
            0,
            "{deleted}: made again: {made:?}"
        );
        let killed = |call: &&Call| call.verb == "delete" && call.resource == "jobs.batch";
        assert_eq!(run.calls.iter().filter(killed).count(), 0, "{deleted}");
        assert_eq!(run.end["nodes"]["main-1"]["cordoned"], false, "{deleted}");
    }
}

/// Whose the Job is, its claim says.
#[test]
fn a_failed_claim_that_is_deleted_goes_when_its_job_has_ended() {
    let hangs = "at 0 jobs; at 0 deadline 60; at 0 executor kubelet/main-3 hang";
    let run = ends(&format!("{hangs}; at 900000 delete-claim kubelet main-3"));
    assert_eq!((said(&run).0, claim(&run, "kubelet", "main-3")), ("NodesFailed", "Failed"));
    // A person who does not want to wait deletes the Job, and the node is theirs.
    for deleted in ["delete-claim kubelet main-3", "delete-upgrade up"] {
        let run = ends(&format!("{hangs}; at 900000 {deleted}; at 950000 delete-jobs"));
        assert_eq!(claim(&run, "kubelet", "main-3"), "none", "{deleted}");
        let node = &run.end["nodes"]["main-3"];
        assert_eq!((&node["cordoned"], &node["marked"]), (&true.into(), &false.into()), "{deleted}");
        let handed_over = |call: &&Call| call.line().contains("patch nodes main-3");
        let since = run.calls.iter().rfind(handed_over).map(|call| call.at - run.calls[0].at).unwrap();
        assert!(since.as_secs() >= 945, "{deleted}: after {since:?}");
    }
}

#[test]
fn nodes_of_the_control_plane_go_one_at_a_time() {
    let run = ends("at 0 everything");
    assert_eq!(said(&run), ("Completed", false, "12/12"));
}

/// One needs far longer to come back than static pods usually do, also under a leader that has seen nothing of it.
#[test]
fn a_node_of_the_control_plane_is_given_back_when_each_of_its_static_pods_is_back() {
    for died in ["", "; call evenkeel-a 352 1 crash-after"] {
        let run = ends(&format!(
            "at 0 everything; at 190000 take cp-2 kube-scheduler; at 260000 start cp-2 kube-scheduler{died}"
        ));
        assert_eq!(said(&run), ("Completed", false, "12/12"));
        let gives_back = |call: &&Call| call.line().contains("patch nodes cp-2");
        let since = run.calls.iter().rfind(gives_back).map(|call| call.at - run.calls[0].at).unwrap();
        assert!((255..300).contains(&since.as_secs()), "{died}: cp-2 was given back after {since:?}");
    }
}

#[test]
fn a_control_plane_of_processes_is_upgraded_when_a_person_answers_for_what_is_hidden() {
    let run = ends("at 0 hosts; at 0 accept");
    assert_eq!(said(&run), DONE);
}

#[test]
fn hidden_controllers_keep_kubelets_waiting() {
    let run = ends("at 0 hosts");
    let (_, stalled, progress) = said(&run);
    assert_eq!((stalled, progress), (true, "0/9"));
}

#[test]
fn hidden_controllers_keep_the_second_minor_waiting() {
    let run = ends("at 0 hosts; at 0 target v1.38.1");
    assert_eq!(said(&run), ("ControlPlaneHeld", true, "0/9"), "{:#}", run.end["upgrades"]);
    let why = run.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
    assert!(why.contains("when you know that it runs v1.37"), "{why}");
    assert_eq!(said(&ends("at 0 hosts; at 0 accept; at 0 target v1.38.1")), DONE);
}

#[test]
fn a_job_for_a_host_that_is_no_node_is_not_even_tried() {
    let run = ends("at 0 hosts; at 0 accept; at 0 jobs");
    assert_eq!(said(&run), ("PreflightFailed", true, "0/9"));
    let why = run.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
    assert!(why.contains("no Node is visible for these hosts"), "{why}");
    assert_eq!(run.end["claims"], serde_json::json!({}));
}

#[test]
fn a_pod_that_returns_and_a_budget_that_allows_nothing_park_their_node_alone() {
    let run = ends("at 0 drain 60; at 0 returning");
    assert_eq!((said(&run).0, claim(&run, "kubelet", "main-5")), ("NodesParked", "Parked"));
    assert_eq!(said(&run).2, "8/9");
}

#[test]
fn an_upgrade_goes_forward_and_back() {
    for millis in [500, 30_000, 100_000, 130_000, 180_000] {
        ends(&format!("at {millis} upgrade up v1.36.4; at {} upgrade up v1.37.1", millis + 60_000));
    }
}

#[test]
fn what_is_deleted_on_the_way_is_given_back() {
    for millis in [500, 30_000, 100_000, 118_000, 130_000, 180_000] {
        ends(&format!("at {millis} delete-upgrade up"));
        ends(&format!(
            "at {millis} delete-claim kubelet main-1; at {millis} delete-claim kube-apiserver cp-1"
        ));
    }
}

#[test]
fn a_kubelet_that_somebody_takes_back_is_held_and_named_and_not_fought() {
    let run = ends("at 130000 kubelet main-1 v1.36.4");
    assert_eq!(said(&run), ("NodesHeld", true, "8/9"), "{:#}", run.end["upgrades"]);
    let main = &run.end["nodes"]["main-1"];
    assert_eq!((&main["kubelet"], &main["cordoned"]), (&"v1.36.4".into(), &false.into()));
    assert_eq!(claim(&run, "kubelet", "main-1"), "Upgraded", "nobody takes it up again");
    let why = run.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
    assert!(why.contains("main-1") && why.contains("went back to v1.36.4 after it was upgraded"), "{why}");
    // After the end it is nobody's any more, and the upgrade does not say that it still runs the version.
    let run = ends("at 175000 kubelet main-1 v1.36.4");
    assert_eq!(said(&run), ("Completed", false, "8/9"), "{:#}", run.end["upgrades"]);
    let says = run.end["upgrades"]["up"]["conditions"]["Ready"][2].to_string();
    assert!(says.contains("when the upgrade was complete; not all of them do now"), "{says}");
}

#[test]
fn a_component_that_stays_away_is_for_a_person_and_its_return_is_enough() {
    // While nodes are drained.
    for (begins, which) in [
        ("at 110000", "cp-3 kube-apiserver"),
        ("at 110000", "cp-3 kube-scheduler"),
        ("at 0 hosts; at 0 accept; at 70000", "host-3 kube-apiserver"),
    ] {
        let taken = format!("{begins} take {which}");
        let run = ends(&taken);
        assert_eq!((said(&run).0, said(&run).1), ("ControlPlaneHeld", true), "{:#}", run.end["upgrades"]);
        let why = run.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
        assert!(why.contains("has been away for 15 minutes"), "{why}");
        let run = ends(&format!("{taken}; at 2000000 start {which}"));
        assert_eq!(said(&run), DONE, "{taken}: {:#}", run.end["upgrades"]);
        assert!(run.reasons.contains("ControlPlaneHeld"), "{:?}", run.reasons);
    }
}

#[test]
fn a_server_that_is_rolled_back_keeps_kubelets_waiting() {
    for millis in [100_000, 118_000, 150_000] {
        ends(&format!(
            "at {millis} component cp-3 kube-apiserver v1.36.4; at {} component cp-3 kube-apiserver v1.37.1",
            millis + 100_000
        ));
    }
}

#[test]
fn what_the_operator_may_not_see_is_what_the_upgrade_waits_for() {
    for resource in [
        "persistentvolumes",
        "volumeattachments.storage.k8s.io",
        "statefulsets.apps",
        "poddisruptionbudgets.policy",
        "upgradeexecutors.evenkeel.dev",
    ] {
        let refused = |verb: &str| format!("like evenkeel-a {verb}~{resource} refuse:403");
        let run = ends(&format!("{}; {}", refused("list"), refused("watch")));
        assert!(run.reasons.contains("Forbidden"), "{resource}: {:?}", run.reasons);
        assert_eq!(said(&run), DONE, "{resource}: when it may, it goes on");
    }
}

#[test]
fn a_node_that_is_replaced_in_a_moment_is_another_node() {
    for millis in [138_200, 141_000, 146_000] {
        ends(&format!("at {millis} leave main-2; at {millis} rejoin main-2"));
    }
}

#[test]
fn a_pod_that_a_slow_scheduler_binds_after_the_cordon_is_asked_to_leave() {
    let run = ends("at 0 slow-scheduler");
    assert_eq!(said(&run), ("Completed", false, "10/10"), "{:#}", run.end);
    assert_eq!(run.end["ready"]["late"], 1, "it runs elsewhere");
}

/// The watch tells of the pod when its node looks empty for long: only the fresh look before the executor sees it.
#[test]
fn a_pod_that_the_watch_tells_late_is_found_before_the_executor_begins() {
    let run = ends("at 0 slow-scheduler; told evenkeel-a pods 12 delay:20");
    assert_eq!(said(&run), ("Completed", false, "10/10"), "{:#}", run.end);
    assert_eq!(run.end["ready"]["late"], 1, "it runs elsewhere");
}

#[test]
fn a_claim_that_cannot_be_read_stops_its_node_alone() {
    let run = ends("at 0 bad-claim kubelet main-6");
    assert_eq!(said(&run), ("NodesHeld", true, "8/9"), "{:#}", run.end["upgrades"]);
    let why = run.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
    assert!(why.contains("main-6") && why.contains("has the state Begun"), "{why}");
}

#[test]
fn an_upgrade_that_becomes_invalid_on_the_way_keeps_the_next_one_waiting() {
    let run = ends("at 60000 upgrade up v1.99999.1; at 61000 upgrade second; at 400000 upgrade up v1.37.1");
    assert!(run.reasons.contains("Invalid") && run.reasons.contains("Queued"), "{:?}", run.reasons);
    let claims = run.end["claims"].as_object().unwrap();
    assert!(claims.keys().all(|name| name.starts_with("up.")), "{claims:#?}");
    assert_eq!(said(&run), DONE);
}

/// The names of the nodes of which one of these is true: `cordoned`, `marked`, `avoided`.
fn touched<'a>(run: &'a Run, in_which_way: &[&str]) -> Vec<&'a String> {
    let all = run.end["nodes"].as_object().unwrap();
    assert!(all.len() >= 9, "{all:#?}");
    let is = |node: &Value| in_which_way.iter().any(|what| node[what] == true);
    all.iter().filter(|(_, node)| is(node)).map(|(name, _)| name).collect()
}

/// Nodes drain, and later executors work, when its version becomes one that nobody can go to.
#[test]
fn an_upgrade_that_becomes_invalid_gives_its_nodes_back_when_they_have_settled() {
    for millis in [100_000, 103_000, 108_000] {
        let run = ends(&format!("at {millis} upgrade up v1.99999.1"));
        assert_eq!((said(&run).0, said(&run).1), ("Invalid", true), "{millis}: {:#}", run.end["upgrades"]);
        // Those that are to move yet are avoided still, as while it is suspended.
        assert_eq!(touched(&run, &["cordoned", "marked"]), Vec::<&String>::new(), "{millis}");
        let progress = &run.end["upgrades"]["up"]["progress"];
        assert_eq!(progress["inFlight"], 0, "{millis}: {progress}");
    }
}

#[test]
fn an_upgrade_that_became_invalid_can_be_deleted_whatever_it_has_in_flight() {
    for millis in [20_000, 100_000, 103_000, 108_000] {
        let run = ends(&format!("at {millis} upgrade up v1.99999.1; at {} delete-upgrade up", millis + 1500));
        assert_eq!(
            run.end["upgrades"].as_object().map(serde_json::Map::len),
            Some(0),
            "{millis}: {:#}",
            run.end
        );
        assert_eq!(
            run.end["claims"].as_object().map(serde_json::Map::len),
            Some(0),
            "{millis}: {:#}",
            run.end
        );
        let touched = touched(&run, &["cordoned", "marked", "avoided"]);
        assert_eq!(touched, Vec::<&String>::new(), "{millis}");
    }
}

#[test]
fn a_suspended_upgrade_is_paused_whatever_else_keeps_it() {
    let run = ends("at 0 plan-only; at 700 suspend up");
    let conditions = &run.end["upgrades"]["up"]["conditions"];
    assert_eq!((said(&run).0, &conditions["Paused"][0]), ("PlanOnly", &"True".into()), "{conditions:#}");
}

#[test]
fn a_claim_that_cannot_be_read_is_made_anew_once_a_person_deleted_it() {
    let run = ends("at 0 bad-claim kubelet main-6; at 200000 delete-claim kubelet main-6");
    assert_eq!(said(&run), DONE, "{:#}", run.end["claims"]);
}

#[test]
fn an_invalid_upgrade_beside_one_that_is_under_way_is_told_so_and_keeps_nobody_waiting() {
    let run = ends("at 60000 invalid broken");
    let ready = &run.end["upgrades"]["broken"]["conditions"]["Ready"];
    assert_eq!((&ready[0], &ready[1]), (&"False".into(), &"Invalid".into()), "{ready}");
    assert_eq!(said(&run), DONE);
}
