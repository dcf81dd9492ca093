//! 2: after a step of the control plane no pod is asked to leave, and no node is taken up, before the controllers work again.
//!
//! Whether they work is known from their processes, and not from their leases, by which the operator knows it.

use tokio::time::Instant;

use super::{Claim, Watcher};

/// Without these, pods that leave are not replaced, and budgets are not counted.
const NEEDED: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];
/// The kind of claims.
const CLAIMS: &str = "nodeupgrades.evenkeel.dev";

impl Watcher {
    /// Remembers which controllers are at work now. A leader is asked at least whenever it renews its lease.
    pub(super) fn look_at_work(&mut self) {
        let works = NEEDED.into_iter().filter(|component| self.plane.works(component));
        self.worked.extend(works.map(|component| (component, Instant::now())));
    }

    /// 2: whoever `does` something to the node of `claim` by which pods leave does it after the controllers were at work
    /// again.
    pub(super) fn controllers_are_back(&mut self, claim: &Claim, does: &str) {
        let Some(stepped) = self.last_step(&claim.upgrade).filter(|_| self.late.is_none()) else { return };
        // Who reads a time that lies ahead does not believe it.
        if self.clocks_jump {
            return;
        }
        let idle = NEEDED.into_iter().find(|of| self.worked.get(of).is_none_or(|at| *at < stepped));
        if let Some(component) = idle {
            let line = format!(
                "{does} {} while no {component} has been at work since the control plane was changed",
                claim.node
            );
            self.fault(2, line);
        }
    }

    /// When a step of `upgrade` last ended by which processes of the control plane began anew, or a new kubelet had begun
    /// them anew, as far as that must be known.
    fn last_step(&self, upgrade: &str) -> Option<Instant> {
        let mine = self.claims.iter().filter(|(_, claim)| claim.upgrade == upgrade);
        let ended = |(name, claim): (&String, &Claim)| {
            let known =
                |since: &Instant| self.is_old(*since) && !self.is_blind(CLAIMS, name, claim.state_since);
            match claim.state.as_str() {
                "Upgraded" if self.is_step(claim) => Some(claim.state_since).filter(known),
                "Upgrading" if claim.of_kubelet() => self.began_anew(claim).filter(known),
                _ => None,
            }
        };
        mine.filter_map(ended).max()
    }

    /// Whether `claim` has static pods begin anew, or processes of hosts.
    fn is_step(&self, claim: &Claim) -> bool {
        !claim.of_kubelet() || self.nodes.get(&claim.node).is_some_and(|node| node.is_control_plane)
    }

    /// When the last of the controllers on the node of `claim` began anew since its executor has had the node.
    fn began_anew(&self, claim: &Claim) -> Option<Instant> {
        let here = NEEDED.into_iter().filter_map(|component| {
            let instance = self.instances.get(&(claim.node.clone(), component.to_owned()))?;
            let anew = instance.runs && instance.since > claim.state_since;
            let known = self.knows_instance(&claim.node, component, instance.since);
            (anew && known).then_some(instance.since)
        });
        here.max()
    }
}
