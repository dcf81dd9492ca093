//! Pods that no other node is for, whatever room it has.

use super::*;
use crate::cluster::{AntiAffinityTerm, Placement};

/// `cart-1` to `cart-3` on `n-1` to `n-3`, and nodes to `n-5`; the first `infra` of them have that label.
fn placed(infra: usize, rule: Placement, change: impl FnOnce(&mut Parts)) -> Vec<String> {
    let causes = seen(|c| {
        c.nodes.extend((4..=5).map(|number| node(&format!("n-{number}"), "v1.36.4").into()));
        for (number, node) in c.nodes.iter_mut().enumerate() {
            let mut labels = vec![("kubernetes.io/hostname".to_owned(), node.name.to_string())];
            labels.extend((number < infra).then(|| ("infra".to_owned(), String::new())));
            labels.push(("zone".to_owned(), if number < 2 { "a" } else { "b" }.to_owned()));
            Arc::make_mut(node).labels = Arc::new(labels.into_iter().collect());
        }
        let rule = Arc::new(rule);
        let placements = c.pods.iter().map(|pod| (pod.uid.clone(), Arc::clone(&rule)));
        c.surroundings.placements = Some(placements.collect());
        change(c);
    });
    causes
        .iter()
        .map(|cause| format!("{} {}: {}: {}", cause.code, cause.outlook.name(), cause.object, cause.what))
        .collect()
}

fn infra() -> Placement {
    Placement { labels: [("infra".to_owned(), String::new())].into(), ..Placement::default() }
}

fn apart(topology: &str) -> AntiAffinityTerm {
    let selector =
        Selector { match_labels: [("app".to_owned(), "cart".to_owned())].into(), ..Selector::default() };
    AntiAffinityTerm {
        topology: topology.to_owned(),
        selector: Some(selector),
        ..AntiAffinityTerm::default()
    }
}

fn apart_on(topology: &str) -> Placement {
    Placement { apart: vec![apart(topology)], ..Placement::default() }
}

const NONE: [&str; 0] = [];

#[test]
fn a_selector_that_only_the_drained_node_matches() {
    assert_eq!(placed(2, infra(), |_| {}), NONE, "another node has the label");
    let only = "B4 not-now: ReplicaSet shop/cart: its node selector infra allows no other schedulable node";
    assert_eq!(placed(1, infra(), |_| {}), [only]);
    assert_eq!(placed(2, infra(), |c| Arc::make_mut(&mut c.nodes[1]).unschedulable = true), [only]);
    let pinned = |c: &mut Parts| {
        special(Traits { hosts: vec!["n-1".into()], ..Traits::default() })(c);
    };
    let told = placed(1, infra(), pinned);
    assert!(told.len() == 1 && told[0].starts_with("B4 caution"), "it is told once: {told:?}");
}

#[test]
fn routers_that_keep_apart_on_as_many_nodes_as_there_are() {
    let routers = || Placement { labels: infra().labels, ..apart_on("kubernetes.io/hostname") };
    assert_eq!(placed(4, routers(), |_| {}), NONE, "one is free");
    assert_eq!(
        placed(3, routers(), |_| {}),
        [
            "B6 not-now: ReplicaSet shop/cart: by anti-affinity it may not go to the 2 other schedulable nodes that its \
             node selector infra allows: pods that it must not be near are there"
        ]
    );
    assert_eq!(placed(3, routers(), |c| c.pods.truncate(2)), NONE, "n-3 is free of them");
    let finished = |c: &mut Parts| c.pods[1].phase = Phase::Finished;
    assert_eq!(placed(3, routers(), finished), NONE, "one that has finished is no neighbour");
}

#[test]
fn keeping_apart_by_zones_and_by_others() {
    let zones = placed(0, apart_on("zone"), |c| c.pods.truncate(1));
    assert_eq!(zones, NONE, "that the pod itself is in a zone closes none");
    let both = placed(0, apart_on("zone"), |_| {});
    assert!(both.len() == 1 && both[0].starts_with("B6") && both[0].contains("the 4 other"), "{both:?}");
    assert_eq!(placed(0, apart_on("no-such-label"), |_| {}), NONE, "nodes without the label are no part");
    // Those that are there keep this one away, which itself asks for nothing.
    let theirs = |c: &mut Parts| {
        let all = c.surroundings.placements.as_mut().unwrap();
        all.remove("uid-cart-1");
    };
    assert_eq!(placed(0, apart_on("zone"), theirs).len(), 1);
    let elsewhere = |c: &mut Parts| {
        theirs(c);
        c.pods[1..].iter_mut().for_each(|pod| pod.namespace = "bank".into());
    };
    assert_eq!(placed(0, apart_on("zone"), elsewhere), NONE, "terms are about their own namespace");
}

#[test]
fn room_is_looked_for_where_a_pod_may_run() {
    let with_room = |free: &'static str| {
        move |c: &mut Parts| {
            let of = |cpu: i64| Amounts::from_iter([("cpu".into(), cpu), ("pods".into(), 110_000)]);
            let mut capacity = Capacity::default();
            for node in &c.nodes {
                capacity.offers.insert(node.name.clone(), of(if *node.name == *free { 9000 } else { 2000 }));
            }
            capacity.requests = c.pods.iter().map(|pod| (pod.uid.clone(), of(1500))).collect();
            c.pods.truncate(2);
            c.surroundings.capacity = Some(capacity);
        }
    };
    assert_eq!(placed(3, infra(), with_room("n-3")), NONE);
    assert_eq!(
        placed(2, infra(), with_room("n-3")),
        [
            "B9 not-now: ReplicaSet shop/cart: requests 1500m of cpu, and no other schedulable node that its node selector \
             infra allows has more than 500m left"
        ]
    );
    let tied = |c: &mut Parts| {
        with_room("n-3")(c);
        c.pods[0].special = Some(Arc::new(Traits { claims: vec!["data".into()], ..Traits::default() }));
        let capacity = c.surroundings.capacity.as_mut().unwrap();
        capacity.zones.insert(("shop".into(), "data".into()), in_zones(&["c"]));
        for node in &mut c.nodes {
            let mut labels = (*node.labels).clone();
            labels.insert("topology.kubernetes.io/zone".to_owned(), labels["zone"].clone());
            Arc::make_mut(node).labels = Arc::new(labels);
        }
    };
    assert_eq!(
        placed(3, infra(), tied),
        [
            "B9 not-now: ReplicaSet shop/cart: there is no other schedulable node of zone c that its node selector infra \
             allows"
        ]
    );
}
