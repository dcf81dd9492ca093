//! Markdown for a pull request or a ticket.
//!
//! Here belongs how the report is laid out; its words come from the core and from `report`. The invariant: no text of
//! the cluster is written without `escaped`, so no name is read as markup.

use std::fmt::Write as _;

use evenkeel_core::skew::{lifecycle, sample_names};

use super::report::{Report, ReportStyle, behind, budget_line};

pub(super) fn markdown(report: &Report, style: ReportStyle) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(text, "## Version skew: {}\n", report.verdict());
    if style.check {
        let failed = report.outcomes().iter().any(|outcome| outcome.level <= style.fail_on);
        let word = if failed { "failed" } else { "passed" };
        let _ = writeln!(text, "- Check: **{word}** (fails on {})", style.fail_on.name());
    }
    for part in report.distance() {
        let _ = writeln!(text, "- {}", escaped(&part));
    }
    for (title, rest) in &report.subject {
        let _ = writeln!(text, "- {title}: {}", escaped(rest));
    }
    if let Some(platform) = report.platform {
        let _ = writeln!(text, "- Platform: {platform}");
    }
    text.push_str("\n| component | pool | version | count | behind | state | names |\n");
    text.push_str("| --- | --- | --- | ---: | ---: | --- | --- |\n");
    for row in &report.judged.rows {
        let cells = [
            row.component.to_string(),
            row.pool.to_string(),
            row.version.to_string(),
            row.count.to_string(),
            behind(row),
            row.standing.name().to_owned(),
            sample_names(row.count, &row.samples),
        ];
        let cells: Vec<_> = cells.iter().map(|cell| escaped(cell)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    let mut section = |title: &str, lines: &mut dyn Iterator<Item = String>| {
        let lines: Vec<String> = lines.collect();
        if !lines.is_empty() {
            let _ = write!(text, "\n### {title}\n\n");
            for line in lines {
                let _ = writeln!(text, "- {line}");
            }
        }
    };
    let (maintenance, findings): (Vec<_>, Vec<_>) =
        report.judged.findings.iter().partition(|finding| lifecycle::is_about(finding));
    section(
        "Findings",
        &mut findings.iter().map(|f| {
            let which = escaped(&sample_names(f.count, &f.samples));
            format!("{} (`{}`): {which}  \n  To do: {}", escaped(&f.message), f.rule.id, escaped(&f.remedy))
        }),
    );
    let next = &report.judged.next_minor;
    if let Some(minor) = next.minor {
        section(&format!("Before {minor}"), &mut next.blockers.iter().map(|line| escaped(line)));
    }
    section(
        "Budgets that let no pod go",
        &mut report.budgets.iter().flatten().map(|cause| escaped(&budget_line(cause))),
    );
    section("Not seen", &mut report.missing.iter().map(|line| escaped(line)));
    section("Not visible", &mut report.hidden.iter().map(|line| escaped(line)));
    section(
        "Maintenance",
        &mut maintenance
            .iter()
            .map(|f| format!("{} ({})", escaped(&f.message), escaped(&sample_names(f.count, &f.samples)))),
    );
    text
}

/// `text` without a meaning in Markdown. Backticks stay: our own lines name commands with them.
pub(in super::super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '|' | '*' | '_' | '~' | '[' | ']' | '\\' | '$' | '#' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}
