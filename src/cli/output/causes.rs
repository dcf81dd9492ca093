//! What holds up a drain, in every form of output.
//!
//! Nothing here judges: outlook and words come from the core. The invariant is that of the parent module: what is
//! written depends on the cluster alone, and says how many of anything it leaves out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::ValueEnum;
use evenkeel_core::disruption::preflight::{BudgetBound, Cause, Code, Outlook, duration_text};
use evenkeel_core::skew::sample_names;
use evenkeel_core::text;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::paint::{Ink, Paint};
use super::{Output, junit, markdown, sarif};

/// How many names of pods and nodes are written out.
const NAMED: usize = 10;
/// How many bounds are shown without `-o wide`.
const BOUNDS: usize = 5;
/// A bound whose least time is shorter than this is shown only with `-o wide`.
const SHORT: SignedDuration = SignedDuration::from_mins(10);

/// The mildest outlook that fails the command; a graver one fails it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in super::super) enum FailOnOutlook {
    /// Causes that end only when somebody changes something.
    Never,
    /// Those, and causes that may end by themselves.
    NotNow,
    /// Those, and what costs something but does not stop a drain.
    Caution,
}

impl FailOnOutlook {
    pub(in super::super) const fn outlook(self) -> Outlook {
        match self {
            Self::Never => Outlook::Never,
            Self::NotNow => Outlook::NotNow,
            Self::Caution => Outlook::Caution,
        }
    }
}

/// The causes that hold up a drain, and what was asked about.
pub(in super::super) struct CauseReport {
    /// `Preflight` or `Explanation`.
    pub(in super::super) kind: &'static str,
    /// The answer in one line, where one thing was asked about.
    pub(in super::super) line: Option<String>,
    /// What it is about: titles and lines.
    pub(in super::super) subject: Vec<(&'static str, String)>,
    pub(in super::super) causes: Vec<Cause>,
    pub(in super::super) bounds: Vec<BudgetBound>,
    /// How long a replacement is assumed to take until it is ready.
    pub(in super::super) slot: SignedDuration,
    pub(in super::super) details: Vec<String>,
    pub(in super::super) missing: Vec<String>,
    /// The file that each cause's object came from, by the cause's id.
    pub(in super::super) places: BTreeMap<String, String>,
    pub(in super::super) fail_on: FailOnOutlook,
    /// What was asked about goes no further without a person, whatever the causes are.
    pub(in super::super) stopped: bool,
}

impl CauseReport {
    pub(in super::super) fn failed(&self) -> bool {
        self.stopped || self.causes.iter().any(|cause| cause.outlook <= self.fail_on.outlook())
    }

    /// `PASSED, incomplete`, with the words for either end.
    fn outcome(&self, failed: &str, passed: &str) -> String {
        let word = if self.failed() { failed } else { passed };
        let incomplete = if self.missing.is_empty() { "" } else { ", incomplete" };
        format!("{word}{incomplete}")
    }

    fn counts(&self) -> String {
        let of = |outlook| self.causes.iter().filter(|cause| cause.outlook == outlook).count();
        let (never, not_now, caution) = (of(Outlook::Never), of(Outlook::NotNow), of(Outlook::Caution));
        format!("{never} never, {not_now} not now, {caution} caution{}", if caution == 1 { "" } else { "s" })
    }
}

impl CauseReport {
    fn harmless(&mut self) {
        let shared = |text: &mut std::sync::Arc<str>| *text = text::harmless(text).into();
        let own = |text: &mut String| *text = text::harmless(text);
        self.causes.iter_mut().for_each(Cause::harmless);
        for bound in &mut self.bounds {
            [&mut bound.budget.0, &mut bound.budget.1, &mut bound.busiest.0].into_iter().for_each(shared);
        }
        self.line.iter_mut().chain(&mut self.details).chain(&mut self.missing).for_each(own);
        self.subject.iter_mut().for_each(|(_, rest)| own(rest));
    }
}

/// `report` in the form of `output`.
pub(in super::super) fn render(
    mut report: CauseReport,
    output: Output,
    paint: Paint,
) -> Result<String, String> {
    report.harmless();
    let report = &report;
    let written = |value: &Value| {
        let text = serde_json::to_string_pretty(value).map(|text| text + "\n");
        text.map_err(|error| format!("cannot write: {error}"))
    };
    match output {
        Output::Table | Output::Wide => Ok(text(report, output == Output::Wide, paint)),
        Output::Json => written(&document(report)),
        Output::Yaml => {
            serde_saphyr::to_string(&document(report)).map_err(|error| format!("cannot write: {error}"))
        }
        Output::Markdown => Ok(in_markdown(report)),
        Output::Sarif => written(&in_sarif(report)),
        Output::Junit => Ok(in_junit(report)),
    }
}

fn bound(bound: &BudgetBound, slot: SignedDuration) -> String {
    let (namespace, name) = &bound.budget;
    let pods = if bound.pods == 1 { "1 pod".to_owned() } else { format!("{} pods", bound.pods) };
    let mut line = match bound.least {
        Some(least) => format!(
            "PDB {namespace}/{name}: {pods}, {} at a time, {} each: at least {}",
            bound.at_once,
            duration_text(slot),
            duration_text(least)
        ),
        None => format!("PDB {namespace}/{name}: {pods}, none at a time: never"),
    };
    if let Some((quantity, time)) = &bound.instead {
        let _ = write!(line, "; with maxUnavailable {quantity}: {}", duration_text(*time));
    }
    let (node, count) = &bound.busiest;
    if *count > 1 && *count < bound.pods {
        let _ = write!(line, "; {count} of them on {node}");
    }
    line
}

fn which(cause: &Cause) -> String {
    let some: Vec<_> = cause.pods.iter().take(NAMED).map(|pod| pod.as_str().into()).collect();
    let pods = sample_names(cause.pods.len(), &some);
    match cause.nodes.as_slice() {
        _ if cause.pods.is_empty() => String::new(),
        [node] => format!("{pods} on {node}"),
        nodes => format!("{pods} on {} nodes", nodes.len()),
    }
}

fn text(report: &CauseReport, wide: bool, paint: Paint) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail, here and below.
    let mut line = |title: &str, rest: &str| _ = writeln!(text, "{title:<12}{rest}");
    let ink = match report.failed() {
        true => Ink::Bad,
        false if report.missing.is_empty() => Ink::Good,
        false => Ink::Care,
    };
    if let Some(answer) = &report.line {
        line("Object", report.subject.first().map_or("", |(_, subject)| subject));
        line("Answer", &paint.on(ink, answer));
    } else {
        let word = paint.on(ink, &report.outcome("FAILED", "PASSED"));
        let fails_on = report.fail_on.outlook().name();
        line("Preflight", &format!("{word}   {}   fails on {fails_on}", report.counts()));
    }
    for (title, rest) in report.subject.iter().skip(usize::from(report.line.is_some())) {
        line(title, rest);
    }
    for cause in &report.causes {
        let ink = match cause.outlook {
            Outlook::Never => Ink::Bad,
            Outlook::NotNow | Outlook::Caution => Ink::Care,
        };
        let word = paint.on(ink, &cause.outlook.name().replace('-', " "));
        let _ = writeln!(text, "{word}: {}: {} [{}]", cause.object, cause.what, cause.code);
        let brief = cause.outlook == Outlook::Caution && !wide;
        for (title, rest) in [("which", which(cause)), ("to do", cause.remedy.clone())] {
            if !rest.is_empty() && !brief {
                let _ = writeln!(text, "  {title}: {rest}");
            }
        }
    }
    let told = |bound: &&BudgetBound| wide || bound.least.is_none_or(|least| least >= SHORT);
    let told: Vec<_> = report.bounds.iter().filter(told).collect();
    let shown = if wide { told.len() } else { told.len().min(BOUNDS) };
    section(&mut text, paint, "LEAST TIME", told.iter().take(shown).map(|b| bound(b, report.slot)));
    if shown < told.len() {
        let _ = writeln!(text, "- and {} more (-o wide)", told.len() - shown);
    }
    section(&mut text, paint, "DETAILS", report.details.iter().cloned());
    section(&mut text, paint, "NOT SEEN", report.missing.iter().cloned());
    text
}

fn section(text: &mut String, paint: Paint, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        let _ = writeln!(text, "\n{}", paint.on(Ink::Bold, title));
        for line in lines {
            let _ = writeln!(text, "- {line}");
        }
    }
}

fn document(report: &CauseReport) -> Value {
    let cause = |cause: &Cause| {
        json!({
            "id": cause.id(),
            "code": cause.code.text(),
            "outlook": cause.outlook.name(),
            "object": {
                "kind": cause.object.kind.text(),
                "namespace": &*cause.object.namespace,
                "name": &*cause.object.name,
            },
            "what": cause.what,
            "remedy": cause.remedy,
            "podCount": cause.pods.len(),
            "pods": cause.pods.iter().take(NAMED).collect::<Vec<_>>(),
            "nodes": cause.nodes.iter().take(NAMED).map(|node| &**node).collect::<Vec<_>>(),
        })
    };
    let bounds = report.bounds.iter().map(|bound| {
        json!({
            "namespace": &*bound.budget.0,
            "name": &*bound.budget.1,
            "pods": bound.pods,
            "atOnce": bound.at_once,
            "leastSeconds": bound.least.map(|least| least.as_secs()),
        })
    });
    let mut subject: BTreeMap<String, String> = BTreeMap::new();
    for (title, rest) in &report.subject {
        // Several lines may have one title.
        let of = subject.entry(title.to_lowercase()).or_default();
        *of = if of.is_empty() { rest.clone() } else { format!("{of}; {rest}") };
    }
    json!({
        "apiVersion": "cli.evenkeel.dev/v1alpha1",
        "kind": report.kind,
        "answer": report.line,
        "subject": subject,
        "passed": !report.failed(),
        "failOn": report.fail_on.outlook().name(),
        "causes": report.causes.iter().map(cause).collect::<Vec<_>>(),
        "bounds": bounds.collect::<Vec<_>>(),
        "replacementSeconds": report.slot.as_secs(),
        "details": report.details,
        "missing": report.missing,
    })
}

fn in_markdown(report: &CauseReport) -> String {
    let word = report.outcome("failed", "passed");
    let escaped = markdown::escaped;
    let mut text = match &report.line {
        Some(line) => format!("## {}\n\n", escaped(line)),
        None => format!(
            "## Preflight: {word}\n\n- {} (fails on {})\n",
            report.counts(),
            report.fail_on.outlook().name()
        ),
    };
    for (title, rest) in &report.subject {
        let _ = writeln!(text, "- {title}: {}", escaped(rest));
    }
    if !report.causes.is_empty() {
        text.push_str(
            "\n| outlook | object | what | to do | pods | cause |\n| --- | --- | --- | --- | ---: | --- |\n",
        );
    }
    for cause in &report.causes {
        let (object, what, remedy) = (cause.object.to_string(), &cause.what, &cause.remedy);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            cause.outlook.name(),
            escaped(&object),
            escaped(what),
            escaped(remedy),
            cause.pods.len(),
            cause.code
        );
    }
    let mut list = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = write!(text, "\n### {title}\n\n");
            for line in lines {
                let _ = writeln!(text, "- {}", escaped(&line));
            }
        }
    };
    list("Least time", report.bounds.iter().map(|b| bound(b, report.slot)).collect());
    list("Details", report.details.clone());
    list("Not seen", report.missing.clone());
    text
}

fn in_sarif(report: &CauseReport) -> Value {
    let level = |outlook| match outlook {
        Outlook::Never => "error",
        Outlook::NotNow => "warning",
        Outlook::Caution => "note",
    };
    let mut rules: Vec<Code> = report.causes.iter().map(|cause| cause.code).collect();
    rules.sort_unstable();
    rules.dedup();
    let rule = |code: Code| {
        let about =
            if code.is_of_budget() { "a PodDisruptionBudget" } else { "a pod, a node or what is around" };
        json!({"id": code.text(), "shortDescription": {"text": format!("{about} that keeps a drain")}})
    };
    let place =
        |cause: &Cause| report.places.get(&cause.id()).map(|file| vec![file.as_str()]).unwrap_or_default();
    let results = report.causes.iter().map(|cause| {
        json!({
            "ruleId": cause.code.text(),
            "level": level(cause.outlook),
            "message": {"text": format!("{}: {}. To do: {}", cause.object, cause.what, cause.remedy)},
            "locations": sarif::locations(&place(cause), &json!([{"fullyQualifiedName": cause.id(), "kind": "resource"}])),
            "partialFingerprints": {"evenkeel/v1": cause.id()},
        })
    });
    let notes = report.missing.iter().map(|line| json!({"level": "warning", "message": {"text": line}}));
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "evenkeel",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.into_iter().map(rule).collect::<Vec<_>>(),
            }},
            "invocations": [{"executionSuccessful": true, "toolExecutionNotifications": notes.collect::<Vec<_>>()}],
            "results": results.collect::<Vec<_>>(),
        }],
    })
}

fn in_junit(report: &CauseReport) -> String {
    let failing = |cause: &&Cause| cause.outlook <= report.fail_on.outlook();
    let failures = report.causes.iter().filter(failing).count();
    // If nothing is in the way, the suite has one test case, which passes.
    let tests = report.causes.len().max(1);
    let numbers = format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\"");
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {numbers}>\n  \
         <testsuite name=\"evenkeel preflight\" {numbers} skipped=\"0\">\n"
    );
    if report.causes.is_empty() {
        text.push_str("    <testcase classname=\"preflight\" name=\"nothing is in the way\"/>\n");
    }
    for cause in &report.causes {
        let escaped = |text: &str| junit::escaped(text);
        let (word, what) = (cause.outlook.name(), escaped(&format!("{}: {}", cause.object, cause.what)));
        let remedy = escaped(&cause.remedy);
        let inner = if failing(&cause) {
            format!("<failure type=\"{word}\" message=\"{what}\">to do: {remedy}</failure>")
        } else {
            format!("<system-out>{word}: {what}; to do: {remedy}</system-out>")
        };
        let (code, id) = (cause.code, escaped(&cause.id()));
        let _ = write!(
            text,
            "    <testcase classname=\"{code}\" name=\"{id}\">\n      {inner}\n    </testcase>\n"
        );
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}
