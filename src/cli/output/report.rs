//! What is shown in every form: what was looked at with its judgement, how, and the lines that forms share.
//!
//! How a form is written never belongs here. The invariant: a line that several forms have says the same in each.

use evenkeel_core::disruption::preflight::Cause;
use evenkeel_core::skew::{Assessment, Row, Verdict};
use k8s_openapi::jiff::Timestamp;

use super::outcome::{CheckOutcome, Level, outcomes};
use super::paint::Paint;
use crate::observe::files::ObjectFiles;
use crate::observe::platform::Platform;

/// What was looked at, and the judgement of it.
pub(in super::super) struct Report {
    /// What it is about: titles and lines.
    pub(in super::super) subject: Vec<(&'static str, String)>,
    /// Which file each object came from; empty for a cluster.
    pub(in super::super) places: ObjectFiles,
    /// The platform of the cluster, if it was recognised.
    pub(in super::super) platform: Option<Platform>,
    /// Components that cannot be seen on this platform and why, one line each.
    pub(in super::super) hidden: Vec<String>,
    /// Budgets that allow no eviction; `None` where budgets were not read.
    pub(in super::super) budgets: Option<Vec<Cause>>,
    /// What was not seen, one line each.
    pub(in super::super) missing: Vec<String>,
    /// Why no version of a kube-apiserver was seen, in one line, where that is known.
    pub(in super::super) without_servers: Option<String>,
    /// How many Nodes there are.
    pub(in super::super) nodes: usize,
    /// When the cluster was as it is shown; `None` if files do not say.
    pub(in super::super) seen: Option<Timestamp>,
    pub(in super::super) judged: Assessment,
}

/// How a judgement is shown.
#[derive(Clone, Copy)]
pub(in super::super) struct ReportStyle {
    /// Whether it is shown as a check that passes or fails, not as a report.
    pub(in super::super) check: bool,
    pub(in super::super) fail_on: Level,
    pub(in super::super) paint: Paint,
    /// How wide a line may be, in columns; `None` is without limit, for a file or a pipe.
    pub(in super::super) width: Option<usize>,
}

impl Report {
    /// Everything that a check may fail on, worst first.
    pub(in super::super) fn outcomes(&self) -> Vec<CheckOutcome> {
        outcomes(&self.judged, &self.missing)
    }

    /// `UNSUPPORTED, incomplete`.
    pub(super) fn verdict(&self) -> String {
        let word = match self.judged.supported {
            Verdict::True => "SUPPORTED",
            Verdict::False => "UNSUPPORTED",
            Verdict::Unknown => "UNKNOWN",
        };
        let incomplete = if self.missing.is_empty() { "" } else { ", incomplete" };
        format!("{word}{incomplete}")
    }

    /// How far behind, and whether the next minor is allowed.
    pub(super) fn distance(&self) -> Vec<String> {
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
pub(super) fn behind(row: &Row) -> String {
    match row.behind {
        None => "-".to_owned(),
        Some(behind) if is_another_major(behind) => "other major".to_owned(),
        Some(behind) => behind.to_string(),
    }
}

/// A budget that allows no eviction, in one line.
pub(super) fn budget_line(cause: &Cause) -> String {
    format!("{}: {}: {}; {}", cause.outlook.name(), cause.object, cause.what, cause.remedy)
}
