//! The whole way from files to what a person reads, as one function.
//!
//! Fuzz targets call this function, so that everything below it stays private. Nothing here is a rule or a form of its
//! own. The invariant: apart from the terminal, it does what `report` and `check` do.

use std::path::PathBuf;

use clap::ValueEnum as _;

use super::judge;
use super::output::{self, Color, Level, Output, ReportStyle};
use super::releases;
use crate::observe::stated_versions::StatedVersion;

/// What `report` and `check` print about `files` in each of their forms, with what a person said of components.
///
/// Each text comes with its name, such as `report json` or `check table`. There is no colour in any.
///
/// # Errors
/// The one line that the command line would end with, without its `error: `.
pub fn every_form(files: &[PathBuf], given: &[StatedVersion]) -> Result<Vec<(String, String)>, String> {
    let report = judge::files(files, given, &releases::read(None)?)?;
    let mut texts = Vec::new();
    for (command, check) in [("report", false), ("check", true)] {
        let style =
            ReportStyle { check, fail_on: Level::Warning, paint: output::paint(Color::Never), width: None };
        for form in Output::value_variants() {
            let text = output::render(&report, *form, style)?;
            let form = form.to_possible_value();
            let form = form.as_ref().map_or("", |value| value.get_name());
            texts.push((format!("{command} {form}"), text));
        }
    }
    Ok(texts)
}
