//! What a check may fail on, in three levels.
//!
//! No rule is here: the core says how grave a finding is.

use std::sync::Arc;

use clap::ValueEnum;
use evenkeel_core::cluster::Component;
use evenkeel_core::skew::policy::Rule;
use evenkeel_core::skew::{Assessment, Row, Severity, Standing, sample_names};
use evenkeel_core::version::Observed;

use crate::api::report::source;

/// How grave; the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(in super::super) enum Level {
    /// Outside the version skew policy.
    Violation,
    /// Inside, but the next control-plane minor would put it outside.
    AtLimit,
    /// A version that is not known, a controller that lags behind, a source that was not seen.
    Warning,
}

impl Level {
    /// The word for it on the command line.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Violation => "violation",
            Self::AtLimit => "at-limit",
            Self::Warning => "warning",
        }
    }
}

/// What a check may fail by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedBy {
    /// A rule of the policy, or what is said of how long a minor is maintained.
    Policy(&'static Rule),
    /// That a component's version is not known.
    UnknownVersion,
    /// That a source was not seen.
    NotSeen,
}

impl FailedBy {
    /// Its short name.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Policy(rule) => rule.id,
            Self::UnknownVersion => "unknown-version",
            Self::NotSeen => "not-seen",
        }
    }
}

/// One thing that a check may fail on.
pub(in super::super) struct CheckOutcome {
    pub(in super::super) level: Level,
    pub(super) rule: FailedBy,
    /// An id that stays the same for the same thing in every run.
    pub(super) id: String,
    /// The component that it is about; `None` for a source that was not seen.
    pub(super) component: Option<Component>,
    pub(super) message: String,
    /// What to do; may be empty where the message says it.
    pub(super) remedy: String,
    /// `a, b and 17 more`; may be empty.
    pub(super) names: String,
    /// The first of those names.
    pub(super) samples: Vec<Arc<str>>,
}

/// Everything of `judged`, and what was not seen, worst first.
pub(super) fn outcomes(judged: &Assessment, missing: &[String]) -> Vec<CheckOutcome> {
    let findings = judged.findings.iter().map(|finding| CheckOutcome {
        level: match finding.severity {
            Severity::Unsupported => Level::Violation,
            Severity::AtLimit => Level::AtLimit,
            Severity::Warning => Level::Warning,
        },
        rule: FailedBy::Policy(finding.rule),
        id: finding.id.clone(),
        component: Some(finding.component),
        message: finding.message.clone(),
        remedy: finding.remedy.clone(),
        names: sample_names(finding.count, &finding.samples),
        samples: finding.samples.clone(),
    });
    let mut all: Vec<_> = findings.chain(judged.rows.iter().filter_map(unknown_row)).collect();
    all.extend(missing.iter().map(|line| CheckOutcome {
        level: Level::Warning,
        rule: FailedBy::NotSeen,
        id: format!("{}/{line}", FailedBy::NotSeen.text()),
        component: None,
        message: line.clone(),
        remedy: String::new(),
        names: String::new(),
        samples: Vec::new(),
    }));
    all.sort_by_key(|outcome| outcome.level);
    all
}

fn unknown_row(row: &Row) -> Option<CheckOutcome> {
    let (Standing::Unknown, Observed::Unknown(_)) = (row.standing, &row.version) else { return None };
    Some(CheckOutcome {
        level: Level::Warning,
        rule: FailedBy::UnknownVersion,
        id: format!("{}/{}/{}", FailedBy::UnknownVersion.text(), row.component, row.pool),
        component: Some(row.component),
        message: format!(
            "{} {} in pool {}: version unknown ({})",
            row.count,
            row.component,
            row.pool,
            source(row)
        ),
        remedy: say(row.component),
        names: sample_names(row.count, &row.samples),
        samples: row.samples.clone(),
    })
}

/// Which flag gives the version of a `component` that is not seen.
fn say(component: Component) -> String {
    match component {
        Component::KubeApiserver => "if you know it, say --apiserver-version NAME=VERSION".to_owned(),
        _ => format!("if you know it, say --component {component}=NAME=VERSION"),
    }
}
