//! JUnit XML: what pipelines show as test results. There is one case for each row that is well and for each thing that
//! is not.
//!
//! Nothing here judges: levels and words come from `outcome`. The invariant: no text of the cluster is written without
//! `escaped`, so the document can be parsed whatever names it holds.

use std::fmt::Write as _;

use evenkeel_core::skew::Standing;

use super::outcome::{CheckOutcome, Level};
use super::report::Report;

/// Fails what is at or above `fail_on`; what is below is told in the output of a case that passes.
pub(super) fn junit(report: &Report, fail_on: Level) -> String {
    let outcomes = report.outcomes();
    let well: Vec<_> = report.judged.rows.iter().filter(|row| row.standing == Standing::Supported).collect();
    let failures = outcomes.iter().filter(|outcome| outcome.level <= fail_on).count();
    let numbers = format!("tests=\"{}\" failures=\"{failures}\" errors=\"0\"", well.len() + outcomes.len());
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {numbers}>\n  \
         <testsuite name=\"evenkeel\" {numbers} skipped=\"0\">\n"
    );
    // Writing to a String cannot fail, here and below.
    for row in well {
        let name = format!("{} {} in pool {}", row.count, row.version, row.pool);
        let _ = writeln!(text, "    <testcase classname=\"{}\" name=\"{}\"/>", row.component, escaped(&name));
    }
    for outcome in &outcomes {
        let _ = write!(text, "{}", case(outcome, fail_on));
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

fn case(outcome: &CheckOutcome, fail_on: Level) -> String {
    let class = outcome.component.map_or("not-seen", |component| component.name());
    let message = escaped(&outcome.message);
    let mut body = String::new();
    for (title, rest) in [("which", &outcome.names), ("to do", &outcome.remedy)] {
        if !rest.is_empty() {
            let _ = writeln!(body, "{title}: {}", escaped(rest));
        }
    }
    let inner = if outcome.level <= fail_on {
        format!("<failure type=\"{}\" message=\"{message}\">{body}</failure>", outcome.level.name())
    } else {
        format!("<system-out>{}: {message}\n{body}</system-out>", outcome.level.name())
    };
    let id = escaped(&outcome.id);
    format!("    <testcase classname=\"{class}\" name=\"{id}\">\n      {inner}\n    </testcase>\n")
}

pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML 1.0 has no way to write these.
            c if c.is_control() && c != '\n' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}
