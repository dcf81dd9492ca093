//! Nodes that wait for their turn, how long they may, when they are drained, and what is given back of those that are given up.

use super::*;

#[test]
fn a_drain_that_forces_uses_the_deadline_of_pods_that_its_budgets_keep_on_their_node() {
    let run = |nodes, pods| {
        let mut toy = Toy::new(nodes, pods, vec![budget("etcd", 1, 3, 2)]);
        (toy.request.policy.timeout, toy.request.policy.on_timeout) =
            (Some(SignedDuration::from_secs(20)), OnTimeout::Force);
        toy.run()
    };
    let twice = Pod { name: "etcd-b".into(), uid: "etcd-b".into(), ..guard("etcd", "n-1") };
    expect_test::expect![[r#"
        1 cordon n-1
        2 evict etcd-b
        2 evict web-1
        22 reread n-1
        23 delete etcd-n-1
        26 reread n-1
        n-1: drained"#]]
    .assert_eq(&run(1, vec![twice, guard("etcd", "n-1"), pod("web", 1, "n-1")]));
    expect_test::expect![[r#"
        1 cordon n-1
        1 cordon n-2
        2 evict etcd-n-1
        7 reread n-1
        28 reread n-2
        29 delete etcd-n-2
        32 reread n-2
        n-1: drained
        n-2: drained"#]]
    .assert_eq(&run(2, vec![guard("etcd", "n-1"), guard("etcd", "n-2")]));
}

/// Each tick checks that no look is asked for at a time that is over.
#[test]
fn a_drain_that_forces_waits_for_its_deadline_where_only_that_lets_its_last_pod_go() {
    let mut toy = Toy::new(1, vec![pod("cart", 1, "n-1")], vec![budget("cart", 0, 1, 1)]);
    (toy.request.policy.timeout, toy.request.policy.on_timeout) =
        (Some(SignedDuration::from_secs(60)), OnTimeout::Force);
    expect_test::expect![[r#"
        1 cordon n-1
        62 reread n-1
        63 delete cart-1
        66 reread n-1
        n-1: drained"#]]
    .assert_eq(&toy.run());
}

/// Of the first budget by its name nothing may ever go, and of the other one pod at a time.
#[test]
fn a_drain_that_forces_does_not_open_two_nodes_whose_second_budget_lets_one_go_after_the_other() {
    let guards = ["n-1", "n-2"].into_iter().flat_map(|node| [guard("api", node), guard("etcd", node)]);
    let mut toy = Toy::new(2, guards.collect(), vec![budget("api", 0, 2, 2), budget("etcd", 1, 2, 1)]);
    toy.request.concurrency = 2;
    (toy.request.policy.timeout, toy.request.policy.on_timeout) =
        (Some(SignedDuration::from_secs(20)), OnTimeout::Force);
    expect_test::expect![[r#"
        1 cordon n-1
        1 cordon n-2
        2 evict etcd-n-1
        22 reread n-1
        23 delete api-n-1
        26 reread n-1
        47 reread n-2
        48 delete api-n-2
        48 delete etcd-n-2
        51 reread n-2
        n-1: drained
        n-2: drained"#]]
    .assert_eq(&toy.run());
}

#[test]
fn only_nodes_that_this_drain_or_its_person_cordoned_are_given_back() {
    let given_back = |mark: &str, cordoned_by: &str| {
        let mut toy = Toy::new(1, Vec::new(), Vec::new());
        (toy.request.give_back, toy.request.mark) = (true, CordonMark::of_drain(at(0), mark));
        let cordoned_by = cordoned_by.replace("ours", &toy.request.mark);
        toy.cluster.change_node("n-1", |node| {
            (node.unschedulable, node.cordoned_by) = (true, Some(cordoned_by.into()));
        });
        let why = NotDrained::Because("why".to_owned());
        toy.states = [("n-1".into(), NodeState::Failed { why })].into();
        let memory = Memory::default();
        let world = DrainWorld {
            cluster: &toy.cluster,
            memory: &memory,
            states: &toy.states,
            uids: &toy.uids,
            confirmed: &BTreeMap::new(),
            reread: &BTreeMap::new(),
            refused: &RefusedPatches::default(),
            now: at(1),
        };
        !decide(&toy.request, world).actions.is_empty()
    };
    assert!(given_back("ann", "ours"));
    assert!(!given_back("ann@laptop", "drain:2027-01-01T00:00:00Z/bob@laptop"), "another person's");
    assert!(given_back("ann@laptop", "drain:2027-01-01T00:00:00Z/ann@laptop"), "one that crashed");
    assert!(!given_back("root", "drain:2027-01-01T00:00:00Z/root"), "a name without a machine is anybody's");
}

#[test]
fn a_node_on_which_all_wait_for_pods_that_only_a_person_moves_is_given_up() {
    let never = || pod("cart", 1, "n-1");
    let critical = Traits { critical: true, ..Traits::default() };
    let critical = Pod { special: Some(Arc::new(critical)), ..pod("dns", 1, "n-1") };
    let stuck = terminating(pod("db", 1, "n-1"), at(-60));
    for (others, ready, ends) in [
        (critical, true, Some("pod shop/cart-1: PDB shop/cart can never allow")),
        (stuck.clone(), false, Some("pod shop/cart-1: PDB shop/cart can never allow")),
        (stuck, true, None),
    ] {
        let mut toy = Toy::new(1, vec![never(), others.clone()], vec![budget("cart", 0, 1, 1)]);
        toy.request.policy.rules.critical_last = true;
        toy.cluster.change_node("n-1", |node| node.ready = ready);
        for _ in 0..40 {
            // Nobody ends it.
            toy.cluster.set_pod(others.clone());
            toy.tick();
        }
        match (&toy.states["n-1"], ends) {
            (NodeState::Failed { why }, Some(ends)) => {
                assert!(why.to_string().starts_with(ends), "{why}");
            }
            (NodeState::Draining(_), None) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_node_that_no_other_node_of_the_drain_holds_up_waits_for_what_may_come_by_itself() {
    let short = || Budget { expected_pods: 3, ..budget("etcd", 0, 2, 2) };
    let mut toy = Toy::new(2, vec![pod("web", 1, "n-1"), guard("etcd", "n-2")], vec![short()]);
    (0..99).for_each(|_| _ = toy.tick());
    assert!(matches!(toy.states["n-1"], NodeState::Drained { .. }));
    assert!(!toy.states["n-2"].is_final(), "{:?}", toy.states);
    toy.cluster.change_budget("etcd", |budget| budget.disruptions_allowed = 1);
    assert!(toy.run().ends_with("n-1: drained\nn-2: drained"), "{:?}", toy.log);
}

#[test]
fn the_time_of_a_node_that_is_held_up_counts_from_when_it_could_have_begun() {
    let closed = |app| Budget { expected_pods: 3, ..budget(app, 0, 2, 2) };
    let run = |etcd_opens: i64| {
        let pods = vec![pod("web", 1, "n-1"), guard("etcd", "n-2")];
        let mut toy = Toy::new(2, pods, vec![closed("web"), closed("etcd")]);
        toy.request.policy.timeout = Some(SignedDuration::from_secs(20));
        for (opens, app) in [(16, "web"), (etcd_opens, "etcd")] {
            while toy.seconds < opens && !toy.tick() {}
            toy.cluster.change_budget(app, |budget| budget.disruptions_allowed = 1);
        }
        toy.run()
    };
    expect_test::expect![[r#"
        1 cordon n-1
        1 cordon n-2
        17 evict web-1
        20 reread n-1
        31 evict etcd-n-2
        34 reread n-2
        n-1: drained
        n-2: drained"#]]
    .assert_eq(&run(30));
    expect_test::expect![[r#"
        1 cordon n-1
        1 cordon n-2
        17 evict web-1
        20 reread n-1
        n-1: drained
        n-2: 1 of its pods under PDB shop/etcd can run on it only, 0 on nodes that are being drained, and 0 may be away now"#]].assert_eq(&run(60));
}

/// The node's pods may be read for another reason before it has settled, and a pod may be bound to it after that.
#[test]
fn a_read_from_before_a_node_has_settled_does_not_make_it_drained() {
    let mut toy = Toy::new(1, Vec::new(), Vec::new());
    let is_drained = |toy: &Toy| matches!(toy.states["n-1"], NodeState::Drained { .. });
    for _ in 0..6 {
        toy.tick();
        toy.confirmed = [("n-1".into(), at(4))].into();
    }
    toy.tick();
    assert!(!is_drained(&toy), "{:?}", toy.states);
    toy.tick();
    assert!(is_drained(&toy), "{:?}", toy.states);
}
