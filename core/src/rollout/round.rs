//! What the parts of one decision share: the world, what was decided so far, and the writes they have in common.
//!
//! Here belongs what more than one part reads or adds to. What is decided of a node or a component never belongs here,
//! because it has a file of its own. The invariant: a part reads what earlier parts of the same round decided, and
//! takes none of it back. Only at the end of the round `refusal_retries.rs` withholds writes that the server refused
//! before.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::action::Action;
use super::claim::{Claim, ClaimState, Subject, UnreadableClaim};
use super::hold_reason::{Exception, NodeOut};
use super::hop::CurrentHop;
use super::jobs::JobState;
use super::not_opened::NotOpened;
use super::waiting::{WaitReason, Waiting};
use super::world::World;
use super::zone_count::ZoneCounts;
use crate::cluster::{Component, Node};
use crate::disruption::Budgets;
use crate::drain::{Batch, DrainPolicy};
use crate::plan::{Stage, hex};
use crate::upgrade::{ApprovalMode, ComponentPlace, Lasting, Member, Progress, Soak, Upgrade};
use crate::version::KubeVersion;

pub(super) use crate::time::after;

/// How long a kube-apiserver's answer is believed where something begins because of it.
const FRESH: SignedDuration = SignedDuration::from_secs(5);
/// What has been silent or away for so long does not come back by itself, as far as anybody can say.
pub(super) const GONE: SignedDuration = SignedDuration::from_mins(15);
/// From so many reasons on, no further node is named that waits for pods that start.
const HELD_BACK_SHOWN: usize = 5;
/// How soon the answers of apiservers that were asked afresh are looked at.
const ASKED_AGAIN: SignedDuration = SignedDuration::from_millis(500);

/// A node that takes part, and its claim.
#[derive(Clone, Copy)]
pub(super) struct Selected<'a> {
    pub(super) member: Member<'a>,
    /// The claim of this very Node, by its UID.
    pub(super) claim: Option<&'a Claim>,
}

impl Selected<'_> {
    /// Whether its claim takes a place in its group's budget.
    pub(super) fn in_flight(&self) -> bool {
        self.claim.is_some_and(|claim| claim.state.in_flight())
    }

    /// Whether its executor failed, whatever version it reports since.
    pub(super) fn has_failed(&self) -> bool {
        self.claim.is_some_and(|claim| matches!(claim.state, ClaimState::Failed { .. }))
    }
}

/// `members`, which are in the order of their names, each with its claim of `mine`.
pub(super) fn selected<'a>(members: Vec<Member<'a>>, mine: &[&'a Claim]) -> Vec<Selected<'a>> {
    let of_nodes = mine.iter().filter(|claim| claim.is_of_kubelet());
    let by_name: BTreeMap<&str, &Claim> = of_nodes.map(|claim| (&*claim.subject.node, *claim)).collect();
    let mut claims = by_name.into_iter().peekable();
    let with_claim = |member: Member<'a>| {
        let name = &*member.node.name;
        while claims.next_if(|(of, _)| *of < name).is_some() {}
        let claim = claims.next_if(|(of, _)| *of == name).map(|(_, claim)| claim);
        Selected { member, claim: claim.filter(|claim| claim.subject.node_uid == member.node.uid) }
    };
    members.into_iter().map(with_claim).collect()
}

/// What the parts of a decision share.
pub(super) struct Round<'a> {
    /// What is wanted of the current hop: the upgrade, to the version of the hop.
    pub(super) upgrade: &'a Upgrade,
    /// The hop of the plan that is carried out.
    pub(super) hop: &'a CurrentHop,
    pub(super) progress: &'a Progress,
    pub(super) world: World<'a>,
    /// The claims of this upgrade, by name.
    pub(super) mine: &'a [&'a Claim],
    /// The nodes that take part, by name.
    pub(super) selected: Vec<Selected<'a>>,
    /// The first stage that is not done; `None` when all are.
    pub(super) stage: Option<Stage>,
    /// When the upgrade began, as far as that is known.
    pub(super) begun: Option<Timestamp>,
    /// When the last step of the control plane was over; `None` before the first one.
    pub(super) stepped: Option<Timestamp>,
    /// How many nodes of each zone are away, once somebody has asked.
    pub(super) zones: OnceCell<ZoneCounts>,
    /// Until when the static pods of the last control-plane node come back, while they do.
    pub(super) static_pods_until: Option<Timestamp>,
    /// Why nothing is opened as far as the Jobs of executors go: the server does not say yet that it would take each of them.
    pub(super) untried: Option<NotOpened>,
    /// Control-plane components that were seen before and are not seen now.
    pub(super) missing: &'a [ComponentPlace],
    /// Disruption may begin and go on: the plan is approved, every executor is there, and the upgrade is not
    /// suspended, deleted or queued.
    pub(super) may_disrupt: bool,
    /// Why the plan must not be carried out on the cluster as it is now; empty when it may.
    pub(super) preflight: &'a [String],
    /// The plan's hash, with what its executors are now.
    pub(super) hash: Option<&'a str>,
    /// A node could not be drained, and nothing more begins until somebody changes something: why, in one line.
    pub(super) halted: Option<String>,
    /// The UIDs of nodes at which the upgrade halts if they still cannot be drained after a while. Nothing begins meanwhile.
    pub(super) undrainable: Vec<Arc<str>>,
    /// How nodes are drained.
    pub(super) policy: &'a DrainPolicy,
    /// The nodes that are open, or opened in this decision, in all groups.
    pub(super) batch: Batch<'a>,
    pub(super) budgets: Budgets<'a>,
    pub(super) actions: Vec<Action>,
    /// What is opened anew: what it is, in the order in which it is.
    pub(super) opened: Vec<Subject>,
    pub(super) again_at: Option<Timestamp>,
    /// A node that does not move now may move later without a person.
    pub(super) hope: bool,
    /// What soaks or has soaked, as of now.
    pub(super) soaks: Vec<Soak>,
    /// What keeps from being opened what could be opened otherwise.
    pub(super) held_back: Vec<NotOpened>,
    /// What waits for something other than time.
    pub(super) blocked: Vec<Waiting>,
    /// What is under way and takes its time.
    pub(super) working: Vec<Waiting>,
    /// The nodes that may stay behind, by name.
    pub(super) excepted: BTreeMap<Arc<str>, Exception>,
    /// Nodes that are out of the rollout for now without a claim that says so.
    pub(super) out: Vec<NodeOut>,
    /// A control-plane component went back after it was upgraded.
    pub(super) went_back: bool,
    /// What of the control plane only a person can bring further, one line each.
    pub(super) needs_a_person: Vec<String>,
    /// What has lasted so long that a person is called.
    pub(super) lasting: Vec<Lasting>,
}

impl<'a> Round<'a> {
    /// The Job of this attempt of `claim`, where there is one.
    pub(super) fn job_of(&self, claim: &Claim) -> Option<&'a JobState> {
        self.world.jobs.of(claim)
    }

    /// What keeps from being begun what `subject` is about: a claim of it would have the same name, or its node may be half done.
    pub(super) fn in_the_way(&self, subject: &Subject) -> Option<&'a UnreadableClaim> {
        let unreadable = self.world.unreadable;
        if unreadable.is_empty() {
            return None;
        }
        let (upgrade, name) = (&self.upgrade.name, claim_name(&self.upgrade.name, subject));
        let half_done =
            |of: &UnreadableClaim| of.upgrade == *upgrade && of.place.as_ref() == Some(&subject.node);
        unreadable.iter().find(|of| half_done(of) || *of.name == *name)
    }
}

impl Round<'_> {
    /// Asks for another decision at `at`, or earlier.
    pub(super) fn wake(&mut self, at: Timestamp) {
        self.again_at = Some(self.again_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Opens `subject`. Whatever is begun is begun under our finalizer, so that nobody deletes it while it is under way:
    /// without it the finalizer comes first, and the claims follow in a later decision.
    pub(super) fn claims(&mut self, subject: Subject) {
        if self.progress.protected {
            let name = claim_name(&self.upgrade.name, &subject);
            self.actions.push(Action::Claim { name, subject: subject.clone() });
        } else if !self.actions.contains(&Action::Protect) {
            self.actions.push(Action::Protect);
        }
        self.opened.push(subject);
    }

    /// Notes that something waits because of `reason`: one line says for what.
    pub(super) fn blocks(&mut self, reason: WaitReason, line: impl Into<String>) {
        self.blocked.push(Waiting::new(reason, line));
    }

    /// Notes that something is under way because of `reason`: one line says what.
    pub(super) fn works(&mut self, reason: WaitReason, line: impl Into<String>) {
        self.working.push(Waiting::new(reason, line));
    }

    /// Notes that something could be opened, but for `wait`.
    pub(super) fn hold_back(&mut self, wait: NotOpened) {
        match wait {
            // The answer comes in a moment, and what else is in the way is said as before.
            NotOpened::Trial => {
                self.hope = true;
                return;
            }
            NotOpened::Unanswered { lasting, .. } => self.hope |= !lasting,
            _ => {}
        }
        if let Some(until) = wait.until() {
            self.wake(until);
        }
        // Thousands of nodes may wait, each for pods of its own; the first few tell what for.
        let shown = self.held_back.len() < HELD_BACK_SHOWN || !matches!(wait, NotOpened::Replacements { .. });
        if shown && !self.held_back.contains(&wait) {
            self.held_back.push(wait);
        }
    }

    /// Adds the write that records `state` for `claim`, and what is known of its Job where nothing more is waited for.
    pub(super) fn record(&mut self, claim: &Claim, state: ClaimState, message: impl Into<String>) {
        let ends = matches!(state, ClaimState::Upgraded { .. } | ClaimState::Failed { .. });
        let mut action = record(claim, state, message);
        if let Action::Record { job, .. } = &mut action {
            *job = self.job_of(claim).filter(|_| ends).cloned();
        }
        self.actions.push(action);
    }

    /// Whether nothing is begun of the plan, whatever is claimed.
    pub(super) const fn plan_is_blocked(&self) -> bool {
        !self.preflight.is_empty()
    }

    /// Whether the plan is approved, with what its executors are now.
    pub(super) fn approved(&self) -> bool {
        is_approved(self.upgrade, self.hash)
    }

    /// Whether `claim` may still begin what it is about.
    pub(super) fn wants(&self, claim: &Claim) -> bool {
        let named = self.upgrade.executor_names().any(|name| *name == claim.subject.executor);
        let wanted = named && claim.subject.to == self.upgrade.version;
        self.may_disrupt && self.halted.is_none() && !claim.ending && wanted
    }

    /// Whether the node of `claim`, which is of a kubelet, still takes part.
    pub(super) fn selects(&self, claim: &Claim) -> bool {
        let name = &claim.subject.node;
        self.selected.binary_search_by(|of| of.member.node.name.cmp(name)).is_ok()
    }

    /// Whether this round lets `claim` go.
    pub(super) fn releases(&self, claim: &Claim) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Release { uid, .. } if *uid == claim.uid))
    }

    /// Whether pods leave the node of `claim` before its kubelet changes.
    pub(super) fn empties(&self, claim: &Claim) -> bool {
        let from = claim.subject.from.parse::<KubeVersion>().ok();
        self.upgrade.drain.empties(from.map(|from| from.minor()), claim.subject.to.minor())
    }

    /// Whether pods leave `node` before its kubelet goes to the version of the hop.
    pub(super) fn will_empty(&self, node: &Node) -> bool {
        self.upgrade.drain.empties(node.kubelet.minor(), self.upgrade.version.minor())
    }

    /// Whether `trouble`, for which a person is called `from` then on, has lasted until then, or did when the status was written.
    pub(super) fn has_lasted(&self, trouble: &Lasting, from: Timestamp) -> bool {
        self.world.now >= from || self.progress.lasting.contains(trouble)
    }

    /// The same. What has lasted is remembered, until it is over.
    pub(super) fn lasts(&mut self, trouble: Lasting, from: Timestamp) -> bool {
        let lasts = self.has_lasted(&trouble, from);
        if lasts && !self.lasting.contains(&trouble) {
            self.lasting.push(trouble);
        }
        lasts
    }

    /// Whether the machine of `node` has been silent for so long that no executor could do anything there.
    pub(super) fn is_silent(&self, node: &Node) -> bool {
        !node.ready && node.heartbeat.is_some_and(|at| self.world.now >= after(at, GONE))
    }

    /// Whether `node` has been away for so long that a person has to look at it.
    pub(super) fn is_gone(&self, node: &Node) -> bool {
        gone_at(node).is_some_and(|at| self.world.now >= at)
    }

    /// Whether every kube-apiserver said just now what it runs and whether it is ready. If not, this asks them, because
    /// an apiserver that somebody took back may never have left its endpoint.
    pub(super) fn heard_afresh(&mut self) -> bool {
        let now = self.world.now;
        let old = |asked: Timestamp| now.duration_since(asked) > FRESH;
        let mut servers = self.world.cluster.of(Component::KubeApiserver);
        if !servers.any(|server| server.probed.is_some_and(old)) {
            return true;
        }
        if !self.actions.contains(&Action::AskApiservers) {
            self.actions.push(Action::AskApiservers);
        }
        self.wake(after(now, ASKED_AGAIN));
        false
    }

    /// Whether the whole control plane is at the target and answers, so that kubelets may move.
    pub(super) fn control_plane_is_done(&self) -> bool {
        self.stage.is_none_or(|stage| stage == Stage::Kubelets)
    }
}

/// From when on `node`, which is not ready, does not come back by itself, as far as anybody can say: its machine is silent,
/// or its kubelet has said for long that it is not ready. `None` where it is ready, or where nothing tells.
pub(super) fn gone_at(node: &Node) -> Option<Timestamp> {
    let since = [node.heartbeat, node.not_ready_since].into_iter().flatten().min();
    since.filter(|_| !node.ready).map(|since| after(since, GONE))
}

/// Whether the plan of that hash may be carried out.
pub(super) fn is_approved(upgrade: &Upgrade, hash: Option<&str>) -> bool {
    match upgrade.mode {
        ApprovalMode::PlanOnly => false,
        ApprovalMode::Automatic => true,
        ApprovalMode::RequireApproval => hash.is_some() && upgrade.approved_hash.as_deref() == hash,
    }
}

/// The write that takes `claim` to `state`.
pub(super) fn record(claim: &Claim, state: ClaimState, message: impl Into<String>) -> Action {
    Action::Record {
        claim: claim.name.clone(),
        resource_version: claim.resource_version.clone(),
        state,
        attempt: claim.attempt,
        message: message.into(),
        blockers: Vec::new(),
        job: None,
        drained: None,
    }
}

/// The write that deletes `claim`, or takes our finalizer off it if it is deleted already.
pub(super) fn release(claim: &Claim) -> Action {
    Action::Release {
        claim: claim.name.clone(),
        uid: claim.uid.clone(),
        resource_version: claim.resource_version.clone(),
        finalizers: claim.ending.then(|| claim.finalizers.clone()),
    }
}

/// Gives `claim` up, for which nothing was done yet, so that its node is taken up anew when it may be. One that was tried
/// before is parked again: else its next try would count as the first.
pub(super) fn gives_up(round: &mut Round<'_>, claim: &Claim) {
    let stale = claim.ending || claim.subject.to != round.upgrade.version;
    if claim.attempt <= 1 || stale || !claim.is_of_kubelet() || !round.selects(claim) {
        return round.actions.push(release(claim));
    }
    let now = round.world.now;
    let message = match claim.state {
        ClaimState::Claimed => &claim.message,
        _ => "was given back before its drain had ended",
    };
    let mut parks =
        record(claim, ClaimState::Parked { since: now, retry_at: now, for_a_person: false }, message);
    if let Action::Record { attempt, blockers, .. } = &mut parks {
        *attempt = claim.attempt - 1;
        blockers.clone_from(&claim.blockers);
    }
    round.actions.push(parks);
}

/// The name of the claim of `subject`: one claim per upgrade, component and node, or one for all that moves together.
///
/// An address becomes a DNS name: `[2001:db8::1]:6443` is `2001-db8--1-6443`.
pub(super) fn claim_name(upgrade: &str, subject: &Subject) -> String {
    let plain: String = if subject.component == Component::Kubelet {
        subject.node.to_string()
    } else {
        let plain = subject.node.chars().filter(|c| !"[]".contains(*c));
        plain.map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect()
    };
    let what = if subject.is_of_plane() { "control-plane" } else { subject.component.name() };
    let full = format!("{upgrade}.{what}.{}", plain.trim_matches('-').to_ascii_lowercase());
    if full.len() <= 253 {
        return full;
    }
    let digest = hex(&Sha256::digest(&full), 8);
    let cut: String = full.chars().take(230).collect();
    format!("{}-{digest}", cut.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claims_name_is_a_dns_name_whatever_its_component_is_called() {
        for (component, place, name) in [
            (Component::Kubelet, "n-1.example.com", "up.kubelet.n-1.example.com"),
            (Component::KubeApiserver, "192.0.2.1:6443", "up.kube-apiserver.192.0.2.1-6443"),
            (Component::KubeApiserver, "[2001:db8::1]:6443", "up.kube-apiserver.2001-db8--1-6443"),
            (Component::KubeApiserver, "[::1]:6443", "up.kube-apiserver.1-6443"),
            (Component::KubeScheduler, "Host_A", "up.kube-scheduler.host-a"),
        ] {
            let subject = Subject {
                component,
                components: Vec::new(),
                node: place.into(),
                node_uid: "".into(),
                from: String::new(),
                to: "v1.37.1".parse().unwrap(),
                executor: "x".into(),
            };
            assert_eq!(claim_name("up", &subject), name);
        }
        let together = Subject {
            component: Component::KubeScheduler,
            components: vec![Component::KubeScheduler],
            node: "CP-1".into(),
            node_uid: "".into(),
            from: String::new(),
            to: "v1.37.1".parse().unwrap(),
            executor: "x".into(),
        };
        assert_eq!(claim_name("up", &together), "up.control-plane.cp-1");
    }
}
