//! What is checked when a run has come to rest: what was asked, and what is left.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_sim::faults::Call;
use tokio::time::Instant;

use super::super::super::campaign::Wrong;
use super::super::super::rights::{Account, beyond};
use super::Watcher;

/// Each request by itself and all of them together.
pub fn asked_well(calls: &[Call]) -> Wrong {
    let mut wrong = beyond(calls, Account::Upgrader);
    let mut asked: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
    let ours = |call: &&Call| call.agent.starts_with("evenkeel") && !call.agent.ends_with("-lease");
    let ours: Vec<&Call> = calls.iter().filter(ours).collect();
    for call in ours.iter().filter(|call| call.is_write()) {
        let line = call.line();
        match (call.verb, call.resource.as_str(), call.subresource.as_deref()) {
            ("create", "pods", Some("eviction")) => {
                let sent = call.sent();
                let uid = sent["deleteOptions"]["preconditions"]["uid"].as_str().unwrap_or_default();
                if uid.is_empty() {
                    wrong.push(format!("invariant 3: {line} names no UID"));
                }
                if sent["deleteOptions"].get("gracePeriodSeconds").is_some_and(|grace| !grace.is_null()) {
                    wrong.push(format!("invariant 3: {line} chooses a grace period"));
                }
                asked.entry(uid.to_owned()).or_default().push(call.at);
            }
            ("patch", "nodes", None) => {
                let sent = call.sent();
                let empty = |name: &str| sent["metadata"][name].as_str().unwrap_or_default().is_empty();
                if empty("uid") || empty("resourceVersion") {
                    wrong.push(format!("invariant 8: {line} has no precondition"));
                }
            }
            ("patch", "nodeupgrades.evenkeel.dev", Some("status"))
                if call.sent()["metadata"]["resourceVersion"].as_str().unwrap_or_default().is_empty() =>
            {
                wrong.push(format!("invariant 10: {line} has no precondition"));
            }
            // Whether it may be sent at all is seen when it is carried out.
            ("delete", "pods", None) => {
                let sent = call.sent();
                let uid = sent["preconditions"]["uid"].as_str().unwrap_or_default();
                if uid.is_empty() {
                    wrong.push(format!("invariant 3: {line} names no UID"));
                }
                if sent["gracePeriodSeconds"].as_i64().is_some_and(|grace| grace < 1) {
                    wrong.push(format!("invariant 3: {line} gives no time"));
                }
                asked.entry(uid.to_owned()).or_default().push(call.at);
            }
            (_, "pods", None) => wrong.push(format!("invariant 3: asks {line}")),
            (_, "nodes", _) => wrong.push(format!("asks {line}")),
            _ => {}
        }
    }
    for (uid, times) in asked {
        for window in times.windows(8) {
            if window[7] < window[0] + Duration::from_secs(10) {
                wrong.push(format!("invariant 4: asks for pod {uid} 8 times in {:?}", window[7] - window[0]));
                break;
            }
        }
    }
    for (what, most, time) in [("writes", 80, Duration::from_secs(1)), ("reads", 120, Duration::from_secs(5))]
    {
        let at: Vec<Instant> =
            ours.iter().filter(|call| call.is_write() == (what == "writes")).map(|call| call.at).collect();
        if at.windows(most).any(|window| window[most - 1] < window[0] + time) {
            wrong.push(format!("sends {most} {what} within {time:?}"));
        }
    }
    wrong
}

/// 7 and 12: at rest nothing is left cordoned by us but what the status names; who is stuck is named in status and event.
pub fn at_rest(watcher: &mut Watcher) {
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for upgrade in watcher.upgrades.values() {
        for one in upgrade.status["parked"].as_array().into_iter().flatten() {
            let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
            named.insert(text("node"), text("reason"));
        }
    }
    let mut faults: Vec<(u8, String)> = Vec::new();
    for (name, node) in &watcher.nodes {
        if node.cordoned && !node.theirs && node.mark.is_some() && !named.contains_key(name) {
            faults.push((7, format!("{name} is left cordoned by us, and no status names it")));
        }
        if let Some(why) = watcher.outlives(node) {
            faults.push((7, format!("{name} is left to be avoided, {why}")));
        }
        if !node.cordoned && node.mark.is_some() {
            faults.push((7, format!("{name} carries our mark and is not cordoned")));
        }
    }
    for (name, claim) in &watcher.claims {
        if watcher.keeps_parked(name, claim) {
            faults.push((7, format!("{name} is Parked, and its node was not given back")));
        }
        let reason = match claim.state.as_str() {
            "Parked" => "NodeParked",
            "Failed" => "UpgradeFailed",
            _ => continue,
        };
        if !watcher.upgrades.contains_key(&claim.upgrade) {
            continue;
        }
        if claim.of_kubelet() && named.get(&claim.node).is_none_or(|why| why.trim().is_empty()) {
            faults.push((12, format!("{name} is {}, and the status does not say why", claim.state)));
        }
        if !watcher.told.contains(&(name.clone(), reason.to_owned())) && !watcher.events_may_fail {
            faults.push((12, format!("{name} is {}, and no event says so", claim.state)));
        }
    }
    for (invariant, line) in faults {
        watcher.fault(invariant, line);
    }
}

impl Watcher {
    /// Something of an upgrade is under way.
    pub fn is_busy(&self) -> bool {
        self.claims.values().any(super::model::Claim::in_flight)
    }

    /// Something of an upgrade that is held by its control plane is under way: a step that is claimed and not begun waits
    /// with it.
    pub fn is_busy_although_held(&self) -> bool {
        let waits = |claim: &super::model::Claim| claim.component != "kubelet" && claim.state == "Claimed";
        self.claims.values().any(|claim| claim.in_flight() && !waits(claim))
    }

    /// How often the pods that left were asked, as names without their random ends would be counted.
    pub fn evictions(&self) -> usize {
        self.evicted.values().sum()
    }
}
