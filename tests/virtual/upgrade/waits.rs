//! Upgrades that may not begin anything new for a while: windows, freezes, soaks, failure policies and zones.

use super::super::script::Step;
use super::{Run, Turn, run};

fn ends(script: &str) -> Run {
    let steps: Vec<Step> = script.split("; ").map(|step| step.parse().unwrap()).collect();
    let run = run(1, &steps);
    assert!(run.wrong.is_empty(), "{script}: {:#?}\n{:#}", run.wrong, run.end["upgrades"]);
    run
}

/// The reason and the message of condition Ready, and the progress.
fn said(run: &Run) -> (String, String, String) {
    let up = &run.end["upgrades"]["up"];
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let ready = &up["conditions"]["Ready"];
    (text(&ready[1]), text(&ready[2]), text(&up["progress"]["summary"]))
}

fn is_done(run: &Run) {
    let (reason, message, progress) = said(run);
    assert_eq!((reason.as_str(), progress.as_str()), ("Completed", "9/9"), "{message}: {:#}", run.end);
}

#[test]
fn an_upgrade_waits_for_its_window_and_goes_on_in_the_next_one() {
    // Ten minutes and a second: of the nodes that take nine minutes as far as anybody knows, the first are begun.
    let run = ends("at 0 window 5 700; at 0 window 40 3600");
    is_done(&run);
    assert!(run.reasons.contains("WaitingForWindow"), "{:?}", run.reasons);
    assert!(run.took.as_secs() > 270 && run.took.as_secs() < 3600, "{:?}", run.took);
    let whole = ends("at 0 window 0 3600");
    is_done(&whole);
    assert!(!whole.reasons.contains("WaitingForWindow"), "{:?}", whole.reasons);
}

#[test]
fn a_window_that_ends_on_the_way_leaves_the_rest_to_the_next_one() {
    // A guess of nine minutes does not fit any more once the control plane is done.
    let run = ends("at 0 window 0 400; at 0 window 30 3600");
    is_done(&run);
    assert!(run.reasons.contains("WaitingForWindow") && run.took.as_secs() > 1700, "{:?}", run.took);
}

/// Another server goes away just after a step was claimed, and comes back when no window is open.
#[test]
fn a_step_that_was_claimed_in_time_is_not_begun_too_late() {
    let windows = "at 0 window 0 400; at 0 window 30 3600";
    let calm = ends(windows);
    let claimed = |turn: &&Turn| turn.claim == "up.kube-apiserver.cp-3" && turn.state == "Claimed";
    let gone = calm.turns.iter().find(claimed).unwrap().at.as_millis() + 1;
    let away = format!("at {gone} take cp-1 kube-apiserver; at 500000 start cp-1 kube-apiserver");
    let run = ends(&format!("{windows}; {away}"));
    is_done(&run);
    let begun = |turn: &&Turn| turn.claim == "up.kube-apiserver.cp-3" && turn.state == "Upgrading";
    assert!(run.turns.iter().find(begun).unwrap().at.as_secs() > 1700, "{:#?}", run.turns);
}

#[test]
fn a_freeze_that_begins_on_the_way_lets_what_is_in_flight_settle() {
    // One that was written before, and ends what fits; and one that a person writes in the middle of it.
    for freeze in ["at 0 freeze 700 3000", "at 150000 freeze-now up 2850"] {
        let run = ends(&format!("{freeze}; at 0 executor kubelet/* after 200"));
        is_done(&run);
        assert!(run.reasons.contains("Frozen") && run.took.as_secs() > 3000, "{freeze}: {:?}", run.reasons);
    }
}

#[test]
fn a_soak_goes_on_across_the_death_of_the_operator() {
    let soak = "at 0 soak controlPlane 600; at 0 soak canary 900";
    let whole = ends(soak);
    is_done(&whole);
    assert!(whole.reasons.contains("Soaking"), "{:?}", whole.reasons);
    let took = whole.took.as_secs();
    assert!((1500..2100).contains(&took), "{took}");
    // It dies with the write of the status that says since when, and with the one before.
    let writes = |call: &&evenkeel_sim::faults::Call| {
        call.agent == "evenkeel-a" && call.resource.starts_with("clusterupgrades") && call.is_write()
    };
    let soaking = |call: &&evenkeel_sim::faults::Call| {
        String::from_utf8_lossy(&call.body).contains("\"reason\":\"Soaking\"")
    };
    let all: Vec<_> = whole.calls.iter().filter(writes).collect();
    let at = all.iter().position(soaking).expect("it says that it soaks");
    for (nth, fault) in
        [(all[at].nth, "crash-before"), (all[at].nth, "crash-after"), (all[at - 1].nth, "crash-after")]
    {
        let died = ends(&format!("{soak}; call evenkeel-a {nth} 1 {fault}"));
        is_done(&died);
        let later = died.took.as_secs().abs_diff(took);
        assert!(later < 60, "{fault} {nth}: {later} s later, so a soak began anew");
    }
}

#[test]
fn from_as_many_failures_on_as_may_be_nothing_new_is_begun() {
    let run = ends(
        "at 0 limit maxFailed 1; at 0 deadline 60; at 0 executor kubelet/canary-1 hang; at 0 executor kubelet/* after 50",
    );
    let (reason, message, progress) = said(&run);
    assert_eq!(reason, "FailurePolicy", "{message}");
    assert!(message.contains("canary-1") && message.starts_with("1 of 9 nodes failed"), "{message}");
    assert_ne!(progress, "8/9", "the others are left alone");
    let run = ends("at 0 limit maxFailed 2; at 0 deadline 60; at 0 executor kubelet/canary-1 hang");
    assert_eq!((said(&run).0.as_str(), said(&run).2.as_str()), ("NodesFailed", "6/9"));
    let run = ends("at 0 limit maxParked 1; at 0 drain 60; at 0 returning");
    assert_eq!(said(&run).0, "FailurePolicy");
}

#[test]
fn no_node_of_a_zone_is_begun_while_most_of_it_is_silent() {
    let run = ends("at 0 hosts; at 0 accept; at 5000 zone c silent; at 900000 zone c again");
    is_done(&run);
    assert!(run.reasons.contains("ZoneDisrupted"), "{:?}", run.reasons);
    // All of it is known to be silent before the first node may be begun: nobody could do anything there.
    let silent = "at 0 hosts; at 0 accept; at 0 soak controlPlane 300; at 0 zone";
    let run = ends(&format!("{silent} c silent"));
    assert_eq!(said(&run).0, "NodesHeld", "{:#}", run.end["upgrades"]);
    // A node that joins such a zone is well, and is left alone.
    let run = ends(&format!("{silent} a silent; at 0 spare main; at 0 most rest 50%"));
    assert_eq!(said(&run).0, "ZoneGone", "{:#}", run.end["upgrades"]);
}

#[test]
fn silent_machines_that_fill_what_may_be_unavailable_stall_the_rest() {
    // They were taken up while the first of them fell silent, so that they do not count against their zone.
    let run = ends("at 0 hosts; at 0 accept; at 5000 zone c silent");
    let (reason, message, _) = said(&run);
    assert_eq!(reason, "NodesHeld", "{message}: {:#}", run.end["upgrades"]);
    assert!(
        message.contains("canary-3 (not ready)"),
        "what keeps them is their machine, not their last drain: {message}"
    );
}

#[test]
fn nothing_new_is_begun_while_a_gate_is_closed() {
    // The kind comes, then the object, then it is as it should be; on the way it is not for a while.
    let run = ends(
        "at 0 gated; at 60000 gate kind; at 120000 gate False; at 180000 gate True; at 310000 gate False; \
         at 600000 gate True",
    );
    is_done(&run);
    assert!(run.reasons.contains("GateClosed") && run.took.as_secs() > 600, "{:?}", run.took);
    assert!(
        run.reasons.contains("GateUnreadable"),
        "nobody installs the kind for a minute: {:?}",
        run.reasons
    );
    let reads =
        |call: &&evenkeel_sim::faults::Call| call.verb == "get" && call.resource.starts_with("servicelevels");
    let reads = run.calls.iter().filter(reads).count();
    assert!((10..60).contains(&reads), "{reads}");
    let run = ends("at 0 gated; at 0 gate kind; at 0 gate True; at 130000 gate gone; at 400000 gate True");
    is_done(&run);
    assert!(run.took.as_secs() > 400, "{:?}", run.took);
}
