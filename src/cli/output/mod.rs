//! The forms in which a judgement is shown, one file each.
//!
//! Nothing here judges: levels and words come from the core's standing and findings. The invariant: what is written
//! to a file or a pipe depends on the cluster alone, never on the terminal, and says how many of anything it leaves
//! out.

pub(super) mod causes;
mod document;
mod junit;
pub(super) mod markdown;
mod outcome;
pub(super) mod paint;
mod report;
mod sarif;
pub(super) mod table;
mod text;

use clap::ValueEnum;

pub(super) use outcome::Level;
pub(super) use paint::{Color, Paint, paint, width};
pub(super) use report::{Report, ReportStyle};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For a person.
    Table,
    /// The same with more columns and details.
    Wide,
    /// JSON, for a program; of `report` and `check` it is the status of a ClusterSkewReport.
    Json,
    /// The same document as YAML.
    Yaml,
    /// For a pull request or a ticket.
    Markdown,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// JUnit XML, for a pipeline's test results.
    Junit,
}

/// `report` in the form of `output`.
pub(super) fn render(report: &Report, output: Output, style: ReportStyle) -> Result<String, String> {
    let written = |text: Result<String, serde_json::Error>| {
        text.map(|text| text + "\n").map_err(|error| format!("cannot write the report: {error}"))
    };
    match output {
        Output::Table | Output::Wide => Ok(text::text(report, output == Output::Wide, style)),
        Output::Json => written(serde_json::to_string_pretty(&document::document(report))),
        Output::Yaml => serde_saphyr::to_string(&document::document(report))
            .map_err(|error| format!("cannot write the report: {error}")),
        Output::Markdown => Ok(markdown::markdown(report, style)),
        Output::Sarif => written(serde_json::to_string_pretty(&sarif::sarif(report))),
        Output::Junit => Ok(junit::junit(report, style.fail_on)),
    }
}
