//! A drain, decision by decision.

mod ended;
mod turns;

use super::*;
use crate::cluster::{Attachment, Budget, Parts, Pod, Traits};
use crate::disruption::{Sent, may_stay};
use crate::fixture::{at, budget, node, pod, terminating};
use crate::toy::ToyCluster;

/// A drain of a toy cluster, in which evicted pods are gone after two seconds.
struct Toy {
    cluster: ToyCluster,
    request: DrainRequest,
    states: BTreeMap<Arc<str>, NodeState>,
    uids: BTreeMap<Arc<str>, Arc<str>>,
    confirmed: BTreeMap<Arc<str>, Timestamp>,
    reread: BTreeMap<Arc<str>, Timestamp>,
    /// Nodes whose patches the server refuses.
    protected: Vec<Arc<str>>,
    refused: RefusedPatches,
    sent: Sent,
    log: Vec<String>,
    seconds: i64,
}

impl Toy {
    fn new(nodes: usize, pods: Vec<Pod>, budgets: Vec<Budget>) -> Self {
        let nodes: Vec<Arc<Node>> = (1..=nodes).map(|n| node(&format!("n-{n}"), "v1.37.1").into()).collect();
        let names: Vec<Arc<str>> = nodes.iter().map(|node| node.name.clone()).collect();
        Self {
            uids: nodes.iter().map(|node| (node.name.clone(), node.uid.clone())).collect(),
            cluster: ToyCluster(Parts { nodes, pods, budgets, ..Parts::default() }.seal()),
            request: DrainRequest {
                nodes: names,
                concurrency: 1,
                policy: DrainPolicy {
                    rules: Rules { evict_finished: true, ..Rules::default() },
                    timeout: None,
                    on_timeout: OnTimeout::Park,
                    settle: SignedDuration::from_secs(5),
                    await_volumes: false,
                },
                give_back: false,
                mark: CordonMark::of_drain(at(0), "ann"),
                stopped: None,
            },
            states: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            reread: BTreeMap::new(),
            protected: Vec::new(),
            refused: RefusedPatches::default(),
            sent: Sent::default(),
            log: Vec::new(),
            seconds: 0,
        }
    }

    fn tick(&mut self) -> bool {
        self.seconds += 1;
        let now = at(self.seconds);
        let memory = self.sent.memory(&self.cluster, now);
        let world = DrainWorld {
            cluster: &self.cluster,
            memory: &memory,
            states: &self.states,
            uids: &self.uids,
            confirmed: &self.confirmed,
            reread: &self.reread,
            refused: &self.refused,
            now,
        };
        let DrainDecision { actions, states, again_at, done, .. } = decide(&self.request, world);
        // Whoever is told to look again at a time that is over does so at once, again and again.
        assert!(again_at.is_none_or(|again| again > now), "{again_at:?} is not after {now}");
        self.states = states;
        self.confirmed.clear();
        for action in actions {
            self.apply(action, now);
        }
        self.cluster.pass(now);
        done
    }

    fn apply(&mut self, action: DrainAction, now: Timestamp) {
        let gone = now.saturating_add(SignedDuration::from_secs(2)).unwrap();
        match action {
            DrainAction::Cordon(node) | DrainAction::Uncordon(node)
                if self.protected.contains(&node.name) =>
            {
                self.refused.refused(&node.name, "no right".to_owned(), now);
            }
            DrainAction::Cordon(node) => {
                self.log.push(format!("{} cordon {}", self.seconds, node.name));
                let mark = self.request.mark.clone();
                self.cluster.cordon(&node, &mark);
            }
            DrainAction::Uncordon(node) => {
                self.log.push(format!("{} uncordon {}", self.seconds, node.name));
                self.cluster.uncordon(&node, &self.request.mark);
            }
            DrainAction::Evict(permit) => {
                self.log.push(format!("{} evict {}", self.seconds, permit.pod()));
                self.sent.sends(&permit, now);
                let answer = crate::disruption::answer::Answer::Accepted(None);
                self.sent.answered(permit.uid().clone(), permit.charge().cloned(), &answer, now);
                assert!(self.cluster.evict(&permit, gone), "{} goes past its budget", permit.pod());
            }
            DrainAction::Delete(forced) => {
                let read = self.reread.get(&forced.asked().node);
                assert!(read.is_some(), "{} is deleted by what only a watch tells", forced.pod());
                self.log.push(format!("{} delete {}", self.seconds, forced.pod()));
                self.cluster.delete(forced.uid(), gone);
            }
            DrainAction::Reread(name) => {
                self.log.push(format!("{} reread {name}", self.seconds));
                self.reread.insert(name.clone(), now);
                let (rules, around) = (&self.request.policy.rules, self.cluster.surroundings());
                if self.cluster.pods_on(&name).all(|pod| may_stay(pod, rules, around, now)) {
                    self.confirmed.insert(name, now);
                }
            }
        }
    }

    /// The pods of every node were read at `read`.
    fn nodes_read(&self, read: Timestamp) -> BTreeMap<Arc<str>, Timestamp> {
        self.request.nodes.iter().map(|name| (name.clone(), read)).collect()
    }

    fn run(&mut self) -> String {
        for _ in 0..200 {
            if self.tick() {
                break;
            }
        }
        for (name, state) in &self.states {
            let end = match state {
                NodeState::Drained { .. } => "drained".to_owned(),
                NodeState::Failed { why } => why.to_string(),
                other => format!("{other:?}"),
            };
            self.log.push(format!("{name}: {end}"));
        }
        self.log.join("\n")
    }
}

/// The pod of `app` that can run on `node` only.
fn guard(app: &str, node: &str) -> Pod {
    let traits = Traits { hosts: vec![node.into()], ..Traits::default() };
    Pod {
        name: format!("{app}-{node}").into(),
        uid: format!("{app}-{node}").into(),
        special: Some(Arc::new(traits)),
        ..pod(app, 0, node)
    }
}

#[test]
fn a_node_is_cordoned_emptied_settled_and_looked_at_again() {
    let mut toy =
        Toy::new(1, vec![pod("cart", 1, "n-1"), pod("web", 1, "n-1")], vec![budget("cart", 1, 3, 2)]);
    expect_test::expect![[r#"
        1 cordon n-1
        2 evict cart-1
        2 evict web-1
        7 reread n-1
        n-1: drained"#]]
    .assert_eq(&toy.run());
}

#[test]
fn who_does_not_want_to_settle_has_the_node_looked_at_as_soon_as_it_is_empty() {
    let mut toy = Toy::new(1, vec![pod("web", 1, "n-1")], vec![]);
    toy.request.policy.settle = SignedDuration::ZERO;
    expect_test::expect![[r#"
        1 cordon n-1
        2 evict web-1
        5 reread n-1
        n-1: drained"#]]
    .assert_eq(&toy.run());
}

#[test]
fn every_node_is_cordoned_before_the_first_pod_leaves() {
    let mut toy = Toy::new(2, vec![pod("a", 1, "n-1"), pod("b", 1, "n-2")], vec![]);
    expect_test::expect![[r#"
        1 cordon n-1
        1 cordon n-2
        2 evict a-1
        7 reread n-1
        8 evict b-1
        11 reread n-2
        n-1: drained
        n-2: drained"#]]
    .assert_eq(&toy.run());
}

#[test]
fn a_node_with_a_pod_that_is_refused_is_not_touched() {
    let bare = Pod { owner: None, ..pod("bare", 1, "n-1") };
    let mut toy = Toy::new(1, vec![bare, pod("web", 1, "n-1")], vec![]);
    assert_eq!(toy.run(), "n-1: pod shop/bare-1 has no controller that would bring it back; move it by hand");
}

#[test]
fn a_budget_that_never_allows_ends_with_its_reason() {
    let mut toy =
        Toy::new(1, vec![pod("cart", 1, "n-1"), pod("web", 1, "n-1")], vec![budget("cart", 0, 1, 1)]);
    expect_test::expect![[r#"
        1 cordon n-1
        2 evict web-1
        35 reread n-1
        n-1: pod shop/cart-1: PDB shop/cart can never allow an eviction: it needs 1 healthy of 1 (1 healthy now)"#]]
    .assert_eq(&toy.run());
}

#[test]
fn a_node_that_somebody_uncordons_is_theirs() {
    let mut toy = Toy::new(
        1,
        vec![pod("cart", 1, "n-1")],
        vec![Budget { expected_pods: 3, ..budget("cart", 0, 2, 2) }],
    );
    toy.tick();
    toy.tick();
    toy.cluster.change_node("n-1", |node| node.unschedulable = false);
    expect_test::expect![[r#"
        1 cordon n-1
        3 uncordon n-1
        n-1: was uncordoned by someone else while it drained"#]]
    .assert_eq(&toy.run());
}

#[test]
fn what_happens_when_the_time_is_over() {
    let run = |on_timeout, give_back| {
        let short = || Budget { expected_pods: 3, ..budget("cart", 0, 2, 2) };
        let mut toy = Toy::new(2, vec![pod("cart", 1, "n-1"), pod("web", 1, "n-2")], vec![short()]);
        toy.request.policy.timeout = Some(SignedDuration::from_secs(20));
        (toy.request.policy.on_timeout, toy.request.give_back) = (on_timeout, give_back);
        toy.run()
    };
    expect_test::expect![[r#"
        1 cordon n-1
        1 cordon n-2
        22 reread n-1
        23 evict web-1
        26 reread n-2
        n-1: not drained within 20 s: pod shop/cart-1: PDB shop/cart allows 0 evictions: 2 of 3 healthy, 2 needed
        n-2: drained"#]]
    .assert_eq(&run(OnTimeout::Park, false));
    expect_test::expect![[r#"
        1 cordon n-1
        1 cordon n-2
        22 reread n-1
        23 uncordon n-1
        23 uncordon n-2
        n-1: not drained within 20 s: pod shop/cart-1: PDB shop/cart allows 0 evictions: 2 of 3 healthy, 2 needed
        n-2: halted, because another node could not be drained"#]]
    .assert_eq(&run(OnTimeout::Halt, true));
    expect_test::expect![[r#"
        1 cordon n-1
        1 cordon n-2
        22 reread n-1
        23 delete cart-1
        26 reread n-1
        27 evict web-1
        30 reread n-2
        n-1: drained
        n-2: drained"#]]
    .assert_eq(&run(OnTimeout::Force, false));
}

#[test]
fn of_a_drain_that_halts_no_other_node_is_asked_for_anything() {
    let short = Budget { expected_pods: 3, ..budget("cart", 0, 2, 2) };
    let pods = vec![pod("cart", 1, "n-1"), pod("web", 1, "n-2")];
    let mut toy = Toy::new(3, pods, vec![short]);
    (toy.request.concurrency, toy.request.policy.timeout) = (2, Some(SignedDuration::from_secs(20)));
    toy.request.policy.on_timeout = OnTimeout::Halt;
    for name in ["n-1", "n-2"] {
        toy.cluster.change_node(name, |node| node.unschedulable = true);
    }
    let draining = |begun| NodeState::Draining(NodeDrain::new(at(1), at(begun)));
    let states = [("n-1".into(), draining(2)), ("n-2".into(), draining(3))].into();
    let memory = Memory::default();
    let world = DrainWorld {
        cluster: &toy.cluster,
        memory: &memory,
        states: &states,
        uids: &toy.uids,
        confirmed: &BTreeMap::new(),
        reread: &toy.nodes_read(at(21)),
        refused: &RefusedPatches::default(),
        now: at(22),
    };
    let decision = decide(&toy.request, world);
    let why = |name: &str| match &decision.states[name] {
        NodeState::Failed { why } => why.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(why("n-1").starts_with("not drained within 20 s"), "{decision:?}");
    let halted = "halted, because another node could not be drained";
    assert_eq!([why("n-2"), why("n-3")], [halted, halted]);
    assert_eq!((decision.actions.len(), decision.left.len()), (0, 0), "{decision:?}");
}

#[test]
fn nodes_whose_pinned_pods_share_budgets_never_deadlock() {
    let pods = ["n-1", "n-2"].iter().flat_map(|node| [guard("etcd", node), guard("api", node)]).collect();
    let mut toy = Toy::new(2, pods, vec![budget("etcd", 1, 3, 2), budget("api", 1, 3, 2)]);
    toy.request.concurrency = 2;
    let log = toy.run();
    assert!(log.contains("n-1: drained"), "{log}");
    assert!(log.contains("n-2: 1 of its pods under PDB shop/api can run on it only"), "{log}");
    assert!(!log.contains("evict api-n-2") && !log.contains("evict etcd-n-2"), "all or nothing: {log}");
}

#[test]
fn a_node_that_an_upgrade_works_on_is_left_alone() {
    let mut toy = Toy::new(1, vec![pod("web", 1, "n-1")], vec![]);
    toy.cluster.change_node("n-1", |node| {
        (node.unschedulable, node.cordoned_by) = (true, Some("up.kubelet.n-1/uid".into()));
    });
    assert_eq!(
        toy.run(),
        "n-1: is being upgraded by NodeUpgrade up.kubelet.n-1; suspend its ClusterUpgrade first"
    );
}

#[test]
fn a_drain_that_crashed_goes_on_from_the_cordon() {
    let mut toy = Toy::new(1, vec![pod("web", 1, "n-1")], vec![]);
    toy.cluster.change_node("n-1", |node| {
        (node.unschedulable, node.cordoned_by) = (true, Some("drain:2027-01-01T00:00:00Z/ann".into()));
    });
    assert_eq!(toy.run(), "1 evict web-1\n6 reread n-1\nn-1: drained");
}

#[test]
fn a_drain_that_is_told_to_stop_asks_for_nothing_more() {
    let mut toy = Toy::new(1, vec![pod("web", 1, "n-1")], vec![]);
    toy.tick();
    toy.request.stopped = Some("interrupted".into());
    toy.run();
    assert_eq!(toy.log[0], "1 cordon n-1");
    assert!(!toy.log.iter().any(|line| line.contains("evict")), "{:?}", toy.log);
}

#[test]
fn no_pod_leaves_while_it_could_go_to_a_node_that_is_still_to_be_cordoned() {
    let mut toy = Toy::new(2, vec![pod("web", 1, "n-1")], Vec::new());
    let evicted = |toy: &Toy| toy.log.iter().any(|line| line.contains("evict"));
    for second in 1..=20 {
        toy.tick();
        // The cordon of n-2 fails each time.
        toy.cluster.change_node("n-2", |node| {
            (node.unschedulable, node.cordoned_by) = (false, None);
        });
        if second == 11 {
            assert!(!evicted(&toy), "{:?}", toy.log);
        }
    }
    assert!(evicted(&toy), "one that cannot be cordoned does not hold up the others for ever: {:?}", toy.log);
}

#[test]
fn a_drained_node_that_somebody_uncordons_loses_its_mark() {
    let mut toy = Toy::new(2, vec![pod("web", 1, "n-1"), pod("web", 2, "n-2")], Vec::new());
    let drained = |toy: &Toy| matches!(toy.states.get("n-1"), Some(NodeState::Drained { .. }));
    while !drained(&toy) {
        assert!(!toy.tick(), "n-2 has its turn after n-1");
    }
    toy.cluster.change_node("n-1", |node| node.unschedulable = false);
    toy.tick();
    let node = toy.cluster.node("n-1").unwrap();
    assert!(node.cordoned_by.is_none() && !node.unschedulable, "{:?}", toy.log);
    assert!(drained(&toy));
}

#[test]
fn volumes_of_pods_that_left_are_waited_for_where_that_is_asked_for() {
    let on = |name: &str, claim: &str| {
        let special = Some(Arc::new(Traits { claims: vec![claim.into()], ..Traits::default() }));
        Pod { special, ..pod(name, 1, "n-1") }
    };
    let stays = Pod { mirror: true, ..on("agent", "logs") };
    let mut toy = Toy::new(1, vec![on("db", "data"), stays], vec![]);
    let attached = |volumes: &[&str]| {
        let of = |volume: &&str| Attachment { node: "n-1".into(), volume: (*volume).into() };
        Some(
            volumes
                .iter()
                .map(of)
                .chain([Attachment { node: "n-2".into(), volume: "pv-9".into() }])
                .collect(),
        )
    };
    let claim = |volume: &str, claim: &str| (volume.into(), ("shop".into(), claim.into()));
    toy.cluster.surroundings_mut().claims = Some([claim("pv-1", "data"), claim("pv-2", "logs")].into());
    toy.cluster.surroundings_mut().attached = attached(&["pv-1", "pv-2"]);
    toy.request.policy.await_volumes = true;
    (0..30).for_each(|_| _ = toy.tick());
    assert!(matches!(toy.states["n-1"], NodeState::Draining(_)), "{:?}", toy.states);
    let sent = toy.sent.clone().memory(&toy.cluster, at(31));
    let world = DrainWorld {
        cluster: &toy.cluster,
        memory: &sent,
        states: &toy.states,
        uids: &toy.uids,
        confirmed: &toy.confirmed,
        reread: &toy.reread,
        refused: &RefusedPatches::default(),
        now: at(31),
    };
    let waits = decide(&toy.request, world).waiting;
    assert_eq!(waits["n-1"], "volume pv-1 (shop/data) still attached to it");
    let mut late = Toy { seconds: 60, ..toy };
    late.request.policy.timeout = Some(SignedDuration::from_secs(50));
    // Its pods are read once more before it is given up.
    (0..2).for_each(|_| _ = late.tick());
    let NodeState::Failed { why } = &late.states["n-1"] else { panic!("{:?}", late.states) };
    assert_eq!(why.to_string(), "not drained within 50 s: volume pv-1 (shop/data) still attached to it");
    assert_eq!(why.told(), why.to_string(), "it says once that the node is not drained");
    let mut toy = Toy::new(1, vec![on("db", "data")], vec![]);
    toy.cluster.surroundings_mut().attached = attached(&["pv-1"]);
    (0..30).for_each(|_| _ = toy.tick());
    assert!(matches!(toy.states["n-1"], NodeState::Drained { .. }), "nobody asked for it");
    let mut toy = Toy::new(1, vec![on("db", "data")], vec![]);
    toy.cluster.surroundings_mut().attached = attached(&[]);
    toy.request.policy.await_volumes = true;
    (0..30).for_each(|_| _ = toy.tick());
    assert!(matches!(toy.states["n-1"], NodeState::Drained { .. }), "{:?}", toy.states);
}

#[test]
fn a_node_whose_kubelet_is_gone_is_given_up_with_what_keeps_its_pod() {
    for (finalizers, why) in [
        (vec![], "should have terminated by"),
        (vec!["x.io/keep".into()], "stays until its finalizer x.io/keep is taken off"),
    ] {
        let special = Some(Arc::new(Traits { finalizers, ..Traits::default() }));
        let stuck = terminating(Pod { special, ..pod("db", 1, "n-1") }, at(-60));
        let mut toy = Toy::new(1, vec![stuck.clone()], vec![]);
        for ready in [true, false] {
            toy.cluster.change_node("n-1", |node| node.ready = ready);
            for _ in 0..40 {
                // Nobody ends it.
                toy.cluster.set_pod(stuck.clone());
                toy.tick();
            }
            match &toy.states["n-1"] {
                NodeState::Draining(_) => assert!(ready, "a kubelet that is there may still end it"),
                NodeState::Failed { why: given_up } => {
                    let told = given_up.to_string();
                    assert_eq!(given_up.told(), format!("not drained: {told}"));
                    assert!(!ready && told.starts_with("its kubelet confirms no pod's end: "), "{told}");
                    assert!(told.contains(why), "{told}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_node_whose_patch_is_refused_for_long_is_given_up_and_the_others_go_on() {
    let mut toy = Toy::new(2, vec![pod("web", 1, "n-1"), pod("web", 2, "n-2")], vec![]);
    toy.protected = vec!["n-1".into()];
    expect_test::expect![[r#"
        1 cordon n-2
        12 evict web-2
        15 reread n-2
        n-1: the API server refuses to cordon it: no right; run the drain again when it allows that
        n-2: drained"#]]
    .assert_eq(&toy.run());
    assert_eq!(toy.seconds, 31, "and then the drain is done");
}

#[test]
fn an_uncordon_that_is_refused_for_long_keeps_no_drain_from_its_end() {
    let mut toy = Toy::new(1, vec![], vec![]);
    toy.cluster.change_node("n-1", |node| {
        (node.unschedulable, node.cordoned_by) = (true, Some(toy.request.mark.as_str().into()));
    });
    let why = NotDrained::Because("why".to_owned());
    toy.states = [("n-1".into(), NodeState::Failed { why })].into();
    (toy.request.give_back, toy.protected) = (true, vec!["n-1".into()]);
    assert_eq!(toy.run(), "n-1: why");
    assert_eq!(toy.seconds, 31);
}
