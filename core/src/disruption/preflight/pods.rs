//! Pods and nodes that would hold up a drain, whatever their budgets say (B1 to B24).
//!
//! Here belongs what follows from a pod, its node and what stands around them. Pods of one controller share a cause,
//! so that a thousand replicas are one line. Which nodes a replacement may run on is asked of [`super::placement`], and
//! whether they have room for it of [`super::capacity`].

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::class::{Class, Handling, Rules, class, handling, pinned};
use super::capacity::FreeCapacity;
use super::cause::{Cause, CauseObject, ObjectKind, Outlook};
use super::causes_found::{CausesFound, others};
use super::code::Code;
use super::placement::{Placements, Seeking, Unfit};
use super::question::Question;
use crate::cluster::{Cluster, HostPort, Node, Phase, Placement, Pod, Traits};
use crate::text::plural;

/// A pod is called stuck this long after its grace period.
const STUCK_AFTER_SECONDS: i64 = 30;

pub(super) fn causes(question: &Question<'_>) -> Vec<Cause> {
    let mut found = CausesFound::default();
    let left = FreeCapacity::of(question);
    let places = Placements::of(question);
    for node in &question.nodes {
        found.node(question, node);
        if let Some(left) = &left {
            left.judge(question, &places, node, &mut found);
        }
        // Once for a node: it is as long as the cluster.
        let elsewhere: Vec<&Node> = others(question, node).collect();
        for pod in question.cluster.pods_on(&node.name) {
            found.pod(question, &places, &elsewhere, pod);
        }
    }
    found.webhooks(question);
    let with_pods = found.0.into_iter().map(|((code, outlook, object), (what, remedy, pods))| {
        Cause::new(code, outlook, object, what, remedy).of(&pods)
    });
    with_pods
        .map(|mut cause| {
            if cause.object.kind == ObjectKind::Node {
                cause.nodes = vec![Arc::clone(&cause.object.name)];
            }
            cause
        })
        .collect()
}

/// Whether a pod of `node` would have to find another place, when the node is drained.
fn has_to_move(question: &Question<'_>, node: &Node) -> bool {
    let Question { cluster, rules, now, .. } = *question;
    cluster.pods_on(&node.name).any(|pod| {
        let class = class(pod, rules, cluster.surroundings(), now);
        class != Class::Finished && handling(pod, class, rules) != Handling::Leave
    })
}

impl<'a> CausesFound<'a> {
    fn node(&mut self, question: &Question<'_>, node: &Node) {
        let object = || CauseObject::node(&node.name);
        let has_to_move = has_to_move(question, node);
        if !node.ready && has_to_move {
            self.put(
                Code::NodeNotReady,
                Outlook::NotNow,
                object(),
                "is not ready: its kubelet confirms no pod's end, so the drain never ends".to_owned(),
                "mend the node; if it is verified to be off, taint it node.kubernetes.io/out-of-service",
            );
        }
        if node.unschedulable && node.cordoned_by.is_none() {
            self.put(
                Code::NodeTaken,
                Outlook::Caution,
                object(),
                "is cordoned already, by somebody else".to_owned(),
                "ask who works on it; its cordon is not taken off after the drain",
            );
        }
        if node.held {
            self.put(
                Code::NodeTaken,
                Outlook::Caution,
                object(),
                "is held by annotation evenkeel.dev/hold".to_owned(),
                "ask who holds it",
            );
        }
        if others(question, node).next().is_none() && has_to_move {
            self.only_node(question, node);
        }
    }

    /// Adds B23: for now, where another node would be there if its kubelet was, or without its cordon.
    fn only_node(&mut self, question: &Question<'_>, node: &Node) {
        let object = CauseObject::node(&node.name);
        let others = question.cluster.nodes().iter().filter(|other| other.name != node.name);
        // One that comes back by itself is told before one whose cordon somebody has to take off.
        let (outlook, what, remedy) = match others.min_by_key(|other| (other.unschedulable, !other.ready)) {
            Some(other) if !other.unschedulable => (
                Outlook::NotNow,
                format!(
                    "no other schedulable node is ready: its pods have nowhere to go before {} is",
                    other.name
                ),
                "wait for that node, or add one first",
            ),
            Some(other) => (
                Outlook::NotNow,
                format!(
                    "every other node is cordoned: its pods have nowhere to go before {} is schedulable again",
                    other.name
                ),
                "uncordon that node, or add one first",
            ),
            None => (
                Outlook::Never,
                "is the only node: its pods have nowhere to go".to_owned(),
                "add a node first",
            ),
        };
        self.put(Code::OnlyNode, outlook, object, what, remedy);
    }

    fn pod(&mut self, question: &Question<'a>, places: &Placements<'a>, elsewhere: &[&Node], pod: &'a Pod) {
        let (surroundings, rules) = (question.cluster.surroundings(), question.rules);
        let class = class(pod, rules, surroundings, question.now);
        let handling = handling(pod, class, rules);
        let refused = matches!(handling, Handling::Refuse(_));
        if let Some(since) = pod.deleting() {
            let late = question.now.duration_since(since).as_secs() > STUCK_AFTER_SECONDS;
            if late && class == Class::Terminating {
                let what = format!("should have terminated by {since} and is still there");
                self.add(
                    Code::Stuck,
                    Outlook::NotNow,
                    pod,
                    what,
                    "see whether its node's kubelet and its volumes' driver work",
                );
            }
            self.finalizers(pod);
            return;
        }
        if class == Class::WaitCompleted {
            let what = "is not evicted: the drain waits until it has completed";
            self.add(Code::Completes, Outlook::Caution, pod, what, "see that it comes to its end, or end it");
        }
        if !refused && handling != Handling::Evict {
            return;
        }
        let traits = pod.traits();
        self.controller(pod, class, refused, rules.is_of_upgrade());
        if class == Class::Finished {
            return;
        }
        self.local_data(pod, rules);
        if pinned(pod, surroundings) {
            let (code, why) = if traits.hosts.len() == 1 {
                (Code::NoOtherNode, "its node selector or affinity")
            } else {
                (Code::TiedByVolume, "its volume")
            };
            let what = format!("can run on this node only, by {why}: it is away until the node is back");
            self.add(code, Outlook::Caution, pod, what, "drain the nodes of such pods one after the other");
        }
        if traits.tolerates_cordon {
            let what = "tolerates node.kubernetes.io/unschedulable: a cordon does not keep it away";
            self.add(Code::ToleratesCordon, Outlook::Caution, pod, what, "take that toleration away");
        }
        self.places(question, places, elsewhere, pod);
        self.finalizers(pod);
        let timeout = question.timeout.map(|timeout| timeout.as_secs());
        let grace = traits.grace.unwrap_or(Traits::USUAL_GRACE);
        if let Some(timeout) = timeout.filter(|timeout| grace > *timeout) {
            let what = format!("may take {grace} s to terminate, and the drain is given {timeout} s");
            self.add(Code::LongGrace, Outlook::NotNow, pod, what, "give the drain more time");
        }
        if surroundings.terminating.iter().flatten().any(|namespace| *namespace == pod.namespace) {
            let what = "its namespace is being deleted: it is not evicted, and goes with it";
            self.add(
                Code::NamespaceEnds,
                Outlook::NotNow,
                pod,
                what,
                "wait for the namespace to go, or see what keeps it",
            );
        }
        self.preferences(question, pod);
    }

    /// Adds what becomes of data that lies on the pod's node (B2).
    fn local_data(&mut self, pod: &'a Pod, rules: &Rules) {
        if pod.empty_dir {
            let outlook = if rules.refuse_empty_dir { Outlook::Never } else { Outlook::Caution };
            let remedy = if outlook == Outlook::Never && rules.is_of_upgrade() {
                "allow it with spec.drain.emptyDir: Evict, or use a PersistentVolume"
            } else {
                "make sure that nobody needs it, or use a PersistentVolume"
            };
            self.add(
                Code::LocalData,
                outlook,
                pod,
                "has an emptyDir, whose data an eviction destroys",
                remedy,
            );
        } else if pod.traits().host_path {
            self.add(
                Code::LocalData,
                Outlook::Caution,
                pod,
                "mounts a directory of its node, whose data stays there",
                "",
            );
        }
    }

    /// Adds B1 where nothing would bring the pod back, and where its `DaemonSet` would.
    fn controller(&mut self, pod: &'a Pod, class: Class, refused: bool, of_upgrade: bool) {
        if class == Class::Bare {
            let (outlook, remedy) = if refused {
                let flag = "move it by hand, or allow it with --force";
                let field = "move it by hand, or allow it with spec.drain.barePods: Evict";
                (Outlook::Never, if of_upgrade { field } else { flag })
            } else {
                (Outlook::Caution, "nothing makes it again")
            };
            self.add(Code::Owner, outlook, pod, "has no controller that would bring it back", remedy);
        } else if class == Class::DaemonSet {
            let remedy = "leave it with --ignore-daemonsets";
            self.add(Code::Owner, Outlook::Never, pod, "is managed by a DaemonSet", remedy);
        }
    }

    /// Adds what the pod's owner asked of other tools, or should know (B17 to B20).
    fn preferences(&mut self, question: &Question<'a>, pod: &'a Pod) {
        let traits = pod.traits();
        for opt_out in &traits.opt_outs {
            let what = format!("{opt_out} asks other tools to leave it alone; a drain does not");
            self.add(Code::OptOut, Outlook::Caution, pod, what, "ask its owner");
        }
        if traits.gang {
            let what = "belongs to a group that is scheduled together: evicting one may end all";
            self.add(Code::Gang, Outlook::Caution, pod, what, "ask its owner");
        }
        if traits.responders {
            let what = "names eviction responders, which a direct eviction does not ask";
            self.add(Code::Responders, Outlook::Caution, pod, what, "ask its owner");
        }
        let owner = pod.owner.as_ref().filter(|owner| owner.kind.as_ref() == "Job");
        let job = owner.and_then(|owner| question.cluster.surroundings().workload(&pod.namespace, owner));
        if job.is_some_and(|job| !job.ignores_disruption) {
            let what = "its eviction counts as a failure of the Job (backoffLimit)";
            let remedy = "give the Job a podFailurePolicy that ignores DisruptionTarget";
            self.add(Code::JobFailure, Outlook::Caution, pod, what, remedy);
        }
    }

    fn finalizers(&mut self, pod: &'a Pod) {
        if let Some(first) = pod.traits().finalizers.first() {
            let what = format!("has finalizer {first}: it stays until that is taken off");
            self.add(Code::Finalizer, Outlook::NotNow, pod, what, "see that whoever set it works");
        }
    }

    /// Adds why a replacement may find no place: quotas, placement, ports and devices (B4, B6 to B8, B10).
    fn places(
        &mut self,
        question: &Question<'a>,
        places: &Placements<'a>,
        elsewhere: &[&Node],
        pod: &'a Pod,
    ) {
        let cluster = question.cluster;
        let traits = pod.traits();
        if let Some(quota) =
            cluster.surroundings().full_quotas.iter().flatten().find(|quota| quota.namespace == pod.namespace)
        {
            let what = format!(
                "quota {} is used up ({}), and a terminating pod still counts",
                quota.name, quota.what
            );
            self.add(Code::QuotaFull, Outlook::NotNow, pod, what, "raise the quota by one pod");
        }
        // Of a pod that is pinned to its node, or for which there is no other node, this is told already.
        let told = pinned(pod, cluster.surroundings()) || elsewhere.is_empty();
        let seeking = places.seek(pod);
        let closed = !told && self.closed(&seeking, elsewhere, pod);
        // Where placements were not read, the number of replicas decides.
        if !closed && traits.alone_on_host && cluster.surroundings().placements.is_none() {
            let of_kind = |other: &&Pod| {
                other.namespace == pod.namespace && other.owner == pod.owner && other.phase != Phase::Finished
            };
            let replicas = cluster.pods().filter(of_kind).count();
            if replicas > elsewhere.len() {
                let what = format!(
                    "no two of its {} may share a node, and {} others are schedulable",
                    plural(replicas, "replica"),
                    elsewhere.len()
                );
                let remedy = "add a node, or make the anti-affinity a preference";
                self.add(Code::KeptApart, Outlook::NotNow, pod, what, remedy);
            }
        }
        if traits.spread_counts_cordoned && question.nodes.len() > 1 {
            let what = "its topologySpreadConstraints count cordoned nodes as places: with several cordoned its \
                        replacement may find none";
            self.add(
                Code::SpreadOverCordoned,
                Outlook::Caution,
                pod,
                what,
                "set nodeTaintsPolicy: Honor, or drain one node at a time",
            );
        }
        if !told && !closed {
            self.ports(cluster, &seeking, elsewhere, pod);
        }
        if traits.device_claims {
            let what = "has devices of its node by ResourceClaims: its replacement needs free ones elsewhere that match, \
                        which are not looked for";
            self.add(
                Code::PortOrDevice,
                Outlook::Caution,
                pod,
                what,
                "compare kubectl get resourceclaims,resourceslices",
            );
        }
    }

    /// Adds B8 where each of the nodes that may take `pod`, of which there is one at least, has a port of it taken.
    fn ports(&mut self, cluster: &Cluster, seeking: &Seeking<'_, '_>, elsewhere: &[&Node], pod: &'a Pod) {
        let wanted = &pod.traits().host_ports;
        if wanted.is_empty() {
            return;
        }
        let is_taken = |port: &HostPort, node: &Node| {
            let there = cluster.pods_on(&node.name).filter(|other| other.phase != Phase::Finished);
            there.flat_map(|other| &other.traits().host_ports).any(|taken| taken.collides(port))
        };
        let open = || elsewhere.iter().filter(|other| seeking.unfit(other).is_none());
        let each = wanted.iter().find(|port| open().all(|other| is_taken(port, other)));
        let what = match each {
            Some(port) => format!("needs port {} of its node, which is taken on every other", port.port),
            None if open().all(|other| wanted.iter().any(|port| is_taken(port, other))) => {
                let ports: Vec<String> = wanted.iter().map(|port| port.port.to_string()).collect();
                format!(
                    "needs ports {} of its node, and one of them is taken on every other",
                    ports.join(", ")
                )
            }
            None => return,
        };
        let which = if open().count() < elsewhere.len() { " that it may go to" } else { "" };
        self.add(Code::PortOrDevice, Outlook::NotNow, pod, what + which, "add a node, or give up the port");
    }

    /// Whether its selector, its affinity or other pods keep it from every other node; adds B4 or B6 where they do.
    fn closed(&mut self, seeking: &Seeking<'_, '_>, elsewhere: &[&Node], pod: &'a Pod) -> bool {
        let unfit: Vec<Unfit> = elsewhere.iter().map_while(|other| seeking.unfit(other)).collect();
        if unfit.len() < elsewhere.len() {
            return false;
        }
        let kept_apart = unfit.iter().filter(|unfit| **unfit == Unfit::KeptApart).count();
        let rule = seeking.rule.filter(|rule| rule.chooses());
        let shown = rule.map(Placement::shown).unwrap_or_default();
        if kept_apart == 0 {
            let what = format!("its {shown} allows no other schedulable node");
            self.add(
                Code::NoOtherNode,
                Outlook::NotNow,
                pod,
                what,
                "add a node that it allows, or let it allow more",
            );
        } else {
            let allowed = if rule.is_some() { format!(" that its {shown} allows") } else { String::new() };
            let what = format!(
                "by anti-affinity it may not go to the {}{allowed}: pods that it must not be near are there",
                plural(kept_apart, "other schedulable node")
            );
            let remedy = "add a node, or make the anti-affinity a preference";
            self.add(Code::KeptApart, Outlook::NotNow, pod, what, remedy);
        }
        true
    }

    fn webhooks(&mut self, question: &Question<'_>) {
        let none: Arc<str> = "".into();
        for webhook in question.cluster.surroundings().pod_webhooks.iter().flatten() {
            let object = CauseObject::new(ObjectKind::Webhook, &none, &webhook.name);
            if webhook.evictions {
                self.put(
                    Code::EvictionWebhook,
                    Outlook::Caution,
                    object.clone(),
                    "is asked about every eviction and fails closed: when it is down nothing is evicted"
                        .to_owned(),
                    "let it fail open (failurePolicy: Ignore), or run it twice",
                );
            }
            let (true, Some(endpoints)) = (webhook.creation, &webhook.endpoints) else { continue };
            let places: BTreeSet<&Arc<str>> = endpoints.iter().collect();
            let goes = |node: &&Arc<str>| question.nodes.iter().any(|drained| drained.name == **node);
            // One that is on more nodes than go together keeps an endpoint.
            if places.len() > question.at_once || !places.iter().all(goes) {
                continue;
            }
            let where_ready = match places.len() {
                0 => "no ready endpoint: no pod can be created".to_owned(),
                nodes => format!(
                    "ready endpoints on {} only, which would be drained: its own replacement could not be created",
                    plural(nodes, "node")
                ),
            };
            self.put(
                Code::CreationWebhook,
                Outlook::NotNow,
                object,
                format!("is asked about every pod that is created, fails closed, and has {where_ready}"),
                "run it on other nodes too, or let it fail open",
            );
        }
    }
}
