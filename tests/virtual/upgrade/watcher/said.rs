//! The invariants of what is said: of claims that are stuck, and of the statuses of upgrades.

use serde_json::Value;

use super::{ASKED_EVERY, Claim, Upgrade, Watcher, text, version};

impl Watcher {
    /// 12: who is stuck says why, in one line.
    pub(super) fn says_why(&mut self, name: &str, claim: &Claim) {
        if !matches!(claim.state.as_str(), "Parked" | "Failed") {
            return;
        }
        let message = &claim.message;
        if message.trim().is_empty() || message.contains('\n') || message.len() > 1024 {
            self.fault(12, format!("{name} is {} and says {message:?}", claim.state));
        }
    }

    /// 12: what an upgrade waits for has a reason, a line and an end, and what condition Ready says comes first.
    fn waits(&mut self, name: &str, status: &Value) {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let of = |kind: &str| conditions.clone().find(|of| of["type"] == kind).cloned().unwrap_or_default();
        let waits = status["waitingFor"].as_array().cloned().unwrap_or_default();
        let mut bad = Vec::new();
        for wait in &waits {
            let line = text(&wait["message"]);
            let one_line = !line.trim().is_empty() && !line.contains('\n');
            if !one_line || text(&wait["reason"]).is_empty() {
                bad.push(format!("waits for {wait}"));
            }
            if !["Person", "Cluster", "Time"].contains(&text(&wait["endedBy"]).as_str()) {
                bad.push(format!("does not say who ends {wait}"));
            }
        }
        let (ready, stalled) = (of("Ready"), of("Stalled"));
        let reason = text(&ready["reason"]);
        let first = waits.first().map(|wait| text(&wait["reason"])).unwrap_or_default();
        if ready["status"] != "True" && !ready["status"].is_null() || reason == "CompletedWithExceptions" {
            let works = reason.starts_with("Upgrading");
            if !works && first != reason {
                bad.push(format!("is {reason}, and waits for {first:?} first"));
            }
        }
        if stalled["status"] == "True" && waits.iter().all(|wait| wait["endedBy"] != "Person") {
            bad.push("is Stalled, and waits for no person".to_owned());
        }
        for line in bad {
            self.fault(12, format!("the status of {name} {line}"));
        }
    }

    /// 11: the status says what is.
    pub(super) fn status(&mut self, name: &str, before: Option<&Upgrade>, after: &Upgrade) {
        let status = &after.status;
        let mut bad = Vec::new();
        if after.seen_generation > after.generation
            || before.is_some_and(|before| after.seen_generation < before.seen_generation)
        {
            bad.push(format!("says generation {} of {}", after.seen_generation, after.generation));
        }
        let selected = self.nodes.iter().filter(|(_, node)| after.group_of(&node.labels).is_some());
        let named = |name: &str| {
            let mut parked = status["parked"].as_array().into_iter().flatten();
            parked.any(|one| one["node"] == name && one["state"] == "Parked")
        };
        let (mut all, mut done, mut unclear, mut stays) = (0, 0, 0, 0);
        for (name, node) in selected {
            all += 1;
            let there = match (version(&node.kubelet), version(&after.version)) {
                (Some(found), Some(wanted)) => found.0 == wanted.0 && found.1 >= wanted.1,
                _ => false,
            };
            done += i64::from(there);
            unclear += i64::from(!self.knows_node(name, node.kubelet_since));
            stays += i64::from(!there && named(name) && self.may_stay(after, name));
        }
        let current = after.seen_generation == after.generation;
        let said = status["progress"]["upgraded"].as_i64().unwrap_or(0);
        if current && said > done + unclear {
            bad.push(format!("says that {said} nodes are upgraded, and {done} of {all} are"));
        }
        let condition = |kind: &str| {
            let all = status["conditions"].as_array().into_iter().flatten();
            all.filter(|of| of["type"] == kind).map(|of| text(&of["status"])).next().unwrap_or_default()
        };
        let was_ready = before.is_some_and(|before| {
            let all = before.status["conditions"].as_array();
            all.is_some_and(|all| all.iter().any(|of| of["type"] == "Ready" && of["status"] == "True"))
        });
        if current && condition("Ready") == "True" && !was_ready {
            if done + unclear + stays < all {
                bad.push(format!("is Ready, and {done} of {all} nodes are upgraded"));
            }
            let wanted = version(&after.version);
            let behind = self.instances.iter().find(|((node, of), instance)| {
                let hidden = !self.nodes.contains_key(node) && of != "kube-apiserver";
                !hidden
                    && version(&instance.version) < wanted
                    && instance.since.elapsed() > ASKED_EVERY
                    && self.knows_instance(node, of, instance.since)
            });
            if let Some(((node, component), instance)) = behind {
                bad.push(format!("is Ready, and {component} on {node} is at {}", instance.version));
            }
            let left =
                self.nodes.iter().find(|(_, node)| node.cordoned && !node.theirs && node.mark.is_some());
            if let Some((node, _)) = left {
                let line = format!("{name} is Ready, and {node} is left cordoned by us");
                self.fault(7, line);
            }
        }
        if condition("Reconciling") == "True" && condition("Stalled") == "True" {
            bad.push("is Reconciling and Stalled".to_owned());
        }
        if !self.waits_are_dropped {
            self.waits(name, status);
        }
        let size = status.to_string().len();
        if size > 64 * 1024 {
            bad.push(format!("has {size} bytes"));
        }
        let parked = status["parked"].as_array().cloned().unwrap_or_default();
        for one in parked.iter().filter(|one| one["reason"].as_str().is_none_or(|why| why.trim().is_empty()))
        {
            let line =
                format!("the status of {name} names {} without a reason", Value::from(text(&one["node"])));
            self.fault(12, line);
        }
        for line in bad {
            self.fault(11, format!("the status of {name} {line}"));
        }
    }
}
