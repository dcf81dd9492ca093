//! The forms in which a judgement is shown, one file each, and what they have in common.
//!
//! Nothing here judges: levels and words come from the core's standing and findings. The invariant: what is written
//! to a file or a pipe depends on the cluster alone, never on the terminal, and says how many of anything it leaves
//! out.

pub(super) mod causes;
mod document;
mod junit;
pub(super) mod markdown;
mod outcome;
pub(super) mod paint;
mod sarif;
pub(super) mod table;
mod text;

use clap::ValueEnum;
use evenkeel_core::disruption::preflight::Cause;
use evenkeel_core::skew::{Assessment, Row, Verdict};
use k8s_openapi::jiff::Timestamp;

use crate::observe::files::Places;
use crate::observe::platform::Platform;

pub(super) use outcome::{Level, Outcome};
pub(super) use paint::{Color, Paint, paint, width};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For a person.
    Table,
    /// The same with more columns and details.
    Wide,
    /// JSON, for a program; of `report` and `check` it is the status of a ClusterSkewReport.
    Json,
    /// The same document as YAML.
    Yaml,
    /// For a pull request or a ticket.
    Markdown,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// JUnit XML, for a pipeline's test results.
    Junit,
}

/// What was looked at, and the judgement of it.
pub(super) struct Report {
    /// What it is about: titles and lines.
    pub(super) subject: Vec<(&'static str, String)>,
    /// Which file each object came from; empty for a cluster.
    pub(super) places: Places,
    /// The platform of the cluster, if it was recognised.
    pub(super) platform: Option<Platform>,
    /// Components that cannot be seen on this platform and why, one line each.
    pub(super) hidden: Vec<String>,
    /// Budgets that allow no eviction; `None` where budgets were not read.
    pub(super) budgets: Option<Vec<Cause>>,
    /// What was not seen, one line each.
    pub(super) missing: Vec<String>,
    /// How many Nodes there are.
    pub(super) nodes: usize,
    /// When the cluster was as it is shown; `None` if files do not say.
    pub(super) seen: Option<Timestamp>,
    pub(super) judged: Assessment,
}

/// How a judgement is shown.
#[derive(Clone, Copy)]
pub(super) struct Style {
    /// Whether it is shown as a check that passes or fails, not as a report.
    pub(super) check: bool,
    pub(super) fail_on: Level,
    pub(super) paint: Paint,
    /// How wide a line may be, in columns; `None` is without limit, for a file or a pipe.
    pub(super) width: Option<usize>,
}

impl Report {
    /// Everything that a check may fail on, worst first.
    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        outcome::outcomes(&self.judged, &self.missing)
    }

    /// `UNSUPPORTED, incomplete`.
    fn verdict(&self) -> String {
        let word = match self.judged.supported {
            Verdict::True => "SUPPORTED",
            Verdict::False => "UNSUPPORTED",
            Verdict::Unknown => "UNKNOWN",
        };
        let incomplete = if self.missing.is_empty() { "" } else { ", incomplete" };
        format!("{word}{incomplete}")
    }

    /// How far behind, and whether the next minor is allowed.
    fn distance(&self) -> Vec<String> {
        let mut parts = Vec::new();
        if let (Some(behind), Some(limit)) = (self.judged.behind, self.judged.limit) {
            parts.push(match behind {
                _ if is_another_major(behind) => "kubelets of another major version".to_owned(),
                ..0 => format!("kubelets {} ahead, none allowed", minors(-behind)),
                _ => format!("kubelets {} behind, {limit} allowed", minors(behind)),
            });
        }
        let next = &self.judged.next_minor;
        parts.push(match (next.minor, next.allowed) {
            (None, _) => "next minor: unknown".to_owned(),
            (Some(minor), Verdict::True) => format!("next minor {minor}: allowed"),
            (Some(minor), Verdict::False) => format!("next minor {minor}: blocked"),
            (Some(minor), Verdict::Unknown) => format!("next minor {minor}: unknown"),
        });
        parts
    }
}

fn minors(count: i32) -> String {
    if count == 1 { "1 minor".to_owned() } else { format!("{count} minors") }
}

/// Whether `behind` means another major version: the core counts each major as a thousand minors.
fn is_another_major(behind: i32) -> bool {
    behind.abs() > 500
}

/// How far a row is behind, in a column of that name.
fn behind(row: &Row) -> String {
    match row.behind {
        None => "-".to_owned(),
        Some(behind) if is_another_major(behind) => "other major".to_owned(),
        Some(behind) => behind.to_string(),
    }
}

/// A budget that allows no eviction, in one line.
fn budget_line(cause: &Cause) -> String {
    format!("{}: {}: {}; {}", cause.outlook.name(), cause.object, cause.what, cause.remedy)
}

/// `report` in the form of `output`.
pub(super) fn render(report: &Report, output: Output, style: Style) -> Result<String, String> {
    let written = |text: Result<String, serde_json::Error>| {
        text.map(|text| text + "\n").map_err(|error| format!("cannot write the report: {error}"))
    };
    match output {
        Output::Table | Output::Wide => Ok(text::text(report, output == Output::Wide, style)),
        Output::Json => written(serde_json::to_string_pretty(&document::document(report))),
        Output::Yaml => serde_saphyr::to_string(&document::document(report))
            .map_err(|error| format!("cannot write the report: {error}")),
        Output::Markdown => Ok(markdown::markdown(report, style)),
        Output::Sarif => written(serde_json::to_string_pretty(&sarif::sarif(report))),
        Output::Junit => Ok(junit::junit(report, style.fail_on)),
    }
}
