//! Controllers that are long in coming back to work after a step of the control plane: after their own, after that of the
//! kube-apiserver beside them, and after a new kubelet has begun them anew.
//!
//! Here belongs only how long they take; that nothing leaves a node meanwhile is what the watcher checks.

use std::time::Duration;

use super::Run;
use super::ends::{ends, said};

/// It is longer than any pause of the operator.
const LATE: Duration = Duration::from_mins(4);

/// An upgrade that begins so, whose controllers come late, and those that end give up their leases or do not.
fn late(begins: &str) -> [Run; 2] {
    ["", "; at 0 leases-given-up"].map(|given_up| {
        let run = ends(&format!("{begins}at 0 late-controllers {}{given_up}", LATE.as_secs()));
        assert_eq!((said(&run).0, said(&run).1), ("Completed", false), "{:#}", run.end["upgrades"]);
        assert!(run.took > LATE, "{:?}", run.took);
        run
    })
}

#[test]
fn no_node_is_taken_up_before_static_pods_are_at_work_again() {
    late("");
    late("at 0 jobs; ");
    late("at 0 whole; ");
}

#[test]
fn no_node_is_taken_up_before_processes_of_hosts_are_at_work_again() {
    late("at 0 hosts; at 0 accept; ");
}

/// What is told late was renewed before the last step, by whoever was replaced in it.
#[test]
fn no_node_is_taken_up_because_a_renewal_is_told_late() {
    for begins in ["", "at 0 hosts; at 0 accept; "] {
        for late in [4, 12] {
            let run = ends(&format!("{begins}told evenkeel-a leases.coordination.k8s.io 2 delay:{late}"));
            assert_eq!((said(&run).0, said(&run).1), ("Completed", false), "{:#}", run.end["upgrades"]);
        }
    }
}

#[test]
fn no_node_is_taken_up_before_what_a_new_kubelet_began_anew_is_at_work() {
    late("at 0 everything; ");
}

/// They are away for longer than anybody hopes.
#[test]
fn controllers_that_stay_silent_call_for_a_person_and_their_return_is_enough() {
    let run = ends("at 0 late-controllers 20000");
    assert_eq!(said(&run), ("ControlPlaneHeld", true, "0/9"), "{:#}", run.end["upgrades"]);
    let why = run.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
    assert!(why.contains("does not renew Lease kube-system/kube-"), "{why}");
    let run = ends("at 0 late-controllers 1500; at 0 lasts 2400");
    assert_eq!(said(&run), ("Completed", false, "9/9"), "{:#}", run.end["upgrades"]);
    assert!(run.reasons.contains("ControlPlaneHeld"), "{:?}", run.reasons);
}

/// Its claim goes on for longer than its static pods take to be back.
#[test]
fn no_node_is_taken_up_beside_a_control_plane_node_whose_job_goes_on() {
    late("at 0 everything; at 0 jobs; at 0 executor kubelet/* lingers 60; ");
}
