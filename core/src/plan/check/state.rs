//! The cluster in one moment, as the second judge sees it, and what of it is outside the skew policy.
//!
//! Here belongs who may meet whom and what the policy says of it; which moments there are is in `walk`. The invariant:
//! it shares with what makes the plan nothing but the skew policy, and how the mark of a cordon is read.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr;
use std::sync::Arc;

use crate::cluster::{Cluster, Component, Evidence, Instance, Reach};
use crate::disruption::CordonMark;
use crate::skew::policy::{Judgement, Policy, RuleSubject, Servers};
use crate::skew::{OneService, comes_with_kubelet};
use crate::upgrade::{Member, Unit};
use crate::version::{Effective, KubeVersion};

/// How far a part is outside the policy, in minors, with a line for a person, by its index.
pub(super) type Broken = BTreeMap<usize, (i32, String)>;

/// Something that runs a version.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) component: Component,
    pub(super) place: Arc<str>,
    pub(super) node: Option<Arc<str>>,
    pub(super) version: KubeVersion,
    pub(super) reach: Reach,
    /// The plan may move it.
    pub(super) ours: bool,
    /// The index of the part that takes it along, whoever moves that one.
    pub(super) follows: Option<usize>,
}

impl Part {
    /// What others move, as far as `instance` tells, which runs `version`.
    fn of(instance: &Instance, version: &KubeVersion) -> Self {
        Self {
            component: instance.component,
            place: instance.node.as_ref().unwrap_or(&instance.name).clone(),
            node: instance.node.clone(),
            version: version.clone(),
            reach: instance.reach,
            ours: false,
            follows: None,
        }
    }

    pub(super) fn name(&self) -> String {
        format!("{} on {}", self.component, self.place)
    }

    pub(super) fn is_server(&self) -> bool {
        self.component == Component::KubeApiserver
    }

    /// Whether it need not move any more for `target`. A target without a patch wants no more than its minor, and so does
    /// any target of a cloud-controller-manager, whose patches are its makers' own.
    pub(super) fn is_done(&self, target: &KubeVersion) -> bool {
        let only_minor = target.release().1.is_none() || self.component == Component::CloudControllerManager;
        let of_minor = self.version.minor() == target.minor();
        of_minor && (only_minor || self.version.progress(target).is_ge())
    }
}

/// The cluster in one moment, as the versions that its parts run. Kubelets and kube-proxies of the same version and
/// fate are one part.
#[derive(Clone, Debug)]
pub(super) struct ClusterState {
    pub(super) parts: Vec<Part>,
}

/// Whether the node of that name tells what its kubelet runs.
fn knows_kubelet(cluster: &Cluster, node: &str) -> bool {
    cluster.node(node).is_some_and(|node| node.kubelet.known().is_some())
}

/// What the components of the cluster tell of the nodes that they are on.
#[derive(Default)]
struct OnNodes<'a> {
    /// A kube-apiserver runs there.
    hosts: BTreeSet<&'a Arc<str>>,
    /// A kube-apiserver is part of the same service as the kubelet.
    of_one_service: OneService<'a>,
    /// The kube-proxies that come with the kubelet, and their versions.
    taken_along: BTreeMap<&'a Arc<str>, Vec<(&'a Instance, &'a KubeVersion)>>,
}

impl ClusterState {
    /// `unit` is what the plan moves together.
    pub(super) fn of(cluster: &Cluster, members: &[Member<'_>], unit: Unit) -> Self {
        let mut state = Self { parts: Vec::new() };
        let mut on = OnNodes { of_one_service: OneService::of(cluster), ..OnNodes::default() };
        for instance in cluster.instances() {
            let Some(version) = instance.version.known() else { continue };
            let component = instance.component;
            let proxy = component == Component::KubeProxy;
            if component == Component::Kubectl || proxy && instance.evidence == Evidence::SameProcess {
                continue;
            }
            let kubelet = || instance.node.as_ref().filter(|node| knows_kubelet(cluster, node));
            if let Some(node) = kubelet().filter(|_| comes_with_kubelet(instance)) {
                on.taken_along.entry(node).or_default().push((instance, version));
                continue;
            }
            let place = instance.node.as_ref().unwrap_or(&instance.name);
            if component == Component::KubeApiserver {
                on.hosts.insert(place);
            }
            // One that finds its kube-apiserver by a Service or a load balancer is no part of its node.
            let roams = component == Component::CloudControllerManager && instance.reach != Reach::Local;
            let of_others = proxy || roams && unit == Unit::Node;
            let same = |part: &Part| {
                part.component == component && part.version == *version && part.follows.is_none()
            };
            if !(proxy && state.parts.iter().any(same)) {
                state.parts.push(Part { ours: !of_others, ..Part::of(instance, version) });
            }
        }
        state.kubelets(cluster, members, &on);
        state
    }

    /// Adds the kubelets, each with the kube-proxies that it takes along.
    fn kubelets(&mut self, cluster: &Cluster, members: &[Member<'_>], on: &OnNodes<'_>) {
        let mut members = members.iter().peekable();
        for node in cluster.nodes() {
            // The members are some of the nodes, in the same order.
            let member = members.next_if(|member| ptr::eq(member.node, node.as_ref()));
            let Some(version) = node.kubelet.known() else { continue };
            let held = node.held || CordonMark::is_foreign(node);
            let ours = member.is_some() && !held;
            let same = |part: &Part| {
                part.component == Component::Kubelet && part.version == *version && part.ours == ours
            };
            // A node with a kube-apiserver may move together with it, so it is a part of its own.
            let shared = |part: &Part| same(part) && !on.hosts.contains(&part.place);
            let known = self.parts.iter().position(shared).filter(|_| !on.hosts.contains(&node.name));
            let at = known.unwrap_or(self.parts.len());
            if known.is_none() {
                self.parts.push(Part {
                    component: Component::Kubelet,
                    place: node.name.clone(),
                    node: Some(node.name.clone()),
                    version: version.clone(),
                    // A kubelet that is one service with a kube-apiserver talks to that one.
                    reach: if on.of_one_service.has(&node.name) { Reach::Local } else { Reach::Any },
                    ours,
                    follows: None,
                });
            }
            for (proxy, version) in on.taken_along.get(&node.name).into_iter().flatten() {
                let alike = |part: &Part| {
                    part.component == proxy.component && part.version == **version && part.follows == Some(at)
                };
                if !self.parts.iter().any(alike) {
                    // On a server it talks to the kube-apiserver of its own node, as the kubelet does.
                    let reach = self.parts.get(at).map_or(proxy.reach, |kubelet| kubelet.reach);
                    self.parts.push(Part { follows: Some(at), reach, ..Part::of(proxy, version) });
                }
            }
        }
    }

    /// The part at `at` goes to `version`, and so does what it takes along, if that is older.
    pub(super) fn set(&mut self, at: usize, version: &KubeVersion) {
        for (nth, part) in self.parts.iter_mut().enumerate() {
            let along = part.follows == Some(at) && part.version.minor() < version.minor();
            if nth == at || along {
                part.version = version.clone();
            }
        }
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.is_server())
    }

    /// The minors of the kube-apiservers that `part` may meet.
    pub(super) fn met(&self, part: &Part) -> Option<Servers> {
        let own =
            |server: &&Part| part.reach == Reach::Local && part.node.is_some() && server.node == part.node;
        let local = self.servers().any(|server| own(&server));
        let met = self.servers().filter(|server| !local || own(server));
        Servers::of(met.map(|server| Effective::plain(server.version.minor())))
    }

    /// How far each part is outside the policy, in minors, with a line for a person; what is inside is left out.
    pub(super) fn broken(&self, policy: &Policy) -> Broken {
        let mut broken = Broken::new();
        for (at, part) in self.parts.iter().enumerate() {
            let minor = part.version.minor();
            if part.is_server() {
                let far = |other: &Part| policy.broken_by_spread(minor, other.version.minor()).is_some();
                if let Some(other) = self.servers().find(|other| far(other)) {
                    let distance = minor.behind(other.version.minor()).abs();
                    broken.insert(
                        at,
                        (
                            distance,
                            format!(
                                "{} at {minor} beside {} at {}",
                                part.name(),
                                other.name(),
                                other.version.minor()
                            ),
                        ),
                    );
                }
                continue;
            }
            let Some(met) = self.met(part) else { continue };
            let (_, judgement) = policy.judge(RuleSubject::Component(part.component), minor.into(), met);
            let (distance, limit) = match judgement {
                Judgement::TooOld { floor } => (minor.behind(floor), format!("{floor} or newer")),
                Judgement::TooNew { ceiling } => (ceiling.behind(minor), format!("{ceiling} or older")),
                Judgement::Within { .. } | Judgement::Undecided { .. } => continue,
            };
            broken.insert(at, (distance, format!("{} at {minor}, which must be {limit}", part.name())));
        }
        broken
    }
}
