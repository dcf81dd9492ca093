//! What the status says of the time ahead and of the upgrades before: waves, estimates, and history.
//!
//! Nothing is decided here. The invariants: every list is cut to its bound and says what it left out; and a time that is
//! only expected is told so roughly that it does not change at every look.

use evenkeel_core::plan::{Estimate, Wave};
use evenkeel_core::rollout::{self, Forecast, UpgradePhase};
use evenkeel_core::upgrade::Upgrade;
use evenkeel_core::version::Minor;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;

use super::schema::ClusterUpgrade;
use super::status_schema::{ClusterUpgradeStatus, PastUpgrade, PlanEstimate, PlanWave};
use crate::api::conditions::ConditionType;
use crate::api::report::count;

/// How many waves the status shows.
pub(super) const MAX_WAVES: usize = 32;
/// How many upgrades before this one the status remembers.
const MAX_PAST: usize = 10;

const MINUTE: i64 = 60;

/// `time` in seconds, up to the next minute.
fn minutes(time: SignedDuration) -> i64 {
    time.as_secs().max(0).saturating_add(MINUTE - 1) / MINUTE * MINUTE
}

/// An estimate, as the status stores it.
pub(super) fn estimate(least: SignedDuration, about: Estimate) -> PlanEstimate {
    PlanEstimate {
        least_seconds: minutes(least),
        p50_seconds: minutes(about.p50),
        p90_seconds: minutes(about.p90),
    }
}

/// The waves of `forecast`, each with the minor of its hop; at most `most`.
pub(super) fn waves(forecast: &Forecast, upgrade: &Upgrade, most: usize) -> Vec<PlanWave> {
    let hops = forecast.waves.iter().zip(&forecast.timing.hops);
    let of_hop = hops.flat_map(|(waves, timing)| {
        waves.iter().zip(&timing.waves).map(move |(wave, about)| (timing.hop, wave, *about))
    });
    let one = |(hop, wave, about): (Minor, &Wave, Estimate)| PlanWave {
        hop: hop.to_string(),
        group: upgrade.groups.get(wave.group).map(|group| group.name.to_string()).unwrap_or_default(),
        canary: wave.canary,
        zone: wave.zone.as_ref().map(ToString::to_string).unwrap_or_default(),
        nodes: count(wave.nodes.len()),
        at_once: count(wave.at_once),
        p50_seconds: minutes(about.p50),
        p90_seconds: minutes(about.p90),
    };
    of_hop.take(most).map(one).collect()
}

/// How many waves of `forecast` the status does not show, which shows at most `most`.
pub(super) fn waves_omitted(forecast: &Forecast, most: usize) -> i32 {
    let all = forecast.waves.iter().flatten().count();
    count(all.saturating_sub(most))
}

/// How long the rest takes, closed windows, freezes and soaks included, as a column shows it: `8m`, `3h5m`, `2d4h`. Empty where
/// nothing moves by itself or no end is in sight, because then nobody can know.
pub(super) fn eta(phase: UpgradePhase, forecast: Option<&Forecast>) -> String {
    let moves = matches!(
        phase,
        UpgradePhase::Working(_)
            | UpgradePhase::WaitingForWindow
            | UpgradePhase::Frozen
            | UpgradePhase::Soaking
    );
    let Some(rest) = forecast.filter(|_| moves).and_then(|forecast| forecast.timing.until_done) else {
        return String::new();
    };
    let minutes = minutes(rest) / MINUTE;
    // Nobody plans by single minutes that are hours away.
    let told = if minutes > 10 { minutes.saturating_add(4) / 5 * 5 } else { minutes.max(1) };
    let hours = minutes.saturating_add(59) / 60;
    match (told / 60, told % 60) {
        (24.., _) if hours % 24 == 0 => format!("{}d", hours / 24),
        (24.., _) => format!("{}d{}h", hours / 24, hours % 24),
        (0, minutes) => format!("{minutes}m"),
        (hours, 0) => format!("{hours}h"),
        (hours, minutes) => format!("{hours}h{minutes}m"),
    }
}

/// The upgrade that the stored status is about, where that is complete but for nodes that may stay behind.
fn ended_with_exceptions(object: &ClusterUpgrade) -> Option<PastUpgrade> {
    let status = object.status.as_ref()?;
    let plan = status.plan.as_ref()?;
    let ready = ConditionType::Ready.of(&status.conditions)?;
    (ready.reason == UpgradePhase::CompletedWithExceptions.reason()).then(|| PastUpgrade {
        from: plan.from.clone(),
        to: plan.to.clone(),
        plan_hash: plan.hash.clone(),
        start_time: status.start_time.clone().unwrap_or_else(|| ready.last_transition_time.clone()),
        completion_time: ready.last_transition_time.clone(),
        nodes: status.progress.upgraded,
    })
}

/// The upgrades that this object was complete for, before its status tells of something else; the newest last. The one that
/// ended with exceptions is one of them, for which only condition `Ready` says so.
pub(super) fn past(object: &ClusterUpgrade) -> Vec<PastUpgrade> {
    let past = object.status.as_ref().map(|status| status.history.clone()).unwrap_or_default();
    match ended_with_exceptions(object) {
        Some(ended) => remembered(past, ended),
        None => past,
    }
}

/// The upgrades that this object was complete for, this one included as soon as it is; the newest last.
pub(super) fn history(
    object: &ClusterUpgrade,
    decided: &rollout::UpgradeStatus,
    nodes: usize,
) -> Vec<PastUpgrade> {
    let stored = object.status.as_ref();
    // Until another version is asked for, it may still be complete without exceptions.
    let same = |status: &&ClusterUpgradeStatus| {
        status.plan.as_ref().is_none_or(|plan| plan.to == object.spec.version)
    };
    let past = stored.filter(same).map_or_else(|| past(object), |status| status.history.clone());
    let ended = decided.started.zip(decided.completed).zip(decided.hash.as_ref());
    let Some(((started, completed), hash)) = ended else { return past };
    let new = PastUpgrade {
        from: decided.from.as_ref().map(ToString::to_string).unwrap_or_default(),
        to: object.spec.version.clone(),
        plan_hash: hash.clone(),
        start_time: Time(started),
        completion_time: Time(completed),
        nodes: count(nodes),
    };
    remembered(past, new)
}

/// `past` with `new` as the last one, in the place of an end with exceptions of the same upgrade; the oldest make room. What is
/// told again of one end is what was told first, because nodes come and go later.
fn remembered(mut past: Vec<PastUpgrade>, new: PastUpgrade) -> Vec<PastUpgrade> {
    let new = match past.pop() {
        Some(last) if last.start_time != new.start_time => {
            past.push(last);
            new
        }
        Some(last) if last.completion_time == new.completion_time => last,
        _ => new,
    };
    past.push(new);
    past.split_off(past.len().saturating_sub(MAX_PAST))
}

#[cfg(test)]
mod tests {
    use evenkeel_core::plan::{PlanTiming, Stage};
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_ten_upgrades_are_remembered() {
        let upgrade = |at: i64| PastUpgrade {
            from: String::new(),
            to: format!("v1.{at}.0"),
            plan_hash: String::new(),
            start_time: Time(Timestamp::from_second(at).unwrap()),
            completion_time: Time(Timestamp::from_second(at + 1).unwrap()),
            nodes: 1,
        };
        // It is told of again and again as long as it is complete.
        let all = (0..12).flat_map(|at| [at, at]).fold(Vec::new(), |past, at| remembered(past, upgrade(at)));
        assert_eq!(all, (2..12).map(upgrade).collect::<Vec<_>>());
        let later = PastUpgrade { nodes: 9, ..upgrade(11) };
        assert_eq!(
            remembered(all.clone(), later.clone()),
            all,
            "nodes that joined after its end are none of it"
        );
        let without = PastUpgrade { completion_time: upgrade(12).completion_time, ..later };
        assert_eq!(
            remembered(all, without.clone()).last(),
            Some(&without),
            "it goes on after exceptions, and ends"
        );
    }

    #[test]
    fn an_upgrade_that_ended_with_exceptions_is_remembered_when_the_next_one_is_asked_for() {
        let object = |version: &str, reason: &str| -> ClusterUpgrade {
            let condition = json!({"type": "Ready", "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": "2026-11-02T00:00:00Z"});
            let plan = json!({"hash": "h", "from": "v1.36.4", "to": "v1.37.1"});
            let status = json!({"plan": plan, "startTime": "2026-11-01T00:00:00Z", "conditions": [condition],
                "progress": {"summary": "8/9", "upgraded": 8, "selected": 9}});
            let spec = json!({"version": version, "controlPlane": {"executor": "x"}, "nodeGroups": []});
            serde_json::from_value(json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade",
                "metadata": {"name": "up"}, "spec": spec, "status": status}))
            .unwrap()
        };
        let ended = |version: &str, reason: &str| {
            let past = ended_with_exceptions(&object(version, reason))?;
            Some(format!("{} {} {} {}", past.from, past.to, past.completion_time.0, past.nodes))
        };
        let with = "CompletedWithExceptions";
        assert_eq!(ended("v1.38.0", with).as_deref(), Some("v1.36.4 v1.37.1 2026-11-02T00:00:00Z 8"));
        assert_eq!(ended("v1.38.0", "NodesParked"), None);
    }

    #[test]
    fn what_is_hours_away_is_told_roughly() {
        let told = |seconds: i64, phase| {
            let about = SignedDuration::from_secs(seconds);
            let estimate = Estimate { p50: about, p90: about };
            let until_done = Some(about);
            let timing =
                PlanTiming { bounds: Vec::new(), hops: Vec::new(), least: about, estimate, until_done };
            eta(phase, Some(&Forecast { waves: Vec::new(), timing, findings: Vec::new() }))
        };
        let works = UpgradePhase::Working(Stage::Kubelets);
        for (seconds, text) in [
            (0, "1m"),
            (61, "2m"),
            (600, "10m"),
            (601, "15m"),
            (3540, "1h"),
            (3601, "1h5m"),
            (3 * 3600 + 100, "3h5m"),
            (23 * 3600 + 3500, "1d"),
            (24 * 3600, "1d"),
            (24 * 3600 + 1, "1d1h"),
            (52 * 3600, "2d4h"),
        ] {
            assert_eq!(told(seconds, works), text, "{seconds} s");
        }
        assert_eq!(told(600, UpgradePhase::Frozen), "10m");
        assert_eq!(told(600, UpgradePhase::AwaitingApproval), "");
    }
}
