//! `evenkeel demo`: the demonstration's cluster, shown to a person or told as a story.
//!
//! Here belongs how it is shown; what happens in the cluster belongs to [`crate::demo`]. The invariant: without
//! `--serve`, piped output depends on the arguments alone.

mod live;
mod plain;
mod upgrade;

use std::fmt::Write as _;
use std::io::{IsTerminal as _, stdin, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use evenkeel_core::skew::lifecycle::Catalogue;
use evenkeel_sim::Pace;
use http::Request;
use kube::Client;
use serde_json::Value;

use super::exit::EXIT_OK;
use super::judge::judged;
use super::output::table::{Cell, table};
use super::output::{self, Color, Level, Output, Paint, Style};
use super::{plan, releases};
use crate::clients::one_line;
use crate::demo::{Demo, Scenario, Setting};

pub(super) const EXAMPLES: &str = "\
Examples:
  evenkeel demo                        in a terminal: upgrade it, break it, mend it
  evenkeel demo | cat                  a whole upgrade as a story, in a few seconds
  evenkeel demo --scenario lagging     a cluster of many versions, some of them too old
  evenkeel demo --serve                let kubectl read, upgrade and change the cluster, too";

/// Resources of our group.
const REPORTS: &str = "clusterskewreports";
const UPGRADES: &str = "clusterupgrades";
/// How long the story waits after a scene: the operator asks a dead apiserver again after 30 s.
const SETTLE: Duration = Duration::from_secs(45);
/// How many seconds of the cluster pass in one real second, in a terminal.
const SPEED: u32 = 10;
/// The speed with `--serve`, where kubectl compares the cluster's times with this machine's clock.
const SPEED_SERVED: u32 = 1;

#[derive(Args)]
pub(super) struct DemoArgs {
    /// In which state the cluster begins.
    #[arg(long, value_enum, default_value_t = Scenario::Upgrade, value_name = "NAME")]
    scenario: Scenario,
    /// The seed of all chance in the cluster: in a pipe, the same seed gives the same story.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// How many seconds of the cluster pass in one real second [default: 10; 1 with --serve; in a pipe, as many as
    /// possible]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "NUMBER")]
    speed: Option<u32>,
    /// Serve the cluster to kubectl over TLS on this machine until interrupted, and write the kubeconfig to this file
    /// [default: one in the folder for temporary files, which is removed at the end]
    #[arg(long, num_args = 0..=1, require_equals = true, value_name = "FILE")]
    #[allow(clippy::option_option, reason = "not given, given without a value, given with one")]
    serve: Option<Option<PathBuf>>,
    /// Whether to use colour; `auto` does on a terminal, unless `NO_COLOR` is set.
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,
}

/// The demonstration and how it is shown.
struct Stage {
    demo: Demo,
    style: Style,
    releases: Catalogue,
    scenario: Scenario,
    /// `upgrade, seed 1`.
    title: String,
}

pub(super) fn run(args: &DemoArgs) -> Result<u8, String> {
    // One thread and a clock that can be paused make the run repeatable: one seed gives one story.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.map_err(|error| format!("cannot start: {error}"))?.block_on(show(args))
}

async fn show(args: &DemoArgs) -> Result<u8, String> {
    let releases = releases::read(None)?;
    let setting = Setting { seed: args.seed, scenario: args.scenario, served: args.serve.is_some() };
    let demo = Demo::begin(setting, releases.clone()).await?;
    let paint = output::paint(args.color);
    let style = Style { check: false, fail_on: Level::Violation, paint, width: output::width() };
    let scenario = args.scenario;
    let name = clap::ValueEnum::to_possible_value(&scenario);
    let title = format!("{}, seed {}", name.as_ref().map_or("", |value| value.get_name()), args.seed);
    let stage = Stage { demo, style, releases, scenario, title };
    let file = args.serve.as_ref().map(|path| Kubeconfig::at(path.as_deref()));
    // The clock is paused until `Pace::begin`: whatever waits for something outside of this process has to come after
    // it.
    let live = stdin().is_terminal()
        && stdout().is_terminal()
        && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    let usual = match (&file, live) {
        (Some(_), _) => Some(SPEED_SERVED),
        (None, true) => Some(SPEED),
        (None, false) => None,
    };
    let pace = args.speed.or(usual).map(Pace::begin);
    let _served = match &file {
        Some(file) => Some(stage.demo.serve(file.path()).await?),
        None => None,
    };
    match (pace, &file) {
        (Some(pace), _) if live => live::show(&stage, &pace, file.as_ref().map(Kubeconfig::path)).await?,
        (_, Some(file)) => plain::serve(&stage, file.path()).await?,
        (_pace, None) => plain::tell(&stage).await?,
    }
    Ok(EXIT_OK)
}

/// The kubeconfig file; a temporary one, whose path nobody gave, is removed in the end.
struct Kubeconfig {
    path: PathBuf,
    ours: bool,
}

impl Kubeconfig {
    fn at(path: Option<&Path>) -> Self {
        let temporary =
            || std::env::temp_dir().join(format!("evenkeel-demo-{}.kubeconfig", std::process::id()));
        Self { path: path.map_or_else(temporary, Path::to_owned), ours: path.is_none() }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        if self.ours {
            // The file is worthless without the cluster, so it does not matter whether this fails.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Stage {
    /// What `evenkeel report` says, once everything is seen.
    async fn report(&self) -> Result<String, String> {
        for _ in 0..100 {
            if let Ok((_, inventory)) = self.demo.look()
                && inventory.is_settled()
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.report_now(self.style)
    }

    /// What `evenkeel report` says of what is seen now, in this style. An error names what is not seen yet.
    fn report_now(&self, style: Style) -> Result<String, String> {
        let (cluster, inventory) = self.demo.look().map_err(|not_ready| not_ready.to_string())?;
        let subject = vec![("Cluster", format!("made up, {}", self.title))];
        let report = judged(subject, &cluster, &inventory, &self.releases, self.demo.now());
        output::render(&report, Output::Table, style)
    }

    /// What `evenkeel plan --upgrade` says of the upgrade that a person keeps in git.
    async fn plan(&self) -> Result<String, String> {
        let (cluster, inventory) = self.demo.look().map_err(|not_ready| not_ready.to_string())?;
        let live = plan::Live {
            client: self.demo.client(),
            seen: Arc::unwrap_or_clone(cluster),
            inventory: &inventory,
            about: vec![("Cluster", format!("made up, {}", self.title))],
            now: self.demo.now(),
        };
        plan::of_object(live, Demo::wished()?, &self.releases, self.style).await
    }

    /// What `kubectl get` prints of `resource` of our group, made from the table that the server sends.
    async fn kubectl(&self, resource: &str) -> Result<String, String> {
        let table = self.table(resource).await.map_err(|error| one_line(&error))?;
        Ok(printed(&table, self.style.paint))
    }

    async fn table(&self, resource: &str) -> kube::Result<Value> {
        let request = Request::get(format!("/apis/evenkeel.dev/v1alpha1/{resource}"))
            .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        let client: &Client = self.demo.client();
        client.request(request).await
    }

    /// What the upgrade waits for, one line each; else what it says of itself, unless it is done.
    async fn waits(&self) -> Result<String, String> {
        let status = self.demo.upgrade().await?.and_then(|upgrade| upgrade.status).unwrap_or_default();
        let mut lines: Vec<String> = status.waiting_for.into_iter().map(|of| of.message).collect();
        if lines.is_empty() {
            let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready");
            lines.extend(ready.filter(|ready| ready.status != "True").map(|ready| ready.message));
        }
        Ok(lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect())
    }

    /// What happened since the `from`th line, and how many lines there are now.
    fn happened(&self, from: usize) -> (String, usize) {
        let mut text = String::new();
        let happened = self.demo.happened(from);
        for one in &happened {
            let who = if one.by_operator { "evenkeel" } else { "you" };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}  {who:<9}{}", one.at.strftime("%H:%M:%S"), one.line);
        }
        (text, from + happened.len())
    }
}

/// A server's table as kubectl prints it.
fn printed(found: &Value, paint: Paint) -> String {
    let columns = found["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown: Vec<usize> = (0..columns.len())
        .filter(|at| columns.get(*at).is_some_and(|column| column["priority"] == 0))
        .collect();
    let header: Vec<String> =
        shown.iter().filter_map(|at| Some(columns.get(*at)?["name"].as_str()?.to_uppercase())).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let text = |cell: &Value| match cell {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let rows = found["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<Vec<Cell>> =
        rows.iter().map(|row| shown.iter().map(|at| text(&row["cells"][*at]).into()).collect()).collect();
    table(&header, &rows, paint, None)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("   {line}\n") }).collect()
}
