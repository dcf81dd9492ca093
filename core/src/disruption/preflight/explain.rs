//! Why one node, pod or budget does not move: one line first.
//!
//! Here belongs which of the causes answers the question; the causes are those of the preflight.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::class::{Class, Handling, class, handling, warnings};
use super::super::permit::Budgets;
use super::budgets::of_budget;
use super::cause::{Cause, Outlook};
use super::every_cause::causes;
use super::question::Question;
use crate::cluster::{Budget, Node, Pod, UnhealthyPolicy};
use crate::text::plural;

/// An answer: one line, what is in the way, and what else is to know.
#[derive(Debug)]
pub struct Explanation {
    /// The answer itself, in one line.
    pub line: String,
    /// What is in the way, the gravest first.
    pub causes: Vec<Cause>,
    /// More, a line each.
    pub details: Vec<String>,
}

/// The budgets that may be there though the cluster of a question has none of them.
#[derive(Clone, Debug, Default)]
pub struct UnseenBudgets {
    /// Why there may be some in every namespace, in one line; `None` if there are none but `unread`.
    pub anywhere: Option<String>,
    /// The namespace and the name of each that cannot be read.
    pub unread: Vec<(Arc<str>, Arc<str>)>,
}

impl UnseenBudgets {
    /// Why there may be one of pods in `namespaces`, in one line; `None` if there is none.
    fn of(&self, namespaces: &[&str]) -> Option<String> {
        // Without a namespace it may be in any.
        let may_be_there = |namespace: &str| {
            !namespaces.is_empty() && (namespace.is_empty() || namespaces.contains(&namespace))
        };
        let mut unread = self.unread.iter().filter(|(namespace, _)| may_be_there(namespace));
        let Some((namespace, name)) = unread.next() else {
            return self.anywhere.clone().filter(|_| !namespaces.is_empty());
        };
        let more = match unread.count() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Some(format!("PDB {namespace}/{name} cannot be read{more}"))
    }
}

/// What is added to the word that a pod may leave, where there may be a budget that was not seen.
const UNLESS: &str = ", unless a PodDisruptionBudget that was not seen keeps it";

fn worst(causes: &[Cause]) -> Option<&Cause> {
    causes.iter().find(|cause| cause.outlook != Outlook::Caution)
}

/// Why `node` is not empty, where there may be `unseen` budgets.
pub fn node(question: &Question<'_>, node: &Node, unseen: &UnseenBudgets) -> Explanation {
    let causes = causes(&Question { nodes: vec![node], ..question.clone() });
    let cluster = question.cluster;
    let budgets = Budgets::new(cluster, BTreeMap::new(), question.now);
    let mut details = Vec::new();
    let mut moving = Vec::new();
    for pod in cluster.pods_on(&node.name) {
        let class = class(pod, question.rules, cluster.surroundings(), question.now);
        let handling = handling(pod, class, question.rules);
        if handling != Handling::Leave {
            moving.push(&*pod.namespace);
        }
        let unless = unseen.of(&[&pod.namespace]).map_or("", |_| UNLESS);
        details.push(format!(
            "pod/{}/{}: {}",
            pod.namespace,
            pod.name,
            standing(&budgets, pod, class, &handling, unless)
        ));
    }
    let line = match worst(&causes) {
        Some(cause) if cause.outlook == Outlook::Never => {
            format!("can never be drained as it is: {}: {}", cause.object, cause.what)
        }
        Some(cause) => format!("cannot be drained now: {}: {}", cause.object, cause.what),
        None if moving.is_empty() => "has no pod that would have to leave".to_owned(),
        None => match (plural(moving.len(), "pod"), unseen.of(&moving)) {
            (pods, None) => format!("nothing is in the way of draining it: {pods} would leave"),
            (pods, Some(why)) => format!(
                "nothing that was seen is in the way of draining it, and {pods} would leave; a \
                 PodDisruptionBudget that was not seen may be in the way: {why}"
            ),
        },
    };
    Explanation { line, causes, details }
}

/// Why `pod` does not leave, where there may be `unseen` budgets.
pub fn pod(question: &Question<'_>, pod: &Pod, unseen: &UnseenBudgets) -> Explanation {
    let cluster = question.cluster;
    let budgets = Budgets::new(cluster, BTreeMap::new(), question.now);
    let class = class(pod, question.rules, cluster.surroundings(), question.now);
    let handling = handling(pod, class, question.rules);
    let node = cluster.node(&pod.node);
    let name = pod.full_name();
    let mut causes = causes(&Question { nodes: node.into_iter().collect(), ..question.clone() });
    causes.retain(|cause| cause.pods.contains(&name));
    let of_its_own = |cause: &&Cause| cause.outlook != Outlook::Caution && !cause.is_about_its_replacement();
    let after = || causes.iter().find(|cause| cause.is_about_its_replacement());
    let unseen = unseen.of(&[&pod.namespace]);
    let unless = unseen.as_ref().map_or_else(String::new, |why| format!("{UNLESS}: {why}"));
    let standing = || standing(&budgets, pod, class, &handling, &unless);
    let line = match causes.iter().find(of_its_own) {
        Some(cause) if cause.outlook == Outlook::Never => {
            format!("can never be evicted as it is: {}: {}", cause.object, cause.what)
        }
        Some(cause) => format!("cannot be evicted now: {}: {}", cause.object, cause.what),
        None => match after() {
            Some(cause) => {
                format!("{}; but another finds no place: {}: {}", standing(), cause.object, cause.what)
            }
            None => standing(),
        },
    };
    let guarding = budgets.guarding(pod);
    let mut details: Vec<String> =
        guarding.iter().map(|budget| format!("guarded by {}", numbers(budget))).collect();
    if guarding.is_empty() {
        let seen = if unseen.is_some() { " that was seen" } else { "" };
        details.push(format!("no PDB{seen} selects it"));
    }
    details.extend(warnings(pod, class, cluster.surroundings()));
    Explanation { line, causes, details }
}

/// Why `budget` allows nothing.
pub fn budget(question: &Question<'_>, budget: &Budget) -> Explanation {
    let causes = of_budget(question.cluster, budget, question);
    let line = match worst(&causes) {
        Some(cause) if cause.outlook == Outlook::Never => {
            format!("can never allow an eviction as it is: {}", cause.what)
        }
        Some(cause) => format!("allows no eviction now: {}", cause.what),
        None if budget.disruptions_allowed > 0 => format!(
            "allows {} now: {} of {} healthy, {} needed",
            plural(usize::try_from(budget.disruptions_allowed).unwrap_or(0), "eviction"),
            budget.current_healthy,
            budget.expected_pods,
            budget.desired_healthy
        ),
        None if question.cluster.pods().any(|pod| budget.selects(pod)) => {
            "expects no pod: those that it selects have finished or are terminating".to_owned()
        }
        None => "selects no pod".to_owned(),
    };
    let pods = question.cluster.pods().filter(|pod| budget.selects(pod)).map(|pod| {
        let place = if pod.node.is_empty() { "on no node".to_owned() } else { format!("on {}", pod.node) };
        let ready = match (pod.deleting(), pod.ready, &pod.traits().waiting) {
            (Some(_), ..) => "terminating",
            (_, true, _) => "ready",
            (_, _, Some(reason)) => reason,
            _ => "not ready",
        };
        format!("pod/{}/{}: {ready}, {place}", pod.namespace, pod.name)
    });
    let details = std::iter::once(numbers(budget)).chain(pods).collect();
    Explanation { line, causes, details }
}

fn numbers(budget: &Budget) -> String {
    format!(
        "PDB {} ({}): {} allowed, {} of {} healthy, {} needed",
        budget.full_name(),
        budget.demand,
        budget.disruptions_allowed,
        budget.current_healthy,
        budget.expected_pods,
        budget.desired_healthy
    )
}

/// How `pod` stands; `unless` is added where it may leave.
fn standing(budgets: &Budgets<'_>, pod: &Pod, class: Class, handling: &Handling, unless: &str) -> String {
    match (class, handling) {
        (_, Handling::Refuse(why)) => (*why).to_owned(),
        (Class::DaemonSet, _) => "stays: its DaemonSet would bring it back".to_owned(),
        (Class::Static, _) => "stays: the kubelet runs it from a file".to_owned(),
        (Class::Finished, Handling::Leave) => "stays: it has finished".to_owned(),
        (Class::Executor, _) => "stays: it is an executor's own".to_owned(),
        (Class::Skip, _) => "takes no part".to_owned(),
        (Class::Terminating, _) => match pod.deleting() {
            Some(at) => format!("is terminating, until {at} at the latest"),
            None => "is terminating".to_owned(),
        },
        (Class::WaitCompleted, _) => "is waited for until it finishes".to_owned(),
        _ => match budgets.check(pod) {
            Ok(()) => match budgets.freed_by(pod) {
                Some(budget) if budget.unhealthy_policy == UnhealthyPolicy::AlwaysAllow => format!(
                    "may leave now: it is not ready, and PDB {} lets such pods go (AlwaysAllow){unless}",
                    budget.full_name()
                ),
                Some(budget) => format!(
                    "may leave now: it is not ready, and PDB {} is healthy without it{unless}",
                    budget.full_name()
                ),
                None => format!("may leave now{unless}"),
            },
            Err(refusal) => refusal.to_string(),
        },
    }
}
