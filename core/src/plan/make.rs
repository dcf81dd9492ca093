//! Making a plan: which hops there are, and what moves in each.
//!
//! The control plane goes one minor at a time. A kubelet stays where it is until the next hop would leave it outside
//! the skew policy, because each of its moves drains its node: that makes its moves as few as possible. What is out of
//! line when the plan is made (controllers of an older minor, kube-apiservers of two minors) is brought into line
//! first, by a hop to a minor that is there already. The invariant: a plan without a finding that blocks passes
//! [`check()`](super::check()).

use std::sync::Arc;

use super::accept::accept;
use super::finding::{PlanFinding, Weight};
use super::finding_id::FindingCode;
use super::hops::{Hop, MAX_MINORS, Need, Pass, Picked, Plan, Step};
use super::order::is_there;
use super::plan_input::PlanInput;
use super::start::{PlanePiece, Start, before_minor, from_version};
use crate::cluster::{Component, Reach};
use crate::disruption::CordonMark;
use crate::skew::policy::{RuleSubject, Servers};
use crate::upgrade::{Executor, Member, Unit, Upgrade, not_on_the_way};
use crate::version::{Effective, KubeVersion, Minor};

/// What `input.upgrade` will do to `input.cluster` from where it is now. Total: where nothing can be done, the plan has no
/// hops, and findings that say why.
pub fn make(input: &PlanInput<'_>) -> Plan {
    let upgrade = input.upgrade;
    let mut findings = Vec::new();
    let start = Start::of(input, &mut findings);
    let hops = match ends(&start, upgrade) {
        Ok((oldest, newest)) => Making { input, start: &start, findings: &mut findings }.hops(oldest, newest),
        Err(finding) => {
            // What stays behind and the like is of no interest where nothing can be done at all.
            findings.retain(|finding: &PlanFinding| finding.weight == Weight::Blocks);
            findings.push(*finding);
            Vec::new()
        }
    };
    accept(&mut findings, &upgrade.accepted, input.now);
    Plan {
        from: from_version(input.cluster),
        to: upgrade.version.clone(),
        unit: upgrade.control_plane.unit,
        hops,
        silent: start.silent,
        findings,
    }
}

/// The oldest and the newest minor of the kube-apiservers; the error is why no plan can be made.
fn ends(start: &Start, upgrade: &Upgrade) -> Result<(Minor, Minor), Box<PlanFinding>> {
    let target = &upgrade.version;
    let newer = |piece: &&PlanePiece| {
        let server = is_server(piece) && piece.version.is_beyond(target);
        server || piece.version.minor() > target.minor()
    };
    if let Some(newer) = start.pieces.iter().find(newer) {
        let PlanePiece { component, place, version, .. } = newer;
        let what = format!("{target} would be a downgrade: {component} {place} runs {version}");
        let remedy = match version.minor() {
            minor if start.managed && minor == target.minor() => {
                format!("choose a target that is not older, or v{minor}, which any release of it reaches")
            }
            _ => "choose a target that is not older".to_owned(),
        };
        return Err(Box::new(PlanFinding::new(FindingCode::Downgrade, Weight::Blocks, what).remedy(remedy)));
    }
    let minors = || start.servers().map(|server| server.version.minor());
    let (oldest, newest) = minors().min().zip(minors().max()).ok_or_else(|| {
        let finding = PlanFinding::new(
            FindingCode::VersionUnknown,
            Weight::Blocks,
            "no kube-apiserver's version is known",
        );
        Box::new(finding.passing(true).remedy(
            "evenkeel report says why it is not seen; evenkeel plan takes it with --apiserver-version",
        ))
    })?;
    let ahead = oldest.behind(target.minor());
    if ahead > i32::from(MAX_MINORS) {
        let what = format!(
            "{target} is {ahead} minors ahead of the oldest kube-apiserver, and an upgrade goes over at most {MAX_MINORS}"
        );
        let first = oldest.forward(MAX_MINORS);
        let remedy =
            format!("correct the target if it is mistyped, or go to {first} or an older minor first");
        return Err(Box::new(PlanFinding::new(FindingCode::TooFar, Weight::Blocks, what).remedy(remedy)));
    }
    Ok((oldest, newest))
}

struct Making<'a> {
    input: &'a PlanInput<'a>,
    start: &'a Start,
    findings: &'a mut Vec<PlanFinding>,
}

impl Making<'_> {
    /// The hops from `oldest`, the oldest minor of the kube-apiservers; `newest` is their newest.
    fn hops(&mut self, oldest: Minor, newest: Minor) -> Vec<Hop> {
        let target = &self.input.upgrade.version;
        let mut now = self.start.pieces.clone();
        let mut kubelets = self.start.kubelets.clone();
        let mut hops: Vec<Hop> = Vec::new();
        let mut begun = false;
        let mut minor = oldest;
        while minor <= target.minor() {
            let Some((version, picked)) = self.version(minor, newest) else {
                let what = format!("no release of {minor} is known, which is on the way to {target}");
                let remedy = format!("name it in spec.via (--via), such as v{minor}.1");
                self.findings.push(
                    PlanFinding::new(FindingCode::NoRelease, Weight::Blocks, what).remedy(remedy).at(minor),
                );
                return Vec::new();
            };
            self.names_a_build(&version, newest);
            let last = minor == target.minor();
            let behind = |piece: &PlanePiece| {
                if last {
                    !is_there(piece.component, &piece.version, target)
                } else {
                    piece.version.minor() < minor
                }
            };
            let steps = self.steps(&now, behind);
            self.kubelets_stay(&steps);
            self.jobs_need_nodes(&steps);
            let moves_servers = steps.iter().any(|step| step.components.contains(&Component::KubeApiserver));
            let another_minor =
                moves_servers && now.iter().any(|piece| is_server(piece) && piece.version.minor() < minor);
            let needs = if another_minor { self.needs(minor) } else { Vec::new() };
            if another_minor {
                self.look_ahead(minor, &needs, begun, &now);
            }
            begun |= moves_servers;
            for piece in now.iter_mut().filter(|piece| behind(piece) && piece.version.minor() <= minor) {
                piece.version = version.clone();
            }
            let next = Servers::from(Effective::plain(minor.next().max(newest)));
            let kubelet = RuleSubject::Component(Component::Kubelet);
            let pass = if last { Pass::All } else { Pass::Before(self.input.policy.least(kubelet, next)) };
            let moved = kubelets.iter().any(|kubelet| pass.moves(kubelet, &version));
            self.jobs_need_releases(&version, !steps.is_empty(), moved);
            for kubelet in kubelets.iter_mut().filter(|kubelet| pass.moves(kubelet, &version)) {
                *kubelet = version.clone();
            }
            if moved || !steps.is_empty() {
                hops.push(Hop { version, picked, needs, steps, kubelets: pass });
            }
            // No minor may come after it: there is a last one that can be written.
            if last {
                break;
            }
            minor = minor.next();
        }
        if !hops.is_empty() {
            self.names_what_is_not_on_the_way();
        }
        hops
    }

    /// Says which version of `via` is not on the way.
    fn names_what_is_not_on_the_way(&mut self) {
        let (via, target) = (&self.input.upgrade.via, &self.input.upgrade.version);
        let Some(late) = not_on_the_way(via, target) else { return };
        let what = format!("spec.via names {late}, which is not on the way to {target}");
        let remedy = format!(
            "name versions of minors before {} alone, and correct it if it is mistyped",
            target.minor()
        );
        self.findings.push(PlanFinding::new(FindingCode::NotOnTheWay, Weight::Blocks, what).remedy(remedy));
    }

    /// What the control plane runs after the hop to `minor`. A minor that is there already has the newest version that a
    /// kube-apiserver runs of it.
    fn version(&self, minor: Minor, newest: Minor) -> Option<(KubeVersion, Picked)> {
        let upgrade = self.input.upgrade;
        if minor == upgrade.version.minor() {
            return Some((upgrade.version.clone(), Picked::Target));
        }
        if let Some(named) =
            upgrade.via.iter().chain(self.input.recorded).find(|version| version.minor() == minor)
        {
            return Some((named.clone(), Picked::Person));
        }
        // Whoever runs the control plane picks its patches, and the images of nodes have others.
        if self.start.managed || upgrade.version.is_any_of_its_minor() {
            return Some((KubeVersion::any_of(minor), Picked::Anyone));
        }
        if minor <= newest {
            let here = self.start.servers().filter(|server| server.version.minor() == minor);
            let version = here.map(|server| &server.version).max_by(|a, b| a.progress(b));
            if let Some(version) = version {
                return Some((version.clone(), Picked::Cluster));
            }
        }
        let life = self.input.catalogue.life(minor)?;
        Some((life.latest.clone(), Picked::Catalogue))
    }

    /// The steps that move what is `behind`, of `now`. kube-apiservers of the oldest version come first.
    fn steps(&self, now: &[PlanePiece], behind: impl Fn(&PlanePiece) -> bool) -> Vec<Step> {
        let mut late: Vec<&PlanePiece> = now.iter().filter(|piece| behind(piece)).collect();
        late.sort_by(|a, b| {
            let by_age = |piece: &PlanePiece| piece.version.release();
            (a.component, by_age(a), &a.place).cmp(&(b.component, by_age(b), &b.place))
        });
        let alone = |piece: &&PlanePiece| Step {
            components: vec![piece.component],
            place: piece.place.clone(),
            from: piece.version.clone(),
        };
        if self.input.upgrade.control_plane.unit == Unit::Component {
            return late.iter().map(alone).collect();
        }
        let mut steps: Vec<Step> = Vec::new();
        for piece in late.iter().filter(|piece| piece.beside_server) {
            match steps.iter_mut().find(|step| step.place == piece.place) {
                Some(step) => step.components.push(piece.component),
                None => steps.push(alone(piece)),
            }
        }
        // What is left of a node that was begun comes first.
        steps.sort_by_key(|step| step.components.contains(&Component::KubeApiserver));
        for step in &mut steps {
            if late.iter().any(|piece| piece.place == step.place && piece.of_kubelet) {
                step.components.push(Component::Kubelet);
            }
        }
        steps.extend(late.iter().filter(|piece| !piece.beside_server).map(alone));
        steps
    }

    /// Says which kubelets would move with the control plane of their node, and are not the upgrade's to move.
    fn kubelets_stay(&mut self, steps: &[Step]) {
        let takes_part = |place: &Arc<str>| {
            let mut here = self.input.members.iter().filter(|member| member.node.name == *place);
            here.any(|Member { node, .. }| !node.held && !CordonMark::is_foreign(node))
        };
        let together = steps.iter().filter(|step| step.components.contains(&Component::Kubelet));
        let stay: Vec<_> = together.map(|step| &step.place).filter(|place| !takes_part(place)).collect();
        if stay.is_empty() || self.findings.iter().any(|finding| finding.id.code == FindingCode::KubeletStays)
        {
            return;
        }
        let what = "one service runs the control plane and the kubelet of these nodes, and no node group selects them, or \
                    a person holds or cordoned them";
        let remedy = "select them in a node group, and remove the hold or the cordon when they may move";
        self.findings.push(
            PlanFinding::new(FindingCode::KubeletStays, Weight::Blocks, what).remedy(remedy).about(stay),
        );
    }

    /// Says which of `steps` a Job could not make: its pod runs on the Node that it upgrades, and there is none.
    fn jobs_need_nodes(&mut self, steps: &[Step]) {
        let upgrade = self.input.upgrade;
        let plane = &upgrade.control_plane;
        let names = std::iter::once(&plane.executor).chain(&plane.first_executor);
        let mut jobs =
            names.filter(|name| matches!(upgrade.executors.get(*name), Some(Executor::Job { .. })));
        let Some(name) = jobs.next() else { return };
        let moves = |piece: &&PlanePiece| steps.iter().any(|step| step.place == piece.place);
        let hosts: Vec<_> = self
            .start
            .pieces
            .iter()
            .filter(|piece| !piece.has_node)
            .filter(moves)
            .map(|piece| &piece.place)
            .collect();
        if hosts.is_empty() || self.findings.iter().any(|finding| finding.id.code == FindingCode::JobNowhere)
        {
            return;
        }
        let what = format!(
            "executor {name} makes Jobs, each of which runs on the Node that it upgrades, and no Node is visible for \
             these hosts of the control plane"
        );
        let remedy =
            "name executors of the kind external for the control plane, and move these hosts yourself";
        self.findings.push(
            PlanFinding::new(FindingCode::JobNowhere.of(name), Weight::Blocks, what)
                .remedy(remedy)
                .about(hosts),
        );
    }

    /// Says that a hop to `version`, which no person named, leads to no build of what the kube-apiservers are: an executor
    /// could not install it. `newest` is their newest minor.
    fn names_a_build(&mut self, version: &KubeVersion, newest: Minor) {
        let (minor, target) = (version.minor(), &self.input.upgrade.version);
        let named = self.input.upgrade.via.iter().chain([target]).any(|named| named.minor() == minor);
        if named || minor <= newest || version.is_any_of_its_minor() || version.is_build() {
            return;
        }
        let Some(server) = self.start.servers().find(|server| server.version.is_build()) else { return };
        let what = format!(
            "kube-apiservers run {}, and {version}, the newest release of {minor} that is known, names no build of it",
            server.version
        );
        let such = server.version.distribution().map(|(_, build)| format!(", such as {version}{build}"));
        let remedy = format!("name it in spec.via (--via){}", such.unwrap_or_default());
        self.findings
            .push(PlanFinding::new(FindingCode::NoRelease, Weight::Blocks, what).remedy(remedy).at(minor));
    }

    /// Says which Jobs would have to install `version`, where that is only a minor. `steps`: the hop moves something of the
    /// control plane. `nodes`: it moves kubelets.
    fn jobs_need_releases(&mut self, version: &KubeVersion, steps: bool, nodes: bool) {
        let upgrade = self.input.upgrade;
        if !version.is_any_of_its_minor() {
            return;
        }
        let plane = &upgrade.control_plane;
        let of_plane = std::iter::once(&plane.executor).chain(&plane.first_executor).filter(|_| steps);
        let members = |at: usize| self.input.members.iter().any(|member| member.group == at);
        let groups = upgrade.groups.iter().enumerate().filter(|(at, _)| nodes && members(*at));
        for name in of_plane.chain(groups.map(|(_, group)| &group.executor)) {
            let id = FindingCode::JobNeedsRelease.of(name);
            let job = matches!(upgrade.executors.get(name), Some(Executor::Job { .. }));
            if !job || self.findings.iter().any(|finding| finding.id == id) {
                continue;
            }
            let what = format!(
                "executor {name} makes Jobs, each of which installs one release, and {version} may be any release of its \
                 minor"
            );
            let field = if version.minor() == upgrade.version.minor() {
                "spec.version (--to)"
            } else {
                "spec.via (--via)"
            };
            let remedy = format!(
                "name the release in {field}, such as {version}.1, or an executor of the kind external"
            );
            self.findings.push(PlanFinding::new(id, Weight::Blocks, what).remedy(remedy).at(version.minor()));
        }
    }

    /// What others have to have moved before the kube-apiservers go to `minor`.
    fn needs(&self, minor: Minor) -> Vec<Need> {
        let servers = Servers::from(Effective::plain(minor));
        let need = |component: Component, oldest: Option<&Minor>| {
            let least = self.input.policy.least(RuleSubject::Component(component), servers);
            oldest.filter(|oldest| **oldest < least).map(|_| Need { component, least })
        };
        let still = need(Component::Kubelet, self.start.still.keys().next());
        let proxy = need(Component::KubeProxy, self.start.proxies.keys().next());
        let cloud = need(Component::CloudControllerManager, self.start.clouds.keys().next());
        still.into_iter().chain(proxy).chain(cloud).collect()
    }

    /// Says what the hop to `minor` meets. `begun`: an earlier hop of this plan moves kube-apiservers.
    fn look_ahead(&mut self, minor: Minor, needs: &[Need], begun: bool, now: &[PlanePiece]) {
        let weight = if begun { Weight::Stops } else { Weight::Blocks };
        for need in needs {
            let (code, all, who) = match need.component {
                Component::Kubelet => {
                    (FindingCode::KubeletTooOld, &self.start.still, "nodes that this plan does not move")
                }
                Component::CloudControllerManager => {
                    (FindingCode::CloudTooOld, &self.start.clouds, "cloud-controller-managers")
                }
                _ => (FindingCode::ProxyTooOld, &self.start.proxies, "kube-proxies"),
            };
            let old: Vec<_> = all.range(..need.least).flat_map(|(_, names)| names).collect();
            let what = format!(
                "{who} would be too old for kube-apiservers of {minor}: they must be {} or newer",
                need.least
            );
            let remedy = match need.component {
                Component::Kubelet => "let the upgrade move them, or move them yourself before that hop",
                Component::CloudControllerManager => "move them before that hop, as their makers say",
                _ => "move the DaemonSet kube-proxy before that hop; kubeadm does with the control plane",
            };
            self.findings.push(PlanFinding::new(code, weight, what).remedy(remedy).at(minor).about(old));
        }
        before_minor(self.input, self.start, minor, self.findings);
        self.units(minor, now);
    }

    /// Whether the control-plane nodes can go to `minor` one by one, each as a whole.
    fn units(&mut self, minor: Minor, now: &[PlanePiece]) {
        if self.input.upgrade.control_plane.unit == Unit::Component {
            return;
        }
        let alone: Vec<_> = now
            .iter()
            .filter(|piece| is_server(piece) && !piece.beside_server)
            .map(|piece| &piece.place)
            .collect();
        if !alone.is_empty() {
            let what =
                "no Node is visible for these kube-apiservers, so that they cannot move with their node";
            let finding = PlanFinding::new(FindingCode::NoNode, Weight::Blocks, what);
            self.findings.push(finding.remedy("set controlPlane.unit to Component").about(alone));
        }
        if now.iter().filter(|piece| is_server(piece)).count() > 1 {
            self.controllers_go_ahead(minor, now);
        }
    }

    /// Where a node's control plane moves at once, its controllers are newer for a while than the kube-apiservers of the nodes
    /// that follow. The policy allows that to those that talk to the kube-apiserver of their own node alone.
    fn controllers_go_ahead(&mut self, minor: Minor, now: &[PlanePiece]) {
        let behind = |piece: &&PlanePiece| {
            piece.beside_server && piece.component.is_controller() && piece.version.minor() < minor
        };
        let (any, own): (Vec<_>, Vec<_>) =
            now.iter().filter(behind).partition(|piece| piece.reach == Reach::Any);
        let places =
            |of: Vec<&PlanePiece>| of.into_iter().map(|piece| piece.place.clone()).collect::<Vec<_>>();
        if !own.is_empty() {
            let what = "until the last of these nodes is done, the controllers of the first ones are newer than the \
                        kube-apiservers of the others, which the policy allows: each talks to that of its own node";
            let remedy = "expect it for minutes: the report calls them Transitional, and nothing is violated";
            self.findings.push(
                PlanFinding::new(FindingCode::ControllersAhead, Weight::Warns, what)
                    .remedy(remedy)
                    .about(&places(own)),
            );
        }
        let any = places(any);
        if !any.is_empty() {
            let what = "controllers of these nodes may talk to any kube-apiserver, and would be newer than the oldest \
                        while the nodes go one by one";
            let remedy = "point their kubeconfig at the kube-apiserver of their own node, as kubeadm does, or set \
                          controlPlane.unit to Component";
            self.findings.push(
                PlanFinding::new(FindingCode::ControllersOfAny, Weight::Blocks, what)
                    .remedy(remedy)
                    .at(minor)
                    .about(&any),
            );
        }
    }
}

fn is_server(piece: &PlanePiece) -> bool {
    piece.component == Component::KubeApiserver
}
