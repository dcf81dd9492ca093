//! What holds of whatever versions are seen.

use super::*;
use proptest::prelude::*;

fn any_cluster() -> impl Strategy<Value = Cluster> {
    let versions = || prop::collection::vec((20u16..40).prop_map(|m| format!("v1.{m}.1")), 1..4);
    (versions(), 20u16..40, versions()).prop_map(|(servers, controllers, kubelets)| {
        cluster(
            &servers.iter().map(String::as_str).collect::<Vec<_>>(),
            &format!("v1.{controllers}.1"),
            &kubelets.iter().map(String::as_str).collect::<Vec<_>>(),
        )
    })
}

fn any_server() -> impl Strategy<Value = Effective> {
    (25u16..40, 0u16..4).prop_map(|(binary, below)| {
        let binary = Minor::new(1, binary);
        let floors = crate::version::Floors::NONE;
        Effective::new(binary, binary.back(below), None, floors).unwrap()
    })
}

proptest! {
    #[test]
    fn adding_a_component_never_removes_a_violation(cluster in any_cluster(), minor in 20u16..40) {
        let ids = |cluster: &Cluster| -> Vec<String> {
            let judged = assess(cluster, &Policy::default());
            judged.unsupported().map(|finding| finding.id.clone()).collect()
        };
        let before = ids(&cluster);
        for component in Component::ALL {
            let mut more = cluster.clone();
            if component == Component::Kubelet {
                more.set_node(crate::fixture::node("n-9", &format!("v1.{minor}.1")));
            } else {
                more.add_instance(instance(component, "cp-9", &format!("v1.{minor}.1")));
            }
            let after = ids(&more);
            for id in &before {
                prop_assert!(after.contains(id), "{} is gone from {:?}", id, after);
            }
        }
    }

    #[test]
    fn a_further_apiserver_never_widens_what_is_allowed(
        servers in prop::collection::vec(any_server(), 1..4),
        another in any_server(),
        minor in 20u16..45,
        emulation in prop::option::of(20u16..45),
    ) {
        let fewer = Servers::of(servers.clone()).unwrap();
        let more = Servers::of(servers.into_iter().chain([another])).unwrap();
        let running = Running { binary: Minor::new(1, minor), emulation: emulation.map(|e| Minor::new(1, e)) };
        let allowed = |subject, servers| {
            matches!(Policy::default().judge(subject, running, servers).1, Judgement::Within { .. })
        };
        let others = Component::ALL.into_iter().skip(1).map(RuleSubject::Component);
        for subject in others {
            prop_assert!(allowed(subject, fewer) || !allowed(subject, more), "{:?}", subject);
        }
    }

    #[test]
    fn every_string_and_every_shape_is_judged(
        servers in prop::collection::vec("\\PC{0,12}|v1\\.[0-9]{1,5}\\.[0-9]|v1\\.3[0-9]\\.1", 0..4),
        others in prop::collection::vec("\\PC{0,12}|v[0-9]{1,5}\\.[0-9]{1,5}|v1\\.3[0-9]\\.1", 0..4),
    ) {
        let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let controllers = others.first().copied().unwrap_or_default();
        let mut cluster = cluster(&servers, controllers, &others);
        // A controller beside every kube-apiserver, each with its own: the same version, judged by different
        // servers.
        for number in 1..=servers.len() {
            let name = format!("cp-{number}");
            let mut local = instance(Component::CloudControllerManager, &name, controllers);
            local.reach = Reach::Local;
            cluster.add_instance(local);
        }
        let judged = assess(&cluster, &Policy::strict());
        let ids: std::collections::BTreeSet<_> = judged.findings.iter().map(|finding| &finding.id).collect();
        prop_assert_eq!(ids.len(), judged.findings.len(), "an id is one finding's");
    }

    #[test]
    fn the_order_of_what_is_seen_changes_nothing(cluster in any_cluster()) {
        let mut other = crate::cluster::Parts {
            nodes: cluster.nodes().to_vec(),
            instances: cluster.instances().to_vec(),
            ..Default::default()
        };
        other.nodes.reverse();
        other.instances.reverse();
        prop_assert_eq!(assess(&cluster, &Policy::default()), assess(&other.seal(), &Policy::default()));
    }
}
