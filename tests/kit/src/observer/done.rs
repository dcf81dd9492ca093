//! What is said to be done, as far as an event tells: upgraded, completed.
//!
//! Here belongs which words are to be judged, and what parts of a node have to look like for them. Nothing here asks the
//! cluster. Whoever says "done" is judged by when it was said: a part that became ready later was not ready then.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use super::nodes::is_control_plane;
use super::notes::Question;
use super::seen::Seen;
use super::steps::time;
use crate::watched::Part;

/// Times in the API are whole seconds.
const ROUNDED: SignedDuration = SignedDuration::from_secs(1);

impl Seen {
    /// A claim that was read live, or in a list by somebody who watches since `listed`. What such a list calls upgraded is
    /// judged too, if it was said since then: where the API was away, that may be the only way to hear of it.
    pub(super) fn claim(
        &mut self,
        claim: &DynamicObject,
        control_plane_first: bool,
        at: Timestamp,
        listed: Option<Timestamp>,
    ) -> Vec<Question> {
        let text = |field: &str| claim.data["spec"][field].as_str().unwrap_or_default().to_owned();
        let node = text("nodeName");
        let on_control_plane = self.nodes.get(&node).is_some_and(is_control_plane);
        self.steps.claim(claim, on_control_plane, control_plane_first, at);
        let status = &claim.data["status"];
        if status["state"] != "Upgraded" {
            return Vec::new();
        }
        let uid = claim.uid().unwrap_or_default();
        if !self.done.insert(format!("{uid} {}", status["since"])) {
            return Vec::new();
        }
        let said = time(status["since"].as_str()).unwrap_or(at);
        if listed.is_some_and(|began| said + ROUNDED < began) {
            return Vec::new();
        }
        vec![Question::Upgraded {
            claim: uid,
            component: text("component"),
            node,
            to: text("toVersion"),
            said,
        }]
    }

    /// "Completed", each time that it is said.
    pub(super) fn upgrade(&mut self, upgrade: &DynamicObject, at: Timestamp) -> Vec<Question> {
        let conditions = upgrade.data["status"]["conditions"].as_array();
        let completed = conditions.into_iter().flatten().find(|condition| {
            condition["type"] == "Ready"
                && condition["status"] == "True"
                && condition["reason"] == "Completed"
        });
        let Some(completed) = completed else { return Vec::new() };
        let since = &completed["lastTransitionTime"];
        if !self.done.insert(format!("{} {since}", upgrade.uid().unwrap_or_default())) {
            return Vec::new();
        }
        vec![Question::Completed { said: time(since.as_str()).unwrap_or(at) }]
    }
}

/// What keeps a node from having been whole at `said`, a line for each of its parts.
pub(super) fn lacking(parts: &[Part], said: Timestamp) -> Vec<String> {
    let lacks = |part: &Part| {
        let name = &part.name;
        match (part.ready_since, &part.behind) {
            (None, _) => Some(format!("{name} is not ready")),
            (_, Some(runs)) => Some(format!("{name} runs {runs}")),
            (Some(since), None) if since > said + ROUNDED => {
                Some(format!("{name} became ready {} s later", since.duration_since(said).as_secs()))
            }
            _ => None,
        }
    };
    parts.iter().filter_map(lacks).collect()
}
