//! What people approved.
//!
//! An approval is the hash that the status showed when the person wrote it, and it is of what was asked for then, with what
//! the executors were then. Once either is otherwise it holds no more, until it is as it was or a person approves anew.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::model::{Upgrade, text};

/// What people approved.
#[derive(Default)]
pub struct Approvals {
    /// What each executor is.
    pub contents: BTreeMap<String, Value>,
    /// What an upgrade, by its UID, was approved to do, by each hash.
    pub given: BTreeMap<(String, String), Value>,
    /// Since when an upgrade, by its name, has not been approved as it is.
    pub lacking: BTreeMap<String, Instant>,
}

/// The executors that `spec` names.
pub fn executors(spec: &Value) -> BTreeSet<String> {
    let groups = spec["nodeGroups"].as_array().into_iter().flatten().map(|group| &group["executor"]);
    let plane = &spec["controlPlane"];
    groups
        .chain([&plane["executor"], &plane["firstExecutor"]])
        .map(text)
        .filter(|of| !of.is_empty())
        .collect()
}

impl Approvals {
    /// All that a person approves: what is asked for, but for whether it goes on at once, and who does it.
    pub fn subject(&self, spec: &Value) -> Value {
        let mut asked = spec.clone();
        for about_itself in ["approval", "suspend", "mode"] {
            asked.as_object_mut().map(|spec| spec.remove(about_itself));
        }
        let who: BTreeMap<String, Option<&Value>> =
            executors(spec).into_iter().map(|name| (name.clone(), self.contents.get(&name))).collect();
        json!({"asked": asked, "executors": who})
    }

    /// Finds out anew whether `upgrade` is approved.
    pub fn look(&mut self, upgrade: &Upgrade) {
        let hash = text(&upgrade.spec["approval"]["planHash"]);
        let given = self.given.get(&(upgrade.uid.clone(), hash));
        let holds = given.is_some_and(|given| *given == self.subject(&upgrade.spec));
        if holds || upgrade.spec["mode"] != "RequireApproval" {
            self.lacking.remove(&upgrade.name);
        } else {
            self.lacking.entry(upgrade.name.clone()).or_insert_with(Instant::now);
        }
    }
}
