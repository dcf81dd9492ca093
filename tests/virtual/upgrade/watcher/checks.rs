//! The invariants, each where a write of ours could break it.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_sim::Write;

use super::turns::is_at;
use super::{ASKED_EVERY, Claim, Node, Pod, Watcher, selects, version};

/// How far a kubelet may be behind an apiserver, and a controller behind one.
const KUBELET_BEHIND: u64 = 3;
const CONTROLLER_BEHIND: u64 = 1;
/// A controller that was replaced waits this long for the lease of the one before it, at least.
const CONTROLLERS_BEGIN: Duration = Duration::from_secs(10);
/// The static pods of a node are all back by then after its kubelet was replaced.
const STATIC_PODS_RESTART: Duration = Duration::from_secs(25);
/// A scheduler knows of a cordon by then, and what it had bound before is there.
const BOUND_LATE: Duration = Duration::from_secs(4);

/// Whether a pod stays on its node while an executor works there.
fn stays(key: &str, pod: &Pod) -> bool {
    pod.of_daemon_set || key.starts_with("kube-system/") || key.starts_with("evenkeel-executors/")
}

impl Watcher {
    /// 10: whoever lost the lease changes nothing that matters.
    pub(super) fn led(&mut self, write: &Write<'_>) {
        let replica = write.author().trim_start_matches("evenkeel-").to_owned();
        if !self.leader.is_empty() && !self.leader.starts_with(&replica) && self.late.is_none() {
            let (what, leader) = (write.name().to_owned(), self.leader.clone());
            self.fault(10, format!("writes {} {what} while {leader} leads", write.resource()));
        }
    }

    /// The minors of the apiservers, lowest and highest.
    fn servers(&self) -> Option<(u64, u64)> {
        let servers = self.instances.iter().filter(|((_, component), _)| component == "kube-apiserver");
        let minors = servers.filter_map(|(_, instance)| Some(version(&instance.version)?.0));
        minors.fold(None, |found: Option<(u64, u64)>, minor| {
            Some(found.map_or((minor, minor), |(low, high)| (low.min(minor), high.max(minor))))
        })
    }

    /// 1: what is begun here ends in a pair that the skew policy allows, at every moment until then.
    fn keeps_skew(&mut self, claim: &Claim) {
        let Some((target, _)) = version(&claim.to) else {
            return self.fault(1, format!("{} is taken to {:?}", claim.component, claim.to));
        };
        let Some((oldest, newest)) = self.servers() else { return };
        for component in claim.moves.clone() {
            self.keeps_skew_of(claim, &component, target, (oldest, newest));
        }
    }

    fn keeps_skew_of(&mut self, claim: &Claim, component: &str, target: u64, (oldest, newest): (u64, u64)) {
        let node = &claim.node;
        let what = format!("{component} on {node} goes to {}", claim.to);
        if component == "kube-apiserver" {
            let now = self.instances.get(&(node.clone(), component.to_owned())).cloned();
            let (low, high) = (oldest.min(target), newest.max(target));
            if high - low > 1 {
                self.fault(1, format!("{what}, and kube-apiservers would be v1.{low} to v1.{high}"));
            }
            if now.and_then(|now| version(&now.version)).is_some_and(|(minor, _)| minor > target) {
                self.fault(1, format!("{what}, which is back"));
            }
            let kubelets =
                self.nodes.iter().filter_map(|(name, node)| Some((name, version(&node.kubelet)?.0)));
            let mut bad = kubelets.filter(|(_, minor)| *minor + KUBELET_BEHIND < target);
            if let Some((name, minor)) = bad.next() {
                let line = format!("{what}, and the kubelet of {name} is at v1.{minor}");
                self.fault(1, line);
            }
            let controllers =
                self.instances.iter().filter(|((_, component), _)| component != "kube-apiserver");
            let bad = controllers
                .filter_map(|((node, component), of)| Some((node, component, version(&of.version)?.0)))
                .find(|(.., minor)| *minor + CONTROLLER_BEHIND < target);
            if let Some((node, of, minor)) = bad {
                let line = format!("{what}, and {of} on {node} is at v1.{minor}");
                self.fault(1, line);
            }
            return;
        }
        // kubeadm's controllers talk to the kube-apiserver beside them, and it moves before them.
        let oldest =
            if claim.of_plane { self.server_beside(claim, target).unwrap_or(oldest) } else { oldest };
        if target > oldest {
            self.fault(1, format!("{what}, and a kube-apiserver is at v1.{oldest}"));
        }
        let behind = if component == "kubelet" { KUBELET_BEHIND } else { CONTROLLER_BEHIND };
        if target + behind < newest {
            self.fault(1, format!("{what}, and a kube-apiserver is at v1.{newest}"));
        }
    }

    /// 2: no kubelet work before the whole control plane is there, at the hop's minor.
    fn plane_is_ready(&mut self, claim: &Claim, does: &str) {
        let Some((target, _)) = version(&claim.to) else { return };
        let mut bad = Vec::new();
        for ((node, component), instance) in &self.instances {
            if self.is_answered_for(claim, node, component) {
                continue;
            }
            if self.is_hidden(node, component) {
                bad.push(format!("nobody answers for {component} on {node}"));
            }
            let behind = version(&instance.version).is_none_or(|(minor, _)| minor < target);
            // Who is down is seen; who is another without having been away is asked for now and then.
            let old = self.knows_instance(node, component, instance.since)
                && (!instance.runs || instance.since.elapsed() > ASKED_EVERY);
            if behind && old {
                bad.push(format!("{component} on {node} is at {}", instance.version));
            } else if !instance.runs && self.knows_instance(node, component, instance.since) {
                bad.push(format!("{component} on {node} is away"));
            }
        }
        for (name, other) in &self.claims {
            if other.upgrade == claim.upgrade && !other.of_kubelet() && other.state != "Upgraded" {
                bad.push(format!("claim {name} is {}", other.state));
            }
        }
        if let Some(first) = bad.first() {
            self.fault(2, format!("{does} {} while {first} ({} such)", claim.node, bad.len()));
        }
    }

    /// 2: nobody asks pods to leave before the controllers that were replaced last have taken up their work.
    fn controllers_work(&mut self, claim: &Claim) {
        let lately = self.instances.iter().find(|((node, component), instance)| {
            component != "kube-apiserver"
                && !self.is_answered_for(claim, node, component)
                && instance.version_since.is_some_and(|since| since.elapsed() < CONTROLLERS_BEGIN)
        });
        if let Some(((node, component), _)) = lately.filter(|_| !self.clocks_jump) {
            let line = format!("claims {} while {component} on {node} has only just begun", claim.node);
            self.fault(2, line);
        }
    }

    /// 5: a kubelet of the control plane that was replaced restarts its static pods soon after, and no other node of the
    /// control plane is out by then.
    pub(super) fn goes_away(&mut self, node: &str, component: &str) {
        self.one_at_a_time(node, component);
        let replaced = self.nodes.get(node).filter(|node| node.kubelet_is_another);
        let soon = replaced.is_some_and(|node| node.kubelet_since.elapsed() < STATIC_PODS_RESTART);
        let of_plane = |(name, other): &(&String, &Node)| {
            *name != node && other.is_control_plane && other.cordoned && !other.theirs
        };
        let out = self.nodes.iter().find(of_plane).map(|(name, _)| name.clone());
        if let Some(out) = out.filter(|_| soon && !self.clocks_jump) {
            self.fault(5, format!("{out} is out while {component} on {node} restarts after its kubelet"));
        }
    }

    /// 13: nothing new after a person suspended it, and nothing by another plan than the one that was approved.
    pub(super) fn is_wanted(&mut self, claim: &Claim, does: &str) {
        let since = self.upgrades.get(&claim.upgrade).and_then(|upgrade| upgrade.suspended_since);
        if since.is_some_and(|since| self.knows_upgrade(&claim.upgrade, since)) {
            self.fault(13, format!("{does} {} although {} is suspended", claim.node, claim.upgrade));
        }
        let since = self.upgrades.get(&claim.upgrade).and_then(|upgrade| upgrade.unapproved_since);
        if since.is_some_and(|since| self.knows_upgrade(&claim.upgrade, since)) {
            self.fault(13, format!("{does} {} although the plan as it is is not approved", claim.node));
        }
        self.is_approved(claim, does);
    }

    /// 8: the node is still the one that was claimed.
    pub(super) fn is_the_same(&mut self, claim: &Claim, does: &str) {
        let there = self.nodes.get(&claim.node).map(|node| node.uid.clone());
        if there.as_deref().is_some_and(|uid| uid != claim.node_uid) {
            self.fault(8, format!("{does} {}, which is another node than the claim's", claim.node));
        }
    }

    pub(super) fn cordons(&mut self, name: &str, before: &Node, after: &Node) {
        let Some((claim, uid)) = after.marked_by().map(|(claim, uid)| (claim.to_owned(), uid.to_owned()))
        else {
            return self.fault(6, format!("cordons {name} without its mark"));
        };
        let Some(claim) = self.claims.get(&claim).filter(|of| of.uid == uid && of.node == name).cloned()
        else {
            return self.fault(6, format!("cordons {name} for claim {claim}, which is not recorded"));
        };
        if claim.node_uid != after.uid {
            self.fault(8, format!("cordons {name}, which is another node than the claim's"));
        }
        self.is_wanted(&claim, "cordons");
        self.may_begin(&claim, "cordons");
        self.plane_is_ready(&claim, "cordons");
        self.within_budget(name, before, &claim);
        if !self.upgrades.get(&claim.upgrade).is_some_and(|upgrade| upgrade.only_cordons(&claim)) {
            self.crosses(name);
        }
    }

    /// 12: two nodes whose pods are tied to them, under budgets that do not let all of those go at once, do not wait for
    /// each other. The pods that are tied have the label `vault`, and so have their budgets.
    fn crosses(&mut self, name: &str) {
        let held = |node: &str| {
            self.nodes.get(node).is_some_and(|node| node.cordoned && !node.theirs && node.mark.is_some())
        };
        let mut bad = Vec::new();
        for (budget, of) in self.budgets.iter().filter(|(_, of)| of.labels.contains_key("vault")) {
            let pods = self.pods.values().filter(|pod| selects(&of.labels, &pod.labels));
            let pods: Vec<&Pod> = pods.collect();
            let there = |node: &str| pods.iter().filter(|pod| pod.node == node && !pod.leaving).count();
            let others: BTreeSet<&str> =
                pods.iter().map(|pod| pod.node.as_str()).filter(|node| *node != name && held(node)).collect();
            let beside: usize = others.iter().map(|node| there(node)).sum();
            let may_go = pods.len() as i64 - of.needs;
            if there(name) > 0 && beside > 0 && (there(name) + beside) as i64 > may_go {
                bad.push(format!("cordons {name} beside {others:?}: both wait for {budget}"));
            }
        }
        for line in bad {
            self.fault(12, line);
        }
    }

    /// 5: nodes that are unavailable because of us stay within the budget of their group; unhealthy ones count, and go
    /// first. Of the control plane's nodes there is one at a time, and all others have to be well.
    fn within_budget(&mut self, name: &str, before: &Node, claim: &Claim) {
        let Some(upgrade) = self.upgrades.get(&claim.upgrade).cloned() else { return };
        let Some(group) = upgrade.group_of(&before.labels).cloned() else {
            return self.fault(5, format!("cordons {name}, which no group selects"));
        };
        let here = |node: &&Node| upgrade.group_of(&node.labels).is_some_and(|of| of.name == group.name);
        let members: Vec<(&String, &Node)> = self.nodes.iter().filter(|(_, node)| here(node)).collect();
        let busy = |name: &str, node: &Node| {
            let mut claims = self.claims.values();
            claims.any(|of| of.of_kubelet() && of.node == name && of.node_uid == node.uid && of.takes_place())
        };
        let limit = group.limit(members.len());
        let out = |(of, node): &&(&String, &Node)| {
            *of == name
                || node.cordoned
                || busy(of, node)
                || !node.ready && self.knows_node(of, node.ready_since)
        };
        let unavailable: Vec<&str> = members.iter().filter(out).map(|(name, _)| name.as_str()).collect();
        let in_flight = members.iter().filter(|(of, node)| busy(of, node)).count();
        let lately = members.iter().any(|(of, node)| node.others.is_some_and(|at| !self.knows_node(of, at)));
        let counted = if before.ready { unavailable.len() } else { in_flight };
        let mut lines = Vec::new();
        if counted > limit && !lately {
            lines.push(format!(
                "cordons {name}: {unavailable:?} of group {} are out, {limit} may be",
                group.name
            ));
        }
        if before.is_control_plane {
            lines.extend(self.job_elsewhere(claim).map(|job| format!("cordons {name} while {job}")));
            let others = self.nodes.iter().filter(|(of, node)| *of != name && node.is_control_plane);
            let bad = others.filter(|(of, node)| busy(of, node) || node.cordoned && !node.theirs);
            lines.extend(bad.map(|(of, _)| format!("cordons {name} while {of} of the control plane is out")));
        }
        for line in lines {
            self.fault(5, line);
        }
    }

    /// 6: only our own cordon is taken off.
    pub(super) fn uncordons(&mut self, name: &str, before: &Node, after: &Node) {
        if before.theirs && before.others.is_none_or(|at| self.knows_node(name, at)) {
            self.fault(6, format!("takes off a cordon of {name} that somebody else set"));
        } else if before.marked_by().is_none() {
            self.fault(6, format!("takes off a cordon of {name} that is not ours"));
        }
        if after.mark.is_some() {
            self.fault(6, format!("leaves its mark on {name}"));
        }
        self.gives_back(name, before);
    }

    /// A claim is recorded.
    pub(super) fn claims_it(&mut self, name: &str, claim: &Claim) {
        let other = self.claims.iter().find(|(other, of)| {
            let both = of.moves.iter().any(|one| claim.moves.contains(one));
            *other != name && both && of.node == claim.node && of.in_flight()
        });
        if let Some((other, _)) = other {
            let line = format!("claims {} with {name} while {other} has it", claim.node);
            self.fault(5, line);
        }
        self.is_wanted(claim, "claims");
        self.is_for_its_executor(name, claim);
        self.may_open(claim, "claims");
        if claim.of_kubelet() {
            self.is_the_same(claim, "claims");
            self.plane_is_ready(claim, "claims");
            self.has_its_turn(claim, "claims");
            self.controllers_work(claim);
            self.controllers_are_back(claim, "claims");
        } else if let Some((other, of)) = self.claims.iter().find(|(other, of)| {
            *other != name && of.upgrade == claim.upgrade && !of.of_kubelet() && of.in_flight()
        }) {
            let line = format!("claims {name} while {other} is {}", of.state);
            self.fault(2, line);
        }
    }

    /// A claim goes from one state to another.
    pub(super) fn goes_on(&mut self, name: &str, before: &Claim, after: &Claim) {
        match after.state.as_str() {
            "Parked" => self.parks(name, before, after),
            "Claimed" => {
                if before.state == "Parked" {
                    self.tries_again(name, before, after);
                }
                self.is_wanted(after, "takes up");
                self.may_open(after, "takes up");
                if after.of_kubelet() {
                    self.has_its_turn(after, "takes up");
                    self.controllers_are_back(after, "takes up");
                }
            }
            "Draining" => {
                self.is_wanted(after, "drains");
                self.is_the_same(after, "drains");
            }
            "Upgrading" => {
                self.is_wanted(after, "upgrades");
                self.keeps_skew(after);
                if after.of_kubelet() {
                    self.is_the_same(after, "upgrades");
                    self.plane_is_ready(after, "upgrades");
                    self.is_empty(name, after);
                } else {
                    self.may_begin(after, "upgrades");
                    self.webhooks_are_ready(after);
                    self.plane_holds(after);
                    self.others_are_done(name, after);
                }
            }
            "Upgraded" => self.is_upgraded(name, before, after),
            _ => {}
        }
    }

    /// 5: a server is taken away only while all other apiservers are there.
    fn plane_holds(&mut self, claim: &Claim) {
        let away = self.instances.iter().find(|((node, component), instance)| {
            component == "kube-apiserver"
                && (*node != claim.node || *component != claim.component)
                && !instance.runs
                && self.knows_instance(node, component, instance.since)
        });
        if let Some(((node, _), _)) = away {
            let line = format!(
                "gives {} on {} away while the kube-apiserver of {node} is away",
                claim.component, claim.node
            );
            self.fault(5, line);
        }
    }

    /// 6: the executor gets a node that is cordoned by its claim, and empty but for what stays.
    fn is_empty(&mut self, name: &str, claim: &Claim) {
        let Some(node) = self.nodes.get(&claim.node).cloned() else { return };
        let lately = node.others.is_some_and(|at| !self.knows_node(&claim.node, at));
        if node.marked_by() != Some((name, claim.uid.as_str())) || !node.cordoned {
            if !lately {
                self.fault(6, format!("upgrades {} without its cordon", claim.node));
            }
            return;
        }
        let upgrade = self.upgrades.get(&claim.upgrade);
        if upgrade.is_some_and(|upgrade| upgrade.only_cordons(claim)) {
            return;
        }
        let exempt = |key: &str, pod: &Pod| {
            let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
            upgrade.is_some_and(|upgrade| upgrade.exempts(namespace, &pod.labels))
        };
        let left = self.pods.iter().find(|(key, pod)| {
            pod.node == claim.node && !stays(key, pod) && !exempt(key, pod) && pod.healthy
        });
        if let Some((key, _)) = left {
            let line = format!("upgrades {} while {key} runs there", claim.node);
            self.fault(3, line);
        }
        let detaches = self.upgrades.get(&claim.upgrade).is_some_and(|of| of.drain["volumes"] == "Detach");
        if detaches && self.attached.values().any(|node| *node == claim.node) {
            self.fault(3, format!("upgrades {} while a volume is attached to it", claim.node));
        }
    }

    /// 3: no executor works on a node to which a scheduler that had not seen the cordon still binds pods: such a pod would
    /// not be asked to leave.
    pub(super) fn arrives(&mut self, key: &str, pod: &Pod) {
        let given =
            |claim: &Claim| claim.of_kubelet() && claim.node == pod.node && claim.state == "Upgrading";
        let late = |node: &Node| node.cordoned && !node.theirs && node.cordoned_since.elapsed() < BOUND_LATE;
        if self.claims.values().any(given) && self.nodes.get(&pod.node).is_some_and(late) && !stays(key, pod)
        {
            self.fault(3, format!("upgrades {} so soon after its cordon that {key} still arrives", pod.node));
        }
    }

    /// 9: "upgraded" is seen, not said.
    fn is_upgraded(&mut self, name: &str, before: &Claim, after: &Claim) {
        let mut bad = Vec::new();
        let at_target = |found: &str| is_at(found, &after.to);
        if after.of_kubelet() {
            let Some(node) = self.nodes.get(&after.node).cloned() else {
                return self.fault(9, format!("{name} is Upgraded, and there is no such node"));
            };
            if node.uid != after.node_uid {
                self.fault(8, format!("{name} is Upgraded, and its node is another one"));
            }
            if !at_target(&node.kubelet) && self.knows_node(&after.node, node.kubelet_since) {
                bad.push(format!("its kubelet is at {}", node.kubelet));
            }
            let was_upgrading = before.state == "Upgrading";
            if !node.ready && self.knows_node(&after.node, node.ready_since) {
                bad.push("its node is not ready".to_owned());
            }
            let daemon = self
                .pods
                .iter()
                .find(|(_, pod)| pod.node == after.node && pod.of_daemon_set && !pod.healthy && !pod.leaving);
            if let Some((key, _)) =
                daemon.filter(|_| was_upgrading && self.knows_node(&after.node, node.ready_since))
            {
                bad.push(format!("{key} is not ready"));
            }
            if was_upgrading {
                bad.extend(self.runs_still(after));
            }
            if node.cordoned && !node.theirs && node.mark.is_some() {
                self.fault(7, format!("{name} is Upgraded, and its node is left cordoned"));
            }
        } else {
            for component in &after.moves {
                let key = (after.node.clone(), component.clone());
                match self.instances.get(&key) {
                    Some(instance) => {
                        let old = self.knows_instance(&after.node, component, instance.since)
                            && instance.since.elapsed() > ASKED_EVERY;
                        if !at_target(&instance.version) && old {
                            bad.push(format!("{component} is at {}", instance.version));
                        }
                        if !instance.runs && self.knows_instance(&after.node, component, instance.since) {
                            bad.push(format!("{component} does not run"));
                        }
                    }
                    None => bad.push(format!("no {component} was ever there")),
                }
            }
            if before.state != "Claimed" {
                bad.extend(self.works_still(after));
            }
            if before.state == "Upgrading" {
                bad.extend(self.runs_still(after));
            }
        }
        for line in bad {
            self.fault(9, format!("{name} is Upgraded, and {line}"));
        }
    }
}
