//! How upgrades stand, for a person at a terminal.
//!
//! The invariant: what is left out is counted, and `wide` leaves out nothing that the status has.

use std::fmt::Write as _;

use super::super::output::Paint;
use super::super::output::paint::Ink;
use super::super::output::table::{Cell, fitting, table};
use super::document::{FindingRow, UpgradeRow, UpgradesDocument, WaitingRow, omitted};
use crate::api::ConditionStatus;
use crate::api::upgrade::named;

/// How many rows and lines of a section are shown where not all are asked for.
const ROWS: usize = 10;

/// How the standing of upgrades is shown to a person.
#[derive(Clone, Copy)]
pub(super) struct StatusStyle {
    /// Everything, not the first few.
    pub(super) wide: bool,
    pub(super) paint: Paint,
    /// How wide a line may be; `None` is without limit, for a file or a pipe.
    pub(super) width: Option<usize>,
}

// Writing to a String cannot fail, here and below.
pub(super) fn text(document: &UpgradesDocument, style: StatusStyle) -> String {
    let mut text = String::new();
    let mut line = |title: &str, rest: &str| _ = writeln!(text, "{title:<10}{rest}");
    for (title, rest) in &document.about {
        line(title, &evenkeel_core::text::harmless(rest));
    }
    if document.upgrades.is_empty() {
        line("Upgrades", "there is no ClusterUpgrade");
    }
    for upgrade in &document.upgrades {
        text.push('\n');
        one(&mut text, upgrade, style);
    }
    section(&mut text, style, "NOT SEEN", document.not_seen.iter().cloned());
    match style.width {
        Some(width) => fitting(&text, width),
        None => text,
    }
}

fn one(text: &mut String, upgrade: &UpgradeRow, style: StatusStyle) {
    let ink = if upgrade.needs_person {
        Ink::Bad
    } else if ConditionStatus::True.is(&upgrade.ready) {
        Ink::Good
    } else {
        Ink::Care
    };
    let mut line = |title: &str, rest: &str| _ = writeln!(text, "{title:<10}{rest}");
    let from = if upgrade.from.is_empty() { "unknown" } else { &upgrade.from };
    line("Upgrade", &format!("{}   {from} -> {}", upgrade.name, upgrade.to));
    line("Stage", &style.paint.on(ink, &upgrade.line()));
    if !upgrade.stage.is_empty() {
        line("Nodes", &nodes(upgrade));
    }
    if !upgrade.plan_hash.is_empty() {
        line("Hash", &upgrade.plan_hash);
    }
    if !upgrade.current && !upgrade.stage.is_empty() {
        line("Note", "its spec was changed after this was written; the operator has not told of that yet");
    }
    in_the_way(text, upgrade, style);
    waits(text, upgrade, style);
    let rows = |rows: Vec<Vec<Cell>>, title: &str, header: &[&str], more: Option<String>| {
        let mut part = String::new();
        if !rows.is_empty() {
            _ = writeln!(part, "\n{}", style.paint.on(Ink::Bold, title));
            part.push_str(&table(header, &rows, style.paint, None));
            if let Some(line) = more {
                _ = writeln!(part, "- {line}");
            }
        }
        part
    };
    let since = |since: &Option<String>| Cell::from(since.clone().unwrap_or_else(|| "-".to_owned()));
    let moving = some(&upgrade.in_flight, style).iter().map(|of| {
        let cells = [&of.node, &of.component, &of.state].map(|text| Cell::from(text.clone()));
        cells.into_iter().chain([since(&of.since), of.message.clone().into()]).collect()
    });
    let header = ["NODE", "COMPONENT", "STATE", "SINCE", "MESSAGE"];
    let more = left_out(upgrade.in_flight.len(), 0, "row", style);
    text.push_str(&rows(moving.collect(), "IN FLIGHT", &header, more));
    let out = named(&upgrade.out, most(upgrade.out.len(), style), |of| &of.state).into_iter().map(|of| {
        vec![of.node.clone().into(), of.state.clone().into(), since(&of.since), of.reason.clone().into()]
    });
    let more = left_out(upgrade.out.len(), upgrade.out_omitted, "node", style);
    text.push_str(&rows(out.collect(), "OUT OF THE ROLLOUT", &["NODE", "STATE", "SINCE", "REASON"], more));
}

/// What stands in the way of its plan, where a person decides how it goes on, or where everything is asked for.
fn in_the_way(text: &mut String, upgrade: &UpgradeRow, style: StatusStyle) {
    if !upgrade.needs_person && !style.wide {
        return;
    }
    let lines: Vec<String> = upgrade.other_findings().map(FindingRow::line).collect();
    let more = left_out(lines.len(), upgrade.findings_omitted, "finding", style);
    section(text, style, "IN THE WAY", some(&lines, style).iter().cloned().chain(more));
}

/// What it waits for besides what its stage says: lines; where everything is asked for, all of it, with who ends each wait
/// and when.
fn waits(text: &mut String, upgrade: &UpgradeRow, style: StatusStyle) {
    let omitted = upgrade.waiting_for_omitted;
    if !style.wide || upgrade.waiting_for.is_empty() {
        let others: Vec<String> = upgrade.other_waits().map(|of| of.message.clone()).collect();
        let more = left_out(others.len(), omitted, "line", style);
        let shown = some(&others, style).iter().cloned();
        return section(text, style, "ALSO WAITS FOR", shown.chain(more));
    }
    let row = |of: &WaitingRow| {
        let until = of.until.clone().unwrap_or_else(|| "-".to_owned());
        [of.reason.clone(), of.ended_by.clone(), until, of.message.clone()].map(Cell::from).into()
    };
    let rows: Vec<Vec<Cell>> = upgrade.waiting_for.iter().map(row).collect();
    _ = writeln!(text, "\n{}", style.paint.on(Ink::Bold, "WAITS FOR"));
    text.push_str(&table(&["REASON", "ENDED BY", "UNTIL", "MESSAGE"], &rows, style.paint, None));
    if let Some(line) = left_out(rows.len(), omitted, "line", style) {
        _ = writeln!(text, "- {line}");
    }
}

fn nodes(upgrade: &UpgradeRow) -> String {
    let UpgradeRow { upgraded, selected, parked, failed, eta, nodes_in_flight, .. } = upgrade;
    let mut line = format!("{upgraded}/{selected} upgraded, {nodes_in_flight} in flight");
    _ = write!(line, ", {parked} parked, {failed} failed");
    if !eta.is_empty() {
        _ = write!(line, "; about {eta} left");
    }
    line
}

/// Those of `all` that are shown.
fn some<T>(all: &[T], style: StatusStyle) -> &[T] {
    all.get(..most(all.len(), style)).unwrap_or_default()
}

/// How many of `count` are shown.
fn most(count: usize, style: StatusStyle) -> usize {
    if style.wide { count } else { count.min(ROWS) }
}

/// What is said of those that are not shown: of `count`, and of `beyond` that nobody can show.
fn left_out(count: usize, beyond: i32, one: &str, style: StatusStyle) -> Option<String> {
    let hidden = if style.wide { 0 } else { count.saturating_sub(ROWS) };
    if hidden == 0 {
        return omitted(beyond, one);
    }
    let beyond = omitted(beyond, one).map(|line| format!(", {line}")).unwrap_or_default();
    Some(format!("and {hidden} more (-o wide){beyond}"))
}

fn section(text: &mut String, style: StatusStyle, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        _ = writeln!(text, "\n{}", style.paint.on(Ink::Bold, title));
        lines.for_each(|line| _ = writeln!(text, "- {line}"));
    }
}
