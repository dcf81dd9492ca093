//! Which release data a command goes by: what is built in, or a person's newer file.
//!
//! Here belongs where the data comes from; what it means is in the core's `lifecycle`. The invariant: a file that
//! cannot be used is an error, never a reason to fall back on what is built in.

use std::path::Path;

use evenkeel_core::skew::lifecycle::Catalogue;

use crate::observe::files::shown_path;

/// The data of `file`, else what is built in.
///
/// # Errors
/// When the file cannot be read or is of another form, in one line.
pub(super) fn read(file: Option<&Path>) -> Result<Catalogue, String> {
    let Some(file) = file else { return Catalogue::shipped().map_err(|error| error.to_string()) };
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("--releases {}: cannot be read: {error}", shown_path(file)))?;
    Catalogue::read(&text).map_err(|error| format!("--releases {}: {error}", shown_path(file)))
}
