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
use crate::cluster::{Amounts, Lack, Node, Phase, Pod, Room};

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
        let room = cluster.around().room.as_ref()?;
        let mut left = BTreeMap::new();
        for node in cluster.nodes() {
            let Some(offered) = room.offers.get(&node.name) else { continue };
            let pods = cluster.pods_on(&node.name);
            let mut own = offered.clone();
            pods.filter(|pod| pod.phase != Phase::Finished).for_each(|pod| own.take(&room.requested(pod)));
            left.insert(&*node.name, own);
        }
        Some(Self { room, left })
    }

    /// What is in the way of `node`'s pods.
    pub(super) fn judge(&self, question: &Question<'a>, node: &'a Node, found: &mut Found<'a>) {
        let elsewhere: Vec<(&Node, &Amounts)> =
            others(question, node).filter_map(|other| Some((other, self.left.get(&*other.name)?))).collect();
        // That there is no other node is told already.
        if elsewhere.is_empty() {
            return;
        }
        let mut together: BTreeMap<Option<&str>, (usize, Amounts)> = BTreeMap::new();
        for pod in question.cluster.pods_on(&node.name) {
            let class = class(pod, question.rules, question.cluster.around(), question.now);
            let leaves = handling(pod, class, question.rules) == Handling::Evict;
            if !leaves || class != Class::Move || pod.phase == Phase::Finished {
                continue;
            }
            let wanted = self.room.requested(pod);
            let zone = self.zone(pod);
            let (pods, sum) = together.entry(zone).or_default();
            *pods += 1;
            sum.add(&wanted);
            let places = || elsewhere.iter().filter(|(other, _)| in_zone(other, zone)).map(|(_, left)| *left);
            if !places().any(|left| wanted.lack(left).is_none()) {
                let mut most = Amounts::default();
                places().for_each(|left| most.raise(left));
                let what = match wanted.lack(&most) {
                    Some(Lack { resource, wanted, left }) => format!(
                        "requests {wanted} of {resource}, and no other schedulable node{} has more than {left} left",
                        of_zone(zone)
                    ),
                    None => format!(
                        "requests what no other schedulable node{} has left at once, though each resource is there",
                        of_zone(zone)
                    ),
                };
                found.add("B9", Outlook::NotNow, pod, what, REMEDY);
            }
        }
        // Those that may go anywhere compete with those of a zone.
        let mut all = (0, Amounts::default());
        for (pods, sum) in together.values() {
            all.0 += pods;
            all.1.add(sum);
        }
        together.insert(None, all);
        // What a single one wants is told already.
        for (zone, (pods, sum)) in together.into_iter().filter(|(_, (pods, _))| *pods > 1) {
            let places: Vec<_> = elsewhere.iter().filter(|(other, _)| in_zone(other, zone)).collect();
            let mut left = Amounts::default();
            for (_, of) in &places {
                left.add(&(*of).clone().at_least_none());
            }
            if let Some(Lack { resource, wanted, left }) = sum.lack(&left) {
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
