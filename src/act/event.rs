//! Events: one on the `ClusterUpgrade` for each step of a node that a person may want to know, for each reason why the
//! upgrade is where it is, and for each node that is left alone without a claim.
//!
//! Nothing here decides, and nothing waits for an event. The invariants: an event that cannot be written stops no work;
//! and what is said of an upgrade is in the words of its status.

use std::time::Duration;

use evenkeel_core::rollout::ClaimState;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::DynamicObject;
use kube::runtime::events::{Event, EventType};
use kube::{Resource, ResourceExt as _};

use super::authority::{Authority, Effects, EventPublisher, NotDone};
use super::outcome::NextState;
use crate::api::{ClusterUpgrade, ClusterUpgradeStatus, ConditionType};

/// Longest note the API takes, in characters.
const MAX_NOTE: usize = 1000;

/// How many nodes are told of that a status newly names; it names the others itself.
const MAX_NODES: usize = 10;

/// Something new in the status of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusNews {
    /// Whether a person has to do something, or a node is left behind.
    pub warns: bool,
    /// The reason of condition Ready, or `NodeHeld` or `NodeParked`.
    pub reason: String,
    /// The node that it is about, where it is about one.
    pub node: Option<String>,
    /// The words of the status.
    pub note: String,
}

impl StatusNews {
    /// The same is not told again so soon.
    pub const AGAIN: Duration = Duration::from_mins(10);

    /// What is not told again within [`StatusNews::AGAIN`]: the reason, and the node.
    pub fn about(&self) -> String {
        format!("{}/{}", self.reason, self.node.as_deref().unwrap_or_default())
    }
}

/// What is new in `after`: the reason of condition Ready, and nodes that are out of the rollout without a claim, of which
/// no other event tells. They are the ones of which nobody knows since when they are out.
pub fn news(before: Option<&ClusterUpgradeStatus>, after: &ClusterUpgradeStatus) -> Vec<StatusNews> {
    let was = before.and_then(|before| ConditionType::Ready.of(&before.conditions)).map(|of| &of.reason);
    let is = ConditionType::Ready.of(&after.conditions).filter(|of| was != Some(&of.reason));
    let warns = ConditionType::Stalled.holds(&after.conditions);
    let told = |of: &Condition| StatusNews {
        warns,
        reason: of.reason.clone(),
        node: None,
        note: of.message.clone(),
    };
    let reason = is.map(told);
    let known = |node: &str| before.is_some_and(|before| before.parked.iter().any(|out| out.node == node));
    let out = after.parked.iter().filter(|out| out.since.is_none() && !known(&out.node));
    let nodes = out.take(MAX_NODES).map(|out| StatusNews {
        warns: true,
        reason: format!("Node{}", out.state),
        node: Some(out.node.clone()),
        note: format!("{}: {}", out.node, out.reason),
    });
    reason.into_iter().chain(nodes).collect()
}

/// Type, reason and action of the event about a claim that comes to `state`, or that `stays` there with another message;
/// `None` where it is not worth one.
const fn told_of(
    state: &ClaimState,
    blocked: bool,
    stays: bool,
) -> Option<(EventType, &'static str, &'static str)> {
    Some(match state {
        // What the executor did is observed, and its end is told when all of it is.
        ClaimState::Claimed | ClaimState::Upgrading { observed: Some(_), .. } => return None,
        ClaimState::Draining { .. } if blocked => (EventType::Warning, "DrainBlocked", "Drain"),
        ClaimState::Draining { .. } => (EventType::Normal, "NodeDraining", "Drain"),
        ClaimState::Upgrading { .. } if stays => (EventType::Warning, "JobRefused", "Upgrade"),
        ClaimState::Upgrading { .. } => (EventType::Normal, "ExecutorStarted", "Upgrade"),
        ClaimState::Upgraded { .. } => (EventType::Normal, "Upgraded", "Verify"),
        ClaimState::Parked { .. } => (EventType::Warning, "NodeParked", "Drain"),
        ClaimState::Failed { .. } => (EventType::Warning, "UpgradeFailed", "Upgrade"),
    })
}

/// Publishes events as long as its authority lasts. A clone shares the publisher, which counts what repeats.
#[derive(Clone)]
pub struct Events(EventPublisher);

impl Events {
    /// Publishes with `effects`, as long as `authority` lasts.
    pub fn new(effects: Effects, authority: Authority) -> Self {
        Self(EventPublisher::new(effects, authority))
    }

    /// Publishes an event about the new state of `claim`, if the state is worth one. The claim is the event's related
    /// object: the publisher joins events that differ only in their note and keeps the first note, so without it the
    /// events of two claims would become one.
    ///
    /// `stays` is whether it was in that state before, and has only another message.
    pub(super) fn claim(
        &self,
        upgrade: &ClusterUpgrade,
        claim: &DynamicObject,
        next: &NextState,
        stays: bool,
    ) {
        let message = &next.message;
        let Some((type_, reason, action)) = told_of(&next.state, !next.blockers.is_empty(), stays) else {
            return;
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
        // Beside the work: a kube-apiserver that is slow to take an event must not hold up the next decision.
        let (events, regarding) = (self.clone(), upgrade.object_ref(&()));
        tokio::spawn(async move {
            events.publish(type_, reason, action, note, Some(related), &regarding).await;
        });
    }

    /// Publishes `news` of the upgrade `regarding`. The related object is the node, or the upgrade at the `version` that says
    /// so: with it the publisher never joins two events that say different things.
    pub(super) fn upgrade(&self, regarding: ObjectReference, version: Option<String>, news: StatusNews) {
        let type_ = if news.warns { EventType::Warning } else { EventType::Normal };
        let related = match news.node {
            Some(name) => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(name),
                resource_version: version,
                ..Default::default()
            },
            None => ObjectReference { resource_version: version, ..regarding.clone() },
        };
        let events = self.clone();
        tokio::spawn(async move {
            events.publish(type_, &news.reason, "Decide", news.note, Some(related), &regarding).await;
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
        match self.0.publish(&event, regarding).await {
            Ok(()) | Err(NotDone::NotLeading(_)) => {}
            Err(error) => tracing::warn!(reason, error = error.line(), "event not written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_executor_that_is_refused_has_not_started() {
        let given = ClaimState::Upgrading {
            since: "2026-11-02T09:00:00Z".parse().unwrap(),
            before: evenkeel_core::rollout::Before::default(),
            observed: None,
        };
        let reason = |stays: bool| told_of(&given, false, stays).map(|(_, reason, _)| reason);
        assert_eq!((reason(false), reason(true)), (Some("ExecutorStarted"), Some("JobRefused")));
    }

    #[test]
    fn what_is_new_is_told_in_the_words_of_the_status() {
        let status = |reason: &str, parked: serde_json::Value| -> ClusterUpgradeStatus {
            let condition = |kind: &str, status: &str| {
                json!({"type": kind, "status": status, "reason": reason, "message": "why",
                    "lastTransitionTime": "2026-11-02T09:00:00Z"})
            };
            let conditions = [condition("Ready", "Unknown"), condition("Stalled", "False")];
            serde_json::from_value(json!({"conditions": conditions, "parked": parked})).unwrap()
        };
        let told = |before: Option<&ClusterUpgradeStatus>, after: &ClusterUpgradeStatus| -> Vec<String> {
            news(before, after).into_iter().map(|news| format!("{} {}", news.about(), news.note)).collect()
        };
        let first = status("Frozen", json!([]));
        assert_eq!(told(None, &first), ["Frozen/ why"]);
        assert_eq!(told(Some(&first), &first), Vec::<String>::new());
        let claimed = json!({"node": "a", "state": "Parked", "reason": "r", "since": "2026-11-02T09:00:00Z"});
        let held = json!({"node": "b", "state": "Held", "reason": "cordoned"});
        let second = status("Frozen", json!([claimed, held]));
        assert_eq!(told(Some(&first), &second), ["NodeHeld/b b: cordoned"], "a claim tells of itself");
        assert_eq!(told(Some(&second), &status("Soaking", json!([held]))), ["Soaking/ why"]);
    }
}
