//! `evenkeel plan`: what an upgrade would do, in which order, and what is in its way.
//!
//! Here belongs what is read, shown and compared with an older plan; what is planned and found is the core's. The
//! invariants: nothing is changed in any cluster; and every form of the output is made from one document.

mod args;
mod build;
mod delays;
mod diff;
mod document;
mod executors;
mod markdown;
mod object;
mod recorded;
mod requested;
mod subject;
mod text;
mod times;
mod vocabulary;
mod words;

use evenkeel_core::plan::{self, Plan, PlanInput, Refutation};
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_core::skew::policy::Policy;
#[cfg(feature = "sim")]
use kube::ResourceExt as _;

use super::exit::{EXIT_FINDINGS, EXIT_OK, print, wrong_arguments};
use super::{output, releases};
#[cfg(feature = "sim")]
use crate::api::ClusterUpgrade;
use crate::observe::files::shown_path;
pub(super) use args::{EXAMPLES, PlanArgs};
use args::{FailOnFinding, PlanForm};
use build::Made;
use document::UpgradePlan;
use executors::UpgradeWithExecutors;
use requested::RequestedUpgrade;
#[cfg(feature = "sim")]
pub(super) use subject::LiveCluster;
use subject::PlanSubject;
use text::PlanStyle;
use times::TimesArgs;

/// The namespace of executors, whose pods no drain touches: the operator's default.
const EXECUTORS: &str = "evenkeel-executors";

pub(super) async fn run(args: PlanArgs) -> Result<u8, String> {
    let catalogue = releases::read(args.observe.releases.as_deref())?;
    if let Some(line) = requested::wrong_arguments(&args) {
        return Ok(wrong_arguments(&line));
    }
    let requested = requested::requested(&args)?;
    let older = args.diff.as_deref().map(diff::older).transpose()?;
    let name = requested.object.as_ref().map(|_| requested.upgrade.name.clone());
    let subject = subject::subject_of(&args.observe, name.as_deref()).await?;
    let mut planned = planned(requested, subject, &catalogue, &args.times, args.fail_on)?;
    planned.document.changes = older.map(|older| diff::changes(&older, &planned.document));
    let older = args.diff.as_deref().map(shown_path);
    let style = PlanStyle {
        wide: args.output == PlanForm::Wide,
        paint: output::paint(args.color),
        width: output::width(),
        about: &planned.about,
        older: older.as_deref(),
    };
    print(&render(&planned.document, args.output, style)?)?;
    Ok(if planned.failed { EXIT_FINDINGS } else { EXIT_OK })
}

/// What `evenkeel plan --upgrade` prints for `object`, of the cluster that `live` looks at.
///
/// # Errors
/// What is wrong with the object, in one line.
#[cfg(feature = "sim")]
pub(super) async fn of_object(
    live: LiveCluster<'_>,
    object: ClusterUpgrade,
    catalogue: &Catalogue,
    style: super::output::ReportStyle,
) -> Result<String, String> {
    let subject = live.subject(Some(&object.name_any())).await;
    let requested = RequestedUpgrade::of_object(object, Vec::new()).map_err(|invalid| invalid.to_string())?;
    let planned = planned(requested, subject, catalogue, &TimesArgs::default(), FailOnFinding::Stops)?;
    let about = &planned.about;
    let style = PlanStyle { wide: false, paint: style.paint, width: style.width, about, older: None };
    render(&planned.document, PlanForm::Table, style)
}

/// A plan, and how it is introduced.
struct ShownPlan {
    document: UpgradePlan,
    /// What it was made for: titles and lines.
    about: Vec<(&'static str, String)>,
    /// It does not hold, or has a finding as grave as the caller said.
    failed: bool,
}

fn planned(
    requested: RequestedUpgrade,
    mut subject: PlanSubject,
    catalogue: &Catalogue,
    times: &TimesArgs,
    fail_on: FailOnFinding,
) -> Result<ShownPlan, String> {
    subject.about.splice(0..0, requested.source.iter().map(|source| ("Upgrade", source.clone())));
    let executors = std::mem::take(&mut subject.executors);
    let UpgradeWithExecutors { upgrade, absent, unseen } = match &requested.object {
        Some(object) => executors.upgrade(object, &requested.executors).map_err(|error| error.to_string())?,
        None => UpgradeWithExecutors { upgrade: requested.upgrade, absent: Vec::new(), unseen: Vec::new() },
    };
    let upgrade = &upgrade;
    // The cluster knows better what it has begun than a file that was exported from it.
    let recorded = subject.object.take().or_else(|| requested.object.clone()).zip(requested.object.clone());
    let recorded = recorded
        .map(|(object, requested)| recorded::progress(object, requested, upgrade))
        .unwrap_or_default();
    let members = upgrade.members(&subject.cluster);
    let input = PlanInput {
        cluster: &subject.cluster,
        upgrade,
        members: &members,
        policy: Policy::default(),
        catalogue,
        recorded: &recorded.via,
        hidden: &subject.hidden,
        absent_executors: &absent,
        now: subject.now,
    };
    // What an approval is bound to is known where every executor is.
    let whole = unseen.is_empty() && absent.is_empty();
    subject.not_seen.extend(unseen);
    let mut plan = plan::make(&input);
    let waves = plan::waves(&plan, upgrade, &subject.cluster, &members);
    let refuted = refuted(&plan, &waves, &input);
    let (durations, basis) = times::durations(times, std::mem::take(&mut subject.earlier));
    let (cluster, now, rules) = (&subject.cluster, subject.now, upgrade.drain.rules(EXECUTORS));
    let input = plan::ForecastInput { plan: &plan, waves: &waves, upgrade, cluster, rules: &rules, now };
    let timing = plan::timing(&input, &durations, &recorded.soaks);
    plan.findings = plan::foresee(&input);
    let made = Made {
        upgrade,
        members: &members,
        plan: &plan,
        waves: &waves,
        refuted,
        hash: recorded.from.as_ref().or(plan.from.as_ref()).filter(|_| whole).map(|from| {
            plan::hash(upgrade, from, &plan::on_the_way(upgrade, from, &recorded.via, Some(&plan)))
        }),
        timing: &timing,
        basis,
        of_object: requested.source.is_some(),
    };
    let failed = fails(&made, fail_on);
    let document = build::document(&made, &subject);
    Ok(ShownPlan { document, about: subject.about, failed })
}

/// What the check finds wrong with a plan that could begin.
fn refuted(plan: &Plan, waves: &[Vec<plan::Wave>], input: &PlanInput<'_>) -> Vec<String> {
    if plan.blockers().next().is_some() {
        return Vec::new();
    }
    let of_plan = plan::check(plan.clone(), input.cluster, input.members, &input.policy).err();
    let of_waves = plan::check_waves(plan, waves, input.upgrade, input.members);
    of_plan.into_iter().flatten().chain(of_waves).map(|wrong: Refutation| wrong.to_string()).collect()
}

fn fails(made: &Made<'_>, on: FailOnFinding) -> bool {
    let grave = |finding: &plan::PlanFinding| finding.weight <= on.weight();
    !made.refuted.is_empty() || made.plan.findings.iter().any(grave)
}

fn render(document: &UpgradePlan, form: PlanForm, style: PlanStyle<'_>) -> Result<String, String> {
    let failed = |error: String| format!("cannot write the plan: {error}");
    match form {
        PlanForm::Table | PlanForm::Wide => Ok(text::text(document, style)),
        PlanForm::Json => serde_json::to_string_pretty(document)
            .map(|text| text + "\n")
            .map_err(|error| failed(error.to_string())),
        PlanForm::Yaml => serde_saphyr::to_string(document).map_err(|error| failed(error.to_string())),
        PlanForm::Markdown => Ok(markdown::markdown(document, style)),
    }
}

#[cfg(test)]
mod tests;
