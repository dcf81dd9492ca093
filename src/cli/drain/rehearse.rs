//! The dry run of a drain: which requests it would send, and what the server would answer to them.
//!
//! It changes nothing in the cluster. Each pod is judged alone: that each of two pods may leave does not mean that both
//! may.

use std::collections::BTreeMap;

use evenkeel_core::cluster::Parts;
use evenkeel_core::disruption::answer::{AfterAnswer, Answer};
use evenkeel_core::disruption::{Budgets, Memory};
use evenkeel_core::drain::{PodWait, ask_pods, refusal};

use super::super::exit::{EXIT_FINDINGS, EXIT_OK};
use super::display::{DrainTold, Event, OfNode};
use super::draining::Draining;
use crate::act::evict::{self, Manner, UNANSWERED};
use crate::act::{Authority, node};

impl Draining {
    /// Tells what a drain would do; with `ask`, sends each request as a server-side dry run and tells a refusal.
    pub(super) async fn rehearse(mut self, ask: bool) -> Result<u8, String> {
        let cluster = self.watches.cluster();
        let now = self.clock.now();
        let (budgets, surroundings) = (cluster.budgets().cloned().collect(), self.watches.surroundings());
        let without_pods = Parts { budgets, surroundings, ..Parts::default() }.seal();
        let (mut failed, mut told) = (false, DrainTold::default());
        for name in self.request.nodes.clone() {
            let Some(at) = cluster.node(&name) else { continue };
            self.warn(&cluster, now)?;
            if let Some(why) = refusal(&cluster, at, &self.request.policy.rules, now) {
                failed = true;
                self.teller.tell(Event::of_node(&name, "refused", format!("would not be drained: {why}")))?;
                told.nodes.push(OfNode {
                    node: name.to_string(),
                    drained: false,
                    cordoned: at.unschedulable,
                    seconds: None,
                    reason: Some(why),
                });
                continue;
            }
            let mut line =
                if at.unschedulable { "is cordoned already" } else { "would be cordoned" }.to_owned();
            if ask && !at.unschedulable {
                let reference = at.reference();
                let (who, mark) = (&Authority::Person, &self.request.mark);
                if let Err(error) = node::cordon(&self.effects, who, &reference, mark, true).await {
                    failed = true;
                    line = format!("would not be cordoned: {}", error.line());
                }
            }
            self.teller.tell(Event::of_node(&name, "cordon", line))?;
            for pod in cluster.pods_on(&name) {
                let mut one = without_pods.clone();
                one.set_pod(pod.clone());
                let mut budgets = Budgets::new(&one, BTreeMap::new(), now);
                let rules = &self.request.policy.rules;
                let emptying = ask_pods(&one, &name, rules, &Memory::default(), &mut budgets, now);
                let Some(left) = emptying.left.first() else { continue };
                failed |= left.wait.held().is_some_and(|held| held.lasting);
                let mut line = would(&left.wait);
                for permit in emptying.permits.iter().filter(|_| ask) {
                    let manner = Manner { dry_run: true, ..self.manner };
                    // There is always a place, because each eviction has its answer before the next one is sent.
                    let answer = match self.effects.eviction_place() {
                        Some(place) => {
                            evict::evict(&self.effects, &Authority::Person, place, permit, manner).await
                        }
                        None => Ok(UNANSWERED),
                    };
                    let answer = answer.unwrap_or(UNANSWERED);
                    if !matches!(answer, Answer::Accepted(_) | Answer::Gone) {
                        failed = true;
                        line = format!("the server would refuse: {}", why(&answer));
                    }
                }
                let what = if left.wait == PodWait::Finishing { "waiting" } else { "evict" };
                self.teller.tell(Event::of_pod(&name, what, &pod.full_name(), line))?;
            }
            told.nodes.push(OfNode {
                node: name.to_string(),
                drained: false,
                cordoned: at.unschedulable,
                seconds: None,
                reason: None,
            });
        }
        self.teller.end(&told)?;
        Ok(if failed { EXIT_FINDINGS } else { EXIT_OK })
    }
}

/// What would become of a pod that waits for `wait`, by what the cluster shows.
fn would(wait: &PodWait) -> String {
    match wait.held() {
        Some(held) => format!("would wait: {}", held.reason),
        None if *wait == PodWait::Leaving => "is leaving already".to_owned(),
        None if *wait == PodWait::Finishing => "would be waited for until it has finished".to_owned(),
        None => "would be evicted".to_owned(),
    }
}

/// Why an eviction would not be accepted, for a person.
fn why(answer: &Answer) -> String {
    match answer.next() {
        AfterAnswer::Show(_, why) => why,
        AfterAnswer::Again(_, Some(why)) => why.to_owned(),
        AfterAnswer::Budget(_) => "its PDB does not allow it now".to_owned(),
        AfterAnswer::Quiet(_) => "it has too much to do now".to_owned(),
        AfterAnswer::Watch | AfterAnswer::Again(_, None) => answer.label().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_is_waited_for_is_not_called_evicted() {
        assert_eq!(would(&PodWait::Finishing), "would be waited for until it has finished");
        assert_eq!(would(&PodWait::Asked), "would be evicted");
        assert_eq!(would(&PodWait::Leaving), "is leaving already");
        assert_eq!(would(&PodWait::Refused("has no controller")), "would wait: has no controller");
    }
}
