//! Budgets that never allow an eviction, or do not now (U1 to U17).
//!
//! Here belongs what follows from a budget's spec, its status and the pods it selects. What a spec forbids for ever is
//! told before what a status says at the moment, and one cause of each budget is enough. The invariant: the numbers
//! are those of the disruption controller, computed by [`arithmetic`](super::super::arithmetic) where the pods'
//! controllers are known, and else read from the status.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::super::arithmetic::{
    NO_CONTROLLERS, Numbers, SyncPasses, Unsynced, expected_later, in_the_long_run, lost,
};
use super::super::budget_name::{BudgetName, budget_name};
use super::super::class::{Handling, class, handling, orphan};
use super::super::permit::Budgets;
use super::cause::{Cause, CauseObject, ObjectKind, Outlook};
use super::code::Code;
use super::question::Question;
use super::remedy::StuckBudget;
use crate::cluster::{Budget, Cluster, Demand, Phase, Pod, Quantity, UnhealthyPolicy};
use crate::text::plural;

/// More disrupted pods than this, and the eviction handler refuses.
const MAX_DISRUPTED: usize = 2000;
/// How many pods a line names.
const NAMED: usize = 3;
/// A budget that was closed for less is no trouble yet: a Deployment that rolls out closes its budget for a while.
pub const CLOSED_FOR_LONG: SignedDuration = SignedDuration::from_mins(10);

/// The causes of every budget that guards a pod which would have to leave.
pub(super) fn causes(question: &Question<'_>, budgets: &Budgets<'_>) -> Vec<Cause> {
    let cluster = question.cluster;
    let mut leaving: BTreeMap<BudgetName, Guarded<'_>> = BTreeMap::new();
    let mut several: BTreeMap<Vec<BudgetName>, Vec<&Pod>> = BTreeMap::new();
    for node in &question.nodes {
        for pod in cluster.pods_on(&node.name) {
            let class = class(pod, question.rules, cluster.surroundings(), question.now);
            // The handler asks no budget for the others.
            if pod.phase != Phase::Running || handling(pod, class, question.rules) != Handling::Evict {
                continue;
            }
            let guarding = budgets.guarding(pod);
            for budget in &guarding {
                let guarded = leaving.entry(budget_name(budget)).or_insert_with(|| Guarded::of(budget));
                guarded.all.push(pod);
                // One that is not ready may leave a budget that is healthy without it.
                if budgets.freed_by(pod).is_none() {
                    guarded.kept.push(pod);
                }
            }
            if guarding.len() > 1 {
                several
                    .entry(guarding.iter().map(|budget| budget_name(budget)).collect())
                    .or_default()
                    .push(pod);
            }
        }
    }
    let mut causes: Vec<Cause> = several.into_iter().filter_map(overlapping).collect();
    for Guarded { budget, all, kept } in leaving.into_values() {
        let seen = BudgetSeen::of(cluster, budget, question);
        let closed = seen.closed().filter(|_| !kept.is_empty());
        causes.extend(closed.map(|cause| cause.of(&kept)));
        causes.extend(seen.odd().into_iter().map(|cause| cause.of(&all)));
    }
    causes
}

/// A budget, and the pods that would leave of those that it guards.
struct Guarded<'a> {
    budget: &'a Budget,
    all: Vec<&'a Pod>,
    /// Those that it keeps when it allows nothing.
    kept: Vec<&'a Pod>,
}

impl<'a> Guarded<'a> {
    fn of(budget: &'a Budget) -> Self {
        Self { budget, all: Vec::new(), kept: Vec::new() }
    }
}

fn overlapping((names, pods): (Vec<BudgetName>, Vec<&Pod>)) -> Option<Cause> {
    let shown: Vec<String> = names.iter().map(|(_, name)| name.to_string()).collect();
    let (namespace, first) = names.first()?;
    let object = CauseObject::new(ObjectKind::Budget, namespace, first);
    let what = format!(
        "{} select the same {}, and the eviction API refuses a pod with more than one",
        shown.join(" and "),
        plural(pods.len(), "pod")
    );
    let remedy = "narrow the selectors so that each pod has one PDB, or delete all but one";
    Some(Cause::new(Code::SeveralBudgets, Outlook::Never, object, what, remedy).of(&pods))
}

/// Why `budget` allows no eviction, for ever or for now, and what is odd about it.
pub fn of_budget(cluster: &Cluster, budget: &Budget, question: &Question<'_>) -> Vec<Cause> {
    let seen = BudgetSeen::of(cluster, budget, question);
    seen.closed().into_iter().chain(seen.odd()).collect()
}

/// The budgets of `cluster` that would keep a node with one of their pods from being drained at `now`, told from the
/// budgets alone, so that nobody has to read every pod: those that never allow anything, then those that have been
/// closed for [`CLOSED_FOR_LONG`]; each by name. One that guards no pod keeps nothing.
pub fn closed(cluster: &Cluster, now: Timestamp) -> Vec<Cause> {
    let lasting = |budget: &Budget| match budget.closed_since {
        Some(since) => now.duration_since(since) >= CLOSED_FOR_LONG,
        // Old servers do not say since when; and one whose status lags for a moment is not closed.
        None => budget.disruptions_allowed <= 0,
    };
    let found = cluster.budgets().filter_map(|budget| {
        let guards = budget.expected_pods > 0 || budget.sync_failed.is_some();
        // The controller expects no pod of a budget that asks for nothing, however many it selects.
        if !guards && (budget.demand != Demand::Nothing || budget.selector.is_none()) {
            return None;
        }
        let numbers = Err(Unsynced::Unknown);
        let mut cause = BudgetSeen { cluster, budget, pods: Vec::new(), guards, numbers, now }.closed()?;
        cause.harmless();
        (cause.outlook == Outlook::Never || lasting(budget)).then_some(cause)
    });
    let mut found: Vec<Cause> = found.collect();
    found.sort_by(|a, b| (a.outlook, &a.object).cmp(&(b.outlook, &b.object)));
    found
}

struct BudgetSeen<'a> {
    cluster: &'a Cluster,
    budget: &'a Budget,
    /// Those it selects, as far as pods were read.
    pods: Vec<&'a Pod>,
    /// Whether it selects any.
    guards: bool,
    numbers: Result<Numbers, Unsynced>,
    now: Timestamp,
}

impl<'a> BudgetSeen<'a> {
    fn of(cluster: &'a Cluster, budget: &'a Budget, question: &Question<'_>) -> Self {
        let pods: Vec<&Pod> = cluster.pods_in(&budget.namespace).filter(|pod| budget.selects(pod)).collect();
        let guards = !pods.is_empty();
        let numbers = in_the_long_run(budget, &pods, cluster.surroundings(), question.now);
        Self { cluster, budget, pods, guards, numbers, now: question.now }
    }

    /// What is odd about it, whether it allows something or not.
    fn odd(&self) -> Vec<Cause> {
        self.policy().into_iter().chain(self.at_the_least()).collect()
    }

    /// What opens it.
    fn remedy(&self) -> String {
        let Self { cluster, budget, now, .. } = *self;
        StuckBudget { budget, pods: &self.pods, surroundings: cluster.surroundings(), now }.shown()
    }

    /// Why it allows no eviction, if it allows none.
    fn closed(&self) -> Option<Cause> {
        let Some(mut shut) = self.by_spec().or_else(|| self.by_numbers()) else { return self.by_status() };
        // Who made it may open it again: Ceph's operator closes its budgets while it recovers.
        if let Some(maker) = &self.budget.made_by {
            (shut.code, shut.outlook) = (Code::MadeByOthers, Outlook::NotNow);
            shut.what = format!("{}, and {maker} made it, which may change it", shut.what);
            shut.remedy = self.remedy();
        }
        Some(shut)
    }

    fn cause(&self, code: Code, outlook: Outlook, what: String, remedy: &str) -> Cause {
        Cause::new(code, outlook, CauseObject::budget(self.budget), what, remedy)
    }

    #[allow(clippy::unnecessary_wraps, reason = "each of its callers may find nothing")]
    fn never(&self, code: Code, what: String, remedy: &str) -> Option<Cause> {
        Some(self.cause(code, Outlook::Never, what, remedy))
    }

    /// What no number of pods changes.
    fn by_spec(&self) -> Option<Cause> {
        let demand = self.budget.demand;
        let nothing_leaves = format!("{demand}: no pod may ever leave");
        match demand {
            Demand::MaxUnavailable(Quantity::Count(..=0) | Quantity::Percent(..=0)) => {
                self.never(Code::LetsNoneGo, nothing_leaves, &self.remedy())
            }
            Demand::MinAvailable(Quantity::Percent(100..)) => {
                self.never(Code::NeedsAll, nothing_leaves, &self.remedy())
            }
            Demand::Nothing => self.never(
                Code::NoDemand,
                format!("has {demand}, so it never allows anything"),
                &self.remedy(),
            ),
            Demand::Unreadable => self.never(Code::NoDemand, format!("has {demand}"), &self.remedy()),
            Demand::MaxUnavailable(_) | Demand::MinAvailable(Quantity::Percent(_))
                if !self.pods.is_empty() && self.pods.iter().all(|pod| pod.owner.is_none()) =>
            {
                let what = format!(
                    "{demand}, and none of its {} has a controller, so it expects 0 pods and allows 0",
                    plural(self.pods.len(), "pod")
                );
                self.never(Code::NoControllers, what, &self.remedy())
            }
            _ => None,
        }
    }

    fn by_numbers(&self) -> Option<Cause> {
        match &self.numbers {
            Ok(numbers) => self.too_much(numbers.expected, numbers.desired),
            Err(Unsynced::NoScale { pod, owner }) => {
                self.no_scale(&format!("pod {pod} belongs to {owner}, which has no scale"))
            }
            Err(Unsynced::NoController { pod, owner }) => {
                // One that stays is to be told of, before another that is on its way out.
                let surroundings = self.cluster.surroundings();
                let stays = |pod: &&&Pod| orphan(pod, surroundings) && pod.deleting().is_none();
                let stays = self.pods.iter().find(stays).and_then(|pod| Some((pod, pod.owner.as_ref()?)));
                let who = match stays {
                    Some((pod, of)) => format!("{} {} of pod {}", of.kind, of.name, pod.name),
                    None => format!("{owner} of pod {pod}"),
                };
                self.no_controller(&who, stays.is_none())
            }
            Err(Unsynced::Unreadable | Unsynced::Unknown) => match &self.budget.sync_failed {
                Some(message) if message.contains("does not implement the scale subresource") => {
                    self.no_scale(message)
                }
                Some(message) if message.contains(NO_CONTROLLERS) => {
                    self.no_controller(message, self.is_about_a_pod_that_goes(message))
                }
                Some(message) => self.not_computable(message),
                None if !self.is_behind() => {
                    self.too_much(self.budget.expected_pods.into(), self.budget.desired_healthy.into())
                }
                None => None,
            },
        }
    }

    /// Whether its status is older than its spec, or was never computed.
    fn is_behind(&self) -> bool {
        let Budget { observed_generation, generation, .. } = *self.budget;
        observed_generation < generation || observed_generation == 0
    }

    /// Whether the disruption controller finds no controller of a pod that is on its way out, as `message` says.
    fn is_about_a_pod_that_goes(&self, message: &str) -> bool {
        SyncPasses::of(self.cluster, self.budget, message) == SyncPasses::WhenPodIsGone
    }

    fn no_scale(&self, why: &str) -> Option<Cause> {
        let what = format!("{} cannot be computed, so it allows 0: {why}", self.budget.demand);
        self.never(Code::NotComputable, what, &self.remedy())
    }

    /// A pod's controller is not there; it `passes` where such pods are on their way out.
    fn no_controller(&self, who: &str, passes: bool) -> Option<Cause> {
        let what = format!("{who} does not exist: it cannot be computed and allows 0");
        if passes {
            let remedy = "wait for that pod, which is terminating";
            return Some(self.cause(Code::ControllerGone, Outlook::NotNow, what, remedy));
        }
        self.never(Code::ControllerGone, what, "delete that pod, or narrow the selector")
    }

    fn not_computable(&self, message: &str) -> Option<Cause> {
        let what = format!("the disruption controller cannot compute it: {message}");
        if self.is_about_a_pod_that_goes(message) {
            let remedy = "wait for that pod, which is terminating";
            return Some(self.cause(Code::NotComputable, Outlook::NotNow, what, remedy));
        }
        self.never(Code::NotComputable, what, "mend what it names")
    }

    /// `expected` pods of which `desired` have to be healthy leave no room.
    fn too_much(&self, expected: i64, desired: i64) -> Option<Cause> {
        let demand = self.budget.demand;
        // Pods that are to come make room; what is missing until then is told by the status.
        if !self.guards || expected <= 0 || desired < expected {
            return None;
        }
        let replicas = if expected == 1 { "1 replica".to_owned() } else { format!("{expected} replicas") };
        match demand {
            _ if expected == 1 => {
                let what = format!("{demand} of {replicas}");
                self.never(Code::OnlyReplica, what, &self.remedy())
            }
            Demand::MinAvailable(Quantity::Percent(_)) => {
                let what = format!("{demand} of {replicas} is {desired}, rounded up");
                self.never(Code::RoundedUp, what, &self.remedy())
            }
            _ => self.never(Code::NeedsEveryReplica, format!("{demand} of {replicas}"), &self.remedy()),
        }
    }

    /// How many pods it will expect when all are there that its pods' controllers make, as far as is known.
    fn expected_later(&self) -> i64 {
        expected_later(self.budget, &self.pods, self.cluster.surroundings()).unwrap_or(0)
    }

    /// Why its status tells nothing, if it does not.
    fn untold(&self) -> Option<Cause> {
        let b = self.budget;
        if b.disruptions_allowed < 0 || b.disrupted.len() > MAX_DISRUPTED {
            let what = format!(
                "its status is broken: disruptionsAllowed {}, {} disrupted pods",
                b.disruptions_allowed,
                b.disrupted.len()
            );
            return self.never(
                Code::StatusBroken,
                what,
                "see whether the disruption controller of kube-controller-manager runs",
            );
        }
        if self.is_behind() {
            let what = match b.observed_generation {
                0 => "has no status: the disruption controller has not computed it yet, or does not run"
                    .to_owned(),
                observed => format!("its status is of generation {observed}, its spec of {}", b.generation),
            };
            return Some(self.lags(what));
        }
        None
    }

    fn lags(&self, what: String) -> Cause {
        let remedy =
            "wait; if it stays, see whether the disruption controller of kube-controller-manager runs";
        self.cause(Code::StatusLags, Outlook::NotNow, what, remedy)
    }

    /// The numbers of the status.
    fn numbers_now(&self) -> String {
        let b = self.budget;
        let numbers =
            format!("{} of {} healthy, {} needed", b.current_healthy, b.expected_pods, b.desired_healthy);
        let coming = self.expected_later().saturating_sub(b.expected_pods.into());
        if coming > 0 && b.desired_healthy >= b.expected_pods {
            format!("{numbers}, and {coming} more to come")
        } else {
            numbers
        }
    }

    /// What the status says now.
    fn by_status(&self) -> Option<Cause> {
        let b = self.budget;
        let not_now =
            |code, what: String, remedy: &str| Some(self.cause(code, Outlook::NotNow, what, remedy));
        if let Some(untold) = self.untold() {
            return Some(untold);
        }
        if b.disruptions_allowed > 0 {
            return None;
        }
        if b.expected_pods <= 0 {
            let pods = self.pods.iter().filter(|pod| pod.stays()).count();
            let selects = plural(pods, "pod");
            let what = format!("its status expects 0 pods, so it allows 0, though it selects {selects}");
            return Some(self.lags(what)).filter(|_| pods > 0);
        }
        if let Some(message) = &b.sync_failed {
            return self.not_computable(message);
        }
        let numbers = self.numbers_now();
        let unready = |pod: &&&Pod| pod.phase == Phase::Running && pod.deleting().is_none() && !pod.ready;
        let unready: Vec<&Pod> = self.pods.iter().filter(unready).copied().collect();
        if b.desired_healthy == 0
            && b.current_healthy == 0
            && b.unhealthy_policy != UnhealthyPolicy::AlwaysAllow
        {
            let what =
                format!("{} with no pod ready: a budget that needs 0 never counts as healthy", b.demand);
            return not_now(
                Code::NeverHealthy,
                what,
                "set unhealthyPodEvictionPolicy: AlwaysAllow, or mend the pods",
            );
        }
        if let Some(why) = self.pods.iter().find_map(|pod| pod.traits().unschedulable.as_ref()) {
            let waiting = self.pods.iter().filter(|pod| pod.traits().unschedulable.is_some()).count();
            let what = format!("{numbers}; {} without a node: {why}", plural(waiting, "pod"));
            return not_now(
                Code::PodsWithoutNode,
                what,
                "make room for its pods, or let them run on more nodes",
            );
        }
        if !unready.is_empty() {
            let named: Vec<String> = unready.iter().take(NAMED).map(|pod| state(pod)).collect();
            let more = unready.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let what = format!("{numbers}; not ready: {}{more}", named.join(", "));
            let remedy = match b.made_by {
                Some(_) => "mend those pods",
                None => {
                    "mend those pods, or set unhealthyPodEvictionPolicy: AlwaysAllow so that they may leave"
                }
            };
            return not_now(Code::TooFewHealthy, what, remedy);
        }
        if let Some(lost) = lost(b, self.now) {
            return not_now(Code::TooFewHealthy, format!("{numbers}; {lost}"), "wait for that");
        }
        if let Some(maker) = &b.made_by {
            return not_now(
                Code::MadeByOthers,
                format!("{numbers}; {maker} made it and may close it"),
                "wait for that",
            );
        }
        not_now(Code::TooFewHealthy, numbers, "wait for its pods to be healthy")
    }

    fn policy(&self) -> Option<Cause> {
        if self.budget.unhealthy_policy != UnhealthyPolicy::Unrecognised {
            return None;
        }
        let unready = self.pods.iter().any(|pod| !pod.ready && pod.phase == Phase::Running);
        let outlook = if unready { Outlook::Never } else { Outlook::Caution };
        let what =
            "has an unhealthyPodEvictionPolicy that this version does not know: no unready pod is evicted";
        Some(self.cause(Code::UnknownPolicy, outlook, what.to_owned(), "use IfHealthyBudget or AlwaysAllow"))
    }

    /// Warns where the budget allows evictions now, and none when its autoscaler goes down to `minReplicas`.
    fn at_the_least(&self) -> Option<Cause> {
        let numbers = self.numbers.as_ref().ok().filter(|numbers| numbers.steady() > 0)?;
        let mut owners = self.pods.iter().filter_map(|pod| Some((&pod.namespace, pod.owner.as_ref()?)));
        let (namespace, owner) = owners.next()?;
        let workload = self.cluster.surroundings().workload(namespace, owner)?;
        let top = workload.owner.as_ref().unwrap_or(&workload.this);
        let scaler = self.cluster.surroundings().autoscalers.iter().flatten().find(|scaler| {
            scaler.namespace == *namespace && scaler.target == (top.kind.clone(), top.name.clone())
        })?;
        let least = i64::from(scaler.min_replicas);
        let desired = match self.budget.demand {
            Demand::MinAvailable(Quantity::Count(number)) => number.into(),
            Demand::MinAvailable(percent) => percent.of(least),
            Demand::MaxUnavailable(quantity) => least - quantity.of(least),
            Demand::Nothing | Demand::Unreadable => return None,
        };
        (least < numbers.expected && desired >= least).then(|| {
            let what = format!(
                "{}: allows {} of {} replicas now, and none when its autoscaler goes down to {least}",
                self.budget.demand,
                numbers.steady(),
                numbers.expected
            );
            let remedy = match &self.budget.made_by {
                Some(_) => "raise the autoscaler's minReplicas",
                None => "set maxUnavailable 1, or raise the autoscaler's minReplicas",
            };
            self.cause(Code::NeedsEveryReplica, Outlook::Caution, what, remedy)
        })
    }
}

fn state(pod: &Pod) -> String {
    match &pod.traits().waiting {
        Some(reason) => format!("{} ({reason})", pod.name),
        None => pod.name.to_string(),
    }
}
