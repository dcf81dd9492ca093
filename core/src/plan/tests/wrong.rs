//! Ways in which a plan can be wrong.

use super::*;

/// Ways in which `make` could be wrong, each with a cluster that shows it: the second judge finds every one.
#[test]
fn every_wrong_plan_is_found() {
    type Wrong = (&'static str, Cluster, Upgrade, fn(&mut Plan));
    let far = || cluster(&["v1.35.1", "v1.35.1"], "v1.35.1", &["v1.34.1", "v1.35.1"]);
    let old_proxy = || {
        let mut far = far();
        far.add_instance(instance(Component::KubeProxy, "kube-proxy-1@n-1", "v1.35.1"));
        far
    };
    let lags = || rke2("v1.35.4+rke2r1", "v1.35.4+rke2r1", "v1.33.8+rke2r1");
    let by_way = || {
        let via = vec!["v1.36.4+rke2r1".parse().unwrap()];
        Upgrade { via, ..by_node("v1.37.1+rke2r1") }
    };
    let wrong: Vec<Wrong> = vec![
        ("a hop is left out", far(), to("v1.37.1"), |plan| drop(plan.hops.remove(0))),
        ("hops are swapped", far(), to("v1.37.1"), |plan| plan.hops.swap(0, 1)),
        ("controllers before servers", far(), to("v1.37.1"), |plan| plan.hops[0].steps.reverse()),
        ("a server is forgotten", far(), to("v1.37.1"), |plan| drop(plan.hops[1].steps.remove(1))),
        ("a controller is forgotten", far(), to("v1.37.1"), |plan| drop(plan.hops[0].steps.pop())),
        ("kubelets are left too long", far(), to("v1.39.1"), |plan| {
            for hop in &mut plan.hops[..3] {
                hop.kubelets = Pass::Before(crate::version::Minor::new(1, 0));
            }
        }),
        (
            "only those that are there now are moved",
            cluster(&["v1.35.1"], "v1.35.1", &["v1.35.1"]),
            to("v1.38.1"),
            |plan| {
                plan.hops[1].kubelets = Pass::Before(crate::version::Minor::new(1, 34));
            },
        ),
        ("the last kubelets are forgotten", far(), to("v1.37.1"), |plan| {
            plan.hops[1].kubelets = Pass::Before(crate::version::Minor::new(1, 35));
        }),
        ("a need is forgotten", old_proxy(), to("v1.39.1"), |plan| plan.hops[3].needs.clear()),
        ("a need of a kube-proxy that stayed behind its node is forgotten", lags(), by_way(), |plan| {
            plan.hops[1].needs.clear();
        }),
        ("nodes move as a whole behind a load balancer", far(), to("v1.36.1"), |plan| {
            let steps = &mut plan.hops[0].steps;
            let controllers: Vec<Step> = steps.drain(2..).collect();
            steps[0].components.extend(controllers.iter().flat_map(|step| step.components.clone()));
        }),
        ("a finding that blocks is passed over", cluster(&["v1.36.4"], "latest", &[]), to("v1.37.1"), |_| {}),
        ("a version goes back", far(), to("v1.37.1"), |plan| {
            plan.hops[1].version = "v1.34.0".parse().unwrap();
        }),
        (
            "kubelets that join late go beyond the servers",
            cluster(&["v1.36.4"], "v1.36.4", &[]),
            to("v1.37.1"),
            |plan| {
                let version = "v1.38.0".parse().unwrap();
                plan.hops.push(Hop { version, steps: Vec::new(), ..plan.hops[0].clone() });
            },
        ),
        ("what is not there is moved", far(), to("v1.36.1"), |plan| {
            plan.hops[0].steps[0].place = "cp-9".into();
        }),
        ("kubelets go before the controllers", far(), to("v1.37.1"), |plan| {
            let steps = plan.hops[0].steps.split_off(2);
            plan.hops[0].kubelets = Pass::All;
            plan.hops[1].steps.splice(0..0, steps);
        }),
    ];
    for (what, cluster, upgrade, spoil) in wrong {
        let mut plan = made(&cluster, &upgrade);
        if plan.blockers().next().is_none() {
            assert!(checked(plan.clone(), &cluster, &upgrade).is_ok(), "{what}: the plan itself is good");
        }
        spoil(&mut plan);
        assert!(checked(plan, &cluster, &upgrade).is_err(), "nobody finds that {what}");
    }
}
