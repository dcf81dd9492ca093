//! Where a plan starts: the control plane as it is, what does not move, and what is to be known of both.
//!
//! Here belongs what is read off the cluster before any hop is made. The invariant: what is not known is named, and is
//! never taken for a version.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr;
use std::sync::Arc;

use jiff::SignedDuration;

use super::finding::{PlanFinding, Weight};
use super::finding_id::{FindingCode, FindingId};
use super::order::{Stage, is_moved};
use super::plan_input::PlanInput;
use crate::cluster::{Cluster, Component, Evidence, Instance, Node, Reach};
use crate::disruption::CordonMark;
use crate::skew::policy::Servers;
use crate::skew::{effective, webhooks_in_the_way};
use crate::upgrade::{Hidden, Unit};
use crate::version::{KubeVersion, Minor, Observed, Unknown};

/// A machine that has been silent for so long does not come back by itself.
const SILENT: SignedDuration = SignedDuration::from_mins(15);

/// A piece of the control plane: a component that an upgrade moves.
#[derive(Clone, Debug)]
pub(super) struct PlanePiece {
    pub(super) component: Component,
    /// Its Node, or its own name where no Node is visible.
    pub(super) place: Arc<str>,
    /// Its Node is visible.
    pub(super) has_node: bool,
    /// A kube-apiserver runs on the same node.
    pub(super) beside_server: bool,
    pub(super) version: KubeVersion,
    pub(super) reach: Reach,
    /// It is part of the same process as the kubelet of its node.
    pub(super) of_kubelet: bool,
}

/// Nodes that nothing of the plan moves, by minor.
pub(super) type Still = BTreeMap<Minor, Vec<Arc<str>>>;

/// Where a plan starts.
pub(super) struct Start {
    /// What moves, in the order of components and names.
    pub(super) pieces: Vec<PlanePiece>,
    /// The kubelets that take part and can move, each version once.
    pub(super) kubelets: Vec<KubeVersion>,
    /// The kubelets that stay.
    pub(super) still: Still,
    /// The nodes whose machines have long been silent.
    pub(super) silent: BTreeSet<Arc<str>>,
    /// The kube-proxies that somebody else moves.
    pub(super) proxies: Still,
    /// The cloud-controller-managers that somebody else moves.
    pub(super) clouds: Still,
    /// Somebody runs the control plane where no Node shows it, as a cloud does, and picks its releases.
    pub(super) managed: bool,
}

impl Start {
    /// What is seen of the cluster, and what is to be known of it.
    pub(super) fn of(input: &PlanInput<'_>, findings: &mut Vec<PlanFinding>) -> Self {
        let (pieces, clouds) = pieces(input, findings);
        let managed = is_managed(input, &pieces);
        let (kubelets, still, silent) = kubelets(input, findings);
        let mut proxies = Still::new();
        for proxy in input.cluster.of(Component::KubeProxy) {
            let Some(version) = proxy.version.known() else { continue };
            if !moves_with_node(input.cluster, proxy, version) {
                proxies.entry(version.minor()).or_default().push(proxy.name.clone());
            }
        }
        empty_groups(input, findings);
        executors(input, findings);
        hidden(input, findings);
        emulation(input, findings);
        builds(input, &pieces, findings);
        clouds_stay(input, &clouds, findings);
        if managed {
            patch_of_images(input, findings);
        }
        Self { pieces, kubelets, still, silent, proxies, clouds, managed }
    }

    /// The kube-apiservers.
    pub(super) fn servers(&self) -> impl Iterator<Item = &PlanePiece> {
        self.pieces.iter().filter(|piece| piece.component == Component::KubeApiserver)
    }
}

/// Whether RKE2 runs it: one service of the host moves its static pods, the kubelet and kube-proxy.
fn of_rke2(version: &KubeVersion) -> bool {
    version.distribution().is_some_and(|(name, _)| name == "rke2")
}

/// Whether `proxy` moves with the kubelet of its node, and no later than it would be too old: it is part of the same
/// process, or a static pod of the same service. One that stayed behind its kubelet is too old before that moves.
fn moves_with_node(cluster: &Cluster, proxy: &Instance, version: &KubeVersion) -> bool {
    let kubelet = || proxy.node.as_ref().and_then(|node| cluster.node(node)?.kubelet.minor());
    proxy.evidence == Evidence::SameProcess
        || of_rke2(version) && kubelet().is_some_and(|kubelet| kubelet <= version.minor())
}

/// Where an instance is: its node, or its own name where no node is visible.
fn place(instance: &Instance) -> &Arc<str> {
    instance.node.as_ref().unwrap_or(&instance.name)
}

/// Whether somebody else runs the control plane: no Node of it is visible, and its kube-apiservers are no builds that one
/// installs on hosts.
fn is_managed(input: &PlanInput<'_>, pieces: &[PlanePiece]) -> bool {
    let mut servers = pieces.iter().filter(|piece| piece.component == Component::KubeApiserver).peekable();
    servers.peek().is_some()
        && servers.all(|server| !server.has_node && server.version.distribution().is_none())
        && input.cluster.nodes().iter().all(|node| !node.control_plane)
}

/// What the upgrade moves of the control plane, and the cloud-controller-managers that others move.
fn pieces(input: &PlanInput<'_>, findings: &mut Vec<PlanFinding>) -> (Vec<PlanePiece>, Still) {
    let cluster = input.cluster;
    let hosts: BTreeSet<&Arc<str>> =
        cluster.of(Component::KubeApiserver).filter_map(|server| server.node.as_ref()).collect();
    let (mut pieces, mut clouds) = (Vec::new(), Still::new());
    let moved = |instance: &&Instance| Stage::of(instance.component).is_some_and(|s| s < Stage::Kubelets);
    for instance in cluster.instances().iter().filter(moved) {
        let Some(version) = instance.version.known() else {
            findings.extend(unknown(instance));
            continue;
        };
        if !is_moved(instance, input.upgrade.control_plane.unit) {
            clouds.entry(version.minor()).or_default().push(instance.name.clone());
            continue;
        }
        pieces.push(PlanePiece {
            component: instance.component,
            place: place(instance).clone(),
            has_node: instance.node.is_some(),
            beside_server: instance.node.as_ref().is_some_and(|node| hosts.contains(node)),
            version: version.clone(),
            reach: instance.reach,
            of_kubelet: instance.evidence == Evidence::SameProcess || of_rke2(version),
        });
    }
    (pieces, clouds)
}

/// What is to be said of a component whose version is not known.
fn unknown(instance: &Instance) -> Option<PlanFinding> {
    let Instance { component, name, .. } = instance;
    let id = FindingCode::VersionUnknown.of(format_args!("{component}/{name}"));
    if let Observed::Unknown(Unknown::OwnNumber(number)) = &instance.version {
        // It is part of a service of its node, which moves it with the rest.
        if instance.reach == Reach::Local {
            return None;
        }
        let what = format!("{component} {name} has version numbers of its own ({number}) and is left alone");
        return Some(PlanFinding::new(id, Weight::Warns, what).remedy(
            "look up which release of it the target needs, and move it yourself after the kube-apiservers",
        ));
    }
    let what = format!("the version of {component} {name} is not known");
    let option = if *component == Component::KubeApiserver { "--apiserver-version" } else { "--component" };
    let remedy = format!("evenkeel report says why it is not seen; evenkeel plan takes it with {option}");
    // It was not asked yet, or did not answer just now.
    let passing = matches!(instance.version, Observed::Unknown(Unknown::Unreachable | Unknown::NotReported));
    Some(PlanFinding::new(id, Weight::Blocks, what).passing(passing).remedy(remedy))
}

/// Says which cloud-controller-managers are older than the target, where the upgrade does not move them.
fn clouds_stay(input: &PlanInput<'_>, clouds: &Still, findings: &mut Vec<PlanFinding>) {
    let minor = input.upgrade.version.minor();
    let older: Vec<_> = clouds.range(..minor).flat_map(|(_, names)| names).collect();
    if older.is_empty() {
        return;
    }
    let what =
        "cloud-controller-managers are left alone: what moves the control plane of a node does not move them";
    let remedy = format!("move them to a release for {minor} once every kube-apiserver runs {minor}");
    findings.push(PlanFinding::new(FindingCode::CloudStays, Weight::Warns, what).remedy(remedy).about(older));
}

/// Says of which groups the nodes come at an older patch than the target: whoever makes their images has to have it.
fn patch_of_images(input: &PlanInput<'_>, findings: &mut Vec<PlanFinding>) {
    let target = &input.upgrade.version;
    for (at, group) in input.upgrade.groups.iter().enumerate() {
        let nodes = input.members.iter().filter(|member| member.group == at).map(|member| member.node);
        let newest = nodes.filter_map(|node| node.kubelet.known()).max_by(|a, b| a.progress(b));
        let Some(newest) = newest.filter(|newest| newest.minor() == target.minor()) else { continue };
        if newest.satisfies(target) {
            continue;
        }
        let what = format!(
            "the newest kubelet of group {} runs {newest}: where images of nodes have no {target}, nodes that are replaced \
             never reach it, fail, and stay cordoned",
            group.name
        );
        let remedy = format!(
            "choose v{} as the target, which any release of it reaches, if you need no more",
            target.minor()
        );
        let id = FindingCode::PatchOfImages.of(&group.name);
        findings.push(PlanFinding::new(id, Weight::Warns, what).remedy(remedy));
    }
}

/// The versions of the kubelets that move, and the kubelets that stay.
fn kubelets(
    input: &PlanInput<'_>,
    findings: &mut Vec<PlanFinding>,
) -> (Vec<KubeVersion>, Still, BTreeSet<Arc<str>>) {
    let target = &input.upgrade.version;
    let (mut moving, mut still) = (Vec::new(), Still::new());
    let mut stay = Stay::default();
    // The members are some of the nodes, in the same order.
    let mut members = input.members.iter().peekable();
    for node in input.cluster.nodes() {
        let takes_part = members.next_if(|member| ptr::eq(member.node, node.as_ref())).is_some();
        let Some(version) = node.kubelet.known() else {
            stay.unknown.push(node.name.clone());
            continue;
        };
        let held = node.held || CordonMark::is_foreign(node);
        if takes_part && !held && version.minor() <= target.minor() {
            if !moving.contains(version) {
                moving.push(version.clone());
            }
        } else {
            still.entry(version.minor()).or_default().push(node.name.clone());
        }
        if takes_part {
            stay.note(input, node, version);
        } else if !version.satisfies(target) {
            stay.unselected.push(node.name.clone());
        }
    }
    let silent = stay.silent.iter().cloned().collect();
    stay.tell(findings);
    (moving, still, silent)
}

/// Groups that no node is of: a mistake in a selector takes a canary away, and nothing else would say so.
fn empty_groups(input: &PlanInput<'_>, findings: &mut Vec<PlanFinding>) {
    let groups = &input.upgrade.groups;
    let is_empty = |at: usize| input.members.iter().all(|member| member.group != at);
    let empty = groups.iter().enumerate().filter(|(at, _)| is_empty(*at)).map(|(_, group)| group);
    // Where there is no Node at all, no selector is mistaken.
    for group in empty.filter(|_| !input.cluster.nodes().is_empty()) {
        let next = groups.iter().find(|other| other.depends_on.contains(&group.name));
        let next = next.map(|next| format!(", and group {} begins without it", next.name));
        let what = format!("group {} has no nodes{}", group.name, next.unwrap_or_default());
        let remedy =
            "correct its selector, or list it before the groups that take its nodes, if it is to have some";
        let id = FindingCode::GroupEmpty.of(&group.name);
        findings.push(PlanFinding::new(id, Weight::Warns, what).remedy(remedy));
    }
}

/// Nodes that stay where they are, or that somebody should know of, by the reason.
#[derive(Default)]
struct Stay {
    unknown: Vec<Arc<str>>,
    unselected: Vec<Arc<str>>,
    held: Vec<Arc<str>>,
    cordoned: Vec<Arc<str>>,
    silent: Vec<Arc<str>>,
    newer: Vec<Arc<str>>,
}

impl Stay {
    fn note(&mut self, input: &PlanInput<'_>, node: &Node, version: &KubeVersion) {
        let target = &input.upgrade.version;
        let name = &node.name;
        if version.minor() > target.minor() {
            self.newer.push(name.clone());
            return;
        }
        if version.satisfies(target) {
            return;
        }
        let silent = node.heartbeat.is_some_and(|at| input.now.duration_since(at) > SILENT);
        if node.held {
            self.held.push(name.clone());
        } else if CordonMark::is_foreign(node) {
            self.cordoned.push(name.clone());
        } else if !node.ready && silent {
            self.silent.push(name.clone());
        }
    }

    fn tell(self, findings: &mut Vec<PlanFinding>) {
        let mut tell = |names: &[Arc<str>], code: FindingCode, weight: Weight, what: &str, remedy: &str| {
            if !names.is_empty() {
                findings.push(PlanFinding::new(code, weight, what).remedy(remedy).about(names));
            }
        };
        let (warns, stops) = (Weight::Warns, Weight::Stops);
        tell(
            &self.unknown,
            FindingCode::KubeletUnknown,
            warns,
            "nodes whose kubelet does not say a version that can be read are left alone",
            "restart the kubelet, or delete the Node if its machine is gone",
        );
        tell(
            &self.unselected,
            FindingCode::NodeUnselected,
            warns,
            "nodes that no group selects stay at their version",
            "add a group that selects them if they are to move",
        );
        tell(
            &self.held,
            FindingCode::NodeHeld,
            stops,
            "nodes that a person holds are left alone",
            "remove the annotation evenkeel.dev/hold when they may move",
        );
        tell(
            &self.cordoned,
            FindingCode::NodeCordoned,
            stops,
            "nodes that somebody cordoned are left alone",
            "uncordon them when they may move",
        );
        tell(
            &self.silent,
            FindingCode::NodeSilent,
            stops,
            "nodes whose kubelet has been silent for long cannot be upgraded",
            "look at the machines, or delete their Nodes",
        );
        tell(
            &self.newer,
            FindingCode::NodeNewer,
            warns,
            "nodes that run a newer minor than the target are left alone, because nothing is ever taken back",
            "choose a target of their minor",
        );
    }
}

/// Executors that the upgrade names and that are not there.
fn executors(input: &PlanInput<'_>, findings: &mut Vec<PlanFinding>) {
    for absent in input.absent_executors {
        let id = FindingCode::NoExecutor.of(&absent.name);
        findings.push(PlanFinding::new(id, Weight::Blocks, &*absent.what).remedy(&*absent.remedy));
    }
}

/// The oldest apiserver version: where the upgrade comes from.
pub fn from_version(cluster: &Cluster) -> Option<KubeVersion> {
    let known = cluster.of(Component::KubeApiserver).filter_map(|i| i.version.known());
    known.min_by(|a, b| a.progress(b)).cloned()
}

/// The id of the finding that nothing shows the version of `component`, which leads.
pub fn hidden_id(component: Component) -> FindingId {
    FindingCode::HiddenController.of(component)
}

/// Controllers that lead where nothing shows their version.
fn hidden(input: &PlanInput<'_>, findings: &mut Vec<PlanFinding>) {
    for (component, why) in input.hidden {
        let finding = PlanFinding::new(hidden_id(*component), Weight::Stops, why.clone()).acceptable();
        findings.push(if input.upgrade.control_plane.hidden == Hidden::Accept {
            PlanFinding { weight: Weight::Warns, ..finding }
                .remedy("a person answers for it: controlPlane.hidden is Accept")
        } else {
            finding.remedy(
                "set controlPlane.hidden to Accept when you know that it moves with the kube-apiservers",
            )
        });
    }
}

/// A target that names no build of the distribution that the cluster runs, or one that nothing says is newer.
fn builds(input: &PlanInput<'_>, pieces: &[PlanePiece], findings: &mut Vec<PlanFinding>) {
    let target = &input.upgrade.version;
    let other = |piece: &&PlanePiece| {
        let server = piece.component == Component::KubeApiserver;
        let alike = piece.version.satisfies(target) && piece.version.progress(target).is_eq();
        // A target without a build means any build of that release.
        server && alike && !target.suffix().is_empty() && piece.version != *target
    };
    if let Some(PlanePiece { component, place, version, .. }) = pieces.iter().find(other) {
        let what = format!(
            "{component} {place} runs {version}, and nothing says whether {target} is newer: it counts as being there"
        );
        let remedy = "move such builds without Evenkeel, or choose a target of another patch";
        findings.push(PlanFinding::new(FindingCode::BuildsAlike, Weight::Warns, what).remedy(remedy));
    }
    if target.is_any_of_its_minor() {
        return;
    }
    // A managed control plane takes a version without its build.
    let mut servers = pieces.iter().filter(|piece| piece.component == Component::KubeApiserver);
    let of_distribution = servers.find_map(|server| Some((server, server.version.distribution()?)));
    if let Some((server, (distribution, build))) = of_distribution
        && target.distribution() != Some((distribution, build))
    {
        let what = format!(
            "kube-apiservers run {}, and the target {target} names no build of {distribution}",
            server.version
        );
        let remedy = format!("name the build that the executor is to install, such as {target}{build}");
        findings.push(PlanFinding::new(FindingCode::NoBuild, Weight::Warns, what).remedy(remedy));
    }
}

/// An upgrade in two steps that somebody else began has to be complete first.
fn emulation(input: &PlanInput<'_>, findings: &mut Vec<PlanFinding>) {
    let servers = Servers::of(input.cluster.of(Component::KubeApiserver).filter_map(effective));
    let Some(servers) = servers.filter(|servers| servers.emulates()) else { return };
    let target = input.upgrade.version.minor();
    let remedy = "complete that upgrade: raise --emulated-version";
    if target <= servers.newest && target > servers.emulated {
        let what =
            format!("kube-apiservers emulate {}, and no kubelet may be newer than that", servers.emulated);
        findings.push(PlanFinding::new(FindingCode::Emulation, Weight::Stops, what).remedy(remedy));
    }
    if target > servers.newest {
        let what = format!("kube-apiservers are {} and still emulate {}", servers.oldest, servers.emulated);
        findings.push(PlanFinding::new(FindingCode::Emulation, Weight::Blocks, what).remedy(remedy));
    }
}

/// What is to be known before the kube-apiservers go to another minor.
pub(super) fn before_minor(
    input: &PlanInput<'_>,
    start: &Start,
    minor: Minor,
    findings: &mut Vec<PlanFinding>,
) {
    // What a kube-apiserver of that minor sends, webhooks get already where one is there.
    let served = start.servers().any(|server| server.version.minor() >= minor);
    for webhook in webhooks_in_the_way(input.cluster).filter(|_| !served) {
        let id = FindingCode::Webhook.of(format_args!("{}/{}", webhook.configuration, webhook.name));
        if findings.iter().any(|finding| finding.id == id) {
            continue;
        }
        let what = format!(
            "webhook {} of {} fails closed and matches only the API versions that it lists",
            webhook.name, webhook.configuration
        );
        let remedy = "set its matchPolicy to Equivalent";
        findings.push(PlanFinding::new(id, Weight::Blocks, what).remedy(remedy).acceptable().at(minor));
    }
    let servers: Vec<&Instance> = input.cluster.of(Component::KubeApiserver).collect();
    if let [only] = servers.as_slice()
        && matches!(only.evidence, Evidence::Endpoint | Evidence::Image | Evidence::SameProcess)
    {
        let what = "the API is away while its only kube-apiserver is replaced";
        findings.push(
            PlanFinding::new(FindingCode::OnlyServer, Weight::Warns, what)
                .remedy("expect minutes without it; running pods go on, nothing is scheduled or replaced"),
        );
    }
    if input.upgrade.control_plane.unit == Unit::Component {
        let together = start.pieces.iter().filter(|piece| piece.of_kubelet && piece.beside_server);
        let places: BTreeSet<Arc<str>> = together.map(|piece| piece.place.clone()).collect();
        if !places.is_empty() {
            let what = "one service of the host runs kube-apiserver, controllers and kubelet of these nodes, and moves \
                        them together";
            let remedy = "set controlPlane.unit to Node, so that they are one step (evenkeel plan --unit node shows it)";
            findings.push(
                PlanFinding::new(FindingCode::OneProcess, Weight::Warns, what).remedy(remedy).about(&places),
            );
        }
    }
}
