//! A small cluster and an input, as a case names them, and the plan of somebody else said in our words.

use evenkeel::api::Executors;
use evenkeel::api::upgrade::{ClusterUpgrade, Invalid, validate};
use evenkeel_core::cluster::{Cluster, Component, Instance, Node, Parts, Reach};
use evenkeel_core::plan::{Hop, Pass, Picked, Plan, PlanInput, Planned, Refutation, Step, check};
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_core::skew::policy::{Policy, Rule, RuleSubject, Servers};
use evenkeel_core::upgrade::{Unit, Upgrade};
use evenkeel_core::version::{Effective, KubeVersion, Minor};
use jiff::Timestamp;
use serde_json::json;

use crate::policy::{instance, node};

const fn older(component: Component, max_older: u16) -> Rule {
    let subject = RuleSubject::Component(component);
    Rule { id: "n-2", subject, before: None, max_older, max_newer: 0, source: "KEP-3935, the time before" }
}

/// The policy before KEP-3935: no kubelet more than two minors behind.
static TWO_BEHIND: [Rule; 4] = [
    Rule { max_newer: 1, ..older(Component::KubeApiserver, 1) },
    older(Component::KubeControllerManager, 1),
    older(Component::KubeScheduler, 1),
    older(Component::Kubelet, 2),
];

/// The policy in which a kubelet may be so many minors behind.
pub fn policy(behind: u64) -> Option<Policy> {
    match behind {
        2 => Some(Policy::named("n-2", &TWO_BEHIND)),
        3 => Some(Policy::default()),
        _ => None,
    }
}

/// The input that a `ClusterUpgrade` of these words holds, read by the code that reads it in a cluster.
pub fn upgrade(target: &str, via: &[&str]) -> Result<Upgrade, Invalid> {
    let object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1",
        "kind": "ClusterUpgrade",
        "metadata": {"name": "upgrade"},
        "spec": {
            "version": target,
            "via": via,
            "controlPlane": {"executor": "external"},
            "nodeGroups": [{"name": "all", "selector": {}, "executor": "external"}],
        },
    });
    let executor = json!({
        "apiVersion": "evenkeel.dev/v1alpha1",
        "kind": "UpgradeExecutor",
        "metadata": {"name": "external"},
        "spec": {"external": {}},
    });
    let mut executors = Executors::default();
    executors.add(&serde_json::from_value(executor).unwrap());
    validate(&serde_json::from_value::<ClusterUpgrade>(object).unwrap(), &executors)
}

/// A cluster, and what is asked for.
pub struct Setting {
    cluster: Cluster,
    upgrade: Upgrade,
    catalogue: Catalogue,
    policy: Policy,
}

impl Setting {
    /// Two control-plane nodes at `servers`, none if it is missing; one node for each of `kubelets`; and the releases
    /// that are known.
    pub fn new(servers: Option<&str>, kubelets: &[&str], upgrade: Upgrade, known: &[&str]) -> Self {
        let mut parts = Parts::default();
        for name in servers.iter().flat_map(|_| ["cp-1", "cp-2"]) {
            for component in
                [Component::KubeApiserver, Component::KubeControllerManager, Component::KubeScheduler]
            {
                parts.instances.push(Instance {
                    name: name.into(),
                    node: Some(name.into()),
                    reach: Reach::Local,
                    ..instance(component, 0, servers.unwrap_or_default())
                });
            }
        }
        let node = |(number, version): (usize, &&str)| Node {
            name: format!("worker-{number}").into(),
            ..node(number, version)
        };
        parts.nodes = kubelets.iter().enumerate().map(|kubelet| node(kubelet).into()).collect();
        Self { cluster: parts.seal(), upgrade, catalogue: catalogue(known), policy: Policy::default() }
    }

    pub fn by(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    fn of_unit(&self, unit: Unit) -> Planned {
        let mut upgrade = self.upgrade.clone();
        upgrade.control_plane.unit = unit;
        Planned::of(&PlanInput {
            cluster: &self.cluster,
            upgrade: &upgrade,
            members: &upgrade.members(&self.cluster),
            recorded: &[],
            policy: self.policy,
            catalogue: &self.catalogue,
            hidden: &[],
            absent_executors: &[],
            now: Timestamp::UNIX_EPOCH,
        })
    }

    /// Our plan, made and judged.
    ///
    /// The hops must be the same whether single components move or whole control-plane nodes.
    pub fn planned(&self) -> Planned {
        let [planned, whole] = [Unit::Component, Unit::Node].map(|unit| self.of_unit(unit));
        let hops = |planned: &Planned| -> Vec<(KubeVersion, Pass, bool)> {
            let hops = planned.plan().hops.iter();
            hops.map(|hop| (hop.version.clone(), hop.kubelets, hop.steps.is_empty())).collect()
        };
        assert_eq!(hops(&planned), hops(&whole), "the unit changed the hops");
        assert_eq!(planned.refused(), whole.refused(), "the unit changed what is refused");
        planned
    }

    /// What our second judge says of the plan of somebody else: the versions of its control plane, and those of its
    /// workers.
    pub fn judge(&self, servers: &[KubeVersion], workers: &[KubeVersion]) -> Result<(), Vec<Refutation>> {
        // A stop of workers alone is before the hops if the control plane is there already.
        let there = |version: &KubeVersion| {
            self.cluster
                .of(Component::KubeApiserver)
                .all(|server| server.version.known().is_some_and(|server| version.progress(server).is_le()))
        };
        let others = || workers.iter().filter(|version| !servers.contains(version));
        let before = others().filter(|version| there(version)).map(|version| (version, false));
        let after = others().filter(|version| !there(version)).map(|version| (version, false));
        let all: Vec<(&KubeVersion, bool)> =
            before.chain(servers.iter().map(|version| (version, true))).chain(after).collect();
        let mut oldest = self.cluster.nodes().iter().filter_map(|node| node.kubelet.minor()).min();
        let mut hops = Vec::new();
        for (nth, (version, moves)) in all.iter().enumerate() {
            let next = all.get(nth + 1).map(|(next, _)| next.minor());
            let kubelets = if workers.contains(version) {
                oldest = oldest.map(|oldest| oldest.max(version.minor()));
                Pass::All
            } else {
                self.nobody_but_late(oldest, next)
            };
            hops.push(self.hop(version, *moves, kubelets));
        }
        let plan = Plan {
            from: None,
            to: self.upgrade.version.clone(),
            unit: Unit::Component,
            hops,
            silent: std::collections::BTreeSet::new(),
            findings: Vec::new(),
        };
        check(plan, &self.cluster, &self.upgrade.members(&self.cluster), &self.policy).map(|_| ())
    }

    /// No kubelet that is there, of which `oldest` is the oldest; but one that joins late, and would be too old for
    /// the minor after this: other tools have no word for those.
    fn nobody_but_late(&self, oldest: Option<Minor>, next: Option<Minor>) -> Pass {
        let Some(next) = next else { return Pass::Before(Minor::new(0, 0)) };
        let servers = Servers::from(Effective::plain(next));
        let least = self.policy.least(RuleSubject::Component(Component::Kubelet), servers);
        Pass::Before(oldest.map_or(least, |oldest| oldest.min(least)))
    }

    fn hop(&self, version: &KubeVersion, moves: bool, kubelets: Pass) -> Hop {
        let step = |instance: &Instance| Step {
            components: vec![instance.component],
            place: instance.name.clone(),
            from: version.clone(),
        };
        let steps = self.cluster.instances().iter().filter(|_| moves).map(step).collect();
        Hop { version: version.clone(), picked: Picked::Person, needs: Vec::new(), steps, kubelets }
    }
}

/// Release data of `known`: the newest of each minor, which is all that release data say.
fn catalogue(known: &[&str]) -> Catalogue {
    let mut versions: Vec<KubeVersion> = known.iter().map(|text| text.parse().unwrap()).collect();
    versions.sort_by(KubeVersion::progress);
    // Of two entries for a minor the later counts.
    let minors: Vec<_> = versions
        .iter()
        .map(|version| {
            json!({
                "minor": version.minor().to_string(),
                "endOfLife": "2030-01-01",
                "latestPatchSeen": version,
            })
        })
        .collect();
    Catalogue::read(&json!({"minors": minors}).to_string()).unwrap()
}
