//! From the core's plan to its document.
//!
//! Here belongs what is counted and how it is named for a reader; nothing is decided. The invariant: every text of a
//! cluster or a file is made harmless on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_core::cluster::Component;
use evenkeel_core::plan::{self, Pass, Picked, Plan, Weight};
use evenkeel_core::skew::sample_names;
use evenkeel_core::text::harmless;
use evenkeel_core::upgrade::{self, Amount, Member, Upgrade, Zones};
use evenkeel_core::version::KubeVersion;

use super::delays::delays;
use super::document::{
    API_VERSION, Accepted, Approval, Bound, Finding, Group, Hop, HopTime, KIND, Kubelets, Need, Size, Step,
    Time, UpgradePlan, Wave,
};
use super::subject::PlanSubject;
use super::vocabulary::{ApprovalMode, Gravity, PickedBy, Verdict};

/// A plan with all that its document says of it.
pub(super) struct Made<'a> {
    pub(super) upgrade: &'a Upgrade,
    pub(super) members: &'a [Member<'a>],
    pub(super) plan: &'a Plan,
    pub(super) waves: &'a [Vec<plan::Wave>],
    /// What the check found wrong.
    pub(super) refuted: Vec<String>,
    pub(super) hash: Option<String>,
    pub(super) timing: &'a plan::PlanTiming,
    /// What its durations rest on.
    pub(super) basis: Vec<String>,
    /// It is a ClusterUpgrade, which a person may have approved.
    pub(super) of_object: bool,
}

pub(super) fn document(made: &Made<'_>, subject: &PlanSubject) -> UpgradePlan {
    let hops = hops(made);
    let mut findings: Vec<&plan::PlanFinding> = made.plan.findings.iter().collect();
    // What a person took upon them comes before what only warns.
    findings.sort_by_key(|finding| (finding.weight, finding.accepted.is_none()));
    let size = size(&hops);
    let verdict = verdict(made);
    let mut about: BTreeMap<String, String> = BTreeMap::new();
    for (title, line) in &subject.about {
        // Several lines may have one title.
        let of = about.entry(title.to_lowercase()).or_default();
        *of = if of.is_empty() { harmless(line) } else { format!("{of}; {}", harmless(line)) };
    }
    UpgradePlan {
        api_version: API_VERSION.to_owned(),
        kind: KIND.to_owned(),
        subject: about,
        hash: made.hash.clone(),
        approval: made.of_object.then(|| approval(made)),
        from: made.plan.from.as_ref().map(|version| harmless(&version.to_string())),
        to: harmless(&made.plan.to.to_string()),
        unit: made.plan.unit.name().to_owned(),
        summary: summary(made, &verdict, size, hops.len()),
        verdict,
        size,
        hops,
        groups: groups(made),
        findings: findings.into_iter().map(finding).collect(),
        refuted: made.refuted.iter().map(|line| harmless(line)).collect(),
        time: (!made.plan.hops.is_empty()).then(|| time(made)),
        waits: delays(made.upgrade),
        not_seen: subject.not_seen.iter().map(|line| harmless(line)).collect(),
        not_visible: subject.not_visible.iter().map(|line| harmless(line)).collect(),
        changes: None,
    }
}

fn approval(made: &Made<'_>) -> Approval {
    let upgrade = made.upgrade;
    let approved = upgrade.approved_hash.as_deref().map(harmless);
    Approval {
        mode: match upgrade.mode {
            upgrade::ApprovalMode::PlanOnly => ApprovalMode::PlanOnly,
            upgrade::ApprovalMode::RequireApproval => ApprovalMode::RequireApproval,
            upgrade::ApprovalMode::Automatic => ApprovalMode::Automatic,
        },
        given: match upgrade.mode {
            upgrade::ApprovalMode::PlanOnly => false,
            upgrade::ApprovalMode::RequireApproval => approved.is_some() && approved == made.hash,
            upgrade::ApprovalMode::Automatic => true,
        },
        approved,
    }
}

fn verdict(made: &Made<'_>) -> Verdict {
    let any = |weight| made.plan.findings.iter().any(|finding| finding.weight == weight);
    match () {
        () if any(Weight::Blocks) => Verdict::Blocked,
        () if !made.refuted.is_empty() => Verdict::Refuted,
        () if any(Weight::Stops) => Verdict::Stops,
        () if made.plan.hops.is_empty() => Verdict::Done,
        () => Verdict::Ready,
    }
}

/// The verdict in one line, without its word.
fn summary(made: &Made<'_>, verdict: &Verdict, size: Size, hops: usize) -> String {
    let grave = |weight: Weight| {
        let mut all = made.plan.findings.iter().filter(|finding| finding.weight == weight);
        let first = all.next().map(|finding| {
            let which = sample_names(finding.count, &finding.samples);
            if which.is_empty() { finding.what.clone() } else { format!("{} ({which})", finding.what) }
        });
        let more = match all.count() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        harmless(&(first.unwrap_or_default() + &more))
    };
    match verdict {
        Verdict::Blocked => grave(Weight::Blocks),
        Verdict::Refuted => {
            "the check of this plan found an error in it, and it must not be carried out".to_owned()
        }
        Verdict::Stops => grave(Weight::Stops),
        Verdict::Done => {
            format!("everything that takes part is at {} already", harmless(&made.plan.to.to_string()))
        }
        Verdict::Ready | Verdict::Other(_) => moved(size, hops),
    }
}

/// `2 hops, 3 kube-apiservers, 12 nodes in 3 waves`.
pub(super) fn moved(size: Size, hops: usize) -> String {
    let many = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    };
    let mut parts = vec![many(hops, "hop")];
    if size.servers > 0 {
        parts.push(many(size.servers, "kube-apiserver"));
    }
    parts.push(match size.waves {
        0 => many(size.nodes, "node"),
        waves => format!("{} in {}", many(size.nodes, "node"), many(waves, "wave")),
    });
    parts.join(", ")
}

fn size(hops: &[Hop]) -> Size {
    let (mut servers, mut nodes) = (BTreeSet::new(), BTreeSet::new());
    for hop in hops {
        for step in &hop.steps {
            let has = |component: Component| step.components.iter().any(|name| name == component.name());
            servers.extend(has(Component::KubeApiserver).then_some(&step.place));
            nodes.extend(has(Component::Kubelet).then_some(&step.place));
        }
        nodes.extend(hop.kubelets.waves.iter().flat_map(|wave| &wave.nodes));
    }
    let waves = hops.iter().map(|hop| hop.kubelets.waves.len()).sum();
    Size { servers: servers.len(), nodes: nodes.len(), waves }
}

fn hops(made: &Made<'_>) -> Vec<Hop> {
    let known = |member: &Member<'_>| Some((member.node.name.clone(), member.node.kubelet.known()?.clone()));
    let mut runs: BTreeMap<Arc<str>, KubeVersion> = made.members.iter().filter_map(known).collect();
    let no_waves = Vec::new();
    let mut hops = Vec::new();
    for (at, hop) in made.plan.hops.iter().enumerate() {
        let of_hop = made.waves.get(at).unwrap_or(&no_waves);
        for step in hop.steps.iter().filter(|step| step.components.contains(&Component::Kubelet)) {
            runs.insert(step.place.clone(), hop.version.clone());
        }
        let waves = waves(made.upgrade, of_hop, &runs);
        for node in of_hop.iter().flat_map(|wave| &wave.nodes) {
            runs.insert(node.clone(), hop.version.clone());
        }
        hops.push(Hop {
            version: harmless(&hop.version.to_string()),
            picked_by: match hop.picked {
                Picked::Target => PickedBy::Target,
                Picked::Person => PickedBy::Person,
                Picked::Cluster => PickedBy::Cluster,
                Picked::Catalogue => PickedBy::Catalogue,
                Picked::Anyone => PickedBy::Anyone,
            },
            needs: hop.needs.iter().map(need).collect(),
            steps: hop.steps.iter().map(step).collect(),
            kubelets: Kubelets {
                before: match hop.kubelets {
                    Pass::Before(minor) => Some(minor.to_string()),
                    Pass::All => None,
                },
                waves,
            },
        });
    }
    hops
}

fn need(need: &plan::Need) -> Need {
    Need { component: need.component.name().to_owned(), least: need.least.to_string() }
}

fn step(step: &plan::Step) -> Step {
    Step {
        components: step.components.iter().map(|component| component.name().to_owned()).collect(),
        place: harmless(&step.place),
        from: harmless(&step.from.to_string()),
    }
}

pub(super) fn waves(
    upgrade: &Upgrade,
    waves: &[plan::Wave],
    runs: &BTreeMap<Arc<str>, KubeVersion>,
) -> Vec<Wave> {
    // When the last wave of each group is, by the group's index.
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    let mut all = Vec::new();
    for wave in waves {
        let Some(group) = upgrade.groups.get(wave.group) else { continue };
        let groups_before = upgrade.groups_before(group);
        let needed = upgrade.groups.iter().enumerate().filter(|(_, other)| groups_before.contains(other));
        let before = needed.map(|(at, _)| at).chain([wave.group]).filter_map(|at| last.get(&at)).max();
        let order = before.map_or(1, |before| before + 1);
        last.insert(wave.group, order);
        let mut from: Vec<&KubeVersion> = wave.nodes.iter().filter_map(|node| runs.get(node)).collect();
        from.sort_by(|a, b| a.progress(b));
        let mut from: Vec<String> = from.iter().map(|version| harmless(&version.to_string())).collect();
        from.dedup();
        all.push(Wave {
            order,
            group: harmless(&group.name),
            canary: wave.canary,
            zone: wave.zone.as_deref().map(harmless),
            at_once: wave.at_once,
            from,
            nodes: wave.nodes.iter().map(|node| harmless(node)).collect(),
        });
    }
    all.sort_by_key(|wave| wave.order);
    all
}

fn groups(made: &Made<'_>) -> Vec<Group> {
    let group = |(at, group): (usize, &evenkeel_core::upgrade::NodeGroup)| Group {
        name: harmless(&group.name),
        nodes: made.members.iter().filter(|member| member.group == at).count(),
        max_unavailable: match group.max_unavailable {
            Amount::Count(count) => count.to_string(),
            Amount::Percent(percent) => format!("{percent}%"),
        },
        canary: group.canary,
        zones_one_at_a_time: group.zones == Zones::OneAtATime,
        depends_on: group.depends_on.iter().map(|name| harmless(name)).collect(),
        executor: harmless(&group.executor),
    };
    made.upgrade.groups.iter().enumerate().map(group).collect()
}

fn time(made: &Made<'_>) -> Time {
    let timing = made.timing;
    let hop = |hop: &plan::HopTiming| HopTime {
        hop: hop.hop.to_string(),
        least_seconds: hop.least.as_secs(),
        p50_seconds: hop.estimate.p50.as_secs(),
        p90_seconds: hop.estimate.p90.as_secs(),
    };
    let bound = |bound: &plan::HopBound| Bound {
        hop: bound.hop.to_string(),
        stage: bound.stage.name().to_owned(),
        subject: harmless(&bound.subject),
        what: harmless(&bound.what),
        least_seconds: bound.least.as_secs(),
    };
    Time {
        least_seconds: timing.least.as_secs(),
        p50_seconds: timing.estimate.p50.as_secs(),
        p90_seconds: timing.estimate.p90.as_secs(),
        until_done_seconds: timing
            .until_done
            .filter(|all| *all > timing.estimate.p50)
            .map(|all| all.as_secs()),
        hops: timing.hops.iter().map(hop).collect(),
        bounds: timing.bounds.iter().map(bound).collect(),
        basis: made.basis.clone(),
    }
}

fn gravity(weight: Weight) -> Gravity {
    match weight {
        Weight::Blocks => Gravity::Blocks,
        Weight::Stops => Gravity::Stops,
        Weight::Warns => Gravity::Warns,
    }
}

fn finding(finding: &plan::PlanFinding) -> Finding {
    Finding {
        id: harmless(&finding.id.to_string()),
        weight: gravity(finding.weight),
        hop: finding.hop.map(|minor| minor.to_string()),
        what: harmless(&finding.what),
        remedy: harmless(&finding.remedy),
        names: finding.samples.iter().map(|name| harmless(name)).collect(),
        count: finding.count,
        acceptable: finding.acceptable,
        accepted: finding.accepted.as_ref().map(|accepted| Accepted {
            until: accepted.until.to_string(),
            reason: harmless(&accepted.reason),
            instead_of: gravity(accepted.instead_of),
        }),
    }
}
