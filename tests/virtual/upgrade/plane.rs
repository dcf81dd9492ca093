//! The control plane of a node as one step, as kubeadm moves it: with every fault at every write of the steps, failovers,
//! executors that stop on the way, and people.

use evenkeel_sim::faults::Call;

use super::super::campaign::is_long;
use super::super::script::Step;
use super::attacks::{LEADER, at, call, spread};
use super::ends::{claim, ends, said};
use super::{campaign, run};

/// kubeadm: one Job moves the first node and writes to what the others follow; another one moves those.
fn kubeadm() -> Vec<Step> {
    ["jobs", "whole", "first"].map(|word| at(0, word)).into()
}

/// How long the control plane takes without faults, in milliseconds.
const PLANE: u64 = 150_000;

const KUBEADM: &str = "at 0 jobs; at 0 whole; at 0 first";

#[test]
fn an_upgrade_of_whole_nodes_without_faults() {
    for more in [&[][..], &[at(0, "everything")]] {
        let run = run(1, &[kubeadm(), more.to_vec()].concat());
        assert!(run.wrong.is_empty(), "{:#?}", run.wrong);
        let up = &run.end["upgrades"]["up"];
        assert_eq!(up["conditions"]["Ready"][1], "Completed", "{up:#}");
        let claims = run.end["claims"].as_object().unwrap();
        let planes: Vec<&String> = claims.keys().filter(|name| name.contains(".control-plane.")).collect();
        assert_eq!(planes, ["up.control-plane.cp-1", "up.control-plane.cp-2", "up.control-plane.cp-3"]);
        assert_eq!(claims.len(), planes.len() + if more.is_empty() { 9 } else { 12 });
    }
    // Somebody outside moves them.
    let run = ends("at 0 whole");
    assert_eq!(said(&run), ("Completed", false, "9/9"));
}

#[test]
fn an_upgrade_of_whole_nodes_over_two_minors() {
    let run = ends(&format!("{KUBEADM}; at 0 target v1.38.1"));
    assert_eq!(said(&run), ("Completed", false, "9/9"));
}

/// The writes of the operator about the control plane, in a run without faults.
fn writes() -> Vec<Call> {
    let calls = run(1, &kubeadm()).calls;
    let ours = calls.into_iter().filter(|call| call.agent == LEADER && call.is_write());
    let first = |call: &Call| call.line().contains("kubelet");
    ours.take_while(|call| !first(call)).collect()
}

#[test]
fn whole_nodes_with_a_crash_at_every_write() {
    let mut scripts = Vec::new();
    for write in writes() {
        for fault in ["crash-before", "crash-after", "refuse:500", "refuse:409"] {
            scripts.push((1, [kubeadm(), vec![call(write.nth, 1, fault)]].concat()));
        }
    }
    campaign("upgrade: whole nodes, crashes", spread(scripts, 8));
}

#[test]
fn whole_nodes_with_failovers_blackouts_and_lost_machines() {
    let mut scripts = Vec::new();
    let steps = if is_long() { 40 } else { 6 };
    for step in 0..steps {
        let millis = step * PLANE / steps + 700;
        for deeds in [
            vec![at(millis, "cut evenkeel-a 40")],
            vec![at(millis, "blackout 107")],
            vec![at(millis, "take cp-2 kube-scheduler"), at(millis + 20_000, "start cp-2 kube-scheduler")],
            vec![at(millis, "take cp-3 kube-apiserver"), at(millis + 20_000, "start cp-3 kube-apiserver")],
            vec![at(millis, "zone b silent"), at(millis + 60_000, "zone b again")],
        ] {
            scripts.push((1, [kubeadm(), deeds].concat()));
        }
    }
    campaign("upgrade: whole nodes, failovers", spread(scripts, 6));
}

#[test]
fn whole_nodes_with_people() {
    let mut scripts = Vec::new();
    let steps = if is_long() { 40 } else { 6 };
    for step in 0..steps {
        let millis = step * PLANE / steps + 500;
        let later = millis + 60_000;
        for deeds in [
            vec![at(millis, "suspend up"), at(later, "resume up")],
            vec![at(millis, "suspend up")],
            vec![at(millis, "delete-claim control-plane cp-1")],
            vec![at(millis, "delete-claim control-plane cp-2")],
            vec![at(millis, "delete-upgrade up")],
            vec![at(millis, "delete-jobs")],
            vec![at(millis, "cordon cp-3"), at(later, "uncordon cp-3")],
            vec![at(millis, "component cp-1 kube-scheduler v1.36.4")],
        ] {
            scripts.push((1, [kubeadm(), deeds].concat()));
        }
    }
    campaign("upgrade: whole nodes, people", spread(scripts, 8));
}

/// How an executor that stops on the way ends, and that nothing else begins then.
#[test]
fn an_executor_that_stops_on_the_way_stops_everything() {
    for way in ["fail", "hang", "lie", "part 1 fail", "part 1 hang", "part 3 fail", "part 3 hang"] {
        let run = ends(&format!("{KUBEADM}; at 0 deadline 120; at 0 executor control-plane/cp-2 {way}"));
        assert_eq!(said(&run), ("ControlPlaneFailed", true, "0/9"), "{way}");
        let states = ["cp-1", "cp-2", "cp-3"].map(|node| claim(&run, "control-plane", node));
        assert_eq!(states, ["Upgraded", "Failed", "none"], "{way}");
    }
}

#[test]
fn an_executor_that_says_too_early_that_it_is_complete_is_waited_for() {
    let run = ends(&format!("{KUBEADM}; at 0 executor control-plane/cp-1 part 1 lie"));
    assert_eq!(said(&run), ("Completed", false, "9/9"));
}
