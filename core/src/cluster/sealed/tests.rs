//! Changes in any order lead to the same cluster.

use proptest::prelude::*;

use super::*;
use crate::cluster::{Owner, Traits};
use crate::fixture::{budget, instance, node, pod};

/// Few names, so that objects change, move and come back.
fn any_pod() -> impl Strategy<Value = Pod> {
    ((0..3usize), (0..4usize), (0..3usize), any::<bool>(), 0..2u8).prop_map(
        |(namespace, number, on, ready, owner)| {
            let node = ["", "n-1", "n-2"][on];
            let mut pod =
                Pod { namespace: format!("ns-{namespace}").into(), ready, ..pod("cart", number, node) };
            let starts = Traits { starting_since: Some(Timestamp::UNIX_EPOCH), ..Traits::default() };
            pod.special = (!ready).then(|| starts.into());
            pod.owner = pod
                .owner
                .map(|of| Arc::new(Owner { uid: format!("uid-{owner}").into(), ..Owner::clone(&of) }));
            pod
        },
    )
}

fn any_node() -> impl Strategy<Value = Node> {
    ((0..4usize), any::<bool>())
        .prop_map(|(number, ready)| Node { ready, ..node(&format!("n-{number}"), "v1.36.4") })
}

fn any_budget() -> impl Strategy<Value = Budget> {
    ((0..3usize), (0..3usize), 0..3i32).prop_map(|(namespace, number, allowed)| Budget {
        namespace: format!("ns-{namespace}").into(),
        ..budget(&format!("app-{number}"), allowed, 3, 2)
    })
}

#[derive(Clone, Debug)]
enum Change {
    Node(Node, bool),
    Pod(Box<Pod>, bool),
    Budget(Box<Budget>, bool),
}

/// An object is set, or it is gone.
fn any_change() -> impl Strategy<Value = Change> {
    let stays = || prop::bool::weighted(0.7);
    prop_oneof![
        (any_node(), stays()).prop_map(|(node, stays)| Change::Node(node, stays)),
        (any_pod(), stays()).prop_map(|(pod, stays)| Change::Pod(Box::new(pod), stays)),
        (any_budget(), stays()).prop_map(|(budget, stays)| Change::Budget(Box::new(budget), stays)),
    ]
}

/// The objects that exist after `changes`, kept in the plainest way.
#[derive(Default)]
struct Plain {
    nodes: BTreeMap<Arc<str>, Node>,
    pods: BTreeMap<(Arc<str>, Arc<str>), Pod>,
    budgets: BTreeMap<(Arc<str>, Arc<str>), Budget>,
}

impl Plain {
    fn change(&mut self, change: &Change) {
        match change {
            Change::Node(node, true) => _ = self.nodes.insert(node.name.clone(), node.clone()),
            Change::Node(node, false) => _ = self.nodes.remove(&node.name),
            Change::Pod(pod, true) => {
                self.pods.insert((pod.namespace.clone(), pod.name.clone()), *pod.clone());
            }
            Change::Pod(pod, false) => {
                self.pods.remove(&(pod.namespace.clone(), pod.name.clone()));
            }
            Change::Budget(budget, true) => {
                self.budgets.insert((budget.namespace.clone(), budget.name.clone()), *budget.clone());
            }
            Change::Budget(budget, false) => {
                self.budgets.remove(&(budget.namespace.clone(), budget.name.clone()));
            }
        }
    }

    /// In the opposite of the order that a cluster has.
    fn parts(&self) -> Parts {
        Parts {
            nodes: self.nodes.values().rev().map(|node| Arc::new(node.clone())).collect(),
            pods: self.pods.values().rev().cloned().collect(),
            budgets: self.budgets.values().rev().cloned().collect(),
            ..Parts::default()
        }
    }
}

fn apply(cluster: &mut Cluster, change: &Change) {
    match change {
        Change::Node(node, true) => cluster.set_node(node.clone()),
        Change::Node(node, false) => cluster.remove_node(&node.name),
        Change::Pod(pod, true) => cluster.set_pod(*pod.clone()),
        Change::Pod(pod, false) => cluster.remove_pod(&pod.namespace, &pod.name),
        Change::Budget(budget, true) => cluster.set_budget(*budget.clone()),
        Change::Budget(budget, false) => cluster.remove_budget(&budget.namespace, &budget.name),
    }
}

proptest! {
    #[test]
    fn a_cluster_that_was_changed_is_equal_to_one_sealed_anew(
        begin in prop::collection::vec(any_change(), 0..20),
        changes in prop::collection::vec(any_change(), 0..60),
    ) {
        let mut plain = Plain::default();
        for change in &begin {
            plain.change(change);
        }
        let mut cluster = plain.parts().seal();
        for change in &changes {
            plain.change(change);
            apply(&mut cluster, change);
        }
        prop_assert_eq!(&cluster, &plain.parts().seal());
        for pod in plain.pods.values() {
            prop_assert_eq!(cluster.pod(&pod.namespace, &pod.name), Some(pod));
            prop_assert!(cluster.pods_on(&pod.node).any(|there| there == pod));
            prop_assert!(cluster.pods_in(&pod.namespace).any(|there| there == pod));
            let controller = pod.owner.as_ref().map_or("", |owner| &*owner.uid);
            let starts = !controller.is_empty() && pod.traits().starting_since.is_some();
            prop_assert_eq!(cluster.starting_of(controller).any(|there| there == pod), starts);
        }
        prop_assert_eq!(cluster.pods().count(), plain.pods.len());
        for budget in plain.budgets.values() {
            prop_assert_eq!(cluster.budget(&budget.namespace, &budget.name), Some(budget));
            prop_assert!(cluster.budgets().any(|there| there == budget));
        }
    }
}

#[test]
fn what_is_asked_for_comes_in_order() {
    let cluster = Parts {
        instances: vec![
            instance(Component::KubeScheduler, "b", "v1.36.4"),
            instance(Component::KubeApiserver, "z", "v1.36.4"),
            instance(Component::KubeApiserver, "a", "v1.36.4"),
        ],
        pods: vec![pod("web", 2, "n-2"), pod("web", 3, "n-1"), pod("cart", 1, "n-1"), pod("web", 1, "n-1")],
        budgets: vec![budget("web", 1, 2, 1), budget("cart", 1, 2, 1)],
        ..Parts::default()
    }
    .seal();
    let names: Vec<&str> = cluster.of(Component::KubeApiserver).map(|i| &*i.name).collect();
    assert_eq!(names, ["a", "z"]);
    let on = |node| cluster.pods_on(node).map(|pod| &*pod.name).collect::<Vec<_>>();
    assert_eq!((on("n-1"), on("n-2").len(), on("n-3").len()), (vec!["cart-1", "web-1", "web-3"], 1, 0));
    let budgets: Vec<&str> = cluster.budgets().map(|budget| &*budget.name).collect();
    assert_eq!(budgets, ["cart", "web"]);
    assert!(cluster.pod("shop", "web").is_none() && cluster.pod("bank", "web-1").is_none());
}

#[test]
fn two_pods_of_one_name_stay_until_one_is_set() {
    let twice = vec![pod("db", 0, "n-2"), Pod { uid: "old".into(), ..pod("db", 0, "n-1") }];
    let mut cluster = Parts { pods: twice, ..Parts::default() }.seal();
    assert_eq!(cluster.pods().count(), 2, "a node that is watched by itself tells of its own");
    cluster.set_pod(pod("db", 0, "n-2"));
    assert_eq!(cluster, Parts { pods: vec![pod("db", 0, "n-2")], ..Parts::default() }.seal());
}

#[test]
fn what_a_change_makes_of_a_node_is_seen_here_only() {
    let seen = Arc::new(node("n-1", "v1.36.4"));
    let mut cluster = Parts { nodes: vec![Arc::clone(&seen)], ..Parts::default() }.seal();
    assert!(cluster.change_node("n-1", |node| node.ready = false));
    assert!(!cluster.change_node("n-2", |node| node.ready = false));
    assert!(seen.ready && !cluster.node("n-1").unwrap().ready);
    assert!(cluster.change_node("n-1", |node| node.name = "n-0".into()));
    assert!(cluster.node("n-1").is_none() && cluster.node("n-0").is_some());
}
