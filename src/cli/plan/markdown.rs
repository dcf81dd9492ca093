//! The plan for a pull request or a ticket.
//!
//! The invariants: no text of a cluster or a file has a meaning in Markdown; and long lists are folded, not cut.

use std::fmt::Write as _;

use super::super::output::markdown::escaped;
use super::document::{Finding, Hop, UpgradePlan};
use super::text::PlanStyle;
use super::vocabulary::Gravity;
use super::words;

/// From so many findings on they are folded.
const MANY: usize = 15;

pub(super) fn markdown(plan: &UpgradePlan, style: PlanStyle<'_>) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail, here and below.
    let hash = plan.hash.as_ref().map(|hash| format!(" (`{}`)", code(hash))).unwrap_or_default();
    let way = escaped(&words::way(plan).replace("->", "\u{2192}"));
    let _ = writeln!(text, "## Upgrade plan {way}: {}{hash}\n", words::verdict(plan));
    let _ = writeln!(text, "{}\n", escaped(&plan.summary));
    if let Some(time) = &plan.time {
        let _ = writeln!(text, "- Time: {}", escaped(&words::time(plan, time)));
    }
    if let Some(approval) = &plan.approval {
        let _ = writeln!(text, "- Approval: {}", escaped(&words::approval(plan, approval)));
    }
    for (title, rest) in style.about {
        let _ = writeln!(text, "- {title}: {}", escaped(&evenkeel_core::text::harmless(rest)));
    }
    if let Some((older, changes)) = style.older.zip(plan.changes.as_ref()) {
        let title = format!("Changed since {}", escaped(older));
        section(&mut text, &title, words::changes(changes).into_iter());
    }
    hops(&mut text, plan);
    waves(&mut text, plan);
    section(&mut text, "Wrong in this plan", plan.refuted.iter().cloned());
    findings(&mut text, plan);
    section(&mut text, "Waits for", plan.waits.iter().cloned());
    section(&mut text, "Not seen", plan.not_seen.iter().cloned());
    section(&mut text, "Not visible", plan.not_visible.iter().cloned());
    time(&mut text, plan);
    details(&mut text, plan);
    text
}

/// `text` for between backticks.
fn code(text: &str) -> String {
    text.replace('`', "'")
}

fn row(text: &mut String, cells: &[String]) {
    let cells: Vec<_> = cells.iter().map(|cell| escaped(cell)).collect();
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn hops(text: &mut String, plan: &UpgradePlan) {
    if plan.hops.is_empty() {
        return;
    }
    text.push_str(
        "\n### Hops\n\n| hop | to | needs first | control plane, one step at a time | kubelets |\n",
    );
    text.push_str("| ---: | --- | --- | --- | --- |\n");
    for (at, hop) in plan.hops.iter().enumerate() {
        let needs: Vec<_> = hop.needs.iter().map(words::need).collect();
        let steps: Vec<_> = words::alike(&hop.steps)
            .into_iter()
            .map(|steps| {
                let what = steps.first().map(|step| words::components(step, false)).unwrap_or_default();
                format!("{} \u{d7} {what} from {}", steps.len(), words::from(steps))
            })
            .collect();
        let cells = [
            (at + 1).to_string(),
            format!("{} ({})", hop.version, words::picked(hop)),
            dash(needs.join("; ")),
            dash(steps.join("; ")),
            kubelets(hop),
        ];
        row(text, &cells);
    }
}

fn dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

fn kubelets(hop: &Hop) -> String {
    let nodes: usize = hop.kubelets.waves.iter().map(|wave| wave.nodes.len()).sum();
    let count = match (nodes, hop.kubelets.waves.len()) {
        (0, _) => None,
        (nodes, waves) => Some(format!(
            "{nodes} {} in {waves} {}",
            if nodes == 1 { "node" } else { "nodes" },
            if waves == 1 { "wave" } else { "waves" }
        )),
    };
    let why = words::kubelets(&hop.kubelets);
    dash(count.into_iter().chain(why).collect::<Vec<_>>().join("; "))
}

fn waves(text: &mut String, plan: &UpgradePlan) {
    if plan.size.waves == 0 {
        return;
    }
    text.push_str(
        "\n### Waves of nodes\n\n| hop | order | group | zone | nodes | at once | from | names |\n",
    );
    text.push_str("| ---: | ---: | --- | --- | ---: | ---: | --- | --- |\n");
    for (at, hop) in plan.hops.iter().enumerate() {
        for wave in &hop.kubelets.waves {
            let canary = if wave.canary { " (canary)" } else { "" };
            let cells = [
                (at + 1).to_string(),
                wave.order.to_string(),
                format!("{}{canary}", wave.group),
                wave.zone.clone().map_or_else(|| "any".to_owned(), dash),
                wave.nodes.len().to_string(),
                wave.at_once.to_string(),
                words::few(&wave.from, false),
                words::few(&wave.nodes, false),
            ];
            row(text, &cells);
        }
    }
}

fn findings(text: &mut String, plan: &UpgradePlan) {
    if plan.findings.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n### Findings");
    // What a person took upon them is for the reader of the pull request, too. Both come first.
    let told = |finding: &&Finding| finding.weight != Gravity::Warns || finding.accepted.is_some();
    let all = &plan.findings;
    let shown = if all.len() < MANY { all.len() } else { all.iter().take_while(told).count() };
    let (now, folded) = all.split_at_checked(shown).unwrap_or((all, &[]));
    if !now.is_empty() {
        text.push('\n');
    }
    for finding in now {
        text.push_str(&finding_of(plan, finding));
    }
    if !folded.is_empty() {
        let _ = writeln!(text, "\n<details><summary>{} findings that only warn</summary>\n", folded.len());
        for finding in folded {
            text.push_str(&finding_of(plan, finding));
        }
        text.push_str("\n</details>\n");
    }
}

fn finding_of(plan: &UpgradePlan, finding: &Finding) -> String {
    let hop = finding.hop.as_ref().filter(|_| plan.hops.len() != 1);
    let at = hop.map(|minor| format!(" the hop to {minor}")).unwrap_or_default();
    let mut text =
        format!("- **{}**{at}: {} (`{}`)", finding.weight, escaped(&finding.what), code(&finding.id));
    let which = words::which(finding);
    let remedy = Some(&finding.remedy).filter(|remedy| !remedy.is_empty());
    let lines = [
        Some(which).filter(|which| !which.is_empty()).map(|which| format!("Which: {which}")),
        remedy.map(|remedy| format!("To do: {remedy}")),
        words::accepted(finding),
    ];
    for line in lines.into_iter().flatten() {
        let _ = write!(text, "  \n  {}", escaped(&line));
    }
    text.push('\n');
    text
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        let _ = write!(text, "\n### {title}\n\n");
        for line in lines {
            let _ = writeln!(text, "- {}", escaped(&line));
        }
    }
}

/// What sets the least time and what the estimate rests on, folded.
fn time(text: &mut String, plan: &UpgradePlan) {
    let Some(time) = &plan.time else { return };
    text.push_str("\n<details><summary>What the time rests on</summary>\n\n");
    for bound in &time.bounds {
        let _ = writeln!(text, "- at least: {}", escaped(&words::bound(plan, bound)));
    }
    for line in &time.basis {
        let _ = writeln!(text, "- {}", escaped(line));
    }
    text.push_str("\n</details>\n");
}

/// Every step and every node, folded.
fn details(text: &mut String, plan: &UpgradePlan) {
    let steps: usize = plan.hops.iter().map(|hop| hop.steps.len()).sum();
    if steps > 0 {
        let _ = writeln!(text, "\n<details><summary>Every step of the control plane ({steps})</summary>\n");
        for (nth, hop) in plan.hops.iter().enumerate() {
            for (at, step) in hop.steps.iter().enumerate() {
                let line = format!("{} on {}, from {}", step.components.join(", "), step.place, step.from);
                let _ = writeln!(text, "- hop {}, step {}: {}", nth + 1, at + 1, escaped(&line));
            }
        }
        text.push_str("\n</details>\n");
    }
    let long = |hop: &&Hop| hop.kubelets.waves.iter().any(|wave| words::leaves_out(&wave.nodes));
    if plan.hops.iter().any(|hop| long(&hop)) {
        let _ = writeln!(text, "\n<details><summary>Every node of each wave</summary>\n");
        for (at, hop) in plan.hops.iter().enumerate() {
            for wave in &hop.kubelets.waves {
                let of = words::wave(plan, wave);
                let of = if of.is_empty() { String::new() } else { format!(", {}", escaped(&of)) };
                let names = escaped(&words::few(&wave.nodes, true));
                let _ = writeln!(text, "- hop {}, order {}{of}: {names}", at + 1, wave.order);
            }
        }
        text.push_str("\n</details>\n");
    }
}
