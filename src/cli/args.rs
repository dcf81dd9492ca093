//! The arguments that commands share: which cluster or files, what a person adds, and the form of the output.
//!
//! Here belongs how a text becomes a value; what is done with it is each command's. The invariant: a value that cannot
//! be meant is refused before anything is looked at, with what to say instead.

use std::path::PathBuf;

use clap::Args;
use evenkeel_core::cluster::Component;
use evenkeel_core::version::{KubeVersion, escape};

use super::output::Color;
use super::output::{Level, Output};
use crate::observe::stated_versions::StatedVersion;

pub(super) const EXAMPLES: &str = "\
Examples:
  evenkeel report        # the cluster that kubectl means
  kubectl get nodes -o json |
    evenkeel report -f - --apiserver-version v1.36.4
  # A folder, in a pipeline:
  kubectl cluster-info dump --output-directory dump &&
    kubectl version -o json > dump/version.json &&
    evenkeel check -f dump --fail-on at-limit";

/// Which cluster, as kubectl says it.
#[derive(Args)]
pub(super) struct ClusterArgs {
    /// The kubeconfig file [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
}

/// The cluster or the files to look at.
#[derive(Args)]
pub(super) struct WhereArgs {
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    /// Look at this file instead of a cluster: kubectl's JSON or YAML, `-` for standard input, or a folder of such
    /// files. May be repeated.
    #[arg(short, long = "file", value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    pub(super) files: Vec<PathBuf>,
}

/// Where to look, and what to add to what is seen.
#[derive(Args)]
pub(super) struct ObserveArgs {
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    /// Judge this file instead of a cluster: kubectl's JSON or YAML, `-` for standard input, or a folder of such files,
    /// for example a cluster-info dump or a must-gather. May be repeated.
    #[arg(short, long = "file", value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    pub(super) files: Vec<PathBuf>,
    /// The version of a kube-apiserver that cannot be seen, such as v1.36.4 or cp-1=v1.36.4. May be repeated.
    #[arg(long, value_name = "[NAME=]VERSION", value_parser = apiserver)]
    apiserver_version: Vec<StatedVersion>,
    /// The version of another component that cannot be seen, such as kube-scheduler=cp-1=v1.36.4. May be repeated.
    #[arg(long, value_name = "COMPONENT=[NAME=]VERSION", value_parser = component)]
    component: Vec<StatedVersion>,
    /// The version of a kubectl to judge as well, such as v1.36.4. May be repeated.
    #[arg(long, value_name = "VERSION", value_parser = client)]
    client_version: Vec<StatedVersion>,
    /// Until when each minor is maintained, as JSON, instead of the data that is built in:
    /// {"minors": [{"minor": "1.37", "endOfLife": "2027-10-28", "latestPatchSeen": "1.37.1"}]}
    #[arg(long, value_name = "FILE")]
    pub(super) releases: Option<PathBuf>,
}

impl ObserveArgs {
    /// The versions that a person gives of components.
    pub(super) fn given(&self) -> Vec<StatedVersion> {
        self.apiserver_version.iter().chain(&self.component).chain(&self.client_version).cloned().collect()
    }
}

#[derive(Args)]
pub(super) struct ReportArgs {
    #[command(flatten)]
    pub(super) observe: ObserveArgs,
    #[command(flatten)]
    pub(super) form: FormArgs,
}

#[derive(Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    pub(super) observe: ObserveArgs,
    /// Fail on what is of this level, and on everything graver.
    #[arg(long, value_enum, default_value_t = Level::Violation, value_name = "LEVEL")]
    pub(super) fail_on: Level,
    #[command(flatten)]
    pub(super) form: FormArgs,
}

/// The form of the output.
#[derive(Args)]
pub(super) struct FormArgs {
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
    /// Whether to use colour; `auto` does on a terminal, unless `NO_COLOR` is set.
    #[arg(long, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(super) color: Color,
}

fn apiserver(text: &str) -> Result<StatedVersion, String> {
    given(Component::KubeApiserver, text)
}

fn client(text: &str) -> Result<StatedVersion, String> {
    given(Component::Kubectl, text)
}

fn component(text: &str) -> Result<StatedVersion, String> {
    let (name, rest) = text.split_once('=').ok_or("say COMPONENT=[NAME=]VERSION")?;
    let component = Component::from_name(name).ok_or_else(|| {
        let all: Vec<_> = Component::ALL.iter().map(|component| component.name()).collect();
        format!("there is no component {}; there are {}", escape(name), all.join(", "))
    })?;
    let given = given(component, rest)?;
    if component == Component::Kubelet && given.name.is_none() {
        return Err("say which Node's: kubelet=NODE=VERSION".to_owned());
    }
    Ok(given)
}

fn given(component: Component, text: &str) -> Result<StatedVersion, String> {
    let (name, version) = text.split_once('=').map_or((None, text), |(name, rest)| (Some(name), rest));
    if name.is_some_and(|name| name.is_empty() || escape(name) != name) {
        return Err("the name is empty, too long or has characters that no name has".to_owned());
    }
    let version: KubeVersion =
        version.parse().map_err(|error| format!("version {} {error}", escape(version)))?;
    Ok(StatedVersion { component, name: name.map(Into::into), version })
}
