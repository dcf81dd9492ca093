//! `evenkeel status`: how upgrades stand, in the operator's own words.
//!
//! Here belongs what is read for it and how the command ends. Nothing is judged or put into other words: every line is
//! the one that the status of a ClusterUpgrade or of a NodeUpgrade has. The invariants: nothing is changed in any
//! cluster; and the command does not succeed where an upgrade that was asked for may be there and was not read.

mod document;
mod read;
mod text;

use clap::{Args, ValueEnum};
use evenkeel_core::text::harmless;
use evenkeel_core::version::escape;
use jiff::SignedDuration;
use kube::ResourceExt as _;

use super::absent::absent_beside;
use super::args::{FormArgs, WhereArgs};
use super::exit::{EXIT_FINDINGS, EXIT_OK, print};
use super::output;
use super::output::causes::{CauseReport, FailOnOutlook, render};

use document::{UpgradesDocument, document};
use read::StoredUpgrades;
use text::{StatusStyle, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  # Every ClusterUpgrade of the cluster that kubectl means:
  evenkeel status
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
        return Err(absent(&args.place, &stored, name));
    }
    // An upgrade that was asked for by its name was found, whatever else there may be.
    let lacks = stored.lacks.as_deref().filter(|_| args.name.is_none());
    if let Some(why) = lacks.filter(|_| document.upgrades.is_empty()) {
        return Err(nothing(&args.place, why));
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
    let waits = document.upgrades.iter().any(|upgrade| upgrade.needs_person);
    match lacks {
        Some(why) if !waits => Err(format!("there may be more ClusterUpgrades: {}", harmless(why))),
        _ => Ok(code(waits)),
    }
}

/// `evenkeel explain clusterupgrade/NAME`: why it is where it is.
pub(super) async fn explain(place: &WhereArgs, form: &FormArgs, name: &str) -> Result<u8, String> {
    let stored = read::stored(place, "explain").await?;
    let UpgradesDocument { mut upgrades, not_seen, .. } = document(&stored, Some(name));
    let Some(upgrade) = upgrades.pop() else { return Err(absent(place, &stored, name)) };
    let stopped = upgrade.needs_person;
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

const fn code(needs_person: bool) -> u8 {
    if needs_person { EXIT_FINDINGS } else { EXIT_OK }
}

fn absent(place: &WhereArgs, stored: &StoredUpgrades, name: &str) -> String {
    let name = escape(name);
    if let Some(why) = &stored.lacks {
        return format!("no ClusterUpgrade {name} can be read: {}", harmless(why));
    }
    let others = stored.upgrades.iter().map(|upgrade| harmless(&upgrade.name_any()).into()).collect();
    let elsewhere = match place.files.as_slice() {
        [] => "to look at another cluster, use --context",
        _ => NEEDED,
    };
    absent_beside(&format!("ClusterUpgrade {name}"), others, elsewhere)
}

/// What a file has to hold.
const NEEDED: &str = "what is needed is the output of `kubectl get cup,nup -o yaml`";

/// Why none is shown though there may be some.
fn nothing(place: &WhereArgs, why: &str) -> String {
    let instead = match place.files.as_slice() {
        [] => String::new(),
        _ => format!("; {NEEDED}"),
    };
    format!("no ClusterUpgrade can be read: {}{instead}", harmless(why))
}
