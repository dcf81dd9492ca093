//! The same upgrade by a person and by Evenkeel, in one table.
//!
//! Here belong the figures that both have. Each run has a cluster of its own, one after the other, so what was measured is
//! kept in a file among the test's own; whichever run is the second prints both, each with when it was.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use evenkeel_devcluster::{AuditEntry, Failure};
use evenkeel_testkit::leaving::{Leaving, leaving};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::probe::Asked;
use crate::report::Size;

/// One upgrade of a whole cluster in figures.
pub struct Figures {
    pub who: &'static str,
    pub seconds: f64,
    /// What the pods of both workers took to leave, one worker after the other.
    pub leaving_seconds: f64,
    /// What was asked of the API.
    pub requests: usize,
    pub evictions: usize,
    /// Evictions that were answered with 429.
    pub refused: usize,
    pub asked: Asked,
    pub violations: usize,
}

/// Who upgrades by the documentation of kubeadm.
pub const PERSON: &str = "a person";
/// What those pods took where a person asked them to, and nothing else ran: the less of two runs. It is for a machine on which
/// nobody measured it.
const LEAVING_BY_HAND: f64 = 48.0;

/// The slowest of the workloads needs ten seconds to end. Now and then containerd takes 20 s more to stop a container that is
/// deaf, whoever drains.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_secs(15);

/// How many seconds the pods of all workers took to leave, one worker after the other.
pub struct Left {
    /// Without what their kubelets took too long.
    pub seconds: f64,
    pub late: f64,
}

/// How the pods of the workers left that were `asked` to. Prints it.
pub fn left_workers(log: &[AuditEntry], asked: impl Fn(&AuditEntry) -> bool) -> Left {
    let mut left = Left { seconds: 0.0, late: 0.0 };
    for Leaving { node, took, overdue } in leaving(log, asked, ENDS_WITHIN) {
        let (seconds, late) = ((took - overdue).as_secs_f64(), overdue.as_secs_f64());
        println!(
            "{node}: its pods left within {seconds:.1} s, and {late:.1} s more that its kubelet was late"
        );
        if node.starts_with("worker-") {
            left.seconds += seconds;
            left.late += late;
        }
    }
    left
}

/// Keeps the figures and prints them beside those of the others that upgraded such a cluster. Returns how many seconds
/// the workers' pods took to leave for a person: the last one who did it on this machine.
pub fn print(size: Size, figures: &Figures) -> Result<f64, Failure> {
    let name = format!("upgrade-of-{}-and-{}.json", size.control_planes, size.workers);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let known = kept(&path, figures, Timestamp::now())?;
    let Size { control_planes, workers } = size;
    println!(
        "--- upgrades of {control_planes} control-plane nodes and {workers} workers\n{}---",
        table(&known)
    );
    let by_hand = known.get(PERSON).and_then(|figures| figures["leaving s"].as_f64());
    Ok(by_hand.unwrap_or(LEAVING_BY_HAND))
}

fn kept(path: &Path, figures: &Figures, now: Timestamp) -> Result<BTreeMap<String, Value>, Failure> {
    let mut known: BTreeMap<String, Value> = match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error.into()),
    };
    let Figures { who, seconds, leaving_seconds, requests, evictions, refused, asked, violations } = figures;
    let columns = json!({
        "wall s": seconds.round(), "leaving s": leaving_seconds.round(), "requests": requests,
        "evictions": evictions, "429": refused, "asked": asked.sent, "lost": asked.lost.len(), "violations": violations, "measured": now.to_string(),
    });
    known.insert((*who).to_owned(), columns);
    std::fs::write(path, serde_json::to_string(&known)?)?;
    Ok(known)
}

fn table(known: &BTreeMap<String, Value>) -> String {
    let columns =
        ["wall s", "leaving s", "requests", "evictions", "429", "asked", "lost", "violations", "measured"];
    let line = |who: &str, cells: [String; 9]| {
        let [seconds, leaving, requests, evictions, refused, asked, lost, violations, measured] = cells;
        format!(
            "{who:<12}{seconds:>7}{leaving:>11}{requests:>10}{evictions:>11}{refused:>6}{asked:>8}{lost:>6}{violations:>12}  {measured}\n"
        )
    };
    let mut table = line("upgraded by", columns.map(str::to_owned));
    for (who, figures) in known {
        let cell = |column: &str| match &figures[column] {
            Value::String(text) => text.clone(),
            number => number.as_f64().map_or_else(|| "-".to_owned(), |number| format!("{number:.0}")),
        };
        table += &line(who, columns.map(cell));
    }
    table
}

#[test]
fn both_are_in_one_table_whichever_was_first() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("figures.json");
    let figures = |who, refused, lost: usize| {
        let lost = vec![(std::time::Duration::ZERO, std::net::Ipv4Addr::LOCALHOST, String::new()); lost];
        let asked = Asked { sent: 4_589, lost };
        let (seconds, leaving_seconds) = (228.7, 44.4);
        Figures { who, seconds, leaving_seconds, requests: 178, evictions: 15, refused, asked, violations: 0 }
    };
    kept(&path, &figures("a person", 13, 55), Timestamp::UNIX_EPOCH)?;
    kept(&path, &figures("a person", 12, 55), Timestamp::UNIX_EPOCH)?;
    let known = kept(&path, &figures("Evenkeel", 0, 0), Timestamp::UNIX_EPOCH)?;
    let expected = "\
upgraded by  wall s  leaving s  requests  evictions   429   asked  lost  violations  measured
Evenkeel        229         44       178         15     0    4589     0           0  1970-01-01T00:00:00Z
a person        229         44       178         15    12    4589    55           0  1970-01-01T00:00:00Z
";
    assert_eq!(table(&known), expected);
    Ok(())
}
