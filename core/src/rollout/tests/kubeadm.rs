//! Toys whose control-plane nodes move as a whole: their executor, a second a tick, and what is checked after every
//! write.

use jiff::SignedDuration;

use super::super::*;
use super::cluster::{Toy, Way};
use crate::cluster::{Component, Evidence, Instance, Node, Reach};
use crate::fixture::{instance, node};
use crate::upgrade::{Executor, Unit};
use crate::version::Observed;

/// What all of them run at first.
pub(super) const OLD: &str = "v1.36.4";
/// What runs on each control-plane node.
pub(super) const ALL: [Component; 3] =
    [Component::KubeApiserver, Component::KubeControllerManager, Component::KubeScheduler];

impl Toy {
    /// `planes` nodes of kubeadm's, each with a whole control plane, and `workers`. Jobs move them: `apply` the first of a
    /// hop, `node` the others.
    pub(super) fn kubeadm(planes: usize, workers: usize) -> Self {
        let mut toy = Self::new(workers, 1);
        let deadline = SignedDuration::from_secs(60);
        for name in ["apply", "node"] {
            let job = Executor::Job { template: format!("\"{name}\"").into(), deadline };
            toy.upgrade.executors.insert(name.into(), job);
        }
        let plane = &mut toy.upgrade.control_plane;
        (plane.unit, plane.executor, plane.first_executor) =
            (Unit::Node, "node".into(), Some("apply".into()));
        let names: Vec<String> = (1..=planes).map(|at| format!("cp-{at}")).collect();
        let of = |component: Component| {
            names.iter().map(move |name| Instance {
                reach: if component.is_controller() { Reach::Local } else { Reach::Any },
                incarnation: format!("{component}-{name}").into(),
                ..instance(component, name, OLD)
            })
        };
        toy.cluster.set_instances(ALL.into_iter().flat_map(of).collect());
        for name in &names {
            toy.cluster.set_node(Node { control_plane: true, ..node(name, OLD) });
        }
        toy
    }

    /// Two servers of k3s: one process each.
    pub(super) fn k3s() -> Self {
        let (old, mut toy) = ("v1.36.4+k3s1", Self::kubeadm(2, 1));
        toy.upgrade.version = "v1.37.1+k3s1".parse().unwrap();
        toy.cluster.change_instances(|instance| {
            instance.version = Observed::from_report(old);
            instance.reach = Reach::Local;
            if instance.component.is_controller() {
                instance.evidence = Evidence::SameProcess;
            }
        });
        for name in ["cp-1", "cp-2", "n-1"] {
            toy.cluster.change_node(name, |node| node.kubelet = Observed::from_report(old));
        }
        toy
    }

    /// One second of the executor of `claim`, the `second`th since it began.
    pub(super) fn work_on_plane(&mut self, claim: &Claim, second: i64) {
        let (moves, place) = (&claim.subject.components, &claim.subject.node);
        let limit = match self.way {
            Way::Fails(many) | Way::Hangs(many) => many,
            _ => moves.len(),
        };
        if self.broken.as_deref() == Some(&**place) {
            return;
        }
        let mut instances = self.cluster.instances().to_vec();
        let (at, phase) = (usize::try_from((second - 1) / 4).unwrap(), (second - 1).rem_euclid(4));
        if let Some(component) = moves.get(at).filter(|_| second > 0 && at < limit) {
            let is_it = |i: &Instance| i.component == *component && i.node.as_ref() == Some(place);
            match (component, phase) {
                (Component::Kubelet, 0) => {
                    let version = (self.comes_as)(*component, &claim.subject.to);
                    let now = self.world().now;
                    self.cluster.change_node(place, |node| {
                        (node.kubelet, node.heartbeat) = (Observed::Known(version), Some(now));
                    });
                }
                (Component::Kubelet, _) => {}
                (_, 0) => {
                    self.away.extend(instances.iter().filter(|i| is_it(i)).cloned());
                    instances.retain(|i| !is_it(i));
                }
                (_, 2) => instances.extend(self.away.drain(..).map(|gone| Instance {
                    version: Observed::Known((self.comes_as)(*component, &claim.subject.to)),
                    incarnation: format!("{}-again", gone.incarnation).into(),
                    ready: false,
                    ..gone
                })),
                (_, 3) => instances.iter_mut().filter(|i| is_it(i)).for_each(|i| i.ready = true),
                _ => {}
            }
            instances.sort_by(|a, b| (a.component, &a.name).cmp(&(b.component, &b.name)));
            self.cluster.set_instances(instances);
        }
        let end = |parts: usize| second >= i64::try_from(parts).unwrap() * 4 + 2;
        let says = match self.way {
            Way::Good if end(limit) => JobState::Complete,
            Way::SaysEarly(many) if end(many) => JobState::Complete,
            Way::Fails(many) if end(many) => JobState::Failed("BackoffLimitExceeded".to_owned()),
            Way::FailsLast if end(limit) => JobState::Failed("cannot write kubeadm-config".to_owned()),
            _ => return,
        };
        if let Some(job) = self.jobs.made.get_mut(&(claim.uid.clone(), claim.attempt)) {
            *job = says;
        }
    }

    /// After every write: one control-plane node at a time, kubelets after all of them, and "upgraded" is what is seen
    /// and what its executor said.
    pub(super) fn check_plane(&self) {
        let mut planes = self.claims.iter().filter(|claim| claim.subject.is_of_plane());
        let busy = planes.clone().filter(|claim| claim.state.unfinished()).count();
        assert!(busy <= 1, "{busy} control-plane nodes at once");
        let kubelets = || self.claims.iter().filter(|claim| claim.is_of_kubelet());
        let works = |claim: &Claim| matches!(claim.state, ClaimState::Upgrading { .. });
        let both = planes.clone().any(works) && kubelets().any(works);
        assert!(!both, "a kubelet is upgraded while the control plane of a node is");
        let ends =
            |line: &&String| line.starts_with("Record up.control-plane") && line.ends_with(" Upgraded");
        let Some(last) = self.log.last().filter(ends) else { return };
        let claim = planes.find(|claim| last.contains(&*claim.name)).unwrap();
        for component in claim.subject.moves().iter().filter(|of| **of != Component::Kubelet) {
            let place = &claim.subject.node;
            let found = self.cluster.of(*component).find(|i| i.node.as_ref() == Some(place)).unwrap();
            let asked = (self.comes_as)(*component, &claim.subject.to);
            assert!(found.ready && found.version.to_string() == asked.to_string(), "{last}");
        }
        let job = matches!(self.upgrade.executors[&claim.subject.executor], Executor::Job { .. });
        let complete = self
            .jobs
            .made
            .get(&(claim.uid.clone(), claim.attempt))
            .is_none_or(|job| *job == JobState::Complete);
        assert!(!job || complete, "{last} before its Job is complete");
    }

    pub(super) fn plane(&self, place: &str) -> Option<&Claim> {
        self.claims.iter().find(|claim| *claim.name == *format!("up.control-plane.{place}"))
    }

    pub(super) fn state_of(&self, place: &str) -> &str {
        self.plane(place).map_or("none", |claim| claim.state.name())
    }

    pub(super) fn delete(&mut self, place: &str) {
        let name = format!("up.control-plane.{place}");
        self.claims.iter_mut().find(|claim| *claim.name == *name).unwrap().ending = true;
    }
}
