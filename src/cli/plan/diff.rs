//! What changed since an older plan, in words that a person reads once.
//!
//! This module does no I/O and reads no clock: it turns two documents into lines. The invariant: the same two documents
//! have no change, and what is not about the plan (where it was looked at, how many nodes a group has) is none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use evenkeel_core::text::harmless;

use super::document::{API_VERSION, Change, Finding, Group, Hop, KIND, Step, UpgradePlan, Wave};
use super::vocabulary::{About, How, PickedBy};
use super::{object, words};

/// The older plan in `path`.
///
/// # Errors
/// When the file holds none, or one of another form; one line.
pub(super) fn older(path: &Path) -> Result<UpgradePlan, String> {
    let advice = "give what `evenkeel plan -o json` wrote";
    let group = API_VERSION.split('/').next().unwrap_or_default();
    let value = object::only("--diff", path, (group, KIND), advice)?;
    let name = crate::observe::files::shown_path(path);
    serde_json::from_value(value).map_err(|error| {
        format!("--diff {name}: the {KIND} in it cannot be read ({}); {advice}", harmless(&error.to_string()))
    })
}

/// What differs between `old` and `new`.
pub(super) fn changes(old: &UpgradePlan, new: &UpgradePlan) -> Vec<Change> {
    let mut all = All(Vec::new());
    all.whole(old, new);
    all.groups(old, new);
    all.hops(old, new);
    all.findings(old, new);
    all.waits(old, new);
    all.sight(old, new);
    for change in &mut all.0 {
        change.line = harmless(&change.line);
    }
    all.0
}

struct All(Vec<Change>);

impl All {
    fn say(&mut self, about: About, how: How, line: impl Into<String>) {
        self.0.push(Change { about, how, line: line.into() });
    }

    /// A value of the plan as a whole.
    fn whole(&mut self, old: &UpgradePlan, new: &UpgradePlan) {
        let none = "none".to_owned();
        let (was, is) = (old.hash.as_ref().unwrap_or(&none), new.hash.as_ref().unwrap_or(&none));
        if was != is {
            self.say(
                About::Hash,
                How::Changed,
                format!(
                    "the hash is {is} and was {was}: an approval of the older plan does not hold for this one"
                ),
            );
        }
        let from = |plan: &UpgradePlan| plan.from.clone().unwrap_or_else(|| "unknown".to_owned());
        let (was, is) = (from(old), from(new));
        if was != is {
            self.say(About::Version, How::Changed, format!("it starts from {is}, and started from {was}"));
        }
        if old.to != new.to {
            self.say(About::Version, How::Changed, format!("it goes to {}, and went to {}", new.to, old.to));
        }
        if old.unit != new.unit {
            self.say(
                About::Unit,
                How::Changed,
                format!("the unit of the control plane is {}, and was {}", new.unit, old.unit),
            );
        }
        if old.verdict != new.verdict {
            let (is, was) = (words::verdict_word(&new.verdict), words::verdict_word(&old.verdict));
            self.say(About::Verdict, How::Changed, format!("the verdict is {is}, and was {was}"));
        }
        let time = |plan: &UpgradePlan| plan.time.as_ref().map(|time| words::seconds(time.p50_seconds));
        if let (Some(is), Some(was)) = (time(new), time(old))
            && is != was
        {
            self.say(About::Time, How::Changed, format!("it takes about {is}, and took about {was}"));
        }
    }

    fn hops(&mut self, old: &UpgradePlan, new: &UpgradePlan) {
        let by_minor = |plan: &UpgradePlan| -> BTreeMap<String, Hop> {
            plan.hops.iter().map(|hop| (hop.minor(), hop.clone())).collect()
        };
        let (was, is) = (by_minor(old), by_minor(new));
        for hop in was.iter().filter(|(minor, _)| !is.contains_key(*minor)).map(|(_, hop)| hop) {
            self.say(About::Hop, How::Removed, format!("the hop to {} is gone", hop.version));
        }
        for hop in &new.hops {
            let Some(before) = was.get(&hop.minor()) else {
                self.say(
                    About::Hop,
                    How::Added,
                    format!("the hop to {} is new ({})", hop.version, words::picked(hop)),
                );
                continue;
            };
            // That the target is another was said of the whole plan.
            let of_target = before.picked_by == PickedBy::Target && hop.picked_by == PickedBy::Target;
            if before.version != hop.version && !of_target {
                let picked = words::picked(hop);
                let line = format!(
                    "the hop to {} goes to {} now ({picked}), and went to {}",
                    hop.minor(),
                    hop.version,
                    before.version
                );
                self.say(About::Hop, How::Changed, line);
            }
            self.hop(before, hop);
            let grouped =
                |plan: &UpgradePlan, wave: &&Wave| plan.groups.iter().any(|group| group.name == wave.group);
            // Of a group that is new or gone it is said once.
            let was: Vec<&Wave> = before.kubelets.waves.iter().filter(|wave| grouped(new, wave)).collect();
            let is: Vec<&Wave> = hop.kubelets.waves.iter().filter(|wave| grouped(old, wave)).collect();
            self.waves(&hop.minor(), &was, &is);
        }
    }

    fn hop(&mut self, old: &Hop, new: &Hop) {
        let minor = new.minor();
        let needs = |hop: &Hop| hop.needs.iter().map(words::need).collect::<BTreeSet<_>>();
        let (was, is) = (needs(old), needs(new));
        for need in is.difference(&was) {
            self.say(About::Need, How::Added, format!("the hop to {minor} needs first: {need}"));
        }
        for need in was.difference(&is) {
            self.say(About::Need, How::Removed, format!("the hop to {minor} no longer needs first: {need}"));
        }
        self.steps(old, new);
        if old.kubelets.before != new.kubelets.before {
            let told = |hop: &Hop| match &hop.kubelets.before {
                Some(before) => format!("those before {before}"),
                None => "all that are not at its version".to_owned(),
            };
            let line = format!(
                "of the kubelets, the hop to {minor} moves {} now, and moved {}",
                told(new),
                told(old)
            );
            self.say(About::Wave, How::Changed, line);
        }
    }

    fn steps(&mut self, old: &Hop, new: &Hop) {
        let minor = new.minor();
        let key = |step: &Step| (step.components.join(", "), step.place.clone());
        let of = |hop: &Hop| {
            hop.steps.iter().map(|step| (key(step), step.from.clone())).collect::<BTreeMap<_, _>>()
        };
        let (was, is) = (of(old), of(new));
        self.some(&About::Step, &How::Removed, &was, &is, |what| {
            format!("the hop to {minor} no longer moves {what}")
        });
        self.some(&About::Step, &How::Added, &is, &was, |what| {
            format!("the hop to {minor} moves {what}, which is new")
        });
        for (key, from) in &is {
            if let Some(before) = was.get(key).filter(|before| *before != from) {
                let line = format!(
                    "the hop to {minor} moves {} on {} from {from}, which was {before}",
                    key.0, key.1
                );
                self.say(About::Step, How::Changed, line);
            }
        }
        let order = |hop: &Hop, other: &BTreeMap<(String, String), String>| {
            hop.steps.iter().map(key).filter(|key| other.contains_key(key)).collect::<Vec<_>>()
        };
        let (before, now) = (order(old, &is), order(new, &was));
        if let Some(((_, first), (_, other))) = now.iter().zip(&before).find(|(now, before)| now != before) {
            let line = format!(
                "the steps of the hop to {minor} have another order: {first} comes where {other} came"
            );
            self.say(About::Step, How::Changed, line);
        }
    }

    /// What of `these` is not among `those`, with the places of each component in one line.
    fn some(
        &mut self,
        about: &About,
        how: &How,
        these: &BTreeMap<(String, String), String>,
        those: &BTreeMap<(String, String), String>,
        line: impl Fn(String) -> String,
    ) {
        let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (components, place) in these.keys().filter(|key| !those.contains_key(*key)) {
            places.entry(components).or_default().push(place.clone());
        }
        for (components, places) in places {
            self.say(
                about.clone(),
                how.clone(),
                line(format!("{components} on {}", words::few(&places, false))),
            );
        }
    }

    fn waves(&mut self, minor: &str, old: &[&Wave], new: &[&Wave]) {
        let named = |wave: &Wave| {
            let zone = wave
                .zone
                .as_ref()
                .map(|zone| format!(", zone {}", if zone.is_empty() { "none" } else { zone }));
            let canary = if wave.canary { ", canary" } else { "" };
            format!(
                "the wave of group {}{}{canary} in the hop to {minor}",
                wave.group,
                zone.unwrap_or_default()
            )
        };
        let key = |wave: &Wave| (wave.group.clone(), wave.zone.clone(), wave.canary);
        for wave in old.iter().filter(|wave| new.iter().all(|other| key(other) != key(wave))) {
            self.say(
                About::Wave,
                How::Removed,
                format!("{} is gone ({})", named(wave), nodes(wave.nodes.len())),
            );
        }
        for wave in new {
            let Some(before) = old.iter().find(|other| key(other) == key(wave)) else {
                self.say(
                    About::Wave,
                    How::Added,
                    format!("{} is new: {}", named(wave), nodes(wave.nodes.len())),
                );
                continue;
            };
            if before.at_once != wave.at_once {
                let line = format!(
                    "{} takes {} at once, and took {}",
                    named(wave),
                    nodes(wave.at_once),
                    before.at_once
                );
                self.say(About::Wave, How::Changed, line);
            }
            if before.order != wave.order {
                self.say(
                    About::Wave,
                    How::Changed,
                    format!("{} is in place {}, and was in {}", named(wave), wave.order, before.order),
                );
            }
            let set = |wave: &Wave| wave.nodes.iter().cloned().collect::<BTreeSet<_>>();
            let (was, is) = (set(before), set(wave));
            let joined: Vec<String> = is.difference(&was).cloned().collect();
            let left: Vec<String> = was.difference(&is).cloned().collect();
            if !joined.is_empty() {
                let who = words::few(&joined, false);
                self.say(
                    About::Wave,
                    How::Changed,
                    format!("{} has {} more: {who}", named(wave), joined.len()),
                );
            }
            if !left.is_empty() {
                let who = words::few(&left, false);
                self.say(
                    About::Wave,
                    How::Changed,
                    format!("{} has {} fewer: {who}", named(wave), left.len()),
                );
            }
        }
    }

    fn groups(&mut self, old: &UpgradePlan, new: &UpgradePlan) {
        for group in old.groups.iter().filter(|group| new.groups.iter().all(|other| other.name != group.name))
        {
            self.say(About::Group, How::Removed, format!("group {} is gone", group.name));
        }
        for group in &new.groups {
            let Some(before) = old.groups.iter().find(|other| other.name == group.name) else {
                self.say(
                    About::Group,
                    How::Added,
                    format!("group {} is new: {}, {}", group.name, nodes(group.nodes), unusual(group)),
                );
                continue;
            };
            for (is, was) in settings(group).iter().zip(settings(before)).filter(|(is, was)| **is != *was) {
                self.say(About::Group, How::Changed, format!("group {} has {is}, and had {was}", group.name));
            }
        }
        let shared = |plan: &UpgradePlan, other: &UpgradePlan| {
            let there = |name: &String| other.groups.iter().any(|group| group.name == *name);
            plan.groups.iter().map(|group| group.name.clone()).filter(there).collect::<Vec<_>>()
        };
        let (was, is) = (shared(old, new), shared(new, old));
        if was != is {
            self.say(
                About::Group,
                How::Changed,
                format!("the groups have another order: {}, and had {}", is.join(", "), was.join(", ")),
            );
        }
    }

    fn findings(&mut self, old: &UpgradePlan, new: &UpgradePlan) {
        let key = |finding: &Finding| (finding.id.clone(), finding.hop.clone());
        for finding in
            old.findings.iter().filter(|one| new.findings.iter().all(|other| key(other) != key(one)))
        {
            self.say(
                About::Finding,
                How::Removed,
                format!("{} is no longer found ({})", finding.id, finding.what),
            );
        }
        for finding in &new.findings {
            let Some(before) = old.findings.iter().find(|other| key(other) == key(finding)) else {
                let which = words::which(finding);
                let which = if which.is_empty() { which } else { format!(" ({which})") };
                let line = format!("{} is new and {}: {}{which}", finding.id, finding.weight, finding.what);
                self.say(About::Finding, How::Added, line);
                continue;
            };
            match (&before.accepted, &finding.accepted) {
                (None, Some(accepted)) => {
                    let line = format!(
                        "{} is accepted now, until {}: {}",
                        finding.id, accepted.until, accepted.reason
                    );
                    self.say(About::Finding, How::Changed, line);
                }
                (Some(_), None) => {
                    let line = format!("{} is not accepted any more, and {}", finding.id, finding.weight);
                    self.say(About::Finding, How::Changed, line);
                }
                _ if before.weight != finding.weight => {
                    let line = format!(
                        "{} is of weight {} now, and was of weight {}",
                        finding.id, finding.weight, before.weight
                    );
                    self.say(About::Finding, How::Changed, line);
                }
                _ => {}
            }
            if before.count != finding.count {
                let line = format!(
                    "{} is about {} now, and was about {}: {}",
                    finding.id, finding.count, before.count, finding.what
                );
                self.say(About::Finding, How::Changed, line);
            }
        }
    }

    fn waits(&mut self, old: &UpgradePlan, new: &UpgradePlan) {
        for line in new.waits.iter().filter(|line| !old.waits.contains(line)) {
            self.say(About::Wait, How::Added, format!("waits now: {line}"));
        }
        for line in old.waits.iter().filter(|line| !new.waits.contains(line)) {
            self.say(About::Wait, How::Removed, format!("waits no more: {line}"));
        }
    }

    fn sight(&mut self, old: &UpgradePlan, new: &UpgradePlan) {
        for line in new.not_seen.iter().filter(|line| !old.not_seen.contains(line)) {
            self.say(About::Sight, How::Added, format!("not seen any more: {line}"));
        }
        for line in old.not_seen.iter().filter(|line| !new.not_seen.contains(line)) {
            self.say(About::Sight, How::Removed, format!("seen now, and not before: {line}"));
        }
    }
}

fn nodes(count: usize) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

/// What a new group asks for, without what every group does by itself.
fn unusual(group: &Group) -> String {
    let plain = settings(&Group { executor: group.executor.clone(), ..Group::default() });
    let told =
        settings(group).into_iter().enumerate().filter(|(at, line)| *at == 0 || plain.get(*at) != Some(line));
    told.map(|(_, line)| line).collect::<Vec<_>>().join(", ")
}

/// What a group asks for, in a fixed order.
fn settings(group: &Group) -> [String; 5] {
    let depends_on = group.depends_on.join(", ");
    [
        format!("maxUnavailable {}", group.max_unavailable),
        format!("canary {}", group.canary),
        format!("zones {}", if group.zones_one_at_a_time { "OneAtATime" } else { "Any" }),
        format!("dependsOn {}", if depends_on.is_empty() { "nothing" } else { &depends_on }),
        format!("executor {}", group.executor),
    ]
}

#[cfg(test)]
mod tests;
