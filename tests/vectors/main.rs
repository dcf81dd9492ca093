//! Cases with known answers, taken from the tests of the upstream projects and from the policy's own page.
//!
//! Here belong reading the cases, sending each to the code that the product runs, and the count. Every `*.json` beside
//! this file is read, and of the folder named in `EVENKEEL_EXTRA_VECTORS`, if it is set. A case passes only by calling
//! that code; one that is about something Evenkeel does not do, or does otherwise on purpose, says why and is not
//! counted as passed. `cargo test --test vectors -- --nocapture` prints a line for each.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail where it stands")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_core::skew::lifecycle::Catalogue;
use serde::Deserialize;
use serde_json::Value;

mod drain;
mod plan;
mod policy;
mod versions;

/// One case of a file.
#[derive(Deserialize)]
struct Case {
    id: String,
    #[serde(default)]
    kind: String,
    inputs: Value,
    expected: Value,
    #[serde(default)]
    note: String,
}

/// What became of a case.
enum Outcome {
    Pass,
    Fail(String),
    NotOurs(&'static str),
}

impl Outcome {
    /// Passed if the two are the same.
    fn of(got: &Value, expected: &Value) -> Self {
        if got == expected { Self::Pass } else { Self::Fail(format!("got {got}, expected {expected}")) }
    }

    fn line(&self) -> String {
        match self {
            Self::Pass => "pass".to_owned(),
            Self::Fail(why) => format!("FAIL: {why}"),
            Self::NotOurs(why) => format!("not ours: {why}"),
        }
    }
}

impl Case {
    fn text<'a>(&'a self, key: &str) -> Option<&'a str> {
        self.inputs.get(key)?.as_str()
    }

    fn flag(&self, key: &str) -> bool {
        self.inputs.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    fn texts<'a>(&'a self, key: &str) -> Vec<&'a str> {
        let list = self.inputs.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn expects(&self, key: &str) -> bool {
        self.expected.get(key).is_some()
    }

    /// `None` for a kind that nobody knows.
    fn run(&self) -> Option<Outcome> {
        Some(match self.kind.as_str() {
            "version_parse" => versions::parse(self),
            "version_compare" => versions::compare(self),
            "version_to_image_tag" => versions::image_tag(self),
            "effective_version" => versions::effective(self),
            "policy_example" => policy::example(self),
            "skew_pair" => policy::pair(self),
            "effective_version_skew" => policy::effective(self),
            "upgrade_preflight" | "node_admission" => Outcome::NotOurs(
                "kubeadm and Cluster API ask this themselves; an executor's Job says what they answer",
            ),
            "vendor_policy" => Outcome::NotOurs("a cluster is judged by the Kubernetes policy alone"),
            "upgrade_plan" => plan::made(self),
            "upgrade_target" => plan::target(self),
            "upgrade_discovery" => plan::discovery(self),
            "control_plane_gate" => plan::gate(self),
            "drain" => drain::case(self),
            _ => return None,
        })
    }
}

/// The cases of every file; or, in one line each, what is wrong with the files.
fn cases() -> Result<Vec<Case>, Vec<String>> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")];
    folders.extend(std::env::var_os("EVENKEEL_EXTRA_VECTORS").map(PathBuf::from));
    let (mut cases, mut wrong) = (Vec::new(), Vec::new());
    for folder in folders {
        let mut files: Vec<PathBuf> = match fs::read_dir(&folder) {
            Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
            Err(error) => {
                wrong.push(format!("{}: {error}", folder.display()));
                continue;
            }
        };
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        for file in files {
            match read(&file) {
                Ok(read) => cases.extend(read),
                Err(error) => wrong.push(format!("{}: {error}", file.display())),
            }
        }
    }
    if wrong.is_empty() { Ok(cases) } else { Err(wrong) }
}

fn read(file: &Path) -> Result<Vec<Case>, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    if let Ok(catalogue) = serde_json::from_str::<Value>(&text)
        && catalogue.get("minors").is_some()
    {
        // Release data of the form that is built in: it is read, and holds no cases.
        return Catalogue::read(&text).map(|_| Vec::new()).map_err(|error| error.to_string());
    }
    let mut cases: Vec<Case> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    // A file of one family need not repeat it: `drain_cases.json` holds cases of kind `drain`.
    let family = file.file_stem().and_then(|stem| stem.to_str()?.strip_suffix("_cases")).unwrap_or_default();
    for case in cases.iter_mut().filter(|case| case.kind.is_empty()) {
        family.clone_into(&mut case.kind);
    }
    Ok(cases)
}

#[test]
fn every_case_gets_its_known_answer() {
    let cases = cases().unwrap_or_else(|wrong| panic!("{}", wrong.join("\n")));
    let mut counts: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut failed = Vec::new();
    for case in &cases {
        let Some(outcome) = case.run() else {
            failed.push(format!("{}: kind `{}` is not known", case.id, case.kind));
            continue;
        };
        println!("{}: {}", case.id, outcome.line());
        let column = match outcome {
            Outcome::Pass => 0,
            Outcome::Fail(_) => 1,
            Outcome::NotOurs(_) => 2,
        };
        counts.entry(&case.kind).or_default()[column] += 1;
        if column == 1 {
            failed.push(format!("{}: {} ({})", case.id, outcome.line(), case.note));
        }
    }
    println!("\n{:<24}{:>6}{:>6}{:>10}", "kind", "pass", "fail", "not ours");
    for (kind, [pass, fail, not_ours]) in counts {
        println!("{kind:<24}{pass:>6}{fail:>6}{not_ours:>10}");
    }
    assert!(failed.is_empty(), "{} of {} cases failed\n{}", failed.len(), cases.len(), failed.join("\n"));
}
