//! Small clusters for tests of this crate, each made in a line.
//!
//! Here belongs what tests of several modules build; an expectation or a rule of the product never belongs here. The
//! invariant: an object from here is healthy and unremarkable, so a test names everything that matters to it.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;

use crate::cluster::{
    Budget, Cluster, Component, Demand, Disrupted, Evidence, Instance, Node, Owner, Parts, Phase, Pod,
    Quantity, Reach, Selector, Traits, UnhealthyPolicy,
};
use crate::skew::lifecycle::Catalogue;
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
        probed: None,
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
        not_ready_since: None,
        unschedulable: false,
        cordoned_by: None,
        held: false,
        control_plane: false,
        etcd: false,
        taints: "".into(),
        outdated_for: None,
    }
}

pub(crate) fn pod(app: &str, number: usize, node: &str) -> Pod {
    Pod {
        namespace: "shop".into(),
        name: format!("{app}-{number}").into(),
        uid: format!("uid-{app}-{number}").into(),
        node: node.into(),
        labels: Arc::new([("app".to_owned(), app.to_owned())].into()),
        owner: Some(Arc::new(Owner {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: app.into(),
            uid: format!("uid-{app}").into(),
        })),
        phase: Phase::Running,
        ready: true,
        mirror: false,
        empty_dir: false,
        ready_after: None,
        special: None,
    }
}

/// The pod on its way out, gone at `at`.
pub(crate) fn terminating(pod: Pod, at: Timestamp) -> Pod {
    let special = Traits { deleting: Some(at), ..pod.traits().clone() };
    Pod { special: Some(Arc::new(special)), ..pod }
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

/// kube-apiservers `cp-1…` of `servers`, one controller-manager and scheduler of `controllers`, nodes `n-1…` of
/// `kubelets`.
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
    Parts { instances, nodes: nodes.collect(), ..Parts::default() }.seal()
}

/// Releases `x.y.9` of every minor from 1.20 to 1.45.
pub(crate) fn releases() -> &'static Catalogue {
    static RELEASES: OnceLock<Catalogue> = OnceLock::new();
    RELEASES.get_or_init(made_up)
}

fn made_up() -> Catalogue {
    let entry = |minor: u16| {
        format!(r#"{{"minor": "1.{minor}", "endOfLife": "2030-01-01", "latestPatchSeen": "1.{minor}.9"}}"#)
    };
    let entries: Vec<String> = (20..=45).map(entry).collect();
    Catalogue::read(&format!(r#"{{"minors": [{}]}}"#, entries.join(","))).unwrap()
}

/// Nothing but these pods and budgets.
pub(crate) fn of(pods: &[Pod], budgets: &[Budget]) -> Cluster {
    Parts { pods: pods.to_vec(), budgets: budgets.to_vec(), ..Parts::default() }.seal()
}

/// Changes in tests, where everything that is named exists.
impl Cluster {
    /// Each pod is what `change` makes of it.
    pub(crate) fn change_pods(&mut self, change: impl FnMut(&mut Pod)) {
        let mut pods: Vec<Pod> = self.pods().cloned().collect();
        pods.iter_mut().for_each(change);
        for pod in pods {
            self.set_pod(pod);
        }
    }

    /// The pods that `keep` says stay; the others are gone.
    pub(crate) fn retain_pods(&mut self, keep: impl Fn(&Pod) -> bool) {
        let gone: Vec<Pod> = self.pods().filter(|pod| !keep(pod)).cloned().collect();
        for pod in gone {
            self.remove_pod(&pod.namespace, &pod.name);
        }
    }

    /// The pod of that UID is what `change` makes of it.
    pub(crate) fn change_pod(&mut self, uid: &str, change: impl FnOnce(&mut Pod)) {
        let mut pod = self.pods().find(|pod| *pod.uid == *uid).unwrap().clone();
        change(&mut pod);
        self.set_pod(pod);
    }

    /// The budget of that name in the namespace that all pods here are in.
    pub(crate) fn change_budget(&mut self, name: &str, change: impl FnOnce(&mut Budget)) {
        let mut budget = self.budget("shop", name).unwrap().clone();
        change(&mut budget);
        self.set_budget(budget);
    }

    /// One more instance.
    pub(crate) fn add_instance(&mut self, instance: Instance) {
        self.set_instances([self.instances(), &[instance]].concat());
    }

    /// Each instance is what `change` makes of it.
    pub(crate) fn change_instances(&mut self, change: impl FnMut(&mut Instance)) {
        let mut instances = self.instances().to_vec();
        instances.iter_mut().for_each(change);
        self.set_instances(instances);
    }
}
