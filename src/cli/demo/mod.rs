//! `evenkeel demo`: the demonstration's cluster, shown to a person or told as a story.
//!
//! Here belongs how it is shown; what happens in the cluster belongs to [`crate::demo`]. The invariant: without
//! `--serve`, piped output depends on the arguments alone.

mod live;
mod plain;
mod presentation;
mod upgrade;

use std::io::{IsTerminal as _, stdin, stdout};
use std::path::{Path, PathBuf};

use clap::Args;
use evenkeel_sim::Pace;

use super::exit::EXIT_OK;
use super::output::{self, Color, Level, ReportStyle};
use super::releases;
use crate::demo::{Demo, Scenario, Setting};
use presentation::Presentation;

pub(super) const EXAMPLES: &str = "\
Examples:
  evenkeel demo          # in a terminal: upgrade it, break it, mend it
  evenkeel demo | cat    # a whole upgrade as a story, in a few seconds
  # A cluster of many versions, some of them too old:
  evenkeel demo --scenario lagging
  # Let kubectl read, upgrade and change the cluster, too:
  evenkeel demo --serve";

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
    let style = ReportStyle { check: false, fail_on: Level::Violation, paint, width: output::width() };
    let scenario = args.scenario;
    let name = clap::ValueEnum::to_possible_value(&scenario);
    let title = format!("{}, seed {}", name.as_ref().map_or("", |value| value.get_name()), args.seed);
    let presentation = Presentation { demo, style, releases, scenario, title };
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
        Some(file) => Some(presentation.demo.serve(file.path()).await?),
        None => None,
    };
    match (pace, &file) {
        (Some(pace), _) if live => {
            live::show(&presentation, &pace, file.as_ref().map(Kubeconfig::path)).await?;
        }
        (_, Some(file)) => plain::serve(&presentation, file.path()).await?,
        (_pace, None) => plain::tell(&presentation).await?,
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
