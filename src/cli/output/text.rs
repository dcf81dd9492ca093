//! The report and the check as text for a person.
//!
//! Here belongs which sections there are and in which order; what they say comes from the core, `outcome` and `report`.
//! The invariant: without colour and at any width it says the same.

use std::fmt::Write as _;

use evenkeel_core::skew::{Row, Standing, Verdict, lifecycle, sample_names};

use super::outcome::{CheckOutcome, Level};
use super::paint::{Ink, Paint};
use super::report::{Report, ReportStyle, behind, budget_line};
use super::table::{Cell, fitting, table};
use crate::api::report::source;

/// The report: the verdict, what runs, what is wrong, what comes before the next minor, the budgets that allow no
/// eviction, what was not seen, and what is no longer maintained. As a check: the result, what fails it, then what
/// does not.
pub(super) fn text(report: &Report, wide: bool, style: ReportStyle) -> String {
    let text = whole(report, wide, style);
    match style.width {
        Some(width) => fitting(&text, width),
        None => text,
    }
}

fn whole(report: &Report, wide: bool, style: ReportStyle) -> String {
    let mut text = String::new();
    let paint = style.paint;
    if style.check {
        let outcomes = report.outcomes();
        let failed = outcomes.iter().any(|outcome| outcome.level <= style.fail_on);
        let word = if failed { paint.on(Ink::Bad, "FAILED") } else { paint.on(Ink::Good, "PASSED") };
        line(
            &mut text,
            "Check",
            &format!("{word}   {}   fails on {}", counts(&outcomes), style.fail_on.name()),
        );
        head(&mut text, report, paint);
        let (fails, passes): (Vec<_>, Vec<_>) =
            outcomes.iter().partition(|outcome| outcome.level <= style.fail_on);
        for outcome in fails {
            show(&mut text, outcome, paint);
        }
        if !passes.is_empty() {
            text.push('\n');
        }
        for outcome in passes {
            let _ = writeln!(text, "{}", in_short(outcome, paint));
        }
        if wide {
            let _ = write!(text, "\n{}", rows(report, wide, style));
        }
        return text;
    }
    head(&mut text, report, paint);
    let _ = write!(text, "\n{}", rows(report, wide, style));
    let mut section = |title: &str, lines: &mut dyn Iterator<Item = String>| {
        let lines: Vec<String> = lines.collect();
        if !lines.is_empty() {
            let _ = write!(text, "\n{}\n", paint.on(Ink::Bold, title));
            for line in lines {
                let _ = writeln!(text, "- {line}");
            }
        }
    };
    let (maintenance, mut findings): (Vec<_>, Vec<_>) =
        report.judged.findings.iter().partition(|finding| lifecycle::is_about(finding));
    findings.sort_by_key(|finding| finding.severity);
    section(
        "FINDINGS",
        &mut findings.iter().map(|f| {
            format!(
                "{}: {} [{}]\n  which: {}\n  to do: {}",
                f.severity.name(),
                f.message,
                f.rule.id,
                sample_names(f.count, &f.samples),
                f.remedy
            )
        }),
    );
    let next = &report.judged.next_minor;
    if let Some(minor) = next.minor {
        section(&format!("BEFORE {minor}"), &mut next.blockers.iter().cloned());
    }
    section("BUDGETS THAT LET NO POD GO", &mut report.budgets.iter().flatten().map(budget_line));
    section("NOT SEEN", &mut report.missing.iter().cloned());
    section("NOT VISIBLE", &mut report.hidden.iter().cloned());
    section(
        "MAINTENANCE",
        &mut maintenance.iter().map(|f| format!("{} ({})", f.message, sample_names(f.count, &f.samples))),
    );
    text
}

// Writing to a String cannot fail, here and below.
fn line(text: &mut String, title: &str, rest: &str) {
    let _ = writeln!(text, "{title:<10}{rest}");
}

fn head(text: &mut String, report: &Report, paint: Paint) {
    let ink = match report.judged.supported {
        Verdict::True if report.missing.is_empty() => Ink::Good,
        Verdict::False => Ink::Bad,
        _ => Ink::Care,
    };
    let verdict = paint.on(ink, &report.verdict());
    line(text, "Verdict", &format!("{verdict}   {}", report.distance().join("   ")));
    for (title, rest) in &report.subject {
        line(text, title, rest);
    }
    if let Some(platform) = report.platform {
        line(text, "Platform", platform.name());
    }
}

fn counts(outcomes: &[CheckOutcome]) -> String {
    let of = |level| outcomes.iter().filter(|outcome| outcome.level == level).count();
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    format!(
        "{}, {} at the limit, {}",
        plural(of(Level::Violation), "violation"),
        of(Level::AtLimit),
        plural(of(Level::Warning), "warning")
    )
}

/// Adds an outcome that fails the check, with its names and its remedy.
fn show(text: &mut String, outcome: &CheckOutcome, paint: Paint) {
    let _ = writeln!(text, "\n{}  {} [{}]", word(outcome.level, paint), outcome.message, outcome.rule.text());
    for (title, rest) in [("which", &outcome.names), ("to do", &outcome.remedy)] {
        if !rest.is_empty() {
            let _ = writeln!(text, "  {title}: {rest}");
        }
    }
}

/// An outcome that does not fail the check, in one line.
fn in_short(outcome: &CheckOutcome, paint: Paint) -> String {
    let names = if outcome.names.is_empty() { String::new() } else { format!(" ({})", outcome.names) };
    format!("{}  {}{names} [{}]", word(outcome.level, paint), outcome.message, outcome.rule.text())
}

fn word(level: Level, paint: Paint) -> String {
    match level {
        Level::Violation => paint.on(Ink::Bad, "VIOLATION"),
        Level::AtLimit => paint.on(Ink::Care, "AT LIMIT"),
        Level::Warning => paint.on(Ink::Care, "WARNING"),
    }
}

fn rows(report: &Report, wide: bool, style: ReportStyle) -> String {
    let mut header = vec!["COMPONENT", "POOL", "VERSION", "COUNT", "BEHIND", "STATE"];
    if wide {
        header.extend(["LIMIT", "HEADROOM", "RULE", "SOURCE"]);
    }
    header.push("NAMES");
    let rows: Vec<_> = report.judged.rows.iter().map(|row| cells(row, wide)).collect();
    table(&header, &rows, style.paint, style.width)
}

fn cells(row: &Row, wide: bool) -> Vec<Cell> {
    let ink = match row.standing {
        Standing::Supported => Ink::Good,
        Standing::Unsupported => Ink::Bad,
        Standing::Unknown | Standing::AtLimit | Standing::Transitional => Ink::Care,
    };
    let dash = || "-".to_owned();
    let mut cells: Vec<Cell> = vec![
        row.component.to_string().into(),
        row.pool.to_string().into(),
        row.version.to_string().into(),
        row.count.to_string().into(),
        behind(row).into(),
        Cell { text: row.standing.name().to_owned(), ink },
    ];
    if wide {
        let rule = row.rule();
        cells.push(rule.map_or_else(dash, |rule| rule.max_older.to_string()).into());
        cells.push(row.headroom.map_or_else(dash, |minors| minors.to_string()).into());
        cells.push(rule.map_or_else(dash, |rule| rule.id.to_owned()).into());
        cells.push(source(row).into());
    }
    cells.push(sample_names(row.count, &row.samples).into());
    cells
}
