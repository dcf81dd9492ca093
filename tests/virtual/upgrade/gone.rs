//! Nodes that go for good where the operator does not hear of it in time, or never: it forgets them all the same.

use std::time::Duration;

use evenkeel_sim::faults::Call;

use super::attacks::{at, call, steps};
use super::ends::{claim, ends, said};
use super::{Run, run};

/// When a node goes that is not begun yet.
const EARLY: u64 = 100_000;

/// How often something is asked of an object that is not there any more, from `since` on.
fn asked(run: &Run, line: &str, since: Duration) -> usize {
    let first = run.calls.first().map(|call| call.at).unwrap();
    let fits = |call: &&Call| call.agent == "evenkeel-a" && call.line() == line && call.at - first >= since;
    run.calls.iter().filter(fits).count()
}

/// The Node was read before its end, and what was read is folded in after it.
#[test]
fn a_node_that_goes_while_it_is_read_once_more_does_not_come_back() {
    let begins = "at 0 deadline 60; at 0 executor kubelet/main-6 hang";
    let usual = run(1, &steps(begins));
    let is = |call: &&Call| call.agent == "evenkeel-a" && call.line() == "get nodes main-6";
    let read = usual.calls.iter().rfind(is).unwrap();
    let millis = (read.at - usual.calls[0].at).as_millis() as u64;
    // The pods of the node are listed with the next request.
    let script = [steps(begins), vec![call(read.nth + 1, 1, "delay:5"), at(millis + 2000, "leave main-6")]];
    let run = ends(&super::script::line(&script.concat()));
    assert_eq!((said(&run).0, claim(&run, "kubelet", "main-6")), ("Completed", "none"), "{:#}", run.end);
}

#[test]
fn a_node_whose_end_was_not_told_is_forgotten_when_the_server_does_not_know_it() {
    let leaves = format!("at {EARLY} leave main-6");
    let usual = run(1, &steps(&leaves));
    let since = Duration::from_millis(EARLY);
    let nth = usual.told["nodes"].iter().position(|told| *told >= since).unwrap();
    let lost = ends(&format!("{leaves}; told evenkeel-a nodes {nth} drop"));
    assert_eq!((said(&lost).0, said(&lost).2), ("Completed", "8/8"), "{:#}", lost.end);
    assert_eq!(asked(&usual, "patch nodes main-6", since), 0, "the other run hears of it");
    assert_eq!(asked(&lost, "patch nodes main-6", since), 1);
}
