//! Texts that a person looked at, kept in files. `UPDATE_EXPECT=1` writes them anew.

use std::path::Path;

use evenkeel_devcluster::{Failure, TestResult};

/// Compares `told` with what is in the file at `path`.
pub fn compare(path: &Path, told: &str) -> TestResult {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    if is_written_anew() {
        return std::fs::write(path, told).map_err(failed);
    }
    let wanted = std::fs::read_to_string(path).map_err(failed)?;
    if wanted == told {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} is\n{wanted}\nbut was\n{told}\nset UPDATE_EXPECT=1 to accept it",
        path.display()
    )))
}

/// Whether texts are written anew instead of compared.
pub fn is_written_anew() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some()
}

/// `41s`, `2m3s`, `12d`.
pub fn is_age(word: &str) -> bool {
    let mut rest = word;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, unit) = rest.split_at(digits);
        if number.is_empty() || !unit.starts_with(['s', 'm', 'h', 'd']) {
            return false;
        }
        rest = unit.get(1..).unwrap_or_default();
    }
    !word.is_empty()
}
