//! What is in the way of a drain for now, and passes by itself.

use super::super::super::pod_rule::{Behavior, PodRule};
use super::budgets::each_budget;
use super::*;

#[test]
fn pods_whose_controller_is_gone_and_that_leave() {
    let cases: Vec<(&str, Change)> = vec![
        (
            "U9 not-now PDB shop/cart",
            Box::new(|c| {
                c.pods[1].owner = Some(named("ReplicaSet", "apps/v1"));
                c.pods[1] = terminating(c.pods[1].clone(), at(30));
            }),
        ),
        (
            "U9 not-now PDB shop/cart",
            Box::new(|c| {
                c.surroundings.workloads = None;
                c.budgets[0].sync_failed = Some("found no controllers for pod \"cart-2\"".into());
                c.pods[1] = terminating(c.pods[1].clone(), at(30));
            }),
        ),
        (
            "U9 never PDB shop/cart",
            Box::new(|c| {
                // Of the two whose controller is gone, one stays.
                c.pods[1..].iter_mut().for_each(|pod| pod.owner = Some(named("ReplicaSet", "apps/v1")));
                c.pods[1] = terminating(c.pods[1].clone(), at(30));
            }),
        ),
    ];
    each_budget(cases);
}

#[test]
fn the_only_node_is_told_of_where_a_pod_would_have_to_leave_it() {
    let alone = |pods: Vec<Pod>| {
        codes(&seen(|c| {
            c.nodes.truncate(1);
            c.pods = pods;
        }))
    };
    let daemon = Pod { owner: Some(named("DaemonSet", "apps/v1")), ..pod("logs", 1, "n-1") };
    assert_eq!(alone(vec![daemon.clone()]), Vec::<String>::new());
    assert_eq!(alone(vec![daemon.clone(), pod("web", 1, "n-1")]), ["B23 never Node n-1"]);
    let unready = |pod: Pod| {
        codes(&seen(|c| {
            Arc::make_mut(&mut c.nodes[0]).ready = false;
            c.pods = vec![pod];
        }))
    };
    assert_eq!(unready(daemon), Vec::<String>::new(), "the drain waits for no pod");
    assert_eq!(unready(pod("web", 1, "n-1")), ["B21 not-now Node n-1"]);
}

#[test]
fn the_pods_that_a_drain_waits_for_until_they_complete_are_named() {
    let rules = Rules {
        pods: vec![PodRule {
            selector: Selector::default(),
            namespaces: Vec::new(),
            behavior: Behavior::WaitCompleted,
        }],
        ..Rules::default()
    };
    let found = |change: fn(&mut Parts)| asked(change, &rules, None);
    let waits = found(|_| {});
    assert_eq!(codes(&waits), ["B24 caution ReplicaSet shop/cart"]);
    assert_eq!(
        (&*waits[0].what, waits[0].pods.as_slice()),
        ("is not evicted: the drain waits until it has completed", ["shop/cart-1".to_owned()].as_slice())
    );
    assert_eq!(codes(&found(|c| c.pods[0].phase = Phase::Finished)), Vec::<String>::new());
    assert_eq!(
        codes(&found(|c| {
            c.pods[0] = terminating(c.pods[0].clone(), at(-31));
        })),
        ["B16 not-now ReplicaSet shop/cart"]
    );
}
