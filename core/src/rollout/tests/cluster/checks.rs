//! What has to hold of a toy cluster after every write, and of each status.

use super::super::super::*;
use super::Toy;
use crate::cluster::Component;
use crate::fixture::at;

impl Toy {
    /// What is decided now, as the operator looks at it, and checked.
    pub(super) fn look(&mut self) -> Decision {
        self.jobs.see_pods(&self.cluster, &self.claims, "executors", at(self.seconds));
        let decision = self.decided();
        self.check_waits(&decision);
        decision
    }

    /// Whoever looks at what an upgrade waits for sees why it stands still, and no time that is over. Whoever is told to look
    /// again at such a time, and has nothing to do, looks again at once, and for as long as that is so.
    fn check_waits(&self, decision: &Decision) {
        let Decision { actions, again_at, status } = decision;
        let UpgradeStatus { phase, waits, .. } = status;
        let of_person = |waiting: &Waiting| waiting.reason.ended_by() == EndedBy::Person;
        assert!(!phase.stalled() || waits.iter().any(of_person), "{phase:?} {waits:#?}");
        let now = at(self.seconds);
        assert!(
            waits.iter().all(|waiting| waiting.until.is_none_or(|until| until > now)),
            "{now} {waits:#?}"
        );
        let comes = again_at.is_none_or(|again| again > now);
        assert!(comes || !actions.is_empty(), "looks again at {again_at:?}, and it is {now}");
    }

    pub(super) fn check(&mut self) {
        self.check_plane();
        let of_node = |c: &&Claim| c.subject.component == Component::Kubelet;
        let in_flight = self.claims.iter().filter(of_node).filter(|c| c.state.in_flight()).count();
        let failed = self
            .claims
            .iter()
            .filter(of_node)
            .filter(|c| matches!(c.state, ClaimState::Failed { .. }))
            .count();
        self.max_in_flight = self.max_in_flight.max(in_flight);
        assert!(in_flight <= self.limit, "{in_flight} nodes in flight of {}", self.limit);
        let ours = self
            .cluster
            .nodes()
            .iter()
            .filter(|n| n.cordoned_by.as_ref().is_some_and(|mark| mark.starts_with("up.")))
            .count();
        assert!(ours <= self.limit + failed, "{ours} nodes cordoned by us of {}", self.limit);
        for budget in self.cluster.budgets() {
            let healthy = self.pods_of(&budget.name).iter().filter(|p| p.ready).count();
            let wanted = self.desired.get(&*budget.name).copied().unwrap_or(0);
            let kept = i32::try_from(healthy).unwrap() >= wanted;
            assert!(kept || self.deleted > 0, "PDB {} is violated", budget.name);
        }
    }
}
