//! Each cause from the objects that make it, and no cause where there is none.

mod alone;
mod bounds;
mod budgets;
mod capacity;
mod passing;
mod placement;
mod ports;
mod unseen;
mod webhooks;

use std::sync::Arc;

use jiff::SignedDuration;

use super::super::class::Rules;
use super::*;
use crate::cluster::{
    Amounts, Autoscaler, Budget, Capacity, Demand, FullQuota, HostPort, Owner, Parts, Phase, Pod, PodWebhook,
    Quantity, Selector, Surroundings, Traits, UnhealthyPolicy, VolumeZones, Workload,
};
use crate::fixture::{at, budget, node, of, pod, terminating};

/// Three nodes, a ReplicaSet `cart` of three with its budget, and whatever `change` does to them.
fn seen(change: impl FnOnce(&mut Parts)) -> Vec<Cause> {
    asked(change, &Rules::default(), None)
}

fn asked(change: impl FnOnce(&mut Parts), rules: &Rules, timeout: Option<SignedDuration>) -> Vec<Cause> {
    let cart = Workload {
        this: pod("cart", 0, "").owner.unwrap(),
        namespace: "shop".into(),
        replicas: Some(3),
        owner: None,
        ignores_disruption: false,
    };
    let mut parts = Parts {
        nodes: (1..=3).map(|number| node(&format!("n-{number}"), "v1.36.4").into()).collect(),
        pods: (1..=3).map(|number| pod("cart", number, &format!("n-{number}"))).collect(),
        budgets: vec![Budget {
            demand: Demand::MaxUnavailable(Quantity::Count(1)),
            ..budget("cart", 1, 3, 2)
        }],
        surroundings: Surroundings {
            workloads: Some([cart].into_iter().collect()),
            ..Surroundings::default()
        },
        ..Parts::default()
    };
    change(&mut parts);
    let cluster = parts.seal();
    let drained = cluster.node("n-1").unwrap();
    causes(&Question { cluster: &cluster, nodes: vec![drained], at_once: 1, rules, timeout, now: at(0) })
}

fn codes(causes: &[Cause]) -> Vec<String> {
    causes.iter().map(|cause| format!("{} {} {}", cause.code, cause.outlook.name(), cause.object)).collect()
}

#[test]
fn nothing_is_in_the_way_of_a_healthy_node() {
    assert_eq!(seen(|_| {}), []);
}

fn demand(demand: Demand) -> impl FnOnce(&mut Parts) {
    move |cluster| cluster.budgets[0].demand = demand
}

fn replicas(cluster: &mut Parts, replicas: i32) {
    let this = pod("cart", 0, "").owner.unwrap();
    let cart = Workload {
        this,
        namespace: "shop".into(),
        replicas: Some(replicas),
        owner: None,
        ignores_disruption: false,
    };
    cluster.surroundings.workloads = Some([cart].into_iter().collect());
}

fn special(traits: Traits) -> impl FnOnce(&mut Parts) {
    move |cluster| cluster.pods[0].special = Some(Arc::new(traits))
}

fn named(kind: &str, api_version: &str) -> Arc<Owner> {
    Arc::new(Owner {
        api_version: api_version.into(),
        kind: kind.into(),
        name: "x".into(),
        uid: "uid-x".into(),
    })
}

type Change = Box<dyn FnOnce(&mut Parts)>;

fn port(port: u16, protocol: &str) -> HostPort {
    HostPort { port, protocol: protocol.into(), address: None }
}

fn in_zones(zones: &[&str]) -> VolumeZones {
    let zones = zones.iter().map(|zone| (*zone).into()).collect();
    VolumeZones { label: "topology.kubernetes.io/zone".into(), zones }
}

/// Each change makes the cause that stands before it.
fn each(cases: Vec<(&str, Change)>) {
    for (expected, change) in cases {
        let found = codes(&asked(change, &Rules::default(), Some(SignedDuration::from_mins(30))));
        assert!(found.iter().any(|line| line == expected), "{expected} is not in {found:?}");
    }
}

#[test]
fn pods_that_keep_a_drain() {
    let hosts = |hosts: &[&str]| hosts.iter().map(|host| (*host).into()).collect();
    let cases: Vec<(&str, Change)> = vec![
        ("B1 never Pod shop/cart-1", Box::new(|c| c.pods[0].owner = None)),
        ("B2 caution ReplicaSet shop/cart", Box::new(|c| c.pods[0].empty_dir = true)),
        (
            "B3 caution ReplicaSet shop/cart",
            Box::new(move |c| {
                special(Traits { claims: vec!["data".into()], ..Traits::default() })(c);
                let volume = (("shop".into(), "data".into()), vec!["n-1".into()]);
                c.surroundings.volumes = Some([volume].into());
            }),
        ),
        (
            "B4 caution ReplicaSet shop/cart",
            Box::new(special(Traits { hosts: hosts(&["n-1"]), ..Traits::default() })),
        ),
        (
            "B5 caution ReplicaSet shop/cart",
            Box::new(special(Traits { tolerates_cordon: true, ..Traits::default() })),
        ),
        (
            "B6 not-now ReplicaSet shop/cart",
            Box::new(special(Traits { alone_on_host: true, ..Traits::default() })),
        ),
        (
            "B8 not-now ReplicaSet shop/cart",
            Box::new(|c| {
                for pod in &mut c.pods {
                    let host_ports = vec![port(80, "TCP")];
                    pod.special = Some(Arc::new(Traits { host_ports, ..Traits::default() }));
                }
            }),
        ),
        (
            "B8 caution ReplicaSet shop/cart",
            Box::new(special(Traits { device_claims: true, ..Traits::default() })),
        ),
        (
            "B10 not-now ReplicaSet shop/cart",
            Box::new(|c| {
                let quota =
                    FullQuota { namespace: "shop".into(), name: "q".into(), what: "pods 3 of 3".into() };
                c.surroundings.full_quotas = Some(vec![quota]);
            }),
        ),
        (
            "B11 not-now ReplicaSet shop/cart",
            Box::new(special(Traits { finalizers: vec!["x.io/keep".into()], ..Traits::default() })),
        ),
        (
            "B12 not-now ReplicaSet shop/cart",
            Box::new(special(Traits { grace: Some(3600), ..Traits::default() })),
        ),
    ];
    each(cases);
    let within = |seconds| codes(&asked(|_| {}, &Rules::default(), Some(SignedDuration::from_secs(seconds))));
    assert_eq!(within(30), Vec::<String>::new(), "a pod that says nothing may take 30 s");
    assert_eq!(within(29), ["B12 not-now ReplicaSet shop/cart"]);
    let refused = Rules { refuse_empty_dir: true, ..Rules::default() };
    let found = codes(&asked(|c| c.pods[0].empty_dir = true, &refused, None));
    assert_eq!(found, ["B2 never ReplicaSet shop/cart"]);
}

#[test]
fn webhooks_namespaces_and_nodes_that_keep_a_drain() {
    let cases: Vec<(&str, Change)> = vec![
        (
            "B13 caution Webhook w",
            Box::new(|c| {
                let webhook = PodWebhook {
                    name: "w".into(),
                    evictions: true,
                    creation: false,
                    service: None,
                    endpoints: None,
                };
                c.surroundings.pod_webhooks = Some(vec![webhook]);
            }),
        ),
        (
            "B14 not-now Webhook w",
            Box::new(|c| {
                let webhook = PodWebhook {
                    name: "w".into(),
                    evictions: false,
                    creation: true,
                    service: Some(("kube-system".into(), "w".into())),
                    endpoints: Some(vec!["n-1".into()]),
                };
                c.surroundings.pod_webhooks = Some(vec![webhook]);
            }),
        ),
        (
            "B15 not-now ReplicaSet shop/cart",
            Box::new(|c| c.surroundings.terminating = Some(vec!["shop".into()])),
        ),
        (
            "B16 not-now ReplicaSet shop/cart",
            Box::new(|c| c.pods[0] = terminating(c.pods[0].clone(), at(-31))),
        ),
        ("B21 not-now Node n-1", Box::new(|c| Arc::make_mut(&mut c.nodes[0]).ready = false)),
        ("B22 caution Node n-1", Box::new(|c| Arc::make_mut(&mut c.nodes[0]).unschedulable = true)),
        ("B23 never Node n-1", Box::new(|c| c.nodes.truncate(1))),
        (
            "B23 not-now Node n-1",
            Box::new(|c| {
                c.nodes.truncate(2);
                Arc::make_mut(&mut c.nodes[1]).ready = false;
            }),
        ),
        (
            "B23 not-now Node n-1",
            Box::new(|c| {
                c.nodes.truncate(2);
                c.nodes.iter_mut().for_each(|node| Arc::make_mut(node).unschedulable = true);
            }),
        ),
    ];
    each(cases);
}

#[test]
fn pods_whose_owners_asked_for_something() {
    let cases: Vec<(&str, Change)> = vec![
        (
            "B17 caution ReplicaSet shop/cart",
            Box::new(special(Traits { opt_outs: vec!["a=b".into()], ..Traits::default() })),
        ),
        ("B18 caution ReplicaSet shop/cart", Box::new(special(Traits { gang: true, ..Traits::default() }))),
        (
            "B19 caution ReplicaSet shop/cart",
            Box::new(special(Traits { responders: true, ..Traits::default() })),
        ),
        (
            "B20 caution Job shop/x",
            Box::new(|c| {
                let job = named("Job", "batch/v1");
                c.pods[0].owner = Some(job.clone());
                c.pods[0].labels = Arc::default();
                let job = Workload {
                    this: job,
                    namespace: "shop".into(),
                    replicas: None,
                    owner: None,
                    ignores_disruption: false,
                };
                c.surroundings.workloads = Some([job].into_iter().collect());
            }),
        ),
    ];
    each(cases);
}

#[test]
fn several_drained_nodes_and_spread_constraints() {
    let cluster = {
        let mut parts = Parts {
            nodes: (1..=3).map(|number| node(&format!("n-{number}"), "v1.36.4").into()).collect(),
            pods: vec![pod("cart", 1, "n-1")],
            ..Parts::default()
        };
        special(Traits { spread_counts_cordoned: true, ..Traits::default() })(&mut parts);
        parts.seal()
    };
    let found = |nodes: usize| {
        let nodes = cluster.nodes().iter().map(AsRef::as_ref).take(nodes).collect();
        codes(&causes(&Question {
            cluster: &cluster,
            nodes,
            at_once: 1,
            rules: &Rules::default(),
            timeout: None,
            now: at(0),
        }))
    };
    assert_eq!(found(1), Vec::<String>::new());
    assert_eq!(found(2), ["B7 caution ReplicaSet shop/cart"]);
}

#[test]
fn a_cause_says_the_object_the_numbers_and_what_to_change() {
    let line = |causes: Vec<Cause>| {
        let cause = &causes[0];
        format!("{}: {}; {} [{}]", cause.object, cause.what, cause.remedy, cause.pods.join(" "))
    };
    let lines = [
        line(seen(demand(Demand::MinAvailable(Quantity::Count(3))))),
        line(seen(demand(Demand::MinAvailable(Quantity::Percent(90))))),
        line(seen(|c| {
            c.budgets[0].demand = Demand::MinAvailable(Quantity::Count(2));
            c.pods.truncate(1);
            replicas(c, 1);
        })),
        line(seen(|c| {
            c.budgets[0].demand = Demand::MaxUnavailable(Quantity::Count(0));
            c.pods.iter_mut().for_each(|pod| pod.owner = Some(named("Job", "batch/v1")));
        })),
        line(seen(|c| {
            c.budgets[0].demand = Demand::MinAvailable(Quantity::Count(3));
            c.budgets[0].made_by = Some("Ceph rook".into());
        })),
        line(seen(|c| c.budgets[0].observed_generation = 0)),
        line(seen(|c| {
            replicas(c, 4);
            (c.budgets[0].disruptions_allowed, c.budgets[0].expected_pods) = (0, 4);
            let traits = Traits { waiting: Some("CrashLoopBackOff".into()), ..Traits::default() };
            c.pods[2].special = Some(Arc::new(traits));
            c.pods[2].ready = false;
        })),
    ];
    expect_test::expect![[r#"
        PDB shop/cart: minAvailable 3 of 3 replicas; set maxUnavailable 1, or scale to 4 [shop/cart-1]
        PDB shop/cart: minAvailable 90% of 3 replicas is 3, rounded up; set maxUnavailable 1, or scale to 10 [shop/cart-1]
        PDB shop/cart: minAvailable 2 of 1 replica; set maxUnavailable 1, or scale to 3 [shop/cart-1]
        PDB shop/cart: maxUnavailable 0: no pod may ever leave; set minAvailable 2, one less than its 3 pods [shop/cart-1]
        PDB shop/cart: minAvailable 3 of 3 replicas, and Ceph rook made it, which may change it; change it in Ceph rook, which made it and may undo what is changed in the PDB itself [shop/cart-1]
        PDB shop/cart: has no status: the disruption controller has not computed it yet, or does not run; wait; if it stays, see whether the disruption controller of kube-controller-manager runs [shop/cart-1]
        PDB shop/cart: 3 of 4 healthy, 2 needed; not ready: cart-3 (CrashLoopBackOff); mend those pods, or set unhealthyPodEvictionPolicy: AlwaysAllow so that they may leave [shop/cart-1]"#]]
    .assert_eq(&lines.join("\n"));
}

/// Two of three are healthy and two are needed: the eviction handler lets the third go without asking.
#[test]
fn a_pod_that_is_not_ready_may_leave_a_budget_that_is_healthy_without_it() {
    let told = |unhealthy_policy, healthy| {
        let on = |number| if number == 1 { "n-1" } else { "n-2" };
        let mut parts = Parts {
            nodes: (1..=2).map(|number| node(&format!("n-{number}"), "v1.36.4").into()).collect(),
            pods: (1..=3).map(|number| pod("cart", number, on(number))).collect(),
            budgets: vec![Budget { unhealthy_policy, expected_pods: 3, ..budget("cart", 0, healthy, 2) }],
            ..Parts::default()
        };
        parts.pods[0].ready = false;
        let cluster = parts.seal();
        let rules = Rules::default();
        let question = Question {
            cluster: &cluster,
            nodes: vec![],
            at_once: 1,
            rules: &rules,
            timeout: None,
            now: at(0),
        };
        let unready = cluster.pods_on("n-1").next().unwrap();
        let seen = explain::UnseenBudgets::default();
        let of_node = explain::node(&question, cluster.node("n-1").unwrap(), &seen);
        [explain::pod(&question, unready, &seen).line, of_node.line, of_node.details.join(" ")]
    };
    expect_test::expect![[r#"
        may leave now: it is not ready, and PDB shop/cart is healthy without it
        nothing is in the way of draining it: 1 pod would leave
        pod/shop/cart-1: may leave now: it is not ready, and PDB shop/cart is healthy without it"#]]
    .assert_eq(&told(UnhealthyPolicy::IfHealthyBudget, 2).join("\n"));
    let always = told(UnhealthyPolicy::AlwaysAllow, 1);
    assert_eq!(
        always[0],
        "may leave now: it is not ready, and PDB shop/cart lets such pods go (AlwaysAllow)"
    );
    let kept = told(UnhealthyPolicy::IfHealthyBudget, 1);
    assert!(kept[0].starts_with("cannot be evicted now: PDB shop/cart: 1 of 3 healthy"), "{kept:?}");
    assert!(kept[1].starts_with("cannot be drained now"), "{kept:?}");
}
