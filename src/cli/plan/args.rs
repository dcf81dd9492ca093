//! The arguments of `evenkeel plan`.
//!
//! Here belong the flags and how their values are read; what they mean for a plan is in [`super::requested`].

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use evenkeel_core::plan::Weight;
use evenkeel_core::upgrade::{Amount, Unit};
use evenkeel_core::version::{KubeVersion, escape};

use super::super::args::ObserveArgs;
use super::super::output::Color;
use super::times::TimesArgs;

pub(in super::super) const EXAMPLES: &str = "\
Examples:
  # The cluster that kubectl means, one node at a time:
  evenkeel plan --to v1.37.1
  evenkeel plan --to v1.37.1 --unit node --max-unavailable 10%
  # For the pull request that changes prod-137.yaml:
  evenkeel plan --upgrade prod-137.yaml -o markdown
  evenkeel plan --upgrade prod-137.yaml -o json > approved.json
  evenkeel plan --upgrade prod-137.yaml --diff approved.json
  kubectl get nodes,pods,pdb,deploy,rs,sts,ds,jobs,pv -A -o json > all.json &&
    kubectl version -o json > version.json &&
    evenkeel plan --to v1.37.1 -f all.json -f version.json";

#[derive(Args)]
pub(in super::super) struct PlanArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// A version on the way, for a minor between the cluster's and the target's [default: the newest release of it that
    /// is known, or any where somebody else runs the control plane]. May be repeated.
    #[arg(long, value_name = "VERSION", value_parser = version, conflicts_with = "upgrade")]
    pub(super) via: Vec<KubeVersion>,
    /// What of the control plane moves in one step: each component on its own, or a node as kubeadm, k3s, RKE2 and Talos
    /// do [default: component]
    #[arg(long, value_enum, value_name = "UNIT", conflicts_with = "upgrade")]
    pub(super) unit: Option<UnitArg>,
    /// How many nodes may be unavailable at once: a number, or a percentage such as 10% [default: 1]
    #[arg(long, value_name = "AMOUNT", value_parser = amount, conflicts_with = "upgrade")]
    pub(super) max_unavailable: Option<Amount>,
    #[command(flatten)]
    pub(super) observe: ObserveArgs,
    #[command(flatten)]
    pub(super) times: TimesArgs,
    /// Say what changed since this plan, which -o json or -o yaml wrote before.
    #[arg(long, value_name = "FILE")]
    pub(super) diff: Option<PathBuf>,
    /// What to fail on: this, and everything graver.
    #[arg(long, value_enum, default_value_t = FailOnFinding::Stops, value_name = "WEIGHT")]
    pub(super) fail_on: FailOnFinding,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = PlanForm::Table)]
    pub(super) output: PlanForm,
    /// Whether to use colour; `auto` does on a terminal, unless `NO_COLOR` is set.
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(super) color: Color,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(super) struct TargetArgs {
    /// The version to reach, such as v1.37.1, or v1.37 where any release of it will do.
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub(super) to: Option<KubeVersion>,
    /// A file with a ClusterUpgrade, as it lies in git, and UpgradeExecutors beside it, if you like; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) upgrade: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum UnitArg {
    /// Each binary on its own.
    Component,
    /// What runs on one control-plane node.
    Node,
}

impl From<UnitArg> for Unit {
    fn from(unit: UnitArg) -> Self {
        match unit {
            UnitArg::Component => Self::Component,
            UnitArg::Node => Self::Node,
        }
    }
}

/// What the exit code is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FailOnFinding {
    /// Nothing may begin.
    Blocks,
    /// And what stops it on its way, or leaves nodes behind.
    Stops,
    /// And what is only to be known.
    Warns,
}

impl FailOnFinding {
    pub(super) const fn weight(self) -> Weight {
        match self {
            Self::Blocks => Weight::Blocks,
            Self::Stops => Weight::Stops,
            Self::Warns => Weight::Warns,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PlanForm {
    /// For a person.
    Table,
    /// The same with every name and every wave.
    Wide,
    /// An `UpgradePlan` as JSON.
    Json,
    /// The same as YAML.
    Yaml,
    /// For a pull request or a ticket.
    Markdown,
}

fn version(text: &str) -> Result<KubeVersion, String> {
    KubeVersion::from_person(text)
        .map_err(|error| format!("version {} {error}; write it like v1.37.1", escape(text)))
}

fn amount(text: &str) -> Result<Amount, String> {
    let say = || "say a number of at least 1, or a percentage from 1% to 100%".to_owned();
    let (digits, percent) = text.strip_suffix('%').map_or((text, false), |digits| (digits, true));
    let number: usize = digits.parse().map_err(|_| say())?;
    match (number, percent) {
        (1..=100, true) => Ok(Amount::Percent(number)),
        (1.., false) => Ok(Amount::Count(number)),
        _ => Err(say()),
    }
}
