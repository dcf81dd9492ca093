//! The least time that a drain takes.

use super::*;

#[test]
fn the_least_time_of_a_drain() {
    let pods = (0..40).map(|number| pod("cart", number, "n-1"));
    let cart = Workload {
        this: pod("cart", 0, "").owner.unwrap(),
        namespace: "shop".into(),
        replicas: Some(40),
        owner: None,
        ignores_disruption: false,
    };
    let cluster = Parts {
        nodes: vec![node("n-1", "v1.36.4").into(), node("n-2", "v1.36.4").into()],
        pods: pods.collect(),
        budgets: vec![Budget {
            demand: Demand::MaxUnavailable(Quantity::Count(1)),
            ..budget("cart", 1, 40, 39)
        }],
        surroundings: Surroundings {
            workloads: Some([cart].into_iter().collect()),
            ..Surroundings::default()
        },
        ..Parts::default()
    }
    .seal();
    let nodes = vec![cluster.nodes()[0].as_ref()];
    let rules = Rules::default();
    let question =
        Question { cluster: &cluster, nodes, at_once: 1, rules: &rules, timeout: None, now: at(0) };
    let found = bounds(&question, SignedDuration::from_secs(90));
    assert_eq!(found[0].least, Some(SignedDuration::from_mins(60)), "40 pods, 1 at a time, 90 s each");
    assert_eq!(found[0].instead, Some((Quantity::Percent(10), SignedDuration::from_mins(15))));
    assert_eq!(found[0].busiest, ("n-1".into(), 40));
}

/// A budget that allows nothing lets pods go that are not ready, if it says so.
#[test]
fn a_pod_that_leaves_freely_needs_no_time() {
    let told = |unhealthy_policy| {
        let nothing = Demand::MaxUnavailable(Quantity::Count(0));
        let cluster = Parts {
            nodes: (1..=2).map(|number| node(&format!("n-{number}"), "v1.36.4").into()).collect(),
            pods: vec![Pod { ready: false, ..pod("cart", 1, "n-1") }],
            budgets: vec![Budget { demand: nothing, unhealthy_policy, ..budget("cart", 0, 0, 1) }],
            ..Parts::default()
        }
        .seal();
        let nodes = cluster.nodes().iter().map(AsRef::as_ref).collect();
        let rules = Rules::default();
        let question =
            Question { cluster: &cluster, nodes, at_once: 1, rules: &rules, timeout: None, now: at(0) };
        (bounds(&question, SignedDuration::from_secs(60)).len(), forecast(&question).unwrap().kept)
    };
    assert_eq!(told(UnhealthyPolicy::IfHealthyBudget), (1, 1));
    assert_eq!(told(UnhealthyPolicy::AlwaysAllow), (0, 0));
}
