//! From what a person wrote, and from what is recorded in the status, to the core's values.
//!
//! Nothing is decided here, and nothing is sent. The invariant: of the executors that a `ClusterUpgrade` names, the value
//! of [`validate`] has those that are there, and [`absent_executors`] has the others.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use evenkeel_core::cluster::Component;
use evenkeel_core::plan;
use evenkeel_core::upgrade::{
    self, AbsentExecutor, Amount, ComponentPlace, Executor, Lasting, NodeGroup, Upgrade,
};
use evenkeel_core::version::{KubeVersion, Minor, ParseError, escape};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::SignedDuration;
use k8s_openapi::jiff::civil::Date;
use k8s_openapi::jiff::tz::TimeZone;
use kube::ResourceExt as _;

use super::drain::{self, InvalidPodRule};
use super::may_begin::{self, InvalidTime};
use super::schema::{AcceptedRisk, ApprovalMode, ClusterUpgrade, FailurePolicy, Hidden, Unit, Zones};
use super::selector::{InvalidExpression, selector};
use super::status_schema::{ClusterUpgradeStatus, SeenComponent};
use crate::api::executor::Executors;

/// The finalizer that keeps a deleted `ClusterUpgrade` or `NodeUpgrade` until its requests and nodes in flight have
/// settled.
pub const FINALIZER: &str = "evenkeel.dev/settle";

/// What is wrong with a `ClusterUpgrade` that the schema let through.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The version cannot be read.
    #[error("{0} {1} {2}; write it like v1.37.1")]
    Version(&'static str, String, ParseError),
    /// A group depends on a group that does not exist.
    #[error("nodeGroups {0}: dependsOn names {1}, which is no group of this upgrade")]
    NoGroup(String, String),
    /// A group would have to be done before it begins.
    #[error("nodeGroups {0}: dependsOn leads back to the group itself")]
    Circle(String),
    /// Two versions of one minor are on the way.
    #[error("spec.via names two versions of {0}; name one")]
    Via(Minor),
    /// The end of an accepted risk is no day, and no time with an offset.
    #[error(
        "acceptedRisks {0}: until {1} is no day and no time with an offset; write it like 2026-12-01 or 2026-12-01T18:00:00Z"
    )]
    Until(String, String),
    /// There is an executor for the first node where nodes do not move as a whole.
    #[error("controlPlane.firstExecutor needs controlPlane.unit Node")]
    FirstExecutor,
    /// A number of nodes is neither a count of at least 1 nor a percentage from 1 to 100.
    #[error("{0} must be a number of at least 1, or a percentage such as 10%")]
    Amount(String),
    /// A window or a freeze cannot be read.
    #[error(transparent)]
    Time(InvalidTime),
    /// The selector of a group cannot be.
    #[error("nodeGroups {0}: {1}")]
    Selector(String, InvalidExpression),
    /// A pod rule cannot be.
    #[error(transparent)]
    PodRule(InvalidPodRule),
}

/// The core's value of a `ClusterUpgrade`: every version is read, and every executor that a field names is looked up in
/// `there`. One that is not there is no error, and is left out: what is in flight has to go on without it.
///
/// # Errors
/// [`Invalid`], which names the field.
pub fn validate(object: &ClusterUpgrade, there: &Executors) -> Result<Upgrade, Invalid> {
    let spec = &object.spec;
    let version = |field: &'static str, text: &str| {
        KubeVersion::from_person(text).map_err(|error| Invalid::Version(field, escape(text), error))
    };
    let executors: BTreeMap<Arc<str>, Executor> =
        named(object).filter_map(|(_field, name)| Some((name.into(), there.get(name)?.clone()))).collect();
    let plane = &spec.control_plane;
    if plane.first_executor.is_some() && plane.unit != Unit::Node {
        return Err(Invalid::FirstExecutor);
    }
    let groups = spec.node_groups.iter().map(|group| {
        Ok(NodeGroup {
            name: group.name.as_str().into(),
            selector: selector(&group.selector)
                .map_err(|wrong| Invalid::Selector(group.name.clone(), wrong))?,
            max_unavailable: amount(&group.max_unavailable, || {
                format!("nodeGroups {}: maxUnavailable", group.name)
            })?,
            soak: seconds(group.soak_seconds),
            executor: group.executor.as_str().into(),
            depends_on: group.depends_on.iter().map(|name| name.as_str().into()).collect(),
            zones: match group.zones {
                Zones::Any => upgrade::Zones::Any,
                Zones::OneAtATime => upgrade::Zones::OneAtATime,
            },
            canary: usize::try_from(group.canary).unwrap_or(0),
        })
    });
    let groups = in_order(groups.collect::<Result<_, Invalid>>()?)?;
    Ok(Upgrade {
        name: object.name_any().into(),
        uid: object.uid().unwrap_or_default().into(),
        version: version("spec.version", &spec.version)?,
        via: via(spec.via.iter().map(|text| version("spec.via", text)))?,
        accepted: spec.accepted_risks.iter().map(accepted).collect::<Result<_, _>>()?,
        mode: match spec.mode {
            ApprovalMode::PlanOnly => upgrade::ApprovalMode::PlanOnly,
            ApprovalMode::RequireApproval => upgrade::ApprovalMode::RequireApproval,
            ApprovalMode::Automatic => upgrade::ApprovalMode::Automatic,
        },
        approved_hash: spec.approval.as_ref().map(|approval| approval.plan_hash.as_str().into()),
        suspended: spec.suspend,
        control_plane: upgrade::ControlPlane {
            unit: match plane.unit {
                Unit::Component => upgrade::Unit::Component,
                Unit::Node => upgrade::Unit::Node,
            },
            executor: plane.executor.as_str().into(),
            first_executor: plane.first_executor.as_deref().map(Into::into),
            hidden: match plane.hidden {
                Hidden::Refuse => upgrade::Hidden::Refuse,
                Hidden::Accept => upgrade::Hidden::Accept,
            },
            soak: seconds(plane.soak_seconds),
        },
        groups,
        drain: drain::options(&spec.drain).map_err(Invalid::PodRule)?,
        calendar: may_begin::calendar(spec).map_err(Invalid::Time)?,
        gates: spec.gates.iter().map(may_begin::gate).collect(),
        failures: failures(spec.failure_policy.as_ref())?,
        executors,
    })
}

/// `object`, which is not valid, without whatever of its spec could be wrong, so that [`validate`] has a value for what is in
/// flight to settle by. Nothing new may begin by that. It goes to the version of the plan that is under way; where no plan is
/// stored, its version may be what is wrong still.
pub fn settling(object: &ClusterUpgrade) -> ClusterUpgrade {
    let mut object = object.clone();
    let spec = &mut object.spec;
    if let Some(plan) = object.status.as_ref().and_then(|status| status.plan.as_ref()) {
        spec.version.clone_from(&plan.to);
    }
    spec.via.clear();
    spec.accepted_risks.clear();
    spec.windows.clear();
    spec.freezes.clear();
    spec.failure_policy = None;
    spec.drain.pod_rules.clear();
    let plane = &mut spec.control_plane;
    plane.first_executor = plane.first_executor.take().filter(|_| plane.unit == Unit::Node);
    for group in &mut spec.node_groups {
        group.depends_on.clear();
        group.selector.match_expressions.retain(|term| term.wrong().is_none());
        group.max_unavailable = IntOrString::Int(1);
    }
    object
}

/// The executors that `object` names and that are not `there`, by name; the first field that names one is told.
pub fn absent_executors(object: &ClusterUpgrade, there: &Executors) -> Vec<AbsentExecutor> {
    let mut absent: BTreeMap<&str, AbsentExecutor> = BTreeMap::new();
    for (field, name) in named(object) {
        if !absent.contains_key(name) {
            absent.extend(there.absent(&field, name).map(|executor| (name, executor)));
        }
    }
    absent.into_values().collect()
}

/// Each name of an executor in `object`, after the field that names it.
fn named(object: &ClusterUpgrade) -> impl Iterator<Item = (Cow<'static, str>, &str)> {
    let (plane, groups) = (&object.spec.control_plane, &object.spec.node_groups);
    let first = plane.first_executor.as_deref();
    let first = first.map(|name| (Cow::from("spec.controlPlane.firstExecutor"), name));
    let of_plane = iter::once((Cow::from("spec.controlPlane"), plane.executor.as_str())).chain(first);
    of_plane.chain(
        groups
            .iter()
            .map(|group| (Cow::from(format!("spec.nodeGroups {}", group.name)), group.executor.as_str())),
    )
}

/// `groups`, if each depends on others among them alone, and never on itself by way of others.
fn in_order(groups: Vec<NodeGroup>) -> Result<Vec<NodeGroup>, Invalid> {
    let of = |name: &str| groups.iter().find(|group| *group.name == *name);
    for group in &groups {
        if let Some(unknown) = group.depends_on.iter().find(|name| of(name).is_none()) {
            return Err(Invalid::NoGroup(group.name.to_string(), escape(unknown)));
        }
        let mut before: Vec<&Arc<str>> = group.depends_on.iter().collect();
        let mut seen: Vec<&Arc<str>> = Vec::new();
        while let Some(name) = before.pop() {
            if *name == group.name {
                return Err(Invalid::Circle(group.name.to_string()));
            }
            if !seen.contains(&name) {
                seen.push(name);
                before.extend(of(name).into_iter().flat_map(|group| &group.depends_on));
            }
        }
    }
    Ok(groups)
}

/// The versions on the way, of each minor at most one.
fn via(versions: impl Iterator<Item = Result<KubeVersion, Invalid>>) -> Result<Vec<KubeVersion>, Invalid> {
    let mut via: Vec<KubeVersion> = Vec::new();
    for version in versions {
        let version = version?;
        if via.iter().any(|other| other.minor() == version.minor()) {
            return Err(Invalid::Via(version.minor()));
        }
        via.push(version);
    }
    Ok(via)
}

/// A day counts to its end, in UTC.
fn accepted(risk: &AcceptedRisk) -> Result<upgrade::AcceptedRisk, Invalid> {
    const DAY: usize = "2026-12-01".len();
    let end_of_day = || {
        let next = risk.until.parse::<Date>().and_then(Date::tomorrow)?;
        next.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp())
    };
    // A time without an offset can be read as a day too: then the risk would be accepted for hours longer than it says.
    let until = if risk.until.len() == DAY { end_of_day() } else { risk.until.parse() };
    let until = until.map_err(|_| Invalid::Until(escape(&risk.finding), escape(&risk.until)))?;
    Ok(upgrade::AcceptedRisk {
        finding: risk.finding.as_str().into(),
        until,
        reason: risk.reason.as_str().into(),
    })
}

/// How far the upgrade is, as the status of `object` remembers it. `upgrade` is the core's value of `object`.
pub fn progress(object: &ClusterUpgrade, upgrade: &Upgrade) -> upgrade::Progress {
    let status = object.status.as_ref();
    // What is stored is about this upgrade only while it goes to the same version.
    let stored = status.filter(|s| s.plan.as_ref().is_some_and(|plan| plan.to == object.spec.version));
    let plan = stored.and_then(|s| s.plan.as_ref());
    let from = plan.and_then(|plan| plan.from.parse().ok());
    // It is complete for the plan that was carried out: a node group added since is a new plan.
    let recorded = plan.map(|plan| plan.via.iter().filter_map(|version| version.parse().ok()).collect());
    let via: Vec<KubeVersion> = recorded.unwrap_or_default();
    let hash = |from: &KubeVersion| plan::hash(upgrade, from, &plan::on_the_way(upgrade, from, &via, None));
    let carried_out = from.as_ref().map(hash);
    // Nor is it a new plan that an executor was changed or taken away since: that is for the upgrades to come.
    let unchanged = object.metadata.generation.is_some()
        && object.metadata.generation == stored.and_then(ClusterUpgradeStatus::complete_at);
    let complete = unchanged || carried_out.is_some() && carried_out == plan.map(|plan| plan.hash.clone());
    // A later release may know components that this one does not.
    let place = |seen: &SeenComponent| {
        let component = Component::from_name(&seen.component)?;
        Some(ComponentPlace {
            component,
            name: seen.name.as_str().into(),
            node_uid: seen.node_uid.as_str().into(),
        })
    };
    let known = |name: &String| Component::from_name(name);
    let lasting = stored.iter().flat_map(|s| &s.lasting);
    let others = object.finalizers().iter().filter(|name| *name != FINALIZER);
    upgrade::Progress {
        from,
        via,
        hop: plan.and_then(|plan| plan.hop.parse().ok()),
        // What was complete and is not any more begins anew, behind what is under way now.
        started: stored
            .filter(|s| complete || s.completion_time.is_none())
            .and_then(|s| s.start_time.as_ref())
            .map(|time| time.0),
        completed: stored.filter(|_| complete).and_then(|s| s.completion_time.as_ref()).map(|time| time.0),
        soaks: stored.map(|s| may_begin::soaks(&s.soaks)).unwrap_or_default(),
        seen: status.map(|s| s.control_plane.iter().filter_map(place).collect()).unwrap_or_default(),
        hidden: status.map(|s| s.hidden_controllers.iter().filter_map(known).collect()).unwrap_or_default(),
        queued_behind: None,
        protected: object.finalizers().iter().any(|name| name == FINALIZER),
        ending: object.metadata.deletion_timestamp.is_some(),
        finalizers: others.map(|name| name.as_str().into()).collect(),
        lasting: lasting.filter_map(|of| Lasting::read(&of.reason, &of.name)).collect(),
    }
}

fn seconds(seconds: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(seconds.max(0)))
}

fn failures(policy: Option<&FailurePolicy>) -> Result<upgrade::FailurePolicy, Invalid> {
    let one = |stated: Option<&IntOrString>, field: &str| {
        stated.map(|stated| amount(stated, || format!("failurePolicy: {field}"))).transpose()
    };
    Ok(upgrade::FailurePolicy {
        max_failed: one(policy.and_then(|policy| policy.max_failed.as_ref()), "maxFailed")?,
        max_parked: one(policy.and_then(|policy| policy.max_parked.as_ref()), "maxParked")?,
    })
}

fn amount(stated: &IntOrString, field: impl Fn() -> String) -> Result<Amount, Invalid> {
    let parsed = match stated {
        IntOrString::Int(number) => usize::try_from(*number).ok().map(Amount::Count),
        IntOrString::String(text) => {
            let number = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
            number.filter(|percent| *percent <= 100).map(Amount::Percent)
        }
    };
    let positive = |amount: &Amount| !matches!(amount, Amount::Count(0) | Amount::Percent(0));
    parsed.filter(positive).ok_or_else(|| Invalid::Amount(field()))
}

#[cfg(test)]
mod tests;
