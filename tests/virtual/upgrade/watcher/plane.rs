//! The invariants of Jobs, and of steps that move the control plane of a node as a whole.

use evenkeel_sim::Write;

use super::turns::is_at;
use super::{Claim, Node, Pod, Watcher, labels, version};

impl Watcher {
    /// Remembers which claims have a Job that is complete, and which have one that has not ended.
    pub(super) fn job_ends(&mut self, write: &Write<'_>) {
        let Some(job) = write.after() else {
            self.working.remove(write.name());
            return;
        };
        let of = labels(&job["metadata"]["labels"]).get("evenkeel.dev/node-upgrade").cloned();
        let says = |kind: &str| {
            let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|of| of["type"] == kind && of["status"] == "True")
        };
        if says("Complete") {
            self.complete.extend(of.clone());
        }
        if says("Complete") || says("Failed") {
            self.working.remove(write.name());
        } else if let Some(of) = of {
            self.working.insert(write.name().to_owned(), of);
        }
    }

    /// Whether a Job of `claim` has not ended.
    fn has_job(&self, claim: &Claim) -> bool {
        self.working.values().any(|of| *of == claim.uid)
    }

    /// A pod of a Job of the claim with this UID that has not ended, as whoever makes another Job has to know.
    pub(super) fn works_besides(&self, claim: &str) -> Option<String> {
        let of_it = |(name, pod): &(&String, &Pod)| {
            let labelled = pod.labels.get("evenkeel.dev/node-upgrade").is_some_and(|of| of == claim);
            let known = pod.made.is_none_or(|made| self.knows_pod(name, made));
            labelled && !pod.finished && known
        };
        self.pods.iter().find(of_it).map(|(name, _)| name.clone())
    }

    /// Why the executor of `claim` is not over: its Job runs.
    pub(super) fn runs_still(&self, claim: &Claim) -> Option<String> {
        self.has_job(claim).then(|| "its Job still runs".to_owned())
    }

    /// 9: a node that an executor was given is not given back before it is seen at the version and ready, and before the Job
    /// has ended that works on it.
    pub(super) fn gives_back(&mut self, name: &str, before: &Node) {
        let mine = before.marked_by().and_then(|(claim, uid)| Some((self.claims.get(claim)?, uid)));
        let touched = |claim: &Claim| matches!(claim.state.as_str(), "Failed" | "Upgrading");
        let works =
            mine.is_some_and(|(claim, uid)| claim.uid == uid && touched(claim) && self.has_job(claim));
        let half = mine.filter(|(claim, uid)| claim.uid == *uid && claim.of_kubelet() && touched(claim));
        let behind = half.is_some_and(|(claim, _)| {
            !is_at(&before.kubelet, &claim.to) && self.knows_node(name, before.kubelet_since)
        });
        let unready = half.is_some() && !before.ready && self.knows_node(name, before.ready_since);
        if works {
            self.fault(9, format!("gives {name} back while its Job still runs"));
        }
        if behind || unready {
            let state = if behind { format!("at {}", before.kubelet) } else { "not ready".to_owned() };
            self.fault(9, format!("gives {name} back, which an executor was given and which is {state}"));
        }
    }

    /// 6 and 9: a node is left cordoned to a person where it may be half upgraded and its claim goes, or the upgrade, and not
    /// before the Job has ended that works on it.
    pub(super) fn hands_over(&mut self, name: &str, before: &Node, after: &Node) {
        let mine = before.marked_by().and_then(|(claim, uid)| Some((self.claims.get(claim)?, uid)));
        let goes =
            |claim: &Claim| claim.leaving || self.upgrades.get(&claim.upgrade).is_none_or(|of| of.leaving);
        let touched = |claim: &Claim| matches!(claim.state.as_str(), "Failed" | "Upgrading");
        let mine = mine.filter(|(claim, uid)| claim.uid == *uid && touched(claim) && goes(claim));
        match mine.filter(|_| after.mark.is_none()) {
            Some((claim, _)) if self.has_job(claim) => {
                self.fault(9, format!("hands {name} over while its Job still runs"));
            }
            Some(_) => {}
            None => {
                let (was, is) = (&before.mark, &after.mark);
                self.fault(6, format!("changes the mark of {name} from {was:?} to {is:?}"));
            }
        }
    }

    /// 9: a claim does not go before the Job has ended that it owns, as long as its Node is there.
    pub(super) fn lets_go(&mut self, name: &str, claim: &Claim) {
        let here = self.nodes.get(&claim.node).is_some_and(|node| node.uid == claim.node_uid);
        if matches!(claim.state.as_str(), "Failed" | "Upgrading") && here && self.has_job(claim) {
            self.fault(9, format!("lets {name} go while its Job still runs"));
        }
    }

    /// The Job of a step on another control-plane node than that of `claim`, which has not ended.
    pub(super) fn job_elsewhere(&self, claim: &Claim) -> Option<String> {
        let of_plane = |node: &str| self.nodes.get(node).is_some_and(|node| node.is_control_plane);
        let elsewhere = |(_, other): &(&String, &Claim)| {
            let lasts = matches!(other.state.as_str(), "Upgrading" | "Upgraded");
            other.node != claim.node && lasts && of_plane(&other.node) && self.has_job(other)
        };
        self.claims.iter().find(elsewhere).map(|(name, _)| format!("the Job of {name} still runs"))
    }

    /// Why the executor of `claim`, which moves several components together, is not over: its Job is not complete.
    pub(super) fn works_still(&self, claim: &Claim) -> Option<String> {
        let job = self.jobs.contains_key(&claim.executor);
        let works = claim.of_plane && job && !self.complete.contains(&claim.uid);
        works.then(|| "its Job is not complete".to_owned())
    }

    /// The minor of the kube-apiserver beside the controllers of `claim` when these move.
    pub(super) fn server_beside(&self, claim: &Claim, target: u64) -> Option<u64> {
        let server = "kube-apiserver".to_owned();
        if claim.moves.contains(&server) {
            return Some(target);
        }
        let beside = self.instances.get(&(claim.node.clone(), server))?;
        Some(version(&beside.version)?.0)
    }

    /// 5: the control plane of a node is given to an executor only when no other node's is under way, and nothing of the
    /// others is away.
    pub(super) fn others_are_done(&mut self, name: &str, claim: &Claim) {
        let busy = |(other, of): &(&String, &Claim)| {
            **other != *name && of.of_plane && of.upgrade == claim.upgrade && of.state == "Upgrading"
        };
        let mut bad: Vec<String> =
            self.claims.iter().filter(busy).map(|(other, _)| format!("{other} is Upgrading")).collect();
        let away = self.instances.iter().filter(|((node, of), instance)| {
            let known = self.knows_instance(node, of, instance.since);
            claim.of_plane && *node != claim.node && !instance.runs && known
        });
        bad.extend(away.map(|((node, component), _)| format!("{component} on {node} is away")));
        bad.extend(self.job_elsewhere(claim));
        for line in bad {
            self.fault(5, format!("upgrades the control plane of {} while {line}", claim.node));
        }
    }

    /// 5: because of us, components of one control-plane node at a time are away.
    pub(super) fn one_at_a_time(&mut self, node: &str, component: &str) {
        let ours = |place: &str| {
            let of = |claim: &Claim| claim.of_plane && claim.node == place;
            let mut claims = self.claims.values();
            claims.any(|claim| of(claim) && matches!(claim.state.as_str(), "Upgrading" | "Failed"))
        };
        let away = |((place, _), of): &(&(String, String), &super::Instance)| {
            place != node && !of.runs && ours(place)
        };
        let other = self.instances.iter().find(away).map(|((place, of), _)| format!("{of} on {place}"));
        if let Some(other) = other.filter(|_| ours(node)) {
            self.fault(5, format!("{component} on {node} goes away because of us beside {other}"));
        }
    }

    /// 8: a Job is made for a claim that exists and is at `Upgrading`.
    pub(super) fn job(&mut self, write: &Write<'_>) {
        let Some(job) = write.after() else {
            self.wrong.push(format!("deletes Job {}", write.name()));
            return;
        };
        if write.before().is_some() {
            return;
        }
        let label = labels(&job["metadata"]["labels"]);
        let of = label.get("evenkeel.dev/node-upgrade").cloned().unwrap_or_default();
        let claim = self.claims.values().find(|claim| claim.uid == of).cloned();
        if let Some(pod) = self.works_besides(&of) {
            self.fault(9, format!("makes Job {} while {pod} of another one still runs", write.name()));
        }
        if let Some(claim) = &claim {
            self.is_its_job(claim, &job);
        }
        match claim {
            None => self.fault(6, format!("makes Job {} for no claim", write.name())),
            Some(claim) if claim.state != "Upgrading" && self.late.is_none() => {
                self.fault(6, format!("makes a Job for {} while its claim is {}", claim.node, claim.state));
            }
            Some(claim) if claim.of_kubelet() => self.is_the_same(&claim, "makes a Job for"),
            Some(_) => {}
        }
    }
}
