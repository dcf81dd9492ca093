//! The pods of a drain that are asked to leave, as soon as there is a place for the request.
//!
//! Which pod may leave is the core's decision. The invariant: only what is sent counts as asked; what waits for a place is
//! decided anew at the next look, and after an interrupt nothing of it is sent.

use std::sync::Arc;

use evenkeel_core::disruption::Permit;
use evenkeel_core::drain::Forced;

use super::display::Event;
use super::draining::Draining;
use super::kept::Reply;
use crate::act::evict::{self, UNANSWERED};
use crate::act::{Authority, EvictionPlace, Leaves};

impl Draining {
    /// Sends as many as there are places for.
    pub(super) fn send_evictions(&mut self) -> Result<(), String> {
        while let Some((leaves, place)) = self.kept.queue.next(&self.effects) {
            match leaves {
                Leaves::ByEviction(permit) => self.evicts(permit, place),
                Leaves::ByDeletion(forced) => self.deletes(forced, place)?,
            }
        }
        Ok(())
    }

    fn evicts(&mut self, permit: Permit, place: EvictionPlace) {
        self.kept.sent.sends(&permit, self.clock.now());
        let (node, pod) = (Arc::clone(permit.node()), format!("{}/{}", permit.namespace(), permit.pod()));
        let (effects, manner) = (self.effects.clone(), self.manner);
        self.kept.running.spawn(async move {
            let answer = evict::evict(&effects, &Authority::Person, place, &permit, manner).await;
            let answer = answer.unwrap_or(UNANSWERED);
            let (uid, charge) = (Arc::clone(permit.uid()), permit.charge().cloned());
            Reply::Pod { node, pod, uid, charge, forced: false, answer }
        });
    }

    fn deletes(&mut self, forced: Forced, place: EvictionPlace) -> Result<(), String> {
        let pod = format!("{}/{}", forced.namespace(), forced.pod());
        let node = self.watches.node_of(forced.uid());
        self.kept.sent.deletes(forced.asked(), self.clock.now());
        self.teller.tell(Event::of_pod(
            &node,
            "deleting",
            &pod,
            "deleted past its PDBs: its time is over",
        ))?;
        let (effects, grace) = (self.effects.clone(), self.manner.grace);
        self.kept.running.spawn(async move {
            let answer = evict::delete(&effects, &Authority::Person, place, &forced, grace).await;
            let answer = answer.unwrap_or(UNANSWERED);
            Reply::Pod { node, pod, uid: Arc::clone(forced.uid()), charge: None, forced: true, answer }
        });
        Ok(())
    }
}
