//! What a person may choose about drains: what then happens to pods, to nodes and to the rest of the upgrade.

use std::sync::Arc;

use super::cluster::Toy;
use crate::cluster::{Attachment, Phase, Pod, Selector, Traits};
use crate::disruption::{Behavior, PodRule, Refused};
use crate::drain::{DrainMode, OnTimeout};
use crate::fixture::pod;
use crate::plan::Stage;
use crate::rollout::{Blocker, ClaimState, UpgradePhase};
use crate::upgrade::{Amount, NodeGroup};
use jiff::{SignedDuration, Timestamp};

fn message(toy: &Toy, node: &str) -> String {
    let of = toy.claims.iter().find(|claim| claim.is_of_kubelet() && *claim.subject.node == *node);
    of.map(|claim| claim.message.clone()).unwrap_or_default()
}

fn cordoned(toy: &Toy) -> Vec<String> {
    let nodes = toy.cluster.nodes().iter().filter(|node| node.unschedulable);
    nodes.map(|node| node.name.to_string()).collect()
}

/// Three nodes, and on the first a pod whose budget never lets it go. The others have one without a budget, because empty
/// nodes would go first.
fn frozen(on_timeout: OnTimeout) -> Toy {
    let mut toy = Toy::new(3, 1);
    toy.deploy("frozen", 1, 1);
    toy.cluster.set_pod(pod("free", 2, "n-2"));
    toy.cluster.set_pod(pod("free", 3, "n-3"));
    toy.upgrade.drain.on_timeout = on_timeout;
    toy
}

/// Three nodes, and on the first a pod whose budget waits for a replica that does not come.
fn slow(on_timeout: OnTimeout) -> Toy {
    let mut toy = frozen(on_timeout);
    toy.absent = 1;
    toy
}

#[test]
fn force_deletes_what_is_left_after_the_deadline_and_not_before() {
    let mut toy = frozen(OnTimeout::Force);
    toy.deploy("web", 6, 0);
    toy.run_until(200, |toy| toy.kubelets("Draining") > 0);
    let begun = toy.seconds;
    toy.run_until(200, |toy| toy.deleted > 0);
    assert!((40..45).contains(&(toy.seconds - begun)), "{}", toy.seconds - begun);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.log);
    // Its successor may be put on a node that is still to come.
    assert!((1..=3).contains(&toy.deleted), "{:?}", toy.log);
    let mut parks = frozen(OnTimeout::Park);
    parks.run_to_the_end(600);
    assert_eq!((parks.phase(), parks.deleted), (UpgradePhase::NodesParked, 0));
}

#[test]
fn force_deletes_nothing_that_a_person_refused() {
    let mut toy = Toy::new(2, 1);
    toy.upgrade.drain.on_timeout = OnTimeout::Force;
    toy.cluster.set_pod(Pod { owner: None, ..pod("bare", 1, "n-1") });
    toy.run_to_the_end(600);
    assert_eq!((toy.phase(), toy.deleted, toy.kubelets("Upgraded")), (UpgradePhase::NodesParked, 0, 1));
    // One that comes when the drain is under way.
    let mut toy = frozen(OnTimeout::Force);
    toy.run_until(200, |toy| toy.kubelets("Draining") > 0);
    toy.cluster.set_pod(Pod { owner: None, ..pod("bare", 1, "n-1") });
    toy.run_until(200, |toy| toy.kubelets("Parked") > 0);
    assert_eq!((toy.deleted, toy.pods_of("bare").len()), (1, 1), "{}", message(&toy, "n-1"));
    assert!(message(&toy, "n-1").starts_with("not drained within 40 s: pod shop/bare-1: has no controller"));
}

#[test]
fn force_without_the_right_to_delete_parks_the_node_and_says_why() {
    let mut toy = frozen(OnTimeout::Force);
    toy.keeps_pods = Some("no right".to_owned());
    toy.run_until(400, |toy| toy.kubelets("Parked") == 1 && toy.kubelets("Upgraded") == 2);
    assert_eq!(message(&toy, "n-1"), "pod shop/frozen-0 is not deleted past its budgets: no right");
    assert_eq!(cordoned(&toy), Vec::<String>::new());
    let tries = || toy.log.iter().filter(|line| line.starts_with("Delete")).count();
    assert_eq!((tries(), toy.deleted), (3, 0), "within half a minute");
    // Waiting gives nobody a right: a person is told then, though it is tried again.
    toy.run_until(5, |toy| toy.phase() == UpgradePhase::NodesParked);
    assert!(toy.status().message.contains("no right"), "{}", toy.status().message);
    toy.run_until(200, |toy| toy.kubelets("Draining") == 1);
    toy.keeps_pods = None;
    toy.run_until(600, |toy| toy.phase() == UpgradePhase::Completed);
}

/// Two nodes with a pod each, and the server refuses to evict the one of the first.
fn forbidden(on_timeout: OnTimeout) -> Toy {
    let mut toy = Toy::new(2, 1);
    (toy.upgrade.drain.on_timeout, toy.upgrade.drain.timeout) = (on_timeout, SignedDuration::from_secs(300));
    let kept = pod("kept", 1, "n-1");
    let refused = Refused { why: "no right".to_owned(), since: Timestamp::MAX, at: Timestamp::MIN };
    toy.memory.refused.insert(kept.uid.clone(), refused);
    toy.cluster.set_pod(kept);
    toy.cluster.set_pod(pod("free", 2, "n-2"));
    toy
}

#[test]
fn a_node_whose_pod_the_server_refuses_to_evict_is_parked_for_a_person() {
    let mut toy = forbidden(OnTimeout::Park);
    toy.run_until(400, |toy| toy.kubelets("Draining") > 0 && message(toy, "n-1").contains("no right"));
    let begun = toy.seconds;
    toy.run_until(400, |toy| toy.kubelets("Parked") == 1 && toy.kubelets("Upgraded") == 1);
    assert!(toy.seconds - begun < 120, "{}", toy.seconds - begun);
    assert_eq!(message(&toy, "n-1"), "pod shop/kept-1: no right");
    assert_eq!(cordoned(&toy), Vec::<String>::new());
    assert!(toy.claims.iter().any(|claim| claim.state.name() == "Parked" && claim.state.stalled()));
    // It stands alike while the refusal is remembered, and when it is forgotten.
    for seconds in 0..60 {
        if seconds == 30 {
            toy.memory.refused.clear();
        }
        toy.tick();
        assert_eq!(toy.phase(), UpgradePhase::Working(Stage::Kubelets), "{seconds}: {:?}", toy.status());
    }
    toy.run_until(600, |toy| toy.phase() == UpgradePhase::Completed);
}

#[test]
fn force_goes_to_the_deadline_of_a_node_whose_pod_the_server_refuses_to_evict() {
    let mut toy = forbidden(OnTimeout::Force);
    toy.run_until(400, |toy| toy.kubelets("Draining") > 0 && message(toy, "n-1").contains("no right"));
    let begun = toy.seconds;
    toy.run_until(400, |toy| toy.deleted > 0 || toy.kubelets("Parked") > 0);
    assert!((240..310).contains(&(toy.seconds - begun)), "{}", toy.seconds - begun);
    toy.run_to_the_end(600);
    assert_eq!((toy.phase(), toy.deleted), (UpgradePhase::Completed, 1), "{:?}", toy.log);
}

#[test]
fn a_crash_after_any_write_of_a_forced_upgrade_ends_alike() {
    let run = |crash: Option<usize>| {
        let mut toy = frozen(OnTimeout::Force);
        toy.crash_after = crash;
        toy.run_to_the_end(900);
        assert_eq!(toy.phase(), UpgradePhase::Completed, "{crash:?}: {:?}", toy.log);
        assert_eq!((toy.pods_of("frozen").len(), cordoned(&toy)), (1, Vec::new()), "{crash:?}");
        (toy.log.len(), toy.deleted)
    };
    let (writes, _) = run(None);
    for crash in 1..=writes {
        assert!(run(Some(crash)).1 <= 3, "{crash}");
    }
}

#[test]
fn halt_begins_nothing_more_and_leaves_no_node_cordoned() {
    let mut toy = slow(OnTimeout::Halt);
    toy.run_to_the_end(600);
    let status = toy.status();
    assert_eq!(status.phase, UpgradePhase::NodesHalted, "{:?}", toy.log);
    assert!(status.phase.stalled());
    assert!(
        status
            .message
            .starts_with("halted at n-1: not drained within 40 s: pod shop/frozen-0: PDB shop/frozen"),
        "{}",
        status.message
    );
    assert_eq!((toy.kubelets("Parked"), toy.kubelets("Upgraded"), toy.evictions), (1, 0, 0));
    assert_eq!(cordoned(&toy), Vec::<String>::new());
    // Its budget opens: that is no person's word.
    toy.absent = 0;
    toy.deploy("frozen", 2, 1);
    for _ in 0..100 {
        toy.tick();
    }
    assert_eq!(toy.phase(), UpgradePhase::NodesHalted);
}

/// What kstatus makes of the claim. A budget that opens lets a node go on that was parked, but not an upgrade that halted at
/// it; and no waiting gives us a right.
#[test]
fn a_node_is_parked_for_a_person_where_nothing_else_lets_it_go_on() {
    let mut refused = frozen(OnTimeout::Force);
    refused.keeps_pods = Some("no right".to_owned());
    for (mut toy, for_a_person) in
        [(slow(OnTimeout::Halt), true), (slow(OnTimeout::Park), false), (refused, true)]
    {
        toy.run_until(600, |toy| toy.kubelets("Parked") == 1);
        let parked = toy.claims.iter().find(|claim| claim.state.name() == "Parked").unwrap();
        assert_eq!(
            parked.state.stalled(),
            for_a_person,
            "{:?}: {}",
            toy.upgrade.drain.on_timeout,
            parked.message
        );
    }
}

#[test]
fn halt_goes_on_when_somebody_changes_something() {
    type Change = (&'static str, fn(&mut Toy), usize);
    let changes: [Change; 5] = [
        ("the timeout", |toy| toy.upgrade.drain.timeout = SignedDuration::from_secs(60), 2),
        ("the policy", |toy| toy.upgrade.drain.on_timeout = OnTimeout::Park, 2),
        (
            "the pod",
            |toy| {
                toy.deploy("frozen", 0, 0);
                toy.cluster.retain_pods(|pod| &*pod.name != "frozen-0");
            },
            3,
        ),
        ("the node", |toy| _ = toy.cluster.change_node("n-1", |node| node.held = true), 2),
        ("the pods that may leave", |toy| toy.upgrade.drain.on_timeout = OnTimeout::Force, 3),
    ];
    for (what, change, upgraded) in changes {
        let mut toy = slow(OnTimeout::Halt);
        toy.run_to_the_end(600);
        assert_eq!(toy.phase(), UpgradePhase::NodesHalted, "{what}");
        change(&mut toy);
        toy.run_until(900, |toy| toy.kubelets("Upgraded") >= upgraded);
    }
}

#[test]
fn halt_gives_back_the_nodes_that_drain_beside_it() {
    let mut toy = Toy::new(3, 2);
    toy.upgrade.drain.on_timeout = OnTimeout::Halt;
    // Pods that take their time.
    toy.lingers = 30;
    toy.deploy("web", 6, 0);
    toy.run_until(400, |toy| toy.kubelets("Draining") == 2);
    // Who uncordons a node leaves our mark on it.
    toy.cluster.change_node("n-1", |node| node.unschedulable = false);
    for _ in 0..5 {
        toy.tick();
    }
    assert_eq!((toy.kubelets("Parked"), toy.kubelets("Draining"), cordoned(&toy)), (1, 0, Vec::new()));
    toy.run_to_the_end(300);
    assert_eq!((toy.phase(), toy.kubelets("Upgraded")), (UpgradePhase::NodesHalted, 0), "{:?}", toy.log);
}

/// Two nodes that drain at once, of three, and on the next one a pod whose budget needs every pod that it counts.
fn with_a_doubt() -> Toy {
    let mut toy = Toy::new(4, 3);
    toy.upgrade.drain.on_timeout = OnTimeout::Halt;
    toy.upgrade.drain.timeout = SignedDuration::from_mins(10);
    toy.lingers = 120;
    toy.deploy("web", 6, 0);
    toy.run_until(400, |toy| toy.kubelets("Draining") == 3);
    toy.upgrade.groups[0].max_unavailable = Amount::Count(4);
    toy.allow(4);
    toy.cluster.set_pod(pod("frozen", 0, "n-4"));
    toy.deploy("frozen", 0, 1);
    toy
}

/// While the pods of a budget are replaced it counts fewer of them, and looks as if it could never allow anything.
#[test]
fn a_budget_that_never_allows_anything_for_a_moment_halts_nothing() {
    let mut toy = with_a_doubt();
    for _ in 0..20 {
        toy.tick();
        assert_eq!((toy.kubelets("Draining"), toy.kubelets_in_flight()), (3, 3), "{:?}", toy.log);
        assert!(!toy.phase().stalled(), "{:?}", toy.status());
    }
    toy.deploy("frozen", 0, 0);
    toy.run_until(900, |toy| toy.kubelets("Upgraded") == 4);
}

#[test]
fn a_node_that_was_given_back_by_a_halt_is_not_said_to_be_uncordoned_by_someone_else() {
    let mut toy = with_a_doubt();
    toy.run_until(60, |toy| toy.log.iter().any(|line| line.starts_with("Uncordon")));
    toy.deploy("frozen", 0, 0);
    toy.run_until(900, |toy| toy.kubelets("Upgraded") == 4);
    assert!(!toy.log.iter().any(|line| line.contains("Parked")), "{:?}", toy.log);
}

/// Those of the claim's list are gone, which may have been cut off.
#[test]
fn a_halt_is_not_lifted_by_what_is_gone_of_a_list_that_is_full() {
    let mut toy = slow(OnTimeout::Halt);
    toy.run_to_the_end(600);
    let halts = |toy: &mut Toy, listed: usize| {
        let gone = |n: usize| Blocker {
            pod: format!("shop/gone-{n}"),
            budget: None,
            reason: String::new(),
            lasting: true,
        };
        let parked = toy
            .claims
            .iter_mut()
            .find(|claim| claim.is_of_kubelet() && claim.state.name() == "Parked")
            .unwrap();
        parked.blockers = (0..listed).map(gone).collect();
        toy.phase() == UpgradePhase::NodesHalted
    };
    assert!(halts(&mut toy, 5), "another pod may be why");
    assert!(!halts(&mut toy, 4), "nothing is left of why");
}

#[test]
fn halt_stops_at_a_node_that_is_not_begun() {
    let mut toy = frozen(OnTimeout::Halt);
    toy.run_to_the_end(600);
    assert_eq!(
        (toy.phase(), toy.kubelets_in_flight(), toy.kubelets("Upgraded")),
        (UpgradePhase::NodesHalted, 0, 0)
    );
    let message = toy.status().message;
    assert!(message.starts_with("halted: n-1 is not begun: pod shop/frozen-0: PDB shop/frozen"), "{message}");
    toy.is_told_by_the_next_leader();
    toy.cluster.change_node("n-1", |node| node.held = true);
    toy.run_until(300, |toy| toy.kubelets("Upgraded") == 2);
}

#[test]
fn a_patch_of_the_kubelet_moves_no_pod_where_only_minors_drain() {
    let run = |version: &str, when| {
        let mut toy = frozen(OnTimeout::Park);
        toy.deploy("web", 6, 5);
        toy.upgrade.version = version.parse().unwrap();
        toy.upgrade.drain.mode = when;
        toy.run_to_the_end(900);
        let cordons = toy.log.iter().filter(|line| line.starts_with("Cordon")).count();
        (toy.phase(), toy.evictions > 0, cordons)
    };
    assert_eq!(run("v1.36.5", DrainMode::MinorOnly), (UpgradePhase::Completed, false, 3));
    assert_eq!(run("v1.37.1", DrainMode::MinorOnly), (UpgradePhase::NodesParked, true, 2), "a minor drains");
    assert_eq!(
        run("v1.36.5", DrainMode::Always),
        (UpgradePhase::NodesParked, true, 2),
        "by default a patch drains"
    );
}

#[test]
fn pods_that_a_rule_skips_stay_and_those_that_complete_are_waited_for() {
    let rule = |app: &str, behavior| PodRule {
        selector: Selector {
            match_labels: [("app".to_owned(), app.to_owned())].into(),
            match_expressions: Vec::new(),
        },
        namespaces: vec!["shop".into()],
        behavior,
    };
    let mut toy = frozen(OnTimeout::Park);
    toy.upgrade.drain.pods = vec![rule("frozen", Behavior::Skip), rule("batch", Behavior::WaitCompleted)];
    toy.deploy("batch", 2, 0);
    toy.run_until(200, |toy| toy.kubelets("Draining") > 0);
    for _ in 0..20 {
        toy.tick();
    }
    assert_eq!((toy.evictions, toy.kubelets("Draining")), (0, 1), "{:?}", toy.log);
    let line = toy.status().lines().join("\n");
    assert!(line.contains("n-1: pod shop/batch-0 is waited for until it has finished"), "{line}");
    let done: Vec<Arc<str>> = toy.pods_of("batch").iter().map(|pod| pod.uid.clone()).collect();
    for uid in done {
        toy.cluster.change_pod(&uid, |pod| pod.phase = Phase::Finished);
    }
    toy.run_until(300, |toy| toy.kubelets("Upgraded") == 3);
    assert_eq!(toy.evictions, 2, "of those that no rule names");
    assert_eq!(&*toy.pods_of("frozen")[0].node, "n-1", "it stayed where it was");
}

#[test]
fn a_pod_that_does_not_complete_in_time_parks_its_node_by_its_name() {
    let mut toy = Toy::new(1, 1);
    toy.deploy("batch", 1, 0);
    let selector = Selector::default();
    toy.upgrade.drain.pods =
        vec![PodRule { selector, namespaces: vec!["shop".into()], behavior: Behavior::WaitCompleted }];
    toy.run_until(300, |toy| toy.kubelets("Parked") > 0);
    let told = message(&toy, "n-1");
    assert_eq!(told, "not drained within 40 s: pod shop/batch-0 is waited for until it has finished");
    assert!(toy.claims.iter().all(|claim| !matches!(claim.state, ClaimState::Draining { .. })));
}

#[test]
fn an_executor_waits_until_the_volumes_of_what_left_are_detached() {
    let run = |asked: bool| {
        let mut toy = Toy::new(2, 1);
        toy.deploy("web", 2, 0);
        toy.upgrade.drain.await_volumes = asked;
        let on = |node: &str, volume: &str| Attachment { node: node.into(), volume: volume.into() };
        let attached = [on("n-1", "pv-1"), on("n-2", "pv-2")];
        toy.cluster.surroundings_mut().attached = Some(attached.into());
        toy.run_until(200, |toy| toy.kubelets("Upgraded") > 0 || toy.kubelets("Parked") > 0);
        toy
    };
    assert_eq!(run(false).kubelets("Upgraded"), 1);
    let mut toy = run(true);
    assert_eq!(message(&toy, "n-1"), "not drained within 40 s: volume pv-1 still attached to it");
    toy.run_until(200, |toy| toy.kubelets("Draining") == 1 && toy.evictions == 2);
    for _ in 0..10 {
        toy.tick();
    }
    let waits = toy.status().lines();
    assert!(waits.iter().any(|line| line == "n-2: empty; volume pv-2 still attached to it"), "{waits:?}");
    toy.cluster.surroundings_mut().attached = Some([].into());
    toy.run_until(200, |toy| toy.kubelets("Upgraded") > 0);
}

#[test]
fn a_volume_that_stays_attached_for_long_is_looked_at_afresh() {
    let mut toy = Toy::new(2, 1);
    toy.deploy("web", 2, 0);
    toy.upgrade.drain.await_volumes = true;
    toy.upgrade.drain.timeout = SignedDuration::from_secs(600);
    toy.cluster.surroundings_mut().attached =
        Some([Attachment { node: "n-1".into(), volume: "pv-1".into() }].into());
    toy.run_until(200, |toy| toy.kubelets("Draining") == 1);
    let read = |toy: &Toy| toy.log.iter().filter(|line| *line == "ReadAttachments").count();
    let mut reads = Vec::new();
    for _ in 0..190 {
        toy.tick();
        reads.push(read(&toy));
    }
    assert_eq!((reads[30], *reads.last().unwrap()), (0, 3), "once a minute");
    assert!(toy.decided().again_at.is_some());
}

#[test]
fn a_node_is_not_given_up_before_its_pods_were_read_once_more() {
    let mut toy = slow(OnTimeout::Park);
    toy.run_until(400, |toy| toy.kubelets("Parked") > 0);
    let of = |text: &str| toy.log.iter().position(|line| line.starts_with(text));
    let (read, parked) = (of("Reread n-1"), of("Record up.kubelet.n-1 Parked"));
    assert!(read.is_some() && read < parked, "{:?}", toy.log);
}

/// Groups are looked at one after the other, and so are the nodes of a group.
#[test]
fn halt_stops_at_a_node_that_is_not_begun_whatever_comes_before_it() {
    for at_once in [1, 2] {
        let mut toy = Toy::new(4, 2);
        toy.upgrade.drain.on_timeout = OnTimeout::Halt;
        for (number, pool) in [(1, "good"), (2, "good"), (3, "bad"), (4, "bad")] {
            let labels = [("pool".to_owned(), pool.to_owned())];
            toy.cluster.change_node(&format!("n-{number}"), |node| node.labels = Arc::new(labels.into()));
        }
        let group = |pool: &str| {
            let match_labels = [("pool".to_owned(), pool.to_owned())].into();
            NodeGroup {
                max_unavailable: Amount::Count(at_once),
                ..NodeGroup::new(pool, Selector { match_labels, ..Selector::default() }, "external")
            }
        };
        toy.upgrade.groups = vec![group("good"), group("bad")];
        for node in [1, 2, 3] {
            toy.cluster.set_pod(pod("free", node, &format!("n-{node}")));
        }
        toy.cluster.set_pod(pod("frozen", 0, "n-4"));
        toy.deploy("frozen", 0, 1);
        toy.lingers = 30;
        toy.run_to_the_end(900);
        assert_eq!(toy.phase(), UpgradePhase::NodesHalted, "{:?}", toy.log);
        assert_eq!(cordoned(&toy), Vec::<String>::new());
        let went = toy.kubelets("Upgraded");
        assert!(went <= 2 && (at_once == 1 || went == 0), "{:?}", toy.log);
        let message = toy.status().message;
        assert!(message.starts_with("halted: n-4 is not begun: pod shop/frozen-0"), "{message}");
    }
}

/// Of the first budget by its name nothing may ever go, and of the other one pod at a time.
#[test]
fn force_does_not_take_two_nodes_past_a_budget_that_lets_one_go_after_the_other() {
    let mut toy = Toy::new(2, 2);
    toy.upgrade.drain.on_timeout = OnTimeout::Force;
    for (app, needs) in [("api", 2), ("etcd", 1)] {
        for (number, host) in ["n-1", "n-2"].iter().enumerate() {
            let traits = Traits { hosts: vec![(*host).into()], ..Traits::default() };
            toy.cluster.set_pod(Pod { special: Some(Arc::new(traits)), ..pod(app, number, host) });
        }
        toy.deploy(app, 0, needs);
    }
    toy.run_until(600, |toy| toy.kubelets("Claimed") > 0);
    for _ in 0..3 {
        assert_eq!(toy.kubelets_in_flight(), 1, "{:?}", toy.log);
        toy.tick();
    }
    // What nothing lets go keeps none of them for ever.
    toy.run_until(600, |toy| toy.deleted > 0);
}
