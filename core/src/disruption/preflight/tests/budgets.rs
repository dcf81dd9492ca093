//! Each cause of a budget from the objects that make it.

use super::*;

/// Each change of a budget makes the cause that stands before it, and no other cause of a budget.
pub(super) fn each_budget(cases: Vec<(&str, Change)>) {
    let rules = Rules { evict_bare: true, ..Rules::default() };
    for (expected, change) in cases {
        let causes = asked(change, &rules, None);
        let found = codes(&causes);
        assert!(found.iter().any(|line| line == expected), "{expected} is not in {found:?}");
        let of_budgets = causes.iter().filter(|cause| cause.code.is_of_budget()).count();
        let two_budgets = expected.starts_with("U10");
        assert!(of_budgets == 1 || two_budgets, "one cause is enough: {found:?}");
    }
}

#[test]
fn budgets_that_never_allow() {
    let cases: Vec<(&str, Change)> = vec![
        ("U1 never PDB shop/cart", Box::new(demand(Demand::MaxUnavailable(Quantity::Count(0))))),
        ("U1 never PDB shop/cart", Box::new(demand(Demand::MaxUnavailable(Quantity::Percent(0))))),
        ("U2 never PDB shop/cart", Box::new(demand(Demand::MinAvailable(Quantity::Percent(100))))),
        ("U3 never PDB shop/cart", Box::new(demand(Demand::MinAvailable(Quantity::Count(3))))),
        (
            "U4 never PDB shop/cart",
            Box::new(|c| {
                c.budgets[0].demand = Demand::MinAvailable(Quantity::Count(1));
                c.pods.truncate(1);
                replicas(c, 1);
            }),
        ),
        (
            // One has finished and is never healthy again.
            "U3 never PDB shop/cart",
            Box::new(|c| {
                replicas(c, 2);
                (c.pods[2].phase, c.pods[2].ready) = (Phase::Finished, false);
                c.budgets[0] = Budget { expected_pods: 3, ..budget("cart", 0, 2, 2) };
            }),
        ),
        (
            // The replacement of the one that goes is there.
            "U4 never PDB shop/cart",
            Box::new(|c| {
                replicas(c, 1);
                c.pods.truncate(2);
                c.pods[1] = terminating(c.pods[1].clone(), at(30));
                c.budgets[0] = Budget { expected_pods: 2, ..budget("cart", 0, 1, 1) };
            }),
        ),
        (
            // Nothing makes another instead of the one that goes.
            "U4 never PDB shop/cart",
            Box::new(|c| {
                c.surroundings.workloads = None;
                c.pods.truncate(2);
                c.pods[1] = Pod { owner: None, ..terminating(c.pods[1].clone(), at(30)) };
                c.budgets[0] = Budget { expected_pods: 2, ..budget("cart", 0, 1, 1) };
            }),
        ),
        ("U5 never PDB shop/cart", Box::new(demand(Demand::MinAvailable(Quantity::Percent(90))))),
        ("U6 never PDB shop/cart", Box::new(demand(Demand::Nothing))),
        (
            "U7 never PDB shop/cart",
            Box::new(|c| c.pods.iter_mut().for_each(|pod| (pod.owner, pod.phase) = (None, Phase::Running))),
        ),
        ("U8 never PDB shop/cart", Box::new(|c| c.pods[1].owner = Some(named("Job", "batch/v1")))),
        (
            "U8 never PDB shop/cart",
            Box::new(|c| {
                c.surroundings.workloads = None;
                c.budgets[0].sync_failed = Some("jobs.batch does not implement the scale subresource".into());
            }),
        ),
        ("U9 never PDB shop/cart", Box::new(|c| c.pods[1].owner = Some(named("ReplicaSet", "apps/v1")))),
        (
            "U10 never PDB shop/all",
            Box::new(|c| {
                let all = Some(Selector::default());
                c.budgets.push(Budget { name: "all".into(), selector: all, ..c.budgets[0].clone() });
            }),
        ),
    ];
    each_budget(cases);
}

#[test]
fn budgets_that_do_not_allow_now_and_odd_ones() {
    let exhausted = |b: &mut Budget| (b.disruptions_allowed, b.current_healthy) = (0, 2);
    let cases: Vec<(&str, Change)> = vec![
        (
            "U11 not-now PDB shop/cart",
            Box::new(move |c| {
                exhausted(&mut c.budgets[0]);
                c.pods[2].ready = false;
            }),
        ),
        ("U11 not-now PDB shop/cart", Box::new(move |c| exhausted(&mut c.budgets[0]))),
        (
            "U12 not-now PDB shop/cart",
            Box::new(|c| {
                c.budgets[0].demand = Demand::MinAvailable(Quantity::Count(0));
                (c.budgets[0].disruptions_allowed, c.budgets[0].current_healthy) = (0, 0);
                c.budgets[0].desired_healthy = 0;
            }),
        ),
        (
            "U11 not-now PDB shop/cart",
            Box::new(|c| {
                c.budgets[0] = Budget { generation: 1, ..budget("cart", 0, 1, 2) };
                // The two others are to come.
                c.pods.truncate(1);
            }),
        ),
        (
            "U14 not-now PDB shop/cart",
            Box::new(move |c| {
                exhausted(&mut c.budgets[0]);
                let why = Some("0/3 nodes are available".into());
                let traits = Traits { unschedulable: why, ..Traits::default() };
                let special = Some(Arc::new(traits));
                c.pods[2] = Pod { special, phase: Phase::Pending, ready: false, ..pod("cart", 3, "") };
            }),
        ),
        (
            "U15 not-now PDB shop/cart",
            Box::new(|c| {
                c.budgets[0].demand = Demand::MaxUnavailable(Quantity::Count(0));
                c.budgets[0].made_by = Some("CephCluster rook".into());
            }),
        ),
        ("U16 never PDB shop/cart", Box::new(|c| c.budgets[0].disruptions_allowed = -1)),
        (
            "U17 never PDB shop/cart",
            Box::new(|c| {
                c.budgets[0].unhealthy_policy = UnhealthyPolicy::Unrecognised;
                c.pods[0].ready = false;
            }),
        ),
        (
            "U17 caution PDB shop/cart",
            Box::new(|c| c.budgets[0].unhealthy_policy = UnhealthyPolicy::Unrecognised),
        ),
        (
            "U3 caution PDB shop/cart",
            Box::new(|c| {
                c.budgets[0].demand = Demand::MinAvailable(Quantity::Count(2));
                let target = ("ReplicaSet".into(), "cart".into());
                let scaler = Autoscaler { namespace: "shop".into(), target, min_replicas: 2 };
                c.surroundings.autoscalers = Some(vec![scaler]);
            }),
        ),
    ];
    each_budget(cases);
}

#[test]
fn budgets_whose_status_is_behind() {
    let cases: Vec<(&str, Change)> = vec![
        (
            // A StatefulSet may make the one that goes again.
            "U11 not-now PDB shop/cart",
            Box::new(|c| {
                c.surroundings.workloads = None;
                c.pods[1] = terminating(c.pods[1].clone(), at(30));
                c.budgets[0] = Budget { expected_pods: 3, ..budget("cart", 0, 2, 2) };
            }),
        ),
        ("U13 not-now PDB shop/cart", Box::new(|c| c.budgets[0].generation = 2)),
        ("U13 not-now PDB shop/cart", Box::new(|c| c.budgets[0].observed_generation = 0)),
        (
            // It was mended, and its numbers are those of the spec before.
            "U13 not-now PDB shop/cart",
            Box::new(|c| {
                c.surroundings.workloads = None;
                c.budgets[0] = Budget {
                    demand: Demand::MaxUnavailable(Quantity::Count(1)),
                    generation: 2,
                    ..budget("cart", 0, 3, 3)
                };
            }),
        ),
        (
            // The disruption controller has not seen its pods.
            "U13 not-now PDB shop/cart",
            Box::new(|c| {
                c.budgets[0].disruptions_allowed = 0;
                (c.budgets[0].expected_pods, c.budgets[0].desired_healthy) = (0, 0);
            }),
        ),
    ];
    each_budget(cases);
}

#[test]
fn a_budget_that_expects_no_pod_is_told_by_the_pods_that_it_selects() {
    let told = |pods: Vec<Pod>| {
        let demand = Demand::MaxUnavailable(Quantity::Count(1));
        let cluster = of(&pods, &[Budget { demand, ..budget("cart", 0, 0, 0) }]);
        let rules = Rules::default();
        let question = Question {
            cluster: &cluster,
            nodes: Vec::new(),
            at_once: 1,
            rules: &rules,
            timeout: None,
            now: at(0),
        };
        explain::budget(&question, cluster.budgets().next().unwrap()).line
    };
    let cart = pod("cart", 1, "n-1");
    assert_eq!(told(Vec::new()), "selects no pod");
    assert_eq!(
        told(vec![terminating(cart.clone(), at(30))]),
        "expects no pod: those that it selects have finished or are terminating"
    );
    assert_eq!(
        told(vec![cart]),
        "allows no eviction now: its status expects 0 pods, so it allows 0, though it selects 1 pod"
    );
}
