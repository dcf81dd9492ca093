//! Small clusters for tests, said in a line.

use std::sync::Arc;

use jiff::Timestamp;

use crate::cluster::{
    Budget, Cluster, Component, Demand, Disrupted, Evidence, Instance, Node, Owner, Phase, Pod, Quantity,
    Reach, Selector, UnhealthyPolicy,
};
use crate::version::Observed;

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub(crate) fn instance(component: Component, name: &str, version: &str) -> Instance {
    Instance {
        component,
        name: name.into(),
        node: Some(name.rsplit_once('@').map_or(name, |(_, node)| node).into()),
        version: Observed::from_report(version),
        evidence: Evidence::Image,
        effective: None,
        reach: Reach::Any,
        incarnation: format!("{name}-1").into(),
        ready: true,
    }
}

pub(crate) fn node(name: &str, version: &str) -> Node {
    Node {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        resource_version: "1".into(),
        pool: "default".into(),
        labels: Arc::default(),
        kubelet: Observed::from_report(version),
        evidence: Evidence::Kubelet,
        ready: true,
        heartbeat: Some(at(0)),
        unschedulable: false,
        cordoned_by: None,
        held: false,
        control_plane: false,
    }
}

pub(crate) fn pod(app: &str, number: usize, node: &str) -> Pod {
    Pod {
        namespace: "shop".into(),
        name: format!("{app}-{number}").into(),
        uid: format!("uid-{app}-{number}").into(),
        node: node.into(),
        labels: Arc::new([("app".to_owned(), app.to_owned())].into()),
        owner: Some(Owner {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: app.into(),
            uid: format!("uid-{app}").into(),
        }),
        phase: Phase::Running,
        ready: true,
        deleting: None,
        mirror: false,
        empty_dir: false,
        executor_of: None,
        special: None,
    }
}

pub(crate) fn budget(app: &str, allowed: i32, healthy: i32, desired: i32) -> Budget {
    Budget {
        namespace: "shop".into(),
        name: app.into(),
        resource_version: "1".into(),
        selector: Some(Selector {
            match_labels: [("app".to_owned(), app.to_owned())].into(),
            match_expressions: Vec::new(),
        }),
        generation: 1,
        observed_generation: 1,
        disruptions_allowed: allowed,
        current_healthy: healthy,
        desired_healthy: desired,
        expected_pods: healthy,
        sync_failed: None,
        closed_since: None,
        unhealthy_policy: UnhealthyPolicy::IfHealthyBudget,
        demand: Demand::MinAvailable(Quantity::Count(desired)),
        disrupted: Disrupted::new(),
        made_by: None,
    }
}

/// Apiservers `cp-1…` of `servers`, one controller-manager and scheduler of `controllers`, nodes `n-1…` of `kubelets`.
pub(crate) fn cluster(servers: &[&str], controllers: &str, kubelets: &[&str]) -> Cluster {
    let mut instances: Vec<Instance> = servers
        .iter()
        .enumerate()
        .map(|(i, version)| instance(Component::KubeApiserver, &format!("cp-{}", i + 1), version))
        .collect();
    for component in [Component::KubeControllerManager, Component::KubeScheduler] {
        instances.push(instance(component, "cp-1", controllers));
    }
    let nodes = kubelets.iter().enumerate().map(|(i, version)| node(&format!("n-{}", i + 1), version).into());
    Cluster { instances, nodes: nodes.collect(), ..Cluster::default() }.sorted()
}
