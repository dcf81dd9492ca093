//! 13: what a person chose to change a component is what changes it, and no other executor.

use serde_json::Value;

use super::model::text;
use super::{Claim, Watcher};

/// The name of the first container of a template of pods.
fn container(template: &Value) -> String {
    text(&template["spec"]["containers"][0]["name"])
}

impl Watcher {
    /// Remembers whether an executor is a Job. What has begun with one that was taken away is still held to it.
    pub(super) fn changer(&mut self, executor: &Value) {
        if executor["spec"]["job"].is_object() {
            let container = container(&executor["spec"]["job"]["template"]);
            self.jobs.insert(text(&executor["metadata"]["name"]), container);
        }
    }

    /// A claim names the executor of its node's group, or of the control plane, as the person wrote it.
    pub(super) fn is_for_its_executor(&mut self, name: &str, claim: &Claim) {
        let Some(upgrade) = self.upgrades.get(&claim.upgrade) else { return };
        // It may be decided by what was written before.
        if self.late.is_some() || !self.knows_upgrade(&claim.upgrade, upgrade.spec_since) {
            return;
        }
        let plane = &upgrade.spec["controlPlane"];
        let wanted: Vec<String> = if claim.of_kubelet() {
            let Some(node) = self.nodes.get(&claim.node) else { return };
            upgrade.group_of(&node.labels).map(|group| group.executor.clone()).into_iter().collect()
        } else {
            [&plane["executor"], &plane["firstExecutor"]].map(text).into()
        };
        if claim.executor.is_empty() || !wanted.contains(&claim.executor) {
            self.fault(13, format!("{name} is for executor {}, and not for {wanted:?}", claim.executor));
        }
        self.asks_the_first_once(name, claim);
    }

    /// The executor of the first node, which kubeadm needs once in each hop, is not asked again when a node is done.
    fn asks_the_first_once(&mut self, name: &str, claim: &Claim) {
        let Some(upgrade) = self.upgrades.get(&claim.upgrade) else { return };
        let plane = &upgrade.spec["controlPlane"];
        let first = text(&plane["firstExecutor"]);
        if !claim.of_plane || claim.executor != first || plane["executor"] == plane["firstExecutor"] {
            return;
        }
        let done = self.claims.iter().find(|(other_name, other)| {
            let same = other.of_plane && other.upgrade == claim.upgrade && other.to == claim.to;
            same && other.state == "Upgraded" && self.knows_claim(other_name, other.state_since)
        });
        if let Some((done, _)) = done {
            self.fault(13, format!("{name} is for executor {first}, although {done} is Upgraded"));
        }
    }

    /// The Job of a claim does what its executor says.
    pub(super) fn is_its_job(&mut self, claim: &Claim, job: &Value) {
        let found = container(&job["spec"]["template"]);
        if self.jobs.get(&claim.executor).is_none_or(|wanted| *wanted != found) {
            let line =
                format!("makes a Job of {found} for {}, whose executor is {}", claim.node, claim.executor);
            self.fault(13, line);
        }
    }
}
