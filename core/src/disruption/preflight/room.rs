//! Whether the pods of a node find room on the others (B9).
//!
//! Here belongs what the sums say, and no more: a pod that is larger than what any other node has left, and pods that
//! together are more than what all have left. The invariant: what is told cannot be placed as things are; taints,
//! affinities and how pods are packed may forbid more, which only the scheduler knows, and preemption may make room at
//! the cost of pods of lower priority.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::class::{Class, Handling, class, handling};
use super::budgets::plural;
use super::pods::{Found, others};
use super::{Object, Outlook, Question};
use crate::cluster::{Amounts, Node, Phase, Pod, Room};

/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";
const REMEDY: &str = "add a node, or scale something down; an autoscaler of nodes may do that by itself";

/// What every node has left.
pub(super) struct Left<'a> {
    room: &'a Room,
    left: BTreeMap<&'a str, Amounts>,
}

impl<'a> Left<'a> {
    /// `None` where it was not read what pods request.
    pub(super) fn of(question: &Question<'a>) -> Option<Self> {
        let cluster = question.cluster;
        let room = cluster.around.room.as_ref()?;
        let mut left = BTreeMap::new();
        for node in &cluster.nodes {
            let Some(offered) = room.offers.get(&node.name) else { continue };
            let pods = cluster.pods_on(&node.name).iter();
            let taken = pods.filter(|pod| pod.phase != Phase::Finished).map(|pod| room.requested(pod));
            left.insert(&*node.name, taken.fold(*offered, |left, pod| left - pod));
        }
        Some(Self { room, left })
    }

    /// What is in the way of `node`'s pods.
    pub(super) fn judge(&self, question: &Question<'a>, node: &'a Node, found: &mut Found<'a>) {
        let elsewhere: Vec<(&Node, Amounts)> =
            others(question, node).filter_map(|other| Some((other, *self.left.get(&*other.name)?))).collect();
        // That there is no other node is told already.
        if elsewhere.is_empty() {
            return;
        }
        let mut together: BTreeMap<Option<&str>, (usize, Amounts)> = BTreeMap::new();
        for pod in question.cluster.pods_on(&node.name) {
            let class = class(pod, question.rules, &question.cluster.around, question.now);
            let leaves = handling(pod, class, question.rules) == Handling::Evict;
            if !leaves || !matches!(class, Class::Move) || pod.phase == Phase::Finished {
                continue;
            }
            let wanted = self.room.requested(pod);
            let zone = self.zone(pod);
            let (pods, sum) = together.entry(zone).or_insert((0, Amounts::ZERO));
            *pods += 1;
            *sum = *sum + wanted;
            let mut places = elsewhere.iter().filter(|(other, _)| in_zone(other, zone));
            if !places.any(|(_, left)| wanted.fits(*left)) {
                let most = elsewhere.iter().filter(|(other, _)| in_zone(other, zone)).map(|(_, left)| *left);
                let most = most.fold(Amounts::ZERO, Amounts::most);
                let what = match wanted.beyond(most) {
                    Some((resource, wanted, most)) => format!(
                        "requests {wanted} of {resource}, and no other schedulable node{} has more than {most} left",
                        of_zone(zone)
                    ),
                    None => format!(
                        "requests {wanted}, which no other schedulable node{} has left at once",
                        of_zone(zone)
                    ),
                };
                found.add("B9", Outlook::NotNow, pod, what, REMEDY);
            }
        }
        // Those that may go anywhere compete with those of a zone.
        let all = together.values().fold((0, Amounts::ZERO), |(n, sum), (pods, of)| (n + pods, sum + *of));
        together.insert(None, all);
        // What a single one wants is told already.
        for (zone, (pods, sum)) in together.into_iter().filter(|(_, (pods, _))| *pods > 1) {
            let places: Vec<_> = elsewhere.iter().filter(|(other, _)| in_zone(other, zone)).collect();
            let left = places.iter().fold(Amounts::ZERO, |all, (_, left)| all + left.at_least_none());
            if let Some((resource, wanted, left)) = sum.beyond(left) {
                let whose = zone.map_or_else(String::new, |zone| format!(" with volumes of zone {zone}"));
                let what = format!(
                    "its {pods} movable pods{whose} request {wanted} of {resource}, and {left} is left on {}{}",
                    plural(places.len(), "other schedulable node"),
                    of_zone(zone),
                );
                found.put("B9", Outlook::NotNow, Object::node(&node.name), what, REMEDY);
                // One line for a node is enough.
                return;
            }
        }
    }

    /// The zone that a volume of `pod` ties it to, where that is one.
    fn zone(&self, pod: &Pod) -> Option<&'a str> {
        let zones = |claim: &Arc<str>| self.room.zones.get(&(Arc::clone(&pod.namespace), Arc::clone(claim)));
        pod.traits().claims.iter().filter_map(zones).find_map(|zones| match zones.as_slice() {
            [zone] => Some(&**zone),
            _ => None,
        })
    }
}

fn in_zone(node: &Node, zone: Option<&str>) -> bool {
    zone.is_none_or(|zone| node.labels.get(ZONE).is_none_or(|own| own == zone))
}

fn of_zone(zone: Option<&str>) -> String {
    zone.map_or_else(String::new, |zone| format!(" of zone {zone}"))
}
