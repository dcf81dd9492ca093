//! What a plan is made for: a cluster or files, seen as `report` sees its versions and as `preflight` sees its pods.
//!
//! Here belongs how the two are put together. The invariant: what could not be read is named, and is never taken for
//! absent.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use evenkeel_core::cluster::{Cluster, Component};
use evenkeel_core::text::harmless;
use jiff::Timestamp;
use kube::Client;

use super::super::args::ObserveArgs;
use super::super::{connect, judge};
use super::executors::SeenExecutors;
use super::recorded;
use super::times::Earlier;
use crate::api::ClusterUpgrade;
use crate::clients::{one_line, read_client};
use crate::observe::Inventory;
use crate::observe::files::{Snapshot, shown_path};
use crate::observe::stated_versions;
use crate::observe::survey::Survey;

/// What a plan is made for: a cluster or files, as they were seen at `now`.
pub(super) struct PlanSubject {
    pub(super) cluster: Cluster,
    /// What it is: titles and lines.
    pub(super) about: Vec<(&'static str, String)>,
    /// What could not be read, one line each.
    pub(super) not_seen: Vec<String>,
    /// What the platform does not show, and why, one line each.
    pub(super) not_visible: Vec<String>,
    /// Controllers that lead where nothing shows their version.
    pub(super) hidden: Vec<(Component, String)>,
    /// What earlier moves took.
    pub(super) earlier: Earlier,
    /// The upgrade as the cluster has it.
    pub(super) object: Option<ClusterUpgrade>,
    pub(super) executors: SeenExecutors,
    pub(super) now: Timestamp,
}

/// Looks at the cluster or the files that `args` name, and in a cluster at the ClusterUpgrade called `upgrade`.
///
/// # Errors
/// When there is nothing that a plan could be made for, in one line.
pub(super) async fn subject_of(args: &ObserveArgs, upgrade: Option<&str>) -> Result<PlanSubject, String> {
    if args.files.is_empty() { live(args, upgrade).await } else { files(args) }
}

async fn live(args: &ObserveArgs, upgrade: Option<&str>) -> Result<PlanSubject, String> {
    let config = connect::config(&args.cluster, "plan").await?;
    let (seen, inventory) = judge::observe(&config).await?;
    if let Some(nothing) = judge::nothing(&seen, &inventory) {
        return Err(nothing);
    }
    let client = read_client(&config).map_err(|error| one_line(&error))?;
    let about = vec![("Cluster", config.cluster_url.to_string())];
    let live = LiveCluster { client: &client, seen, inventory: &inventory, about, now: Timestamp::now() };
    let mut subject = live.subject(upgrade).await;
    subject.cluster = stated_versions::add(subject.cluster, &args.given())?;
    subject.not_visible = inventory.hidden(&subject.cluster);
    Ok(subject)
}

/// A cluster that is looked at while it lives.
pub(in super::super) struct LiveCluster<'a> {
    /// Reads what only a plan needs.
    pub(in super::super) client: &'a Client,
    /// The versions, as the report sees them.
    pub(in super::super) seen: Cluster,
    /// How far they can be relied on.
    pub(in super::super) inventory: &'a Inventory,
    /// What it is: titles and lines.
    pub(in super::super) about: Vec<(&'static str, String)>,
    pub(in super::super) now: Timestamp,
}

impl LiveCluster<'_> {
    /// What there is to plan with, and the ClusterUpgrade called `upgrade`.
    pub(super) async fn subject(self, upgrade: Option<&str>) -> PlanSubject {
        let Self { client, seen, inventory, mut about, now } = self;
        let mut not_seen: Vec<String> =
            inventory.missing.iter().map(|missing| missing.reason.to_string()).collect();
        let cluster = match Survey::of_cluster(client).await {
            Ok(survey) => {
                add_new(&mut not_seen, survey.missing());
                joined(survey.cluster(), &seen)
            }
            Err(why) => {
                not_seen.push(without_drains(&why));
                seen
            }
        };
        let earlier = Earlier::of_cluster(client).await.unwrap_or_else(|why| {
            not_seen.push(why);
            Earlier::default()
        });
        let object = match upgrade {
            Some(name) => recorded::of_cluster(client, name).await.unwrap_or_else(|why| {
                not_seen.push(why);
                None
            }),
            None => None,
        };
        let executors = if upgrade.is_some() {
            SeenExecutors::of_cluster(client).await
        } else {
            SeenExecutors::default()
        };
        about.extend(inventory.platform.map(|platform| ("Platform", platform.name().to_owned())));
        PlanSubject {
            not_visible: inventory.hidden(&cluster),
            hidden: inventory
                .leading
                .iter()
                .map(|leading| (leading.component, leading.to_string()))
                .collect(),
            cluster,
            about,
            not_seen,
            earlier,
            object,
            executors,
            now,
        }
    }
}

fn files(args: &ObserveArgs) -> Result<PlanSubject, String> {
    let spool = Spool::of(&args.files)?;
    let paths = spool.paths(&args.files);
    let snapshot = Snapshot::read(&paths).map_err(|error| spool.named(&error.to_string()))?;
    let seen = snapshot.cluster();
    let survey = Survey::of_files(&paths);
    let together = match &survey {
        Ok(survey) => joined(survey.cluster(), &seen),
        Err(_) => seen,
    };
    let cluster = stated_versions::add(together, &args.given())?;
    let mut not_seen = snapshot.missing(&cluster);
    match &survey {
        Ok(survey) => add_new(&mut not_seen, survey.missing()),
        Err(why) => not_seen.push(without_drains(why)),
    }
    if snapshot.counts().webhooks == 0 {
        not_seen.push(
            "no webhook configuration is in the files: are there any? (`kubectl get \
             validatingwebhookconfigurations,mutatingwebhookconfigurations`)"
                .to_owned(),
        );
    }
    let names: Vec<_> = args.files.iter().map(|path| shown_path(path)).collect();
    let mut about = vec![("Files", names.join(", "))];
    let earlier = Earlier::of_files(&paths);
    let executors = SeenExecutors::of_files(&paths);
    // A file may be of use to one reading and not to another.
    let unused_too = |line: &String| {
        let used = earlier.uses(line) || executors.uses(line);
        survey.as_ref().map_or(true, |survey| survey.unused.contains(line)) && !used
    };
    about.extend(snapshot.unused().into_iter().filter(unused_too).map(|line| ("Unused", spool.named(&line))));
    about.extend(snapshot.platform().map(|platform| ("Platform", platform.name().to_owned())));
    Ok(PlanSubject {
        not_visible: snapshot.hidden(&cluster),
        hidden: Vec::new(),
        not_seen: not_seen.iter().map(|line| spool.named(line)).collect(),
        // Files show the cluster as it was when they were written, so that time counts as now.
        now: snapshot.taken().unwrap_or_else(Timestamp::now),
        earlier,
        executors,
        object: None,
        cluster,
        about,
    })
}

fn without_drains(why: &str) -> String {
    format!("{why}; without it nothing is said of what would keep nodes from being drained")
}

/// `drains`, which has the pods and what is around them, with the components of `versions`.
fn joined(mut drains: Cluster, versions: &Cluster) -> Cluster {
    drains.set_instances(versions.instances().to_vec());
    drains.set_webhooks(versions.webhooks().to_vec());
    drains.set_leaders(versions.leaders().to_vec());
    drains
}

/// Adds what of `lines` is not there.
fn add_new(all: &mut Vec<String>, lines: Vec<String>) {
    for line in lines {
        if !all.contains(&line) {
            all.push(line);
        }
    }
}

/// Standard input as a file, because it is read twice. It goes when this goes.
struct Spool(Option<PathBuf>);

impl Spool {
    fn of(files: &[PathBuf]) -> Result<Self, String> {
        if !files.iter().any(|file| file.as_os_str() == "-") {
            return Ok(Self(None));
        }
        if io::stdin().is_terminal() {
            eprintln!("reads from this terminal until Ctrl-D");
        }
        let failed =
            |error: io::Error| format!("standard input cannot be kept for a second reading: {error}");
        let name = format!("evenkeel-{}-{}", std::process::id(), Timestamp::now().as_nanosecond());
        let path = std::env::temp_dir().join(name);
        let mut file = created(&path).map_err(failed)?;
        let spool = Self(Some(path));
        io::copy(&mut io::stdin().lock(), &mut file).map_err(failed)?;
        Ok(spool)
    }

    fn paths(&self, files: &[PathBuf]) -> Vec<PathBuf> {
        let one =
            |file: &PathBuf| self.0.as_ref().filter(|_| file.as_os_str() == "-").unwrap_or(file).clone();
        files.iter().map(one).collect()
    }

    /// `line` with the name that a person knows it by.
    fn named(&self, line: &str) -> String {
        self.0.as_ref().map_or_else(
            || line.to_owned(),
            |path| line.replace(&harmless(&shown_path(path)), "standard input"),
        )
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // What is left in the folder for temporary files is cleared with it.
            let _ = fs::remove_file(path);
        }
    }
}

/// A file that was not there, for this user alone: a dump may tell much of a cluster.
fn created(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
