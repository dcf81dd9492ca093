//! SARIF 2.1.0: what code scanning shows beside a change.
//!
//! Nothing here judges: levels and words come from `outcome`. The invariant: a result's fingerprint is its outcome's
//! ID, so the same thing is recognised in the next run; what was not seen is a notification and no result.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::outcome::{CheckOutcome, FailedBy, Level};
use super::report::Report;

/// The name that stands in place of a path for what was read from standard input.
const STANDARD_INPUT: &str = "standard input";
const POLICY: &str = "https://kubernetes.io/releases/version-skew-policy/";

pub(super) fn sarif(report: &Report) -> Value {
    let outcomes = report.outcomes();
    // A source that was not seen says something about the run, not about the cluster: it is a notification, no result.
    let (results, notes): (Vec<_>, Vec<_>) = outcomes.iter().partition(|outcome| outcome.component.is_some());
    let rules: BTreeMap<&str, Value> =
        results.iter().map(|outcome| (outcome.rule.text(), rule(outcome))).collect();
    let notes: Vec<_> =
        notes.iter().map(|note| json!({"level": "warning", "message": {"text": note.message}})).collect();
    let results: Vec<_> = results.iter().map(|outcome| result(outcome, report)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "evenkeel",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.into_values().collect::<Vec<_>>(),
            }},
            "invocations": [{"executionSuccessful": true, "toolExecutionNotifications": notes}],
            "results": results,
        }],
    })
}

fn rule(outcome: &CheckOutcome) -> Value {
    let text = match outcome.rule {
        FailedBy::UnknownVersion => "A component's version is not known",
        FailedBy::NotSeen => "A source was not seen",
        FailedBy::Policy(rule) => rule.source,
    };
    json!({"id": outcome.rule.text(), "shortDescription": {"text": text}, "helpUri": POLICY})
}

fn result(outcome: &CheckOutcome, report: &Report) -> Value {
    let level = match outcome.level {
        Level::Violation => "error",
        Level::AtLimit => "warning",
        Level::Warning => "note",
    };
    let logical = json!([{"fullyQualifiedName": outcome.id, "kind": "resource"}]);
    let names = || outcome.samples.iter().map(AsRef::as_ref);
    let mut files: Vec<&str> = outcome
        .component
        .map_or_else(Vec::new, |of| names().filter_map(|name| report.places.of(of, name)).collect());
    let mut seen = BTreeSet::new();
    files.retain(|file| seen.insert(*file));
    json!({
        "ruleId": outcome.rule.text(),
        "level": level,
        "message": {"text": sentence(outcome)},
        "locations": locations(&files, &logical),
        "partialFingerprints": {"evenkeel/v1": outcome.id},
    })
}

fn sentence(outcome: &CheckOutcome) -> String {
    let mut text = outcome.message.clone();
    if !outcome.names.is_empty() {
        text.extend([" (", &outcome.names, ")"]);
    }
    if !outcome.remedy.is_empty() {
        text.extend([". To do: ", &outcome.remedy]);
    }
    text
}

/// A SARIF location in each of `files`. Without a file, the one location has only the name in `logical`.
pub(super) fn locations(files: &[&str], logical: &Value) -> Value {
    let files: Vec<_> = files.iter().filter(|file| **file != STANDARD_INPUT).collect();
    if files.is_empty() {
        return json!([{"logicalLocations": logical}]);
    }
    let location = |file: &&&str| {
        json!({
            "physicalLocation": {"artifactLocation": {"uri": uri(file)}},
            "logicalLocations": logical,
        })
    };
    files.iter().map(location).collect()
}

/// A path as a URI reference.
fn uri(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
