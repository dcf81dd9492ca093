//! Events: one for each step of a node that a person may want to know, on the `ClusterUpgrade`.

use evenkeel_core::rollout::State;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::core::DynamicObject;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Resource, ResourceExt as _};

use super::claim::Next;
use crate::api::ClusterUpgrade;
use crate::clients::one_line;

/// Longest note the API takes, in characters.
const MAX_NOTE: usize = 1000;

/// Publishes events.
#[derive(Clone)]
pub struct Events(Recorder);

impl Events {
    /// Publishes with `client`.
    pub fn new(client: Client) -> Self {
        Self(Recorder::new(client, "evenkeel".into()))
    }

    /// What is worth telling of a claim's new state. The claim is the related object, because the recorder repeats the
    /// first note of events that agree in everything else.
    pub(super) fn claim(&self, upgrade: &ClusterUpgrade, claim: &DynamicObject, next: &Next) {
        let (message, blocked) = (&next.message, !next.blockers.is_empty());
        let (type_, reason, action) = match &next.state {
            State::Claimed => return,
            State::Draining { .. } if blocked => (EventType::Warning, "DrainBlocked", "Drain"),
            State::Draining { .. } => (EventType::Normal, "NodeDraining", "Drain"),
            State::Upgrading { .. } => (EventType::Normal, "ExecutorStarted", "Upgrade"),
            State::Upgraded { .. } => (EventType::Normal, "Upgraded", "Verify"),
            State::Parked { .. } => (EventType::Warning, "NodeParked", "Drain"),
            State::Failed { .. } => (EventType::Warning, "UpgradeFailed", "Upgrade"),
        };
        let spec = &claim.data["spec"];
        let what = |key: &str| spec[key].as_str().unwrap_or_default();
        let note = format!("{} on {}: {message}", what("component"), what("nodeName"));
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

    /// One event about `regarding`. An event that cannot be written is logged and forgotten: it decides nothing.
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
        if let Err(error) = self.0.publish(&event, regarding).await {
            tracing::warn!(reason, error = one_line(&error), "event not written");
        }
    }
}
