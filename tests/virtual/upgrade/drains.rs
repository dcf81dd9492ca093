//! What a person may choose about drains: how each run ends, and what happened to pods on the way. That no pod leaves
//! otherwise than was chosen is checked by the watcher after every write.

use evenkeel_sim::faults::Call;

use super::super::script::Step;
use super::{Run, campaign, run};

fn steps(script: &str) -> Vec<Step> {
    script.split(';').map(|step| step.trim().parse().unwrap()).collect()
}

/// Runs a script as it is written; what the watcher says fails the test.
fn ends(script: &str) -> Run {
    let run = run(1, &steps(script));
    assert!(run.wrong.is_empty(), "{script}: {:#?}\n{:#}", run.wrong, run.end["upgrades"]);
    run
}

fn said(run: &Run) -> (&str, bool, &str) {
    let up = &run.end["upgrades"]["up"];
    let reason = up["conditions"]["Ready"][1].as_str().unwrap_or_default();
    let stalled = up["conditions"]["Stalled"][0] == "True";
    (reason, stalled, up["progress"]["summary"].as_str().unwrap_or_default())
}

fn deletions(run: &Run) -> Vec<&Call> {
    let deletes =
        |call: &&Call| call.verb == "delete" && call.resource == "pods" && call.agent == "evenkeel-a";
    run.calls.iter().filter(deletes).collect()
}

const DONE: (&str, bool, &str) = ("Completed", false, "9/9");
const DETACHED: &str = "at 0 detach; at 0 drain 3000; at 0 attach main-5; at 900000 detached main-5";
const FORCED: &str = "at 0 force; at 0 drain 60; at 0 impossible";

#[test]
fn force_ends_what_a_budget_never_allows() {
    let run = ends(FORCED);
    assert_eq!((said(&run), run.parked), (DONE, 0), "{:#}", run.end);
    let deleted = deletions(&run);
    assert_eq!(deleted.len(), 1, "{:?}", deleted.iter().map(|call| call.line()).collect::<Vec<_>>());
    assert_eq!(run.end["ready"]["frozen"], 1, "its successor runs where it can");
}

#[test]
fn force_without_the_right_to_delete_parks_the_node_until_it_has_it() {
    let run = ends(&format!("{FORCED}; like evenkeel-a delete~pods refuse:403"));
    // The right comes after a while, and the node is tried again.
    assert_eq!(said(&run), DONE, "{:#}", run.end);
}

#[test]
fn a_deletion_that_is_refused_for_a_moment_parks_no_node() {
    let whole = run(1, &steps(FORCED));
    let nth = deletions(&whole).first().map(|call| call.nth).unwrap();
    for fault in ["webhook-down", "deny", "refuse:403"] {
        let call = Step::Call { agent: "evenkeel-a".to_owned(), nth, times: 1, fault: fault.to_owned() };
        let run = run(1, &[steps(FORCED), vec![call]].concat());
        assert!(run.wrong.is_empty(), "{fault}: {:#?}", run.wrong);
        assert!(deletions(&run).len() > 1, "{fault}: it was refused");
        assert_eq!((said(&run), run.parked), (DONE, 0), "{fault}: {:#}", run.end);
    }
}

#[test]
fn a_crash_at_a_deletion_is_harmless() {
    let whole = run(1, &steps(FORCED));
    let nth = deletions(&whole).first().map(|call| call.nth).unwrap();
    let scripts = ["crash-before", "crash-after", "refuse:500", "reset-after"].map(|fault| {
        let call = Step::Call { agent: "evenkeel-a".to_owned(), nth, times: 1, fault: fault.to_owned() };
        (1, [steps(FORCED), vec![call]].concat())
    });
    campaign("upgrade: a forced drain", scripts.to_vec());
}

#[test]
fn halt_stops_everything_until_a_person_says_otherwise() {
    let halted = "at 0 halt; at 0 drain 60; at 0 returning";
    let run = ends(halted);
    assert_eq!((said(&run).0, said(&run).1), ("NodesHalted", true), "{:#}", run.end);
    let message = run.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
    assert!(message.contains("halted at main-5") && message.contains("shop/returning"), "{message}");
    let nodes = run.end["nodes"].as_object().unwrap();
    assert!(nodes.values().all(|node| node["cordoned"] == false), "{nodes:#?}");
    let run = ends(&format!("{halted}; at 900000 spec up {{\"drain\":{{\"onTimeout\":\"Park\"}}}}"));
    assert_eq!((said(&run).0, said(&run).2), ("NodesParked", "8/9"), "{:#}", run.end);
}

#[test]
fn a_webhook_that_is_away_for_a_moment_halts_nothing() {
    let whole = run(1, &steps("at 0 halt"));
    let cordons = |call: &&Call| {
        let of_node = call.verb == "patch" && call.resource == "nodes" && call.agent == "evenkeel-a";
        of_node && call.name.as_deref() == Some("main-3")
    };
    let nth = whole.calls.iter().find(cordons).unwrap().nth;
    let scripts = ["webhook-down", "deny", "refuse:403"].map(|fault| {
        let call = Step::Call { agent: "evenkeel-a".to_owned(), nth, times: 25, fault: fault.to_owned() };
        (1, [steps("at 0 halt"), vec![call]].concat())
    });
    campaign("upgrade: cordons are refused for a moment", scripts.to_vec());
}

#[test]
fn a_patch_moves_no_pod_where_only_minors_drain() {
    let run = ends("at 0 minor-only; at 0 target v1.36.9");
    assert_eq!((said(&run), run.evicted), (DONE, 0), "{:#}", run.end);
    let run = ends("at 0 minor-only");
    assert_eq!(said(&run), DONE);
    assert!(run.evicted > 40, "a minor drains: {}", run.evicted);
}

#[test]
fn a_pod_that_a_rule_skips_stays() {
    let run = ends("at 0 rule frozen Skip; at 0 impossible");
    assert_eq!((said(&run), run.parked), (DONE, 0), "{:#}", run.end);
    assert_eq!(run.end["ready"]["frozen"], 1);
}

#[test]
fn a_pod_that_a_rule_lets_complete_is_waited_for() {
    let run = ends("at 0 drain 3000; at 0 rule batch WaitCompleted; at 0 batch; at 900000 finish batch");
    assert_eq!((said(&run), run.parked), (DONE, 0), "{:#}", run.end);
    assert!(run.took.as_secs() > 900, "{:?}", run.took);
    let run = ends("at 0 drain 60; at 0 rule batch WaitCompleted; at 0 batch");
    assert_eq!((said(&run).0, said(&run).2), ("NodesParked", "8/9"), "it is longer than a drain may take");
    let message = run.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
    assert!(message.contains("main-5") && message.contains("shop/batch"), "{message}");
}

/// A deadline ends the wait for a pod that is to complete, and deletes nothing that a rule leaves alone.
#[test]
fn force_deletes_no_pod_that_a_rule_skips() {
    let ruled = "at 0 force; at 0 drain 60; at 0 rule frozen Skip; at 0 rule cart Skip; at 0 rule batch WaitCompleted; \
                 at 0 impossible; at 0 batch";
    let run = ends(ruled);
    assert_eq!((said(&run), run.parked), (DONE, 0), "{:#}", run.end);
    let left: Vec<String> = run
        .calls
        .iter()
        .filter(|call| call.agent == "evenkeel-a" && call.is_write() && call.resource == "pods")
        .map(Call::line)
        .filter(|line| ["frozen-", "cart-", "batch-"].iter().any(|app| line.contains(app)))
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].contains("delete pods") && left[0].contains("batch-"), "{left:?}");
    let nth = deletions(&run).first().map(|call| call.nth).unwrap();
    let scripts = ["crash-before", "crash-after", "late:30"].map(|fault| {
        let call = Step::Call { agent: "evenkeel-a".to_owned(), nth, times: 1, fault: fault.to_owned() };
        (1, [steps(ruled), vec![call]].concat())
    });
    campaign("upgrade: a forced drain with rules", scripts.to_vec());
}

#[test]
fn volumes_are_waited_for_where_that_is_asked_for() {
    let run = ends(DETACHED);
    assert_eq!((said(&run), run.parked), (DONE, 0), "{:#}", run.end);
    assert!(run.took.as_secs() > 900, "{:?}", run.took);
    let ignored = ends("at 0 attach main-5");
    assert_eq!((said(&ignored), ignored.parked), (DONE, 0));
    assert!(ignored.took.as_secs() < 900, "{:?}", ignored.took);
    let stays = ends("at 0 detach; at 0 drain 60; at 0 attach main-5");
    assert_eq!((said(&stays).0, said(&stays).2), ("NodesParked", "8/9"));
    let message = stays.end["upgrades"]["up"]["conditions"]["Stalled"][2].to_string();
    assert!(message.contains("main-5") && message.contains("volume pv-main-5 still attached"), "{message}");
}

#[test]
fn a_volume_that_is_detached_while_nobody_hears_of_it_is_harmless() {
    let mut scripts = Vec::new();
    for fault in ["drop", "duplicate", "delay:4", "gone", "end", "reset", "garbage"] {
        let resource = "volumeattachments.storage.k8s.io".to_owned();
        let told = Step::Told { agent: "evenkeel-a".to_owned(), resource, nth: 0, fault: fault.to_owned() };
        scripts.push((1, [steps(DETACHED), vec![told]].concat()));
    }
    campaign("upgrade: a volume is detached", scripts);
}

#[test]
fn a_pod_that_goes_while_nobody_hears_of_it_is_harmless() {
    let told = |nth: u64| {
        let told = Step::Told {
            agent: "evenkeel-a".to_owned(),
            resource: "pods".to_owned(),
            nth,
            fault: "drop".to_owned(),
        };
        (1, vec![told])
    };
    campaign("upgrade: pods go unseen", (75..300).step_by(45).map(told).collect());
}

/// Runs an upgrade that begins so, whose second watch of pods tells of none.
fn blind(begins: &str) -> Run {
    let watches =
        |call: &&Call| call.verb == "watch" && call.resource == "pods" && call.agent == "evenkeel-a";
    let nth = run(1, &steps(begins)).calls.iter().filter(watches).nth(1).unwrap().nth;
    ends(&format!("{begins}; call evenkeel-a {nth} 1 bookmarks"))
}

/// A pod that was bound to a node unseen is found by the fresh look before the executor may work, and leaves then.
#[test]
fn a_watch_that_tells_of_no_pod_any_more_leaves_no_node_undrained() {
    let begins = "at 0 hosts; at 0 accept; at 0 canary rest 1; at 700 suspend up; at 400000 resume up";
    let run = blind(begins);
    assert_eq!(said(&run), DONE, "{:#}", run.end);
}

/// Whoever deletes a pod past its budgets looks first whether it is still there.
#[test]
fn a_watch_that_tells_of_no_pod_any_more_is_harmless_to_a_forced_drain() {
    let begins = "at 0 force; at 0 drain 60; at 120000 suspend up; at 500000 resume up";
    let run = blind(begins);
    assert_eq!(said(&run), DONE, "{:#}", run.end);
}

/// While a pod of a StatefulSet is replaced, its budget counts one pod less, and looks as if it could never allow anything. An
/// upgrade that halts at a node that cannot be drained does not halt for that, and takes no node of its own for uncordoned
/// by somebody else.
#[test]
fn a_budget_whose_pods_are_replaced_halts_nothing() {
    let script = "at 0 whole; at 0 halt; at 0 drain 60; at 0 returning; at 0 most rest 50%";
    for seed in 0..2 {
        let run = run(seed, &steps(script));
        assert!(run.wrong.is_empty(), "seed {seed}: {:#?}\n{:#}", run.wrong, run.end["upgrades"]);
    }
}
