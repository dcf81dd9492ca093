//! 13: nothing new is opened when only what was opened before may go on. Each check reads what the person wrote and what
//! is so, and nothing of what the operator says.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use super::super::base::ahead_of_utc;
use super::blind::UPGRADES;
use super::model::{Upgrade, amount, seconds, text};
use super::{Claim, Watcher};

/// The object of a gate is read so often.
const GATE_READ_EVERY: Duration = Duration::from_secs(15);
/// The kind of a gate's object.
const GATES: &str = "servicelevels.example.com";
/// Times are stored in whole seconds, so that lengths are off by so much.
const ROUNDED: Duration = Duration::from_secs(2);
const DAY: i64 = 24 * 60 * 60;
/// The days from the one on which the time of computers begins.
const WEEK: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// The seconds by which the clocks of `object`, a window or a freeze, are ahead of UTC.
fn ahead(object: &Value) -> i64 {
    ahead_of_utc(object["timeZone"].as_str().unwrap_or("UTC"))
}

/// Whether a window of `spec` is open at `now`, none of which is longer than a day.
fn is_in_window(spec: &Value, now: Timestamp) -> bool {
    let Some(windows) = spec["windows"].as_array().filter(|all| !all.is_empty()) else { return true };
    windows.iter().any(|window| {
        let start = text(&window["start"]);
        let (hours, minutes) = start.split_once(':').expect("a start");
        let start = hours.parse::<i64>().unwrap() * 3600 + minutes.parse::<i64>().unwrap() * 60;
        let clock = now.as_second() + ahead(window);
        let since = (clock - start).rem_euclid(DAY);
        let day = WEEK[usize::try_from((clock - since).div_euclid(DAY).rem_euclid(7)).expect("a weekday")];
        let days = window["days"].as_array().filter(|days| !days.is_empty());
        days.is_none_or(|days| days.iter().any(|one| one == day))
            && since < window["durationSeconds"].as_i64().expect("a length")
    })
}

/// The freeze of `spec` at `now`, all of which have times, not days.
fn frozen(spec: &Value, now: Timestamp) -> Option<String> {
    let time = |freeze: &Value, name: &str| {
        let said = text(&freeze[name]);
        // A time without an offset is what the clocks of the freeze's time zone show.
        said.parse::<Timestamp>().unwrap_or_else(|_| {
            let clock = format!("{said}Z").parse::<Timestamp>().expect("a time");
            clock - SignedDuration::from_secs(ahead(freeze))
        })
    };
    let mut freezes = spec["freezes"].as_array().into_iter().flatten();
    let now = freezes.find(|freeze| time(freeze, "from") <= now && now < time(freeze, "until"));
    now.map(|freeze| text(&freeze["name"]))
}

/// How long it takes what nothing is known of.
fn guess(claim: &Claim) -> Duration {
    let minutes = |component: &String| match component.as_str() {
        "kubelet" => 9,
        "kube-apiserver" => 4,
        _ => 2,
    };
    Duration::from_mins(claim.moves.iter().map(minutes).max().expect("it moves something"))
}

impl Watcher {
    /// The cluster's clock, which somebody may just have set, shows `now`.
    pub fn clock_shows(&mut self, now: Timestamp) {
        if now.duration_since(self.now()).abs() > SignedDuration::from_secs(1) {
            self.began = (now, Instant::now());
            self.clock_set = Some(Instant::now());
        }
    }

    /// The cluster's time.
    pub(super) fn now(&self) -> Timestamp {
        let (at, began) = self.began;
        at + SignedDuration::try_from(began.elapsed()).expect("a run is short")
    }

    /// Nothing is claimed, and no parked node taken up again, outside of a window, in a freeze, too late for either, while what was done last
    /// soaks, from as many failures on as may be, while a gate is closed, and in a zone that is disrupted.
    pub(super) fn may_open(&mut self, claim: &Claim, does: &str) {
        let Some(upgrade) = self.upgrades.get(&claim.upgrade).cloned() else { return };
        let mut why = self.not_in_time(&upgrade, claim);
        if claim.of_kubelet() {
            why.extend(self.soaks(&upgrade, claim));
            why.extend(self.disrupted(claim));
            why.extend(self.starts_still(claim));
        }
        for why in why {
            self.fault(13, format!("{does} {} while {why}", claim.node));
        }
    }

    /// 13: what was claimed is begun only while it might be claimed as far as time and gates go.
    pub(super) fn may_begin(&mut self, claim: &Claim, does: &str) {
        let Some(upgrade) = self.upgrades.get(&claim.upgrade).cloned() else { return };
        for why in self.not_in_time(&upgrade, claim) {
            self.fault(13, format!("{does} {} while {why}", claim.node));
        }
    }

    /// Which window, freeze, gate or number of nodes that are out keeps `claim` from being begun now.
    fn not_in_time(&self, upgrade: &Upgrade, claim: &Claim) -> Vec<String> {
        let mut why = Vec::new();
        let unseen = self.is_blind(UPGRADES, &upgrade.name, upgrade.spec_since);
        // What was decided a moment ago was so by the clock before it was set.
        let set = self.clock_set.is_some_and(|at| !self.is_old(at));
        if !set && self.late.is_none() && !unseen {
            // A moment ago it may have been open.
            let moment = SignedDuration::try_from(self.moment()).expect("a moment");
            let (now, before) = (self.now(), self.now() - moment);
            if !is_in_window(&upgrade.spec, now) && !is_in_window(&upgrade.spec, before) {
                why.push("no window is open".to_owned());
            }
            let freeze = frozen(&upgrade.spec, now).filter(|_| frozen(&upgrade.spec, before).is_some());
            why.extend(freeze.map(|name| format!("freeze {name} lasts")));
            if !self.clocks_jump {
                why.extend(self.too_late(upgrade, claim));
            }
        }
        let gated = upgrade.spec["gates"].as_array().is_some_and(|gates| !gates.is_empty());
        let closed =
            self.gate_closed.filter(|since| gated && since.elapsed() > GATE_READ_EVERY + self.moment());
        let closed = closed.filter(|since| !self.is_blind(GATES, "shop/checkout", *since));
        why.extend(closed.map(|_| "its gate is closed".to_owned()));
        why.extend(self.too_many(upgrade, claim));
        why
    }

    /// What keeps `claim` from being done in time, if it takes as long as nine of ten of its like took.
    fn too_late(&self, upgrade: &Upgrade, claim: &Claim) -> Option<String> {
        let needs = self.takes(claim).saturating_sub(self.moment() + ROUNDED);
        let begins = self.now();
        let mut later = Duration::ZERO;
        while later < needs {
            let at = begins + SignedDuration::try_from(later).expect("less than a day");
            if !is_in_window(&upgrade.spec, at) {
                return Some(format!("the window closes within {needs:?}"));
            }
            if let Some(name) = frozen(&upgrade.spec, at) {
                return Some(format!("freeze {name} begins within {needs:?}"));
            }
            later += Duration::from_secs(1);
        }
        None
    }

    /// How long a claim takes like that one: as nine of ten took that needed one attempt, or a guess where there are
    /// fewer than three. The last of them may not be known as done.
    fn takes(&self, claim: &Claim) -> Duration {
        let done = self.claims.values().filter(|of| {
            of.upgrade == claim.upgrade
                && of.moves == claim.moves
                && of.state == "Upgraded"
                && of.attempt == 1
                && of.uid != claim.uid
        });
        let mut took: Vec<(bool, Duration)> =
            done.map(|of| (self.is_old(of.state_since), of.state_since - of.made)).collect();
        took.sort_by_key(|(_, time)| *time);
        let old: Vec<Duration> = took.iter().filter(|(old, _)| *old).map(|(_, time)| *time).collect();
        let all: Vec<Duration> = took.iter().map(|(_, time)| *time).collect();
        let of = |times: &[Duration]| match times.len() {
            0..3 => guess(claim),
            count => times[(count * 9).div_ceil(10) - 1],
        };
        of(&old).min(of(&all))
    }

    fn too_many(&self, upgrade: &Upgrade, claim: &Claim) -> Option<String> {
        let of = |state: &str, field: &str| {
            let selected = self.nodes.values().filter(|node| upgrade.group_of(&node.labels).is_some());
            let limit = amount(&upgrade.spec["failurePolicy"][field], selected.count())?;
            let those = self.claims.values().filter(|of| {
                let counts = of.of_kubelet() && of.state == state && !of.given_back;
                counts && of.upgrade == claim.upgrade && of.uid != claim.uid
            });
            let count = those.count();
            (count >= limit).then(|| format!("{count} nodes are {state}"))
        };
        of("Failed", "maxFailed").or_else(|| of("Parked", "maxParked"))
    }

    /// What soaks, as the machines show it: the operator sees each of them later.
    fn soaks(&self, upgrade: &Upgrade, claim: &Claim) -> Option<String> {
        let soak = seconds(&upgrade.spec["controlPlane"]["soakSeconds"]);
        let young = self
            .instances
            .iter()
            .find(|(_, instance)| instance.version_since.is_some_and(|since| since.elapsed() < soak));
        if let Some(((node, component), _)) = young.filter(|_| !self.clocks_jump) {
            return Some(format!("{component} on {node} soaks"));
        }
        let group = upgrade.group_of(&self.nodes.get(&claim.node)?.labels)?;
        let groups = upgrade.groups_before(group);
        for before in upgrade.groups.iter().filter(|of| groups.contains(of.name.as_str())) {
            let young = self.nodes.iter().find(|(_, node)| {
                let of_it = upgrade.group_of(&node.labels).is_some_and(|of| of.name == before.name);
                of_it && node.kubelet_is_another && node.kubelet_since.elapsed() < before.soak
            });
            if let Some((name, _)) = young.filter(|_| !self.clocks_jump) {
                return Some(format!("{name} of group {} soaks", before.name));
            }
        }
        None
    }

    /// The zone of the claim's node, if so many of its nodes have not been ready for long enough to be known.
    fn disrupted(&self, claim: &Claim) -> Option<String> {
        let zone_of = |labels: &super::Labels| labels.get("topology.kubernetes.io/zone").cloned();
        let held =
            |name: &str| self.claims.values().any(|of| of.of_kubelet() && of.node == name && of.in_flight());
        // How many nodes each zone has, how many of them are not ready, and how many may be.
        let mut zones: BTreeMap<Option<String>, (usize, usize, usize)> = BTreeMap::new();
        for (name, node) in &self.nodes {
            let (nodes, bad, well) = zones.entry(zone_of(&node.labels)).or_default();
            *nodes += 1;
            let long = node.ready_since.elapsed() > self.moment() + Duration::from_secs(1)
                && self.knows_node(name, node.ready_since);
            *bad += usize::from(!node.ready && long && (*name == claim.node || !held(name)));
            *well += usize::from(node.ready || !long);
        }
        let zone = zone_of(&self.nodes.get(&claim.node)?.labels);
        let (nodes, bad, well) = zones.get(&zone).copied()?;
        (bad > 2 && bad * 20 >= nodes * 11 || bad > 0 && well == 0)
            .then(|| format!("{bad} of {nodes} nodes of zone {zone:?} are not ready"))
    }
}
