//! The walk of the second judge: every state of the cluster that a plan leads through, in its order.
//!
//! Here belongs which states there are and what is asked of each; what is outside the policy in one of them is said in
//! `state.rs`. The invariant: a plan is [`Checked`] only here, and only if no write of it makes a pair worse.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use super::refutation::Refutation;
use super::state::{Broken, ClusterState, Part};
use crate::cluster::{Cluster, Component};
use crate::plan::hops::{Hop, Pass, Plan};
use crate::skew::policy::{Judgement, Policy, RuleSubject, Servers};
use crate::upgrade::Member;
use crate::version::Effective;

/// A value that [`check()`] let through; there is no other way to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked<T>(T);

impl<T> Deref for Checked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Lets `plan` through if no state that it leads through from `cluster` is worse than the one before.
///
/// # Errors
/// What refutes it, each once, in order.
pub fn check(
    plan: Plan,
    cluster: &Cluster,
    members: &[Member<'_>],
    policy: &Policy,
) -> Result<Checked<Plan>, Vec<Refutation>> {
    let blocked: Vec<Refutation> =
        plan.blockers().map(|finding| Refutation::Blocked(finding.to_string())).collect();
    if !blocked.is_empty() {
        return Err(blocked);
    }
    let now = ClusterState::of(cluster, members, plan.unit);
    let mut walk = Walk { policy, wrong: BTreeSet::new(), now, moved_servers: false };
    for (at, hop) in plan.hops.iter().enumerate() {
        if hop.version.minor() > plan.to.minor() {
            let line = format!("a hop leads to {}, beyond the target {}", hop.version, plan.to);
            walk.wrong.insert(Refutation::Way(line));
        }
        walk.hop(hop, plan.hops.get(at + 1));
    }
    walk.end(&plan);
    if walk.wrong.is_empty() { Ok(Checked(plan)) } else { Err(walk.wrong.into_iter().collect()) }
}

struct Walk<'a> {
    policy: &'a Policy,
    wrong: BTreeSet<Refutation>,
    now: ClusterState,
    /// Some kube-apiserver was moved before.
    moved_servers: bool,
}

impl Walk<'_> {
    fn hop(&mut self, hop: &Hop, next: Option<&Hop>) {
        let before = self.now.clone();
        self.needs(hop);
        for (nth, step) in hop.steps.iter().enumerate() {
            for component in &step.components {
                let of_step = |part: &Part| part.component == *component && part.place == step.place;
                let found = self.now.parts.iter().position(of_step);
                if let Some(at) = found {
                    self.moves(at, hop);
                } else {
                    let line = format!("the plan moves {component} on {}, which is not there", step.place);
                    self.wrong.insert(Refutation::Way(line));
                }
                self.taken_back(&before, hop, nth);
            }
        }
        let ahead = |server: &&Part| server.version.minor() < hop.version.minor();
        if let Some(server) = self.now.servers().find(ahead) {
            // Even where no kubelet moves now, one that joins late would.
            let line = format!(
                "kubelets would go to {} while {} is at {}",
                hop.version,
                server.name(),
                server.version
            );
            self.wrong.insert(Refutation::Order(line));
        }
        self.late_joiner(hop, next);
        self.pass(hop);
    }

    /// What others have to have moved is moved by them, but not before the first kube-apiserver moves at all.
    fn needs(&mut self, hop: &Hop) {
        for need in &hop.needs {
            let old = |part: &Part| {
                part.component == need.component && !part.ours && part.version.minor() < need.least
            };
            for at in 0..self.now.parts.len() {
                let Some(part) = self.now.parts.get(at).filter(|part| old(part)) else { continue };
                if !self.moved_servers {
                    let line =
                        format!("the first hop needs {need}, and {} is at {}", part.name(), part.version);
                    self.wrong.insert(Refutation::Order(line));
                }
                if let Ok(least) = format!("v{}.0", need.least).parse() {
                    self.now.set(at, &least);
                }
            }
        }
    }

    /// One write: the part at `at` goes to the version of `hop`.
    fn moves(&mut self, at: usize, hop: &Hop) {
        let before = self.now.broken(self.policy);
        let Some(part) = self.now.parts.get(at).cloned() else { return };
        let (from, to) = (part.version.minor(), hop.version.minor());
        let name = part.name();
        let any_patch = hop.version.release().1.is_none();
        if from > to || from == to && !any_patch && part.version.progress(&hop.version).is_gt() {
            self.wrong.insert(Refutation::Way(format!(
                "{name} would go back from {} to {}",
                part.version, hop.version
            )));
        }
        if part.is_server() && to.behind(from) < -1 {
            self.wrong.insert(Refutation::Way(format!("{name} would go over a minor, from {from} to {to}")));
        }
        if !part.ours {
            self.wrong.insert(Refutation::Order(format!("the plan moves {name}, which is not its own")));
        }
        self.moved_servers |= part.is_server();
        self.now.set(at, &hop.version);
        let write = format!("{name} to {}", hop.version);
        let after = self.now.broken(self.policy);
        self.compare(&before, after, &write);
    }

    /// Adds what is further outside the policy `after` than `before`.
    fn compare(&mut self, before: &Broken, after: Broken, write: &str) {
        let worse = |(at, (distance, _)): &(usize, (i32, String))| {
            before.get(at).is_none_or(|(before, _)| distance > before)
        };
        let worse = after.into_iter().filter(worse);
        self.wrong.extend(worse.map(|(_, (_, broken))| Refutation::Skew { write: write.to_owned(), broken }));
    }

    /// Somebody takes back a kube-apiserver that this hop moved: what the plan does first is to move it again, and that
    /// makes nothing worse.
    fn taken_back(&mut self, before: &ClusterState, hop: &Hop, nth: usize) {
        let done = hop.steps.iter().take(nth + 1);
        for step in done.filter(|step| step.components.contains(&Component::KubeApiserver)) {
            let server = |part: &Part| part.is_server() && part.place == step.place;
            let old = before.parts.iter().find(|part| server(part));
            let old = old.filter(|old| !old.is_done(&hop.version)).map(|old| old.version.clone());
            let (Some(old), Some(at)) = (old, self.now.parts.iter().position(server)) else {
                continue;
            };
            let mut back = self.now.clone();
            if let Some(part) = back.parts.get_mut(at) {
                part.version = old;
            }
            let late = |place: &Arc<str>, component: Component| {
                let part = back.parts.iter().find(|part| part.component == component && part.place == *place);
                part.is_some_and(|part| !part.is_done(&hop.version))
            };
            let first = hop.steps.iter().find(|step| step.components.iter().any(|c| late(&step.place, *c)));
            if first.is_none_or(|first| !first.components.contains(&Component::KubeApiserver)) {
                let line = format!(
                    "kube-apiserver on {} could be taken back, and something else would move first",
                    step.place
                );
                self.wrong.insert(Refutation::Order(line));
            }
            let broken = back.broken(self.policy);
            let mut again = back;
            if let Some(part) = again.parts.get_mut(at) {
                part.version = hop.version.clone();
            }
            let after = again.broken(self.policy);
            self.compare(
                &broken,
                after,
                &format!("kube-apiserver on {} once more to {}", step.place, hop.version),
            );
        }
    }

    /// A node joins before the kubelets of `hop` move, at any minor that is allowed then: the pass moves it, if the next
    /// hop would leave it outside the policy.
    fn late_joiner(&mut self, hop: &Hop, next: Option<&Hop>) {
        let Some(next) = next else { return };
        let kubelet = RuleSubject::Component(Component::Kubelet);
        let met =
            |state: &ClusterState| Servers::of(state.servers().map(|s| Effective::plain(s.version.minor())));
        let Some(servers) = met(&self.now) else { return };
        let mut later = self.now.clone();
        let moved = |part: &&mut Part| {
            part.is_server()
                && next.steps.iter().any(|s| s.place == part.place && s.components.contains(&part.component))
        };
        later.parts.iter_mut().filter(moved).for_each(|part| part.version = next.version.clone());
        let Some(then) = met(&later) else { return };
        let mut joins = self.policy.least(kubelet, servers);
        while joins <= servers.oldest {
            let stays = match hop.kubelets {
                Pass::Before(minor) => joins >= minor,
                Pass::All => false,
            };
            let (_, judgement) = self.policy.judge(kubelet, joins.into(), then);
            if stays && matches!(judgement, Judgement::TooOld { .. }) {
                let line = format!(
                    "a node that joins at {joins} in the hop to {} would be too old for the hop to {}",
                    hop.version, next.version
                );
                self.wrong.insert(Refutation::Order(line));
            }
            joins = joins.next();
        }
    }

    /// The kubelets of the hop move, one after the other.
    fn pass(&mut self, hop: &Hop) {
        let to = hop.version.minor();
        let mut moving: Vec<usize> = Vec::new();
        for (at, part) in self.now.parts.iter().enumerate() {
            let moves = match hop.kubelets {
                Pass::Before(minor) => part.version.minor() < minor,
                Pass::All => !part.is_done(&hop.version) && part.version.minor() <= to,
            };
            if part.component == Component::Kubelet && part.ours && moves {
                moving.push(at);
            }
        }
        if moving.is_empty() {
            return;
        }
        let behind: Vec<String> = self
            .now
            .parts
            .iter()
            .filter(|part| part.component < Component::Kubelet && part.ours && part.version.minor() < to)
            .map(Part::name)
            .collect();
        for name in behind {
            self.wrong.insert(Refutation::Order(format!(
                "kubelets go to {} before {name} is at {to}",
                hop.version
            )));
        }
        for at in moving {
            self.moves(at, hop);
        }
    }

    /// When the plan is done, everything that is its own is at the target and nothing of it is outside the policy.
    fn end(&mut self, plan: &Plan) {
        let newer =
            |part: &Part| part.component == Component::Kubelet && part.version.minor() > plan.to.minor();
        let broken = self.now.broken(self.policy);
        for (at, part) in self.now.parts.iter().enumerate().filter(|(_, part)| part.ours && !newer(part)) {
            if let Some((_, line)) = broken.get(&at) {
                self.wrong.insert(Refutation::Unfinished(format!("the plan ends with {line}")));
            }
            if !part.is_done(&plan.to) {
                let line = format!(
                    "{} is at {} when the plan is done, not at {}",
                    part.name(),
                    part.version,
                    plan.to
                );
                self.wrong.insert(Refutation::Unfinished(line));
            }
        }
    }
}
