//! Whether the pods of a node find room on the others (B9).
//!
//! Here belongs what the sums say, and no more: a pod that is larger than what any other node that it may run on has
//! left, and pods that together are more than what all of those have left. The invariant: what is told cannot be placed
//! as things are; taints and how pods are packed may forbid more, which only the scheduler knows, and preemption may
//! make room at the cost of pods of lower priority.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::class::{Class, Handling, class, handling};
use super::cause::{CauseObject, Outlook};
use super::causes_found::{CausesFound, others};
use super::code::Code;
use super::placement::Placements;
use super::question::Question;
use crate::cluster::{Amounts, Capacity, Lack, Node, Phase, Placement, Pod};
use crate::text::plural;

/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";
const REMEDY: &str = "add a node, or scale something down; an autoscaler of nodes may do that by itself";

/// What every node has left.
pub(super) struct FreeCapacity<'a> {
    capacity: &'a Capacity,
    left: BTreeMap<&'a str, Amounts>,
}

impl<'a> FreeCapacity<'a> {
    /// What every node of the cluster has left; `None` where pods' requests were not read.
    pub(super) fn of(question: &Question<'a>) -> Option<Self> {
        let cluster = question.cluster;
        let capacity = cluster.surroundings().capacity.as_ref()?;
        let mut left = BTreeMap::new();
        for node in cluster.nodes() {
            let Some(offered) = capacity.offers.get(&node.name) else { continue };
            let pods = cluster.pods_on(&node.name);
            let mut own = offered.clone();
            pods.filter(|pod| pod.phase != Phase::Finished)
                .for_each(|pod| own.take(&capacity.requested(pod)));
            left.insert(&*node.name, own);
        }
        Some(Self { capacity, left })
    }

    /// What is in the way of `node`'s pods.
    pub(super) fn judge(
        &self,
        question: &Question<'a>,
        places: &Placements<'a>,
        node: &'a Node,
        found: &mut CausesFound<'a>,
    ) {
        let elsewhere: Vec<(&Node, &Amounts)> =
            others(question, node).filter_map(|other| Some((other, self.left.get(&*other.name)?))).collect();
        // That there is no other node is told already.
        if elsewhere.is_empty() {
            return;
        }
        let mut together: BTreeMap<Choice<'a>, (usize, Amounts)> = BTreeMap::new();
        for pod in question.cluster.pods_on(&node.name) {
            let class = class(pod, question.rules, question.cluster.surroundings(), question.now);
            let leaves = handling(pod, class, question.rules) == Handling::Evict;
            if !leaves || class != Class::Move || pod.phase == Phase::Finished {
                continue;
            }
            let wanted = self.capacity.requested(pod);
            let seeking = places.seek(pod);
            let choice = Choice { zone: self.zone(pod), rule: seeking.rule.filter(|rule| rule.chooses()) };
            let open = |other: &Node| choice.allows(other) && seeking.unfit(other).is_none();
            let places = || elsewhere.iter().filter(|(other, _)| open(other)).map(|(_, left)| *left);
            // That no other node is for it is told already.
            if elsewhere.iter().all(|(other, _)| seeking.unfit(other).is_some()) {
                continue;
            }
            let (pods, sum) = together.entry(choice).or_default();
            *pods += 1;
            sum.add(&wanted);
            if !places().any(|left| wanted.lack(left).is_none()) {
                let mut most = Amounts::default();
                places().for_each(|left| most.raise(left));
                let which = choice.shown();
                let what = match wanted.lack(&most) {
                    _ if places().next().is_none() && choice.rule.is_some() => {
                        format!("there is no other schedulable node{which}")
                    }
                    Some(Lack { resource, wanted, left }) => format!(
                        "requests {wanted} of {resource}, and no other schedulable node{which} has more than {left} left",
                    ),
                    None => format!(
                        "requests what no other schedulable node{which} has left at once, though each resource is there",
                    ),
                };
                found.add(Code::NoRoom, Outlook::NotNow, pod, what, REMEDY);
            }
        }
        if let Some(what) = sums(together, &elsewhere) {
            found.put(Code::NoRoom, Outlook::NotNow, CauseObject::node(&node.name), what, REMEDY);
        }
    }

    /// The one zone that a volume of `pod` ties it to; `None` where no volume is tied to a single zone.
    fn zone(&self, pod: &Pod) -> Option<Zone<'a>> {
        let zones =
            |claim: &Arc<str>| self.capacity.zones.get(&(Arc::clone(&pod.namespace), Arc::clone(claim)));
        pod.traits().claims.iter().filter_map(zones).find_map(|tie| match tie.zones.as_slice() {
            [name] => Some(Zone { label: &tie.label, name }),
            _ => None,
        })
    }
}

/// A zone, as the driver of a volume names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Zone<'a> {
    /// The driver's label of Nodes.
    label: &'a str,
    /// Its value.
    name: &'a str,
}

impl Zone<'_> {
    /// Whether `node` may be in it. Where the driver has not labelled the node, its usual label counts.
    fn has(self, node: &Node) -> bool {
        let own = node.labels.get(self.label).or_else(|| node.labels.get(ZONE));
        own.is_none_or(|own| own == self.name)
    }
}

/// Which nodes a pod may go to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Choice<'a> {
    /// The zone of its volume.
    zone: Option<Zone<'a>>,
    rule: Option<&'a Placement>,
}

impl Choice<'_> {
    const ANY: Self = Self { zone: None, rule: None };

    fn allows(&self, node: &Node) -> bool {
        self.zone.is_none_or(|zone| zone.has(node)) && self.rule.is_none_or(|rule| rule.allows(node))
    }

    /// As it stands after `node`.
    fn shown(&self) -> String {
        let zone = self.zone.map_or_else(String::new, |zone| format!(" of zone {}", zone.name));
        let rule = self.rule.map_or_else(String::new, |rule| format!(" that its {} allows", rule.shown()));
        zone + &rule
    }

    /// As it stands after `pods`.
    fn of_pods(&self) -> String {
        let zone = self.zone.map_or_else(String::new, |zone| format!(" with volumes of zone {}", zone.name));
        let rule = self.rule.map_or_else(String::new, |rule| format!(" with {}", rule.shown()));
        zone + &rule
    }
}

/// What the pods of a node want together that the other nodes do not have: one line is enough.
fn sums(
    mut together: BTreeMap<Choice<'_>, (usize, Amounts)>,
    elsewhere: &[(&Node, &Amounts)],
) -> Option<String> {
    // Pods that may go anywhere compete for room with pods that may not, so all of them are summed up, too.
    let mut all = (0, Amounts::default());
    for (pods, sum) in together.values() {
        all.0 += pods;
        all.1.add(sum);
    }
    together.insert(Choice::ANY, all);
    // What a single pod wants is told already.
    together.into_iter().filter(|(_, (pods, _))| *pods > 1).find_map(|(choice, (pods, sum))| {
        let places: Vec<_> = elsewhere.iter().filter(|(other, _)| choice.allows(other)).collect();
        let mut left = Amounts::default();
        for (_, of) in &places {
            left.add(&(*of).clone().at_least_none());
        }
        let Lack { resource, wanted, left } = sum.lack(&left)?;
        let zone = choice.zone.map_or_else(String::new, |zone| format!(" of zone {}", zone.name));
        Some(format!(
            "its {pods} movable pods{} request {wanted} of {resource}, and {left} is left on {}{zone}",
            choice.of_pods(),
            plural(places.len(), "other schedulable node"),
        ))
    })
}
