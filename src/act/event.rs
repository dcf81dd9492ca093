//! Events: one on the `ClusterUpgrade` for each step of a node that a person may want to know.
//!
//! Nothing here decides, and nothing waits for an event. The invariant: an event that cannot be written stops no work.

use evenkeel_core::rollout::ClaimState;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::DynamicObject;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Resource, ResourceExt as _};

use super::authority::{Authority, Effects, NotDone};
use super::outcome::Next;
use crate::api::ClusterUpgrade;

/// Longest note the API takes, in characters.
const MAX_NOTE: usize = 1000;

/// Publishes events.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    effects: Effects,
    authority: Authority,
}

impl Events {
    /// Publishes with `effects`, as long as `authority` lasts.
    pub fn new(effects: Effects, authority: Authority) -> Self {
        Self { recorder: effects.recorder(), effects, authority }
    }

    /// Publishes an event about the new state of `claim`, if the state is worth one. The claim is the event's related
    /// object: the recorder joins events that differ only in their note and keeps the first note, so without it the
    /// events of two claims would become one.
    pub(super) fn claim(&self, upgrade: &ClusterUpgrade, claim: &DynamicObject, next: &Next) {
        let (message, blocked) = (&next.message, !next.blockers.is_empty());
        let (type_, reason, action) = match &next.state {
            // What the executor did is observed, and its end is told when all of it is.
            ClaimState::Claimed | ClaimState::Upgrading { observed: Some(_), .. } => return,
            ClaimState::Draining { .. } if blocked => (EventType::Warning, "DrainBlocked", "Drain"),
            ClaimState::Draining { .. } => (EventType::Normal, "NodeDraining", "Drain"),
            ClaimState::Upgrading { .. } => (EventType::Normal, "ExecutorStarted", "Upgrade"),
            ClaimState::Upgraded { .. } => (EventType::Normal, "Upgraded", "Verify"),
            ClaimState::Parked { .. } => (EventType::Warning, "NodeParked", "Drain"),
            ClaimState::Failed { .. } => (EventType::Warning, "UpgradeFailed", "Upgrade"),
        };
        let spec = &claim.data["spec"];
        let what = |key: &str| spec[key].as_str().unwrap_or_default();
        let together = spec["components"].as_array().is_some_and(|components| !components.is_empty());
        let component = if together { "the control plane" } else { what("component") };
        let note = format!("{component} on {}: {message}", what("nodeName"));
        let related = ObjectReference {
            api_version: Some("evenkeel.dev/v1alpha1".to_owned()),
            kind: Some("NodeUpgrade".to_owned()),
            name: Some(claim.name_any()),
            uid: claim.uid(),
            ..Default::default()
        };
        // Beside the work: an apiserver that is slow to take an event must not hold up the next decision.
        let (events, regarding) = (self.clone(), upgrade.object_ref(&()));
        tokio::spawn(async move {
            events.publish(type_, reason, action, note, Some(related), &regarding).await;
        });
    }

    /// Publishes one event about `regarding`, with `note` cut to 1000 characters. An event that cannot be written is
    /// logged and forgotten: no decision reads it.
    pub async fn publish(
        &self,
        type_: EventType,
        reason: &str,
        action: &str,
        note: String,
        related: Option<ObjectReference>,
        regarding: &ObjectReference,
    ) {
        let note = note.chars().take(MAX_NOTE).collect();
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: related,
        };
        let sent =
            self.authority.send(&self.effects, async |_| self.recorder.publish(&event, regarding).await);
        match sent.await {
            Ok(()) | Err(NotDone::NotLeading(_)) => {}
            Err(error) => tracing::warn!(reason, error = error.line(), "event not written"),
        }
    }
}
