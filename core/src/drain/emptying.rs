//! Emptying one node: which pods to ask now, and what each of the others waits for.
//!
//! Here the rules about pods, budgets and our own memory come together. [`ask_pods`] takes what it asks for from the
//! budgets of the round, so nodes that are emptied at the same time share them, and whichever comes first is served
//! first; [`pods_left`] takes nothing. The invariant: a pod gets a permit only while it is on the node, not leaving,
//! and not asked already.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::policy::STALLED;
use crate::cluster::{Cluster, Pod};
use crate::disruption::{
    BudgetName, Budgets, Class, Handling, Memory, Permit, PodMemory, Refusal, Rules, class, handling,
};

/// How long past the end of its grace period a pod is called stuck rather than terminating.
pub(super) const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// A scheduler that had not seen the cordon yet may have bound pods to the node. After this time all of them are there,
/// and each is evicted once. No scheduler placed a pod that comes later.
const BOUND_LATE: SignedDuration = SignedDuration::from_secs(2);

/// What is left on a node, and what to do about it now.
#[derive(Debug, Default)]
pub struct Emptying<'a> {
    /// The evictions to send.
    pub permits: Vec<Permit>,
    /// The pods that have to leave and have not, by namespace and name.
    pub left: Vec<PodLeft<'a>>,
    /// When to look again even if nothing changes.
    pub again_at: Option<Timestamp>,
}

/// A pod that has to leave and has not.
#[derive(Debug)]
pub struct PodLeft<'a> {
    /// As it was seen; it is bound to the node.
    pub pod: &'a Pod,
    /// Which rule the drain goes by for it.
    pub class: Class,
    /// Why it has not left.
    pub wait: PodWait,
}

/// What a pod waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodWait {
    /// Nothing: it may leave, and was not asked.
    Nothing,
    /// Its eviction is sent, or accepted and not seen yet.
    Asked,
    /// It is terminating, and its grace period is not over.
    Leaving,
    /// It should have terminated by then.
    Stuck(Timestamp),
    /// It is terminating, and this finalizer keeps it.
    Kept(Arc<str>),
    /// Nobody asks it: it is waited for until it finishes by itself.
    Finishing,
    /// Its eviction or deletion failed, or it came only just now; it is asked later. With a line where a person should
    /// know.
    Later(Option<String>),
    /// The server is busy.
    Throttled,
    /// Its budget has to allow the eviction first.
    Budget(Refusal),
    /// Pods of a lower priority leave first.
    Turn,
    /// The server has refused its eviction for long, for this reason, and will until a person changes something. It is
    /// asked again now and then.
    NotEvicted(String),
    /// Its controller brought it back to the cordoned node after it was evicted.
    Returned {
        /// By a toleration; otherwise its template names the node.
        tolerates: bool,
    },
    /// A person has to decide.
    Refused(&'static str),
}

/// What holds a pod back, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodHeld {
    /// The budget, where one is to blame.
    pub budget: Option<BudgetName>,
    /// Why, in one line.
    pub reason: String,
    /// It stays until a person changes something, as far as can be seen.
    pub lasting: bool,
}

impl PodWait {
    /// Whether it stays until a person changes something, as far as can be seen.
    pub(super) fn lasts(&self) -> bool {
        self.held().is_some_and(|held| held.lasting)
    }

    /// What a person should know, if it is more than that the pod is on its way.
    pub fn held(&self) -> Option<PodHeld> {
        let held = |reason: String, lasting| Some(PodHeld { budget: None, reason, lasting });
        match self {
            Self::Budget(refusal) if refusal.is_pacing() => None,
            Self::Budget(refusal) => Some(PodHeld {
                budget: refusal.budget().cloned(),
                reason: refusal.to_string(),
                lasting: refusal.is_lasting(),
            }),
            Self::Stuck(since) => {
                held(format!("should have terminated by {since} and is still there"), false)
            }
            Self::Kept(finalizer) => held(
                format!("is terminating, and stays until its finalizer {finalizer} is taken off"),
                false,
            ),
            Self::Later(Some(why)) => held(why.clone(), false),
            Self::Returned { tolerates: true } => {
                held("tolerates the cordon and came back; it is not evicted again".to_owned(), true)
            }
            Self::Returned { tolerates: false } => held(
                "came back although the node is cordoned, as pods do whose template names it (nodeName); it is not \
                 evicted again"
                    .to_owned(),
                true,
            ),
            Self::NotEvicted(why) => held(why.clone(), true),
            Self::Refused(why) => held((*why).to_owned(), true),
            Self::Nothing
            | Self::Asked
            | Self::Leaving
            | Self::Finishing
            | Self::Later(None)
            | Self::Throttled
            | Self::Turn => None,
        }
    }
}

/// Asks every pod of `node` that may go by `rules` at `now`, and says what the others wait for.
pub fn ask_pods<'a>(
    cluster: &'a Cluster,
    node: &'a str,
    rules: &Rules,
    memory: &Memory,
    budgets: &mut Budgets<'_>,
    now: Timestamp,
) -> Emptying<'a> {
    let beside = |permit: Permit| permit.beside(cluster.pods_on(node));
    emptied(cluster, node, rules, memory, now, |pod| budgets.take(pod).map(|permit| Some(beside(permit))))
}

/// What each pod of `node` that has to leave by `rules` waits for at `now`, by namespace and name. It asks nobody, and
/// takes nothing from the budgets.
pub fn pods_left<'a>(
    cluster: &'a Cluster,
    node: &'a str,
    rules: &Rules,
    memory: &Memory,
    budgets: &Budgets<'_>,
    now: Timestamp,
) -> Vec<PodLeft<'a>> {
    emptied(cluster, node, rules, memory, now, |pod| budgets.check(pod).map(|()| None)).left
}

/// The permits that `permit` gives for the pods that may be asked, and what each pod that has to leave waits for.
fn emptied<'a>(
    cluster: &'a Cluster,
    node: &'a str,
    rules: &Rules,
    memory: &Memory,
    now: Timestamp,
    mut permit: impl FnMut(&Pod) -> Result<Option<Permit>, Refusal>,
) -> Emptying<'a> {
    let mut emptying = Emptying::default();
    let classed: Vec<_> = cluster
        .pods_on(node)
        .map(|pod| (pod, class(pod, rules, cluster.surroundings(), now)))
        .map(|(pod, class)| (pod, class, handling(pod, class, rules)))
        .filter(|(_, _, handling)| *handling != Handling::Leave)
        .collect();
    let others_first = rules.critical_last && classed.iter().any(|(pod, ..)| !pod.traits().critical);
    for (pod, class, handling) in classed {
        let wait = match handling {
            Handling::Leave => continue,
            Handling::Refuse(why) => PodWait::Refused(why),
            Handling::Await if class == Class::Terminating => leaving(pod, now, &mut emptying),
            Handling::Await => PodWait::Finishing,
            Handling::Evict if others_first && pod.traits().critical => PodWait::Turn,
            Handling::Evict => {
                let wait = match remembered(pod, memory, now, &mut emptying) {
                    Some(wait) => wait,
                    None => match permit(pod) {
                        Ok(None) => PodWait::Nothing,
                        Ok(Some(permit)) => {
                            emptying.permits.push(permit);
                            PodWait::Asked
                        }
                        Err(refusal) => PodWait::Budget(refusal),
                    },
                };
                not_evicted(pod, memory).filter(|_| !wait.lasts()).unwrap_or(wait)
            }
        };
        emptying.left.push(PodLeft { pod, class, wait });
    }
    emptying
}

impl Emptying<'_> {
    fn wake(&mut self, at: Timestamp) {
        self.again_at = Some(self.again_at.map_or(at, |earlier| earlier.min(at)));
    }
}

fn leaving(pod: &Pod, now: Timestamp, emptying: &mut Emptying<'_>) -> PodWait {
    let Some(since) = pod.deleting() else { return PodWait::Leaving };
    // Whoever set the finalizer takes it off after the containers have ended, which they have by the end of the grace
    // period.
    if let Some(finalizer) = pod.traits().finalizers.first() {
        if now < since {
            emptying.wake(since);
            return PodWait::Leaving;
        }
        return PodWait::Kept(Arc::clone(finalizer));
    }
    let late = since.saturating_add(STUCK_AFTER).unwrap_or(Timestamp::MAX);
    if now < late {
        emptying.wake(late);
        return PodWait::Leaving;
    }
    PodWait::Stuck(since)
}

/// What a pod waits for because of what was asked before.
fn remembered(pod: &Pod, memory: &Memory, now: Timestamp, emptying: &mut Emptying<'_>) -> Option<PodWait> {
    match memory.pods.get(&pod.uid) {
        Some(PodMemory::Sent) => return Some(PodWait::Asked),
        Some(PodMemory::NotBefore(until, why)) if *until > now => {
            emptying.wake(*until);
            return Some(PodWait::Later(why.clone()));
        }
        Some(PodMemory::NotDeleted { until, refused, .. }) if *until > now => {
            emptying.wake(*until);
            let why = format!("its deletion past its budgets is refused: {}", refused.why);
            return Some(PodWait::Later(Some(why)));
        }
        _ => {}
    }
    if let Some(until) = memory.throttled_until.filter(|until| *until > now) {
        emptying.wake(until);
        return Some(PodWait::Throttled);
    }
    let owner = pod.owner.as_ref()?;
    let origin = memory.origins.get(&(pod.node.clone(), owner.uid.clone()))?;
    if origin.pods.contains(&pod.uid) {
        return None;
    }
    let tolerates = pod.traits().tolerates_cordon;
    if tolerates || origin.again {
        return Some(PodWait::Returned { tolerates });
    }
    let bound = origin.since.saturating_add(BOUND_LATE).unwrap_or(Timestamp::MAX);
    (now < bound).then(|| {
        emptying.wake(bound);
        PodWait::Later(None)
    })
}

/// Those of `left` that are held back, with what holds them. What a person can end comes first: what lasts, then pods that
/// are not ready and whose budgets keep them. What passes when other pods are ready comes last.
pub fn pods_held<'c>(left: &[PodLeft<'c>]) -> Vec<(&'c Pod, PodHeld)> {
    let rank = |wait: &PodWait, held: &PodHeld| match wait {
        _ if held.lasting => 0,
        PodWait::Budget(Refusal::Exhausted { unready: Some(_), .. }) => 1,
        _ => 2,
    };
    let held = |left: &PodLeft<'c>| {
        let held = left.wait.held()?;
        Some((rank(&left.wait, &held), left.pod, held))
    };
    let mut all: Vec<_> = left.iter().filter_map(held).collect();
    all.sort_by_key(|(rank, ..)| *rank);
    all.into_iter().map(|(_, pod, held)| (pod, held)).collect()
}

/// That the server refuses the eviction of `pod`, once it has done so for [`STALLED`]. A kube-apiserver that starts may
/// forbid what it allows a moment later. It holds while the eviction is sent again, and whatever its budget allows then.
fn not_evicted(pod: &Pod, memory: &Memory) -> Option<PodWait> {
    let refused = memory.refused.get(&pod.uid)?;
    (refused.lasted() >= STALLED).then(|| PodWait::NotEvicted(refused.why.clone()))
}

/// What the first pod that is held waits for, in one line.
pub fn first_wait(left: &[PodLeft<'_>]) -> String {
    let held: Vec<_> =
        pods_held(left).into_iter().map(|(pod, held)| (pod.full_name(), held.reason)).collect();
    let finishing: Vec<_> = left.iter().filter(|left| left.wait == PodWait::Finishing).collect();
    match held.split_first() {
        None if let Some((first, more)) = finishing.split_first() => {
            let more = if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) };
            format!("pod {} is waited for until it has finished{more}", first.pod.full_name())
        }
        None if left.len() == 1 => "1 pod is leaving".to_owned(),
        None => format!("{} pods are leaving", left.len()),
        Some(((pod, reason), [])) => format!("pod {pod}: {reason}"),
        Some(((pod, reason), more)) => format!("pod {pod}: {reason} (and {} more)", more.len()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::cluster::{Budget, Parts, Phase, Traits};
    use crate::disruption::{Origin, Refused};
    use crate::fixture::{at, budget, pod, terminating};

    fn of(pods: Vec<Pod>) -> Cluster {
        Parts { pods, budgets: vec![budget("cart", 1, 3, 2)], ..Parts::default() }.seal()
    }

    fn waits(cluster: &Cluster, rules: &Rules, memory: &Memory) -> (usize, Vec<PodWait>) {
        let mut budgets = Budgets::new(cluster, BTreeMap::new(), at(0));
        let emptying = ask_pods(cluster, "n-1", rules, memory, &mut budgets, at(0));
        (emptying.permits.len(), emptying.left.into_iter().map(|left| left.wait).collect())
    }

    #[test]
    fn a_pod_of_another_node_is_never_asked() {
        let cluster = of(vec![pod("cart", 1, "n-2"), pod("web", 1, "n-1")]);
        let (permits, left) = waits(&cluster, &Rules::default(), &Memory::default());
        assert_eq!((permits, left), (1, vec![PodWait::Asked]));
    }

    #[test]
    fn critical_pods_wait_for_their_turn() {
        let critical =
            |pod: Pod| Pod { special: Some(Arc::new(Traits { critical: true, ..Traits::default() })), ..pod };
        let rules = Rules { critical_last: true, ..Rules::default() };
        let dns = critical(pod("dns", 1, "n-1"));
        let both = of(vec![dns.clone(), pod("web", 1, "n-1")]);
        assert_eq!(waits(&both, &rules, &Memory::default()), (1, vec![PodWait::Turn, PodWait::Asked]));
        let leaving = of(vec![dns.clone(), terminating(pod("web", 1, "n-1"), at(1))]);
        assert_eq!(waits(&leaving, &rules, &Memory::default()).0, 0, "until the others are gone");
        assert_eq!(waits(&of(vec![dns]), &rules, &Memory::default()).0, 1);
    }

    #[test]
    fn a_pod_that_a_cordon_does_not_keep_away_is_evicted_once() {
        let wait = |number, tolerates_cordon, again, seconds| {
            let pods = vec![pod("web", 1, "n-1").uid];
            let origin = Origin { since: at(10), pods, again };
            let origins = [(("n-1".into(), "uid-web".into()), origin)].into();
            let memory = Memory { origins, ..Memory::default() };
            let special = Some(Arc::new(Traits { tolerates_cordon, ..Traits::default() }));
            let cluster = of(vec![Pod { special, ..pod("web", number, "n-1") }]);
            let mut budgets = Budgets::new(&cluster, BTreeMap::new(), at(seconds));
            ask_pods(&cluster, "n-1", &Rules::default(), &memory, &mut budgets, at(seconds))
                .left
                .remove(0)
                .wait
        };
        assert_eq!(wait(1, true, true, 11), PodWait::Asked, "another of the first ones");
        assert_eq!(wait(2, true, false, 11), PodWait::Returned { tolerates: true });
        assert_eq!(wait(2, false, false, 11), PodWait::Later(None), "others may be bound still");
        assert_eq!(wait(2, false, false, 12), PodWait::Asked, "bound before the scheduler saw the cordon");
        assert_eq!(
            wait(3, false, true, 12),
            PodWait::Returned { tolerates: false },
            "its template names the node"
        );
    }

    #[test]
    fn an_eviction_that_is_refused_for_long_is_sent_again_and_held_for_refused() {
        let closed = |desired| Budget { disruptions_allowed: 0, ..budget("cart", 0, 3, desired) };
        let said = |why: &str| Some(why.to_owned());
        let later = PodMemory::NotBefore(at(9), said("no right"));
        let not_evicted = PodWait::NotEvicted("no right".to_owned());
        for (refused_for, asked, budget, permits, wait) in [
            (30, None, budget("cart", 1, 3, 2), 1, not_evicted.clone()),
            (30, Some(PodMemory::Sent), budget("cart", 1, 3, 2), 0, not_evicted.clone()),
            (30, Some(later.clone()), budget("cart", 1, 3, 2), 0, not_evicted.clone()),
            (30, None, closed(2), 0, not_evicted),
            (29, None, budget("cart", 1, 3, 2), 1, PodWait::Asked),
            (29, Some(later), budget("cart", 1, 3, 2), 0, PodWait::Later(said("no right"))),
        ] {
            let pod = pod("cart", 1, "n-1");
            let refused = Refused { why: "no right".to_owned(), since: at(-refused_for), at: at(0) };
            let memory = Memory {
                pods: asked.into_iter().map(|asked| (pod.uid.clone(), asked)).collect(),
                refused: [(pod.uid.clone(), refused)].into(),
                ..Memory::default()
            };
            let cluster = Parts { pods: vec![pod], budgets: vec![budget], ..Parts::default() }.seal();
            assert_eq!(waits(&cluster, &Rules::default(), &memory), (permits, vec![wait]));
        }
        // A budget that never lets it go is named, because it can be looked at.
        let pods = vec![pod("cart", 1, "n-1")];
        let refused = Refused { why: "no right".to_owned(), since: at(-60), at: at(0) };
        let memory = Memory { refused: [(pods[0].uid.clone(), refused)].into(), ..Memory::default() };
        let cluster = Parts { pods, budgets: vec![closed(3)], ..Parts::default() }.seal();
        let (_, left) = waits(&cluster, &Rules::default(), &memory);
        assert!(matches!(left[0], PodWait::Budget(_)), "{left:?}");
    }

    #[test]
    fn finished_and_refused_pods() {
        let done = Pod { phase: Phase::Finished, owner: None, empty_dir: true, ..pod("job", 1, "n-1") };
        let cluster = of(vec![done, Pod { owner: None, ..pod("web", 1, "n-1") }]);
        let refused = PodWait::Refused("has no controller that would bring it back; move it by hand");
        assert_eq!(waits(&cluster, &Rules::default(), &Memory::default()), (0, vec![refused]));
        let all = Rules { evict_finished: true, evict_bare: true, ..Rules::default() };
        assert_eq!(waits(&cluster, &all, &Memory::default()), (2, vec![PodWait::Asked, PodWait::Asked]));
    }

    #[test]
    fn a_pod_is_stuck_some_time_after_its_grace_period() {
        let of = |seconds| of(vec![terminating(pod("web", 1, "n-1"), at(seconds))]);
        assert_eq!(waits(&of(-29), &Rules::default(), &Memory::default()).1, [PodWait::Leaving]);
        let (_, stuck) = waits(&of(-30), &Rules::default(), &Memory::default());
        assert_eq!(stuck, [PodWait::Stuck(at(-30))]);
        assert!(stuck[0].held().is_some());
    }

    #[test]
    fn what_a_person_can_end_is_told_first() {
        let short = |name: &str, healthy, unready: Option<&str>, desired| Refusal::Exhausted {
            budget: ("shop".into(), name.into()),
            healthy,
            desired,
            expected: 3,
            coming: 0,
            lost: None,
            unready: unready.map(Arc::from),
        };
        let pods = ["a", "b", "c", "d"].map(|app| pod(app, 1, "n-1"));
        let waits = [
            PodWait::Leaving,
            PodWait::Budget(short("b", 2, None, 2)),
            PodWait::Budget(short("c", 0, Some(""), 2)),
            PodWait::Budget(short("d", 3, None, 3)),
        ];
        let left: Vec<PodLeft<'_>> =
            (pods.iter().zip(waits)).map(|(pod, wait)| PodLeft { pod, class: Class::Move, wait }).collect();
        let names = |left| pods_held(left).iter().map(|(pod, _)| &*pod.name).collect::<Vec<_>>().join(" ");
        assert_eq!(names(&left), "d-1 c-1 b-1");
        let line = first_wait(&left);
        assert!(
            line.starts_with("pod shop/d-1: PDB shop/d can never") && line.ends_with("(and 2 more)"),
            "{line}"
        );
    }

    #[test]
    fn a_finalizer_that_keeps_a_pod_is_named_when_its_grace_period_is_over() {
        let special = Some(Arc::new(Traits { finalizers: vec!["x.io/keep".into()], ..Traits::default() }));
        let of = |seconds| {
            let pod = Pod { special: special.clone(), ..pod("web", 1, "n-1") };
            let pod = terminating(pod, at(seconds));
            waits(&of(vec![pod]), &Rules::default(), &Memory::default()).1.remove(0)
        };
        assert_eq!(of(1), PodWait::Leaving);
        assert_eq!(of(0), PodWait::Kept("x.io/keep".into()));
        assert!(of(-99).held().is_some_and(|held| held.reason.contains("x.io/keep") && !held.lasting));
    }
}
