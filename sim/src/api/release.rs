//! The version that an API server plays. Servers of one cluster may play several.
//!
//! Here belongs what `/version` says; code that differs between versions asks for `minor` where it differs.

use serde_json::{Value, json};

/// A version, as `/version` says it.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) said: Value,
    /// The minor, for what minors do differently.
    pub(crate) minor: u32,
}

impl Release {
    /// Of a version such as `v1.37.1`.
    pub(crate) fn new(version: &str) -> Self {
        let mut parts = version.trim_start_matches('v').split('.');
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let number: Option<u32> = minor.parse().ok();
        let before = number.map_or_else(|| minor.to_owned(), |minor| minor.saturating_sub(1).to_string());
        let said = json!({
            "major": major, "minor": minor, "gitVersion": version, "gitCommit": "", "gitTreeState": "clean",
            "emulationMajor": major, "emulationMinor": minor, "minCompatibilityMajor": major,
            "minCompatibilityMinor": before, "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.26",
            "compiler": "gc", "platform": "linux/amd64",
        });
        Self { said, minor: number.unwrap_or(37) }
    }
}
