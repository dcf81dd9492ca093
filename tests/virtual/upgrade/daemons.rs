//! A `DaemonSet` whose pod is not ready after the kubelet of its node was changed: the node is not upgraded until it is.

use std::time::Duration;

use super::ends::{claim, ends, said};
use super::{Run, Turn};

/// Its executor takes a minute, so that the pod becomes ill while it works.
const BEGINS: &str = "at 0 agent; at 0 executor kubelet/main-3 after 60";

fn turn(run: &Run, state: &str) -> Duration {
    let of = |turn: &&Turn| turn.claim == "up.kubelet.main-3" && turn.state == state;
    run.turns.iter().find(of).map(|turn| turn.at).unwrap()
}

/// The pod is ill from half a minute after the node was given to its executor on, and then for so many seconds.
fn ill(lasts: Option<u64>) -> (Run, u64) {
    let given = turn(&ends(BEGINS), "Upgrading").as_millis() as u64;
    let begins = given + 30_000;
    let well = begins + lasts.unwrap_or_default() * 1000;
    let again = lasts.map(|_| format!("; at {well} agent well")).unwrap_or_default();
    (ends(&format!("{BEGINS}; at {begins} agent ill main-3{again}")), well)
}

#[test]
fn a_node_is_upgraded_when_the_pods_of_its_daemon_sets_are_ready() {
    let (run, well) = ill(Some(150));
    assert_eq!((said(&run).0, said(&run).2), ("Completed", "9/9"), "{:#}", run.end["upgrades"]);
    let done = turn(&run, "Upgraded").as_millis() as u64;
    assert!((well..well + 40_000).contains(&done), "{done} ms, and the pod was well at {well} ms");
}

#[test]
fn a_node_whose_daemon_sets_pod_is_never_ready_fails_alone() {
    let (run, _) = ill(None);
    assert_eq!((said(&run).0, said(&run).2), ("NodesFailed", "8/9"), "{:#}", run.end["upgrades"]);
    assert_eq!(claim(&run, "kubelet", "main-3"), "Failed");
    assert_eq!(run.end["nodes"]["main-3"]["cordoned"], true);
    let why = run.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
    assert!(why.contains("main-3") && why.contains("agent"), "{why}");
}
