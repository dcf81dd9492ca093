//! What else a person may ask for: zones and canaries of a group, percentages, another time zone, accepted risks, and
//! that nothing begins before a person has approved the plan.
//!
//! Here belongs how it is written in a `ClusterUpgrade`. What it means is checked by the watcher alone.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Seconds by which clocks in a time zone are ahead of UTC. None of these zones sets its clocks.
pub fn ahead_of_utc(zone: &str) -> i64 {
    match zone {
        "UTC" => 0,
        "Asia/Kolkata" => 19_800,
        "Pacific/Honolulu" => -36_000,
        other => panic!("no run is in time zone {other}"),
    }
}

/// What a person asks for beyond the usual.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The groups whose zones go one after the other.
    zones: Vec<String>,
    /// How many nodes of a group go first.
    canaries: Vec<(String, i64)>,
    /// How many nodes of a group may be unavailable: a number or a percentage.
    most: Vec<(String, Value)>,
    /// The time zone of windows and freezes.
    time_zone: Option<String>,
    /// Findings that are accepted, and until which second of the run.
    risks: Vec<(String, i64)>,
    /// Nothing begins before the plan is approved.
    approval: bool,
    /// Nothing begins at all.
    plan_only: bool,
    /// The releases of the minors on the way.
    via: Vec<String>,
    /// Each group has an executor of its own, another one than the control plane.
    own: bool,
}

/// The executors of the groups, where these have some of their own.
const WORKERS: [(&str, &str); 2] = [("canary", "canary-workers"), ("rest", "rest-workers")];

/// A number, or a text where it is none.
pub fn amount(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| json!(text), |number| json!(number))
}

impl Asked {
    /// The words that this type knows.
    pub const WORDS: [&str; 9] =
        ["zones", "canary", "most", "time-zone", "risk", "approval", "plan-only", "via", "own-executors"];

    /// Takes in what one step says.
    pub fn hear(&mut self, words: &[&str]) {
        let owned = |word: &&str| (*word).to_owned();
        match words {
            ["zones", group] => self.zones.push(owned(group)),
            ["canary", group, count] => self.canaries.push((owned(group), count.parse().unwrap())),
            ["most", group, most] => self.most.push((owned(group), amount(most))),
            ["time-zone", zone] => self.time_zone = Some(owned(zone)),
            ["risk", finding, until] => self.risks.push((owned(finding), until.parse().unwrap())),
            ["approval"] => self.approval = true,
            ["plan-only"] => self.plan_only = true,
            ["via", version] => self.via.push(owned(version)),
            ["own-executors"] => self.own = true,
            _ => {}
        }
    }

    /// Whether a person answers for something that would else stop the upgrade.
    pub fn answers(&self) -> bool {
        !self.risks.is_empty()
    }

    /// The executors that groups have of their own.
    pub fn workers(&self) -> impl Iterator<Item = &'static str> {
        WORKERS.into_iter().filter(|_| self.own).map(|(_, name)| name)
    }

    /// The time zone of windows and freezes, where it is not UTC.
    pub fn time_zone(&self) -> Option<&str> {
        self.time_zone.as_deref()
    }

    /// What clocks in the time zone of windows and freezes show at `at`, as if it were a time in UTC.
    pub fn local(&self, at: Timestamp) -> Timestamp {
        at + SignedDuration::from_secs(self.time_zone().map_or(0, ahead_of_utc))
    }

    /// Writes it into the `spec` of an upgrade that begins at `begins`.
    pub fn write(&self, spec: &mut Value, begins: Timestamp) {
        for group in spec["nodeGroups"].as_array_mut().into_iter().flatten() {
            let is = |name: &String| group["name"] == name.as_str();
            let zones = self.zones.iter().any(is);
            let canary = self.canaries.iter().find(|(name, _)| is(name)).map(|(_, count)| *count);
            let most = self.most.iter().find(|(name, _)| is(name)).map(|(_, most)| most.clone());
            if let Some((_, own)) = WORKERS.iter().find(|(name, _)| self.own && group["name"] == *name) {
                group["executor"] = (*own).into();
            }
            if zones {
                group["zones"] = "OneAtATime".into();
            }
            if let Some(count) = canary {
                group["canary"] = count.into();
            }
            if let Some(most) = most {
                group["maxUnavailable"] = most;
            }
        }
        for (finding, until) in &self.risks {
            let until = begins + SignedDuration::from_secs(*until);
            let risk = json!({"finding": finding, "reason": "OPS-1",
                "until": until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()});
            match spec["acceptedRisks"].as_array_mut() {
                Some(risks) => risks.push(risk),
                None => spec["acceptedRisks"] = json!([risk]),
            }
        }
        if self.approval {
            spec["mode"] = "RequireApproval".into();
        }
        if self.plan_only {
            spec["mode"] = "PlanOnly".into();
        }
        if !self.via.is_empty() {
            spec["via"] = json!(self.via);
        }
    }
}
