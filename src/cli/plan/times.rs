//! How long the parts of an upgrade take: as a person says, as each earlier NodeUpgrade took, or a guess.
//!
//! Here belongs where each duration comes from, in words; the arithmetic is the core's. The invariants: what a person
//! says counts before what was measured, and that before a guess; and the output says which it was.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use evenkeel_core::cluster::Component;
use evenkeel_core::disruption::preflight::duration_text;
use evenkeel_core::plan::{Durations, Took};
use evenkeel_core::rollout::ClaimState;
use jiff::SignedDuration;
use kube::api::ListParams;
use kube::{Api, Client};

use super::super::preflight::time;
use crate::api::NodeUpgrade;
use crate::clients::{one_line, within};
use crate::observe::files::{Piece, Use, pieces};

/// Longest wait for the list of earlier moves.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Args, Default)]
#[allow(clippy::struct_field_names, reason = "each is the name of a flag")]
pub(super) struct TimesArgs {
    /// How long a kube-apiserver takes to be replaced: a duration, or two, P50..P90, such as 2m..5m [default: as each
    /// earlier NodeUpgrade took, else a guess]
    #[arg(long, value_name = "TIME", value_parser = took)]
    server_time: Option<Took>,
    /// How long a controller takes to be replaced, likewise.
    #[arg(long, value_name = "TIME", value_parser = took)]
    controller_time: Option<Took>,
    /// How long a node takes from the end of its drain until its kubelet is at the version, likewise.
    #[arg(long, value_name = "TIME", value_parser = took)]
    node_time: Option<Took>,
    /// How long the replacement of a pod takes until it is ready [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = time)]
    replacement_time: Option<SignedDuration>,
}

/// `2m..5m`, or `2m` for both.
fn took(text: &str) -> Result<Took, String> {
    let say = |error: String| format!("{error}, or two such as 2m..5m");
    let (p50, p90) = text.split_once("..").unwrap_or((text, text));
    let took = Took { p50: time(p50).map_err(say)?, p90: time(p90).map_err(say)? };
    if took.p90 < took.p50 {
        return Err("the second is shorter than the first: say P50..P90, such as 2m..5m".to_owned());
    }
    Ok(took)
}

/// What earlier moves took.
#[derive(Default)]
pub(super) struct Earlier {
    servers: Vec<SignedDuration>,
    controllers: Vec<SignedDuration>,
    nodes: Vec<SignedDuration>,
    /// The files that hold some.
    files: Vec<Arc<str>>,
}

impl Earlier {
    fn add(&mut self, object: &NodeUpgrade) {
        let Some(status) = &object.status else { return };
        let created = object.metadata.creation_timestamp.as_ref();
        let Some((begun, ended)) = created.zip(status.since.as_ref()) else { return };
        if status.state != (ClaimState::Upgraded { at: ended.0 }).name() {
            return;
        }
        let took = ended.0.duration_since(begun.0);
        if took.is_negative() {
            return;
        }
        match object.spec.component {
            Component::KubeApiserver => self.servers.push(took),
            Component::Kubelet => self.nodes.push(took),
            _ => self.controllers.push(took),
        }
    }

    /// Those that the cluster still keeps. Where they cannot be read, the error says why.
    pub(super) async fn of_cluster(client: &Client) -> Result<Self, String> {
        let mut earlier = Self::default();
        let all: Api<NodeUpgrade> = Api::all(client.clone());
        match within(PATIENCE, all.list(&ListParams::default())).await {
            Ok(list) => list.items.iter().for_each(|object| earlier.add(object)),
            // The kind is not installed.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(format!("cannot list nodeupgrades: {}", one_line(&error))),
        }
        Ok(earlier)
    }

    /// Those in `paths`; what cannot be read was told when the files were read for the cluster.
    pub(super) fn of_files(paths: &[PathBuf]) -> Self {
        let mut earlier = Self::default();
        let _ = pieces(paths, &mut |file, piece| {
            let Piece::Object { raw, .. } = piece else { return Use::None };
            if raw.get().contains("NodeUpgrade")
                && let Ok(object) = serde_json::from_str(raw.get())
            {
                earlier.add(&object);
                earlier.files.push(Arc::clone(file));
            }
            Use::Some
        });
        earlier
    }
}

impl Earlier {
    /// Whether `line`, which begins with the name of a file, is about one that holds some.
    pub(super) fn uses(&self, line: &str) -> bool {
        self.files.iter().any(|file| line.strip_prefix(&**file).is_some_and(|rest| rest.starts_with(' ')))
    }
}

/// The durations to reckon with, and what they rest on, one line for each source.
pub(super) fn durations(args: &TimesArgs, earlier: Earlier) -> (Durations, Vec<String>) {
    let mut durations = Durations::default();
    let mut basis: Vec<(String, Vec<String>)> = Vec::new();
    let mut note = |why: String, what: String| match basis.iter_mut().find(|(known, _)| *known == why) {
        Some((_, all)) => all.push(what),
        None => basis.push((why, vec![what])),
    };
    let guess = || "guesses (P50 to P90; see --node-time and its like)".to_owned();
    let said_so = || "what you say".to_owned();
    let parts = [
        ("a kube-apiserver", args.server_time, earlier.servers, &mut durations.server),
        ("a controller", args.controller_time, earlier.controllers, &mut durations.controller),
        ("a drained node", args.node_time, earlier.nodes, &mut durations.node),
    ];
    for (what, said, mut samples, duration) in parts {
        let measured = (samples.len() >= Took::ENOUGH).then(|| Took::of(&mut samples)).flatten();
        let why = match (said, measured) {
            (Some(said), _) => {
                *duration = said;
                said_so()
            }
            (None, Some(measured)) => {
                *duration = measured;
                format!(
                    "what {} earlier NodeUpgrades took, their drains included (P50 to P90)",
                    samples.len()
                )
            }
            (None, None) => guess(),
        };
        note(why, format!("{what} {}", range(*duration)));
    }
    let why = if args.replacement_time.is_some() { said_so() } else { guess() };
    durations.replacement = args.replacement_time.unwrap_or(durations.replacement);
    note(why, format!("a pod's replacement {}", duration_text(durations.replacement)));
    (durations, basis.into_iter().map(|(why, what)| format!("{why}: {}", what.join(", "))).collect())
}

fn range(took: Took) -> String {
    if took.p50 == took.p90 {
        duration_text(took.p50)
    } else {
        format!("{} to {}", duration_text(took.p50), duration_text(took.p90))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_duration_or_two() {
        for (text, told) in [
            ("2m", Ok((120, 120))),
            ("2m..5m", Ok((120, 300))),
            ("90s..1h30m", Ok((90, 5400))),
            ("5m..2m", Err("the second is shorter")),
            ("..5m", Err("say a duration")),
            ("2m..", Err("say a duration")),
            ("soon", Err("say a duration")),
        ] {
            match (took(text), told) {
                (Ok(took), Ok(seconds)) => assert_eq!((took.p50.as_secs(), took.p90.as_secs()), seconds),
                (Err(line), Err(begins)) => assert!(line.starts_with(begins), "{text}: {line}"),
                (read, told) => panic!("{text}: {read:?} is not {told:?}"),
            }
        }
    }

    #[test]
    fn few_earlier_moves_say_nothing() {
        let args = || TimesArgs {
            server_time: None,
            controller_time: None,
            node_time: None,
            replacement_time: None,
        };
        let minutes = |of: &[i64]| of.iter().map(|minutes| SignedDuration::from_mins(*minutes)).collect();
        let of = |nodes| durations(&args(), Earlier { nodes, ..Earlier::default() }).0.node;
        assert_eq!(of(minutes(&[50, 60])), Durations::default().node);
        let measured = of(minutes(&[6, 7, 9, 14]));
        assert_eq!((measured.p50.as_secs(), measured.p90.as_secs()), (7 * 60, 14 * 60));
    }
}
