//! `evenkeel status`: how upgrades stand, in the operator's own words.
//!
//! Here belongs what is read for it and how the command ends. Nothing is judged or put into other words: every line is the
//! one that the status of a ClusterUpgrade or of a NodeUpgrade has. The invariant: nothing is changed in any cluster.

mod document;
mod read;
mod text;

use clap::{Args, ValueEnum};
use evenkeel_core::version::escape;
use jiff::SignedDuration;

use super::args::{FormArgs, WhereArgs};
use super::exit::{EXIT_FINDINGS, EXIT_OK, print};
use super::output;
use super::output::causes::{CauseReport, FailOnOutlook, render};

use document::{UpgradesDocument, document};
use read::StoredUpgrades;
use text::{StatusStyle, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  evenkeel status                          every ClusterUpgrade of the cluster that kubectl means
  evenkeel status prod-137 -o wide
  kubectl get cup,nup -o yaml | evenkeel status -f -";

#[derive(Args)]
pub(super) struct StatusArgs {
    /// The ClusterUpgrade to show [default: all]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    place: WhereArgs,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = StatusForm::Table)]
    output: StatusForm,
    /// Whether to use colour; `auto` does on a terminal, unless `NO_COLOR` is set.
    #[arg(long, value_enum, default_value_t = output::Color::Auto, value_name = "WHEN")]
    color: output::Color,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StatusForm {
    /// For a person.
    Table,
    /// The same with every line that the status has.
    Wide,
    /// JSON, for a program.
    Json,
    /// The same document as YAML.
    Yaml,
}

pub(super) async fn run(args: StatusArgs) -> Result<u8, String> {
    let stored = read::stored(&args.place, "status").await?;
    let document = document(&stored, args.name.as_deref());
    if let Some(name) = args.name.as_deref().filter(|_| document.upgrades.is_empty()) {
        return Err(absent(&stored, name));
    }
    let failed = |error: String| format!("cannot write the status: {error}");
    let shown = match args.output {
        StatusForm::Table | StatusForm::Wide => {
            let wide = args.output == StatusForm::Wide;
            text(&document, StatusStyle { wide, paint: output::paint(args.color), width: output::width() })
        }
        StatusForm::Json => {
            serde_json::to_string_pretty(&document).map_err(|error| failed(error.to_string()))? + "\n"
        }
        StatusForm::Yaml => serde_saphyr::to_string(&document).map_err(|error| failed(error.to_string()))?,
    };
    print(&shown)?;
    Ok(code(document.upgrades.iter().any(|upgrade| upgrade.stalled)))
}

/// `evenkeel explain clusterupgrade/NAME`: why it is where it is.
pub(super) async fn explain(place: &WhereArgs, form: &FormArgs, name: &str) -> Result<u8, String> {
    let stored = read::stored(place, "explain").await?;
    let UpgradesDocument { mut upgrades, not_seen, .. } = document(&stored, Some(name));
    let Some(upgrade) = upgrades.pop() else { return Err(absent(&stored, name)) };
    let stopped = upgrade.stalled;
    let mut subject = vec![("Object", format!("clusterupgrade/{}", upgrade.name))];
    subject.extend(stored.about.iter().cloned());
    let report = CauseReport {
        kind: "Explanation",
        line: Some(upgrade.line()),
        subject,
        places: std::collections::BTreeMap::new(),
        causes: Vec::new(),
        bounds: Vec::new(),
        slot: SignedDuration::from_mins(1),
        details: upgrade.details(),
        missing: not_seen,
        fail_on: FailOnOutlook::NotNow,
        stopped,
    };
    print(&render(report, form.output, output::paint(form.color))?)?;
    Ok(code(stopped))
}

const fn code(stalled: bool) -> u8 {
    if stalled { EXIT_FINDINGS } else { EXIT_OK }
}

fn absent(stored: &StoredUpgrades, name: &str) -> String {
    let unread = stored.not_seen.first().map(|line| format!(" ({line})")).unwrap_or_default();
    format!("there is no ClusterUpgrade {}{unread}", escape(name))
}
