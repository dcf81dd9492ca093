//! What people read of the report.

use evenkeel_devcluster::TestResult;

use evenkeel_testkit::golden::{compare, is_age};
use evenkeel_testkit::scenario::root;

/// Compares `text` with `tests/skew_report/golden/<name>.txt`. What is another one in each run is replaced by `…`: times,
/// ages, UIDs, resource versions, and the widths of columns with them.
pub fn check(name: &str, text: &str) -> TestResult {
    let path = root("tests/skew_report/golden").join(format!("{name}.txt"));
    let mut told = String::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let cells: Vec<String> = cells.map(masked).collect();
        told.push_str(&" ".repeat(indent));
        told.push_str(&cells.join("   "));
        told.push('\n');
    }
    compare(&path, &told)
}

fn masked(cell: &str) -> String {
    let words = cell.split(' ').map(|word| {
        // A name may stand in brackets, or before a comma.
        let name = word.trim_matches(['(', ')', ',']);
        let varies = is_age(name) || is_time(name) || is_id(name) || is_pod(name);
        if varies { word.replace(name, "…") } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// `2026-11-21T12:00:00Z`.
fn is_time(word: &str) -> bool {
    word.len() >= 20 && word.as_bytes().get(10) == Some(&b'T') && word.ends_with('Z')
}

/// A pod that its controller gave a random name.
fn is_pod(word: &str) -> bool {
    let made =
        ["kube-proxy-", "cloud-controller-manager-"].iter().find_map(|prefix| word.strip_prefix(prefix));
    made.is_some_and(|rest| rest.trim_start_matches("eks-").len() == 5)
}

/// A UID, or a number as long as a resourceVersion is here.
fn is_id(word: &str) -> bool {
    let number = word.len() >= 3 && word.bytes().all(|b| b.is_ascii_digit());
    let uid = word.len() == 36 && word.bytes().filter(|b| *b == b'-').count() == 4;
    number || uid
}
