//! Words that the table, Markdown and the differences have in common.
//!
//! The invariant: everything here is made from the document alone, so that every form says the same.

use evenkeel_core::cluster::Component;
use evenkeel_core::disruption::preflight::duration_text;
use evenkeel_core::rollout::another_is_approved;
use jiff::SignedDuration;

use super::document::{Approval, Bound, Change, Finding, Hop, Kubelets, Need, Step, Time, UpgradePlan, Wave};
use super::vocabulary::{About, ApprovalMode, PickedBy, Verdict};

/// How many names are written out where not all are asked for.
const NAMED: usize = 5;

/// `a, b, c, d, e and 7 more`; all of them if `wide`.
pub(super) fn few(names: &[String], wide: bool) -> String {
    let shown = if wide { names.len() } else { names.len().min(NAMED) };
    let listed = names.iter().take(shown).cloned().collect::<Vec<_>>().join(", ");
    match names.len() - shown {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// Whether [`few`] leaves some of `names` out, unless it is wide.
pub(super) fn leaves_out(names: &[String]) -> bool {
    names.len() > NAMED
}

/// The names of a finding, and how many it does not name.
pub(super) fn which(finding: &Finding) -> String {
    let listed = finding.names.join(", ");
    match finding.count.saturating_sub(finding.names.len()) {
        0 => listed,
        more => format!("{listed} and {more} more"),
    }
}

/// The word of the verdict, for a person.
pub(super) fn verdict(plan: &UpgradePlan) -> String {
    let incomplete = if plan.not_seen.is_empty() { "" } else { ", incomplete" };
    format!("{}{incomplete}", verdict_word(&plan.verdict))
}

/// The word of a verdict.
pub(super) fn verdict_word(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Ready => "READY",
        Verdict::Stops => "STOPS ON ITS WAY",
        Verdict::Blocked => "BLOCKED",
        Verdict::Refuted => "WRONG",
        Verdict::Done => "NOTHING TO DO",
        Verdict::Other(other) => other,
    }
}

/// `v1.36.4 -> v1.37.1`.
pub(super) fn way(plan: &UpgradePlan) -> String {
    format!("{} -> {}", plan.from.as_deref().unwrap_or("unknown"), plan.to)
}

/// Whether a person approved it, and what to write to do so.
pub(super) fn approval(plan: &UpgradePlan, approval: &Approval) -> String {
    let hash = plan.hash.as_deref().unwrap_or_default();
    match (&approval.mode, &approval.approved) {
        (ApprovalMode::RequireApproval, _) if hash.is_empty() => {
            "not known: an approval is bound to the plan's hash".to_owned()
        }
        (ApprovalMode::PlanOnly, _) => "mode PlanOnly: the plan is shown, and nothing is done".to_owned(),
        (ApprovalMode::Automatic, _) => "mode Automatic: it begins without an approval".to_owned(),
        (_, Some(_)) if approval.given => format!("approved: spec.approval.planHash is {hash}"),
        (_, Some(old)) => another_is_approved(old, hash),
        (_, None) => format!("not approved: to approve it, set spec.approval.planHash to \"{hash}\""),
    }
}

/// Who picked the version of a hop.
pub(super) fn picked(hop: &Hop) -> String {
    match &hop.picked_by {
        PickedBy::Target => "the target".to_owned(),
        PickedBy::Person => "named for the way".to_owned(),
        PickedBy::Cluster => "kube-apiservers run it already".to_owned(),
        PickedBy::Catalogue => format!("the newest known release of {}", hop.minor()),
        PickedBy::Anyone => format!("any release of {}", hop.minor()),
        PickedBy::Other(other) => other.clone(),
    }
}

/// `kube-apiserver, controllers`: what a step moves. Several controllers are one word unless `wide`.
pub(super) fn components(step: &Step, wide: bool) -> String {
    if wide || step.components.len() == 1 {
        return step.components.join(", ");
    }
    let alone = [Component::KubeApiserver, Component::Kubelet].map(Component::name);
    let is_controller = |name: &str| !alone.contains(&name);
    let mut words: Vec<&str> = Vec::new();
    for name in &step.components {
        let word = if is_controller(name) { "controllers" } else { name };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(", ")
}

/// Consecutive steps that move the same.
pub(super) fn alike(steps: &[Step]) -> Vec<&[Step]> {
    steps.chunk_by(|a, b| a.components == b.components).collect()
}

/// What the steps of `alike` run before, each version once.
pub(super) fn from(steps: &[Step]) -> String {
    let mut all: Vec<&str> = Vec::new();
    for step in steps {
        if !all.contains(&step.from.as_str()) {
            all.push(&step.from);
        }
    }
    all.join(", ")
}

/// `group web, zone a, canaries`; the group only where there are several.
pub(super) fn wave(plan: &UpgradePlan, wave: &Wave) -> String {
    let mut parts = Vec::new();
    if plan.groups.len() > 1 {
        parts.push(format!("group {}", wave.group));
    }
    parts.extend(
        wave.zone.as_ref().map(
            |zone| {
                if zone.is_empty() { "no zone".to_owned() } else { format!("zone {zone}") }
            },
        ),
    );
    if wave.canary {
        parts.push("canary".to_owned());
    }
    parts.join(", ")
}

/// `kube-proxy: 1.34 or newer`.
pub(super) fn need(need: &Need) -> String {
    let kubelets = need.component == Component::Kubelet.name();
    let who = if kubelets { "kubelets that it does not move" } else { &need.component };
    format!("{who}: {} or newer", need.least)
}

/// Why kubelets move or stay in a hop; nothing where it is plain.
pub(super) fn kubelets(kubelets: &Kubelets) -> Option<String> {
    let before = kubelets.before.as_ref()?;
    Some(if kubelets.waves.is_empty() {
        format!("no kubelet moves: the next hop lets them be at {before} or newer")
    } else {
        format!(
            "kubelets before {before} move, because the next hop would leave them outside the version skew policy"
        )
    })
}

/// `2 h 10 min` of seconds.
pub(super) fn seconds(seconds: i64) -> String {
    duration_text(SignedDuration::from_secs(seconds))
}

/// `about 2 h 10 min (9 of 10 times within 3 h), at least 1 h 50 min`, how long by the clock, and whether something
/// comes on top.
pub(super) fn time(plan: &UpgradePlan, time: &Time) -> String {
    let besides = if plan.waits.is_empty() { "" } else { ", and what it waits for besides" };
    let begun = time.until_done_seconds.map(|all| {
        format!("; begun now it is done in about {}, which counts windows, freezes and soaks", seconds(all))
    });
    format!(
        "about {} (9 of 10 times within {}), at least {}{besides}{}",
        seconds(time.p50_seconds),
        seconds(time.p90_seconds),
        seconds(time.least_seconds),
        begun.unwrap_or_default()
    )
}

/// What sets a least time, in which hop.
pub(super) fn bound(plan: &UpgradePlan, bound: &Bound) -> String {
    let hop = if plan.hops.len() > 1 { format!(" in the hop to {}", bound.hop) } else { String::new() };
    format!("{}{hop}: {}", bound.what, seconds(bound.least_seconds))
}

/// What changed, with what that means for an approval first.
pub(super) fn changes(changes: &[Change]) -> Vec<String> {
    let first = match changes {
        [] => Some("nothing"),
        _ if changes.iter().any(|change| change.about == About::Hash) => None,
        _ => Some("the hash is the same: an approval of the older plan holds for this one too"),
    };
    first.map(str::to_owned).into_iter().chain(changes.iter().map(|change| change.line.clone())).collect()
}

/// That a person accepted a finding, until when and why.
pub(super) fn accepted(finding: &Finding) -> Option<String> {
    let accepted = finding.accepted.as_ref()?;
    Some(format!(
        "accepted until {}: {} (without that it {})",
        accepted.until, accepted.reason, accepted.instead_of
    ))
}
