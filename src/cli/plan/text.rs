//! The plan for a person at a terminal.
//!
//! The invariant: what is left out is counted, and `wide` leaves nothing out.

use std::fmt::Write as _;

use super::super::output::Paint;
use super::super::output::paint::Ink;
use super::super::output::table::{Cell, fitting, table};
use super::document::{Finding, Hop, UpgradePlan};
use super::vocabulary::{Gravity, Verdict};
use super::words;

/// How many rows of a hop and how many findings are shown where not all are asked for.
const ROWS: usize = 20;

/// How many bounds are shown where not all are asked for.
const BOUNDS: usize = 5;

/// How a plan is shown to a person.
#[derive(Clone, Copy)]
pub(super) struct PlanStyle<'a> {
    /// Everything, not the first few.
    pub(super) wide: bool,
    pub(super) paint: Paint,
    /// How wide a line may be; `None` is without limit, for a file or a pipe.
    pub(super) width: Option<usize>,
    /// What it is about: titles and lines.
    pub(super) about: &'a [(&'static str, String)],
    /// The older plan that it is compared with.
    pub(super) older: Option<&'a str>,
}

pub(super) fn text(plan: &UpgradePlan, style: PlanStyle<'_>) -> String {
    let mut text = String::new();
    head(&mut text, plan, style);
    if let Some((older, changes)) = style.older.zip(plan.changes.as_ref()) {
        let title = format!("CHANGED SINCE {older}");
        section(&mut text, style, &title, words::changes(changes).into_iter());
    }
    for (at, hop) in plan.hops.iter().enumerate() {
        show_hop(&mut text, plan, (at, hop), style);
    }
    section(&mut text, style, "WRONG IN THIS PLAN", plan.refuted.iter().cloned());
    findings(&mut text, plan, style);
    section(&mut text, style, "WAITS FOR", plan.waits.iter().cloned());
    time(&mut text, plan, style);
    section(&mut text, style, "NOT SEEN", plan.not_seen.iter().cloned());
    section(&mut text, style, "NOT VISIBLE", plan.not_visible.iter().cloned());
    match style.width {
        Some(width) => fitting(&text, width),
        None => text,
    }
}

// Writing to a String cannot fail, here and below.
fn head(text: &mut String, plan: &UpgradePlan, style: PlanStyle<'_>) {
    let ink = match plan.verdict {
        Verdict::Ready | Verdict::Done if plan.not_seen.is_empty() => Ink::Good,
        Verdict::Ready | Verdict::Done | Verdict::Stops => Ink::Care,
        Verdict::Blocked | Verdict::Refuted | Verdict::Other(_) => Ink::Bad,
    };
    let mut line = |title: &str, rest: &str| _ = writeln!(text, "{title:<10}{rest}");
    let verdict = style.paint.on(ink, &words::verdict(plan));
    line("Plan", &format!("{}   {verdict}: {}", words::way(plan), plan.summary));
    let none = match plan.from {
        Some(_) => "none, because not every UpgradeExecutor is known",
        None => "none, because no kube-apiserver's version is known",
    };
    let hash = plan.hash.as_deref().unwrap_or(none);
    match (&plan.approval, &plan.hash) {
        (None, Some(_)) => {
            line("Hash", &format!("{hash} (for --diff; to approve, plan the ClusterUpgrade: --upgrade)"));
        }
        _ => line("Hash", hash),
    }
    if let Some(time) = &plan.time {
        line("Time", &words::time(plan, time));
    }
    if let Some(approval) = &plan.approval {
        line("Approval", &words::approval(plan, approval));
    }
    for (title, rest) in style.about {
        line(title, &evenkeel_core::text::harmless(rest));
    }
}

fn show_hop(text: &mut String, plan: &UpgradePlan, (at, hop): (usize, &Hop), style: PlanStyle<'_>) {
    let title = format!("HOP {} of {}: {}", at + 1, plan.hops.len(), hop.version);
    let time = plan.time.as_ref().filter(|_| plan.hops.len() > 1).and_then(|time| time.hops.get(at));
    let time = time.map(|time| format!(", about {}", words::seconds(time.p50_seconds))).unwrap_or_default();
    let _ = writeln!(text, "\n{} ({}){time}", style.paint.on(Ink::Bold, &title), words::picked(hop));
    for need in &hop.needs {
        let _ = writeln!(text, "- needs first: {} (somebody else moves it)", words::need(need));
    }
    let rows = rows(plan, hop, style.wide);
    let shown = if style.wide { rows.len() } else { rows.len().min(ROWS) };
    if !rows.is_empty() {
        let header = ["ORDER", "WHAT", "FROM", "COUNT", "AT ONCE", "NAMES"];
        text.push_str(&table(&header, rows.get(..shown).unwrap_or_default(), style.paint, style.width));
    }
    if shown < rows.len() {
        let _ = writeln!(text, "- and {} more rows (-o wide)", rows.len() - shown);
    }
    if let Some(line) = words::kubelets(&hop.kubelets) {
        let _ = writeln!(text, "- {line}");
    }
}

fn rows(plan: &UpgradePlan, hop: &Hop, wide: bool) -> Vec<Vec<Cell>> {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for steps in words::alike(&hop.steps) {
        let places: Vec<String> = steps.iter().map(|step| step.place.clone()).collect();
        let what = steps.first().map(|step| words::components(step, wide)).unwrap_or_default();
        rows.push(vec![
            (rows.len() + 1).to_string().into(),
            what.into(),
            words::from(steps).into(),
            steps.len().to_string().into(),
            "1".to_owned().into(),
            words::few(&places, wide).into(),
        ]);
    }
    let before = rows.len();
    for wave in &hop.kubelets.waves {
        let of = words::wave(plan, wave);
        rows.push(vec![
            (before + wave.order).to_string().into(),
            if of.is_empty() { "kubelet".to_owned() } else { format!("kubelet, {of}") }.into(),
            words::few(&wave.from, wide).into(),
            wave.nodes.len().to_string().into(),
            wave.at_once.to_string().into(),
            words::few(&wave.nodes, wide).into(),
        ]);
    }
    rows
}

fn findings(text: &mut String, plan: &UpgradePlan, style: PlanStyle<'_>) {
    if plan.findings.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", style.paint.on(Ink::Bold, "FINDINGS"));
    let shown = if style.wide { plan.findings.len() } else { plan.findings.len().min(ROWS) };
    for finding in plan.findings.iter().take(shown) {
        show_finding(text, plan, finding, style.paint);
    }
    if shown < plan.findings.len() {
        let _ = writeln!(text, "- and {} more (-o wide)", plan.findings.len() - shown);
    }
}

fn show_finding(text: &mut String, plan: &UpgradePlan, finding: &Finding, paint: Paint) {
    let ink = if finding.weight == Gravity::Blocks { Ink::Bad } else { Ink::Care };
    let word = paint.on(ink, finding.weight.text());
    let hop = finding.hop.as_ref().filter(|_| plan.hops.len() != 1);
    let at = hop.map(|minor| format!(" the hop to {minor}")).unwrap_or_default();
    let _ = writeln!(text, "{word}{at}: {} [{}]", finding.what, finding.id);
    let accepted = words::accepted(finding);
    let lines = [("which", words::which(finding)), ("to do", finding.remedy.clone())];
    for (title, rest) in lines.into_iter().filter(|(_, rest)| !rest.is_empty()) {
        let _ = writeln!(text, "  {title}: {rest}");
    }
    if let Some(accepted) = accepted {
        let _ = writeln!(text, "  {accepted}");
    }
}

fn time(text: &mut String, plan: &UpgradePlan, style: PlanStyle<'_>) {
    let Some(time) = &plan.time else { return };
    let shown = if style.wide { time.bounds.len() } else { time.bounds.len().min(BOUNDS) };
    let more =
        (shown < time.bounds.len()).then(|| format!("and {} more (-o wide)", time.bounds.len() - shown));
    let bounds = time.bounds.iter().take(shown).map(|bound| words::bound(plan, bound));
    section(text, style, "LEAST TIME", bounds.chain(more));
    section(text, style, "THE TIME RESTS ON", time.basis.iter().cloned());
}

fn section(text: &mut String, style: PlanStyle<'_>, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        let _ = writeln!(text, "\n{}", style.paint.on(Ink::Bold, title));
        for line in lines {
            let _ = writeln!(text, "- {line}");
        }
    }
}
