//! What people read of an upgrade.

use std::fmt::Write as _;

use evenkeel_devcluster::TestResult;

use evenkeel_testkit::golden::{compare, is_age};
use evenkeel_testkit::scenario::root;

/// Compares `text` with `tests/upgrade/golden/<name>.txt`. Ages are replaced by `…`, and with them the widths of columns.
pub fn check(name: &str, text: &str) -> TestResult {
    let path = root("tests/upgrade/golden").join(format!("{name}.txt"));
    let text = text.lines().fold(String::new(), |mut all, line| {
        let cells = line.split("   ").map(str::trim).filter(|cell| !cell.is_empty());
        let cells: Vec<&str> = cells.map(|cell| if is_age(cell) { "…" } else { cell }).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(all, "{}", cells.join("   "));
        all
    });
    compare(&path, &text)
}
