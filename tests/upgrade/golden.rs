//! What people read, compared with what was looked at by a person. `UPDATE=1` writes it anew.

use std::fmt::Write as _;

use evenkeel_devcluster::{Failure, TestResult};

use crate::scenario::root;

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
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(&path, text).map_err(failed);
    }
    let wanted = std::fs::read_to_string(&path).map_err(failed)?;
    if wanted == text {
        return Ok(());
    }
    Err(Failure::new(format!("{} is\n{wanted}\nbut was\n{text}\nset UPDATE=1 to accept it", path.display())))
}

/// `41s`, `2m3s`, `12d`.
fn is_age(cell: &str) -> bool {
    let mut rest = cell;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, unit) = rest.split_at(digits);
        if number.is_empty() || !unit.starts_with(['s', 'm', 'h', 'd']) {
            return false;
        }
        rest = unit.get(1..).unwrap_or_default();
    }
    !cell.is_empty()
}
