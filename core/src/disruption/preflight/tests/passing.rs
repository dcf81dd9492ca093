//! What is in the way of a drain for now, and passes by itself.

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
    assert_eq!(alone(vec![daemon, pod("web", 1, "n-1")]), ["B23 never Node n-1"]);
}
