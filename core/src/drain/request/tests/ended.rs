//! Nodes that are deleted in the middle of their drain, and drains that are told to stop.

use super::*;

/// A drain of n-1, whose Node is deleted after `ticks` seconds, and how it ends. Its pods stay.
fn deleted_after(ticks: usize, pods: Vec<Pod>, change: impl FnOnce(&mut Toy)) -> String {
    let mut toy = Toy::new(1, pods, vec![budget("cart", 0, 3, 3)]);
    change(&mut toy);
    (0..ticks).for_each(|_| _ = toy.tick());
    toy.cluster.remove_node("n-1");
    toy.log.clear();
    toy.run()
}

#[test]
fn a_node_that_is_deleted_is_not_drained_while_pods_are_on_it() {
    expect_test::expect![[r#"
        4 reread n-1
        n-1: its Node was deleted while 2 pods were still on it, shop/cart-1 first; see that others run in their place"#]]
    .assert_eq(&deleted_after(3, vec![pod("cart", 1, "n-1"), pod("cart", 2, "n-1")], |_| ()));
    expect_test::expect![[r#"
        4 reread n-1
        n-1: its Node was deleted while pod shop/web-1 was still on it; see that another one runs in its place"#]]
    .assert_eq(&deleted_after(3, vec![terminating(pod("web", 1, "n-1"), at(99))], |_| ()));
}

#[test]
fn a_node_that_is_deleted_is_drained_when_a_fresh_look_finds_nothing_that_had_to_leave() {
    let stays = Pod { mirror: true, ..pod("etcd", 1, "n-1") };
    expect_test::expect![[r#"
        6 reread n-1
        n-1: drained"#]]
    .assert_eq(&deleted_after(5, vec![stays, pod("web", 1, "n-1")], |_| ()));
}

#[test]
fn a_node_that_is_deleted_is_not_drained_while_a_volume_is_attached_to_it() {
    let attached = |toy: &mut Toy| {
        toy.request.policy.await_volumes = true;
        let volume = Attachment { node: "n-1".into(), volume: "pv-1".into() };
        toy.cluster.surroundings_mut().attached = Some([volume].into());
    };
    expect_test::expect![[r#"
        6 reread n-1
        n-1: its Node was deleted with volume pv-1 still attached to it; see that it is detached"#]]
    .assert_eq(&deleted_after(5, vec![pod("web", 1, "n-1")], attached));
}

#[test]
fn a_drain_that_is_told_to_stop_gives_back_what_it_cordoned_where_that_is_asked_for() {
    let run = |give_back| {
        let mut toy =
            Toy::new(3, vec![pod("cart", 1, "n-1"), pod("web", 1, "n-2")], vec![budget("cart", 0, 3, 3)]);
        (toy.request.give_back, toy.request.concurrency) = (give_back, 2);
        let theirs = |node: &mut Node| node.unschedulable = true;
        toy.cluster.change_node("n-3", theirs);
        (0..3).for_each(|_| _ = toy.tick());
        assert!(matches!(toy.states["n-1"], NodeState::Draining(_)), "{:?}", toy.states);
        assert!(matches!(toy.states["n-2"], NodeState::Cordoned(_)), "{:?}", toy.states);
        toy.request.stopped = Some("interrupted".into());
        toy.run()
    };
    expect_test::expect![[r#"
        1 cordon n-1
        1 cordon n-2
        n-1: interrupted
        n-2: interrupted
        n-3: interrupted"#]]
    .assert_eq(&run(false));
    expect_test::expect![[r#"
        1 cordon n-1
        1 cordon n-2
        4 uncordon n-1
        4 uncordon n-2
        n-1: interrupted
        n-2: interrupted
        n-3: interrupted"#]]
    .assert_eq(&run(true));
}

#[test]
fn a_cordon_that_is_answered_after_the_drain_was_told_to_stop_is_given_back() {
    let mut toy = Toy::new(1, vec![pod("web", 1, "n-1")], vec![]);
    toy.request.give_back = true;
    toy.request.stopped = Some("interrupted".into());
    toy.tick();
    let mark = toy.request.mark.clone();
    toy.cluster.change_node("n-1", |node| (node.unschedulable, node.cordoned_by) = (true, Some(mark.into())));
    assert_eq!(toy.run(), "2 uncordon n-1\nn-1: interrupted");
}

#[test]
fn a_node_that_is_drained_already_stays_so_when_the_drain_is_told_to_stop() {
    let mut toy = Toy::new(1, vec![], vec![]);
    toy.request.give_back = true;
    toy.run();
    toy.request.stopped = Some("interrupted".into());
    assert_eq!(toy.run().lines().last(), Some("n-1: drained"), "{:?}", toy.log);
    assert!(!toy.log.iter().any(|line| line.contains("uncordon")), "{:?}", toy.log);
}
