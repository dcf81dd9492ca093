//! Writes that the server refuses.

use jiff::SignedDuration;

use super::super::*;
use super::cluster::Toy;
use crate::drain::OnTimeout;
use crate::plan::Stage;

fn refusals(toy: &Toy) -> usize {
    toy.log.iter().filter(|line| line.starts_with("Refused")).count()
}

#[test]
fn a_node_that_must_not_be_cordoned_is_parked_and_the_others_go_on() {
    let mut toy = Toy::new(3, 1);
    toy.denied = Some("cordon node n-2");
    toy.run_until(900, |toy| toy.kubelets("Upgraded") == 2);
    let parked = toy.claims.iter().find(|claim| claim.state.name() == "Parked").unwrap();
    assert_eq!((&*parked.subject.node, &*parked.message), ("n-2", "the server refuses to cordon it: no"));
    let out = toy.status().parked;
    assert_eq!(out.iter().map(|out| &*out.node).collect::<Vec<_>>(), ["n-2"], "it is named");
    toy.denied = None;
    toy.run_until(20_000, |toy| toy.phase() == UpgradePhase::Completed);
}

/// Its time is so short that it is tried again before an old refusal would be forgotten.
#[test]
fn a_parked_node_that_may_be_cordoned_now_is_upgraded_when_it_is_tried_again() {
    let mut toy = Toy::new(2, 1);
    toy.upgrade.drain.timeout = SignedDuration::from_secs(10);
    toy.denied = Some("cordon node n-1");
    toy.run_until(120, |toy| toy.kubelets("Parked") == 1);
    toy.denied = None;
    toy.run_until(900, |toy| toy.kubelets("Upgraded") == 2);
    let parked = toy.log.iter().filter(|line| line.starts_with("Record up.kubelet.n-1 Parked")).count();
    assert_eq!(parked, 1, "{:?}", toy.log);
}

#[test]
fn a_cordon_that_is_refused_for_a_moment_halts_nothing() {
    let mut toy = Toy::new(2, 1);
    toy.upgrade.drain.on_timeout = OnTimeout::Halt;
    toy.denied = Some("cordon node n-1");
    toy.run_until(60, |toy| refusals(toy) == 2);
    let (phase, lines) = (toy.phase(), toy.status().lines());
    assert!(!phase.stalled(), "{phase:?}");
    assert_eq!(
        lines.first().map(String::as_str),
        Some("the server refuses to cordon node n-1 (asked every 15 s): no")
    );
    (0..10).for_each(|_| toy.tick());
    toy.denied = None;
    toy.run_until(900, |toy| toy.phase() == UpgradePhase::Completed);
    // What lasts halts it.
    let mut toy = Toy::new(2, 1);
    toy.upgrade.drain.on_timeout = OnTimeout::Halt;
    toy.denied = Some("cordon node n-1");
    toy.run_until(120, |toy| toy.phase() == UpgradePhase::NodesHalted);
}

#[test]
fn a_claim_that_is_refused_stands_still_with_the_servers_reason_until_it_is_not() {
    let mut toy = Toy::new(2, 1);
    toy.denied = Some("create NodeUpgrade");
    toy.run_until(60, |toy| toy.phase() == UpgradePhase::WritesRefused);
    let (status, before) = (toy.status(), refusals(&toy));
    assert!(status.phase.stalled());
    assert!(status.message.starts_with("the server refuses to create NodeUpgrade up."), "{}", status.message);
    assert!(
        status.message.ends_with(": no") && status.lines().contains(&status.message),
        "{:?}",
        status.lines()
    );
    for _ in 0..60 {
        toy.tick();
        assert_eq!(
            toy.phase(),
            UpgradePhase::WritesRefused,
            "it does not flicker when the write is sent again"
        );
    }
    assert_eq!(refusals(&toy) - before, 4, "once in fifteen seconds");
    toy.denied = None;
    toy.run_until(900, |toy| toy.phase() == UpgradePhase::Completed);
}

#[test]
fn a_deleted_upgrade_whose_nodes_must_not_be_given_back_calls_for_a_person() {
    let mut toy = Toy::new(1, 1);
    toy.lingers = 10_000;
    toy.deploy("slow", 1, 0);
    toy.run_until(600, |toy| toy.kubelets("Draining") == 1);
    (toy.progress.ending, toy.denied) = (true, Some("uncordon node n-1"));
    toy.run_until(60, |toy| toy.phase() == UpgradePhase::WritesRefused);
    assert_eq!(toy.status().message, "the server refuses to uncordon node n-1 (asked every 15 s): no");
    toy.denied = None;
    toy.run_until(60, |toy| !toy.progress.protected);
    assert_eq!((toy.phase(), toy.claims.len()), (UpgradePhase::Deleting, 0));
}

#[test]
fn a_deleted_upgrade_that_others_keep_says_whose_finalizer_it_is() {
    let mut toy = Toy::new(1, 1);
    toy.run_until(600, |toy| !toy.claims.is_empty());
    (toy.progress.ending, toy.progress.finalizers) = (true, vec!["example.com/keep".into()]);
    toy.run_until(60, |toy| !toy.progress.protected);
    let line = "was deleted; it stays until finalizer example.com/keep is taken off";
    assert_eq!((toy.phase(), toy.status().message.as_str()), (UpgradePhase::Deleting, line));
}

#[test]
fn a_single_refusal_is_not_told() {
    let mut toy = Toy::new(2, 1);
    toy.denied = Some("create NodeUpgrade");
    toy.run_until(60, |toy| refusals(toy) == 1);
    toy.denied = None;
    assert_eq!(toy.phase(), UpgradePhase::Working(Stage::Apiservers));
    toy.run_until(5, |toy| !toy.claims.is_empty());
    assert_eq!(refusals(&toy), 1);
}

#[test]
fn an_upgrade_is_not_complete_while_a_node_must_not_be_given_back() {
    let mut toy = Toy::new(1, 1);
    toy.denied = Some("uncordon node n-1");
    toy.run_until(900, |toy| toy.phase() == UpgradePhase::WritesRefused);
    assert_eq!(toy.status().message, "the server refuses to uncordon node n-1 (asked every 15 s): no");
    toy.denied = None;
    toy.run_until(60, |toy| toy.phase() == UpgradePhase::Completed);
}

#[test]
fn what_was_refused_before_a_clock_was_set_back_is_sent_at_once() {
    let mut toy = Toy::new(2, 1);
    toy.denied = Some("create NodeUpgrade");
    toy.run_until(60, |toy| toy.phase() == UpgradePhase::WritesRefused);
    toy.pass(-3600);
    toy.denied = None;
    toy.tick();
    assert!(!toy.claims.is_empty(), "{:?}", toy.log);
    toy.tick();
    assert!(!toy.phase().stalled() && toy.refusals.0.is_empty(), "it is forgotten: {:?}", toy.refusals);
}
