//! Whether steps follow each other: a claim, an executor's Job, the next claim.
//!
//! Here belongs what was seen of claims and Jobs, in the order in which the API took it: the versions of all objects come
//! from one counter, etcd's. So it does not matter which watch tells first, nor that the API is away for a while. Nothing
//! here asks the cluster, and nothing is judged before it is asked for, because an earlier event may still be on its way.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;

use super::notes::Noted;

/// The label of an executor's Job: the UID of its claim.
const OF_CLAIM: &str = "evenkeel.dev/node-upgrade";

/// A claim: whose step it is.
#[derive(Clone)]
struct Claim {
    name: String,
    control_plane: bool,
}

/// An executor's Job.
#[derive(Clone)]
struct Work {
    name: String,
    claim: String,
    began: u64,
    ended: Option<End>,
}

#[derive(Clone, Copy)]
struct End {
    version: u64,
    /// Since when it says so. This counts beside the version where the end was read in a list, whose version may be that
    /// of a later change.
    said: Option<Timestamp>,
}

/// Jobs that must have ended.
#[derive(Clone)]
enum Whose {
    Claim(String),
    /// Of every other claim, or of those of control-plane nodes.
    Others {
        than: String,
        all: bool,
    },
}

/// Something that happened and had to wait for Jobs.
#[derive(Clone)]
struct Step {
    version: u64,
    /// When it happened, as the object itself says.
    said: Timestamp,
    /// When it was read.
    at: Timestamp,
    what: String,
    whose: Whose,
}

/// What was seen of claims and Jobs.
#[derive(Default, Clone)]
pub(super) struct Steps {
    claims: BTreeMap<String, Claim>,
    work: BTreeMap<String, Work>,
    listed: BTreeSet<String>,
    taken: Vec<Step>,
    /// What a claim was already seen to say.
    told: BTreeSet<String>,
}

impl Steps {
    /// Looks at a claim. Where `first` says that no group of workers moves beside the control plane, the Jobs of workers
    /// count for the steps of control-plane nodes, and the other way round.
    pub(super) fn claim(
        &mut self,
        claim: &DynamicObject,
        on_control_plane: bool,
        first: bool,
        at: Timestamp,
    ) {
        let (Some(uid), Some(version)) = (claim.uid(), version(&claim.metadata)) else { return };
        let (spec, status) = (&claim.data["spec"], &claim.data["status"]);
        let name = claim.name_any();
        let component = spec["component"] != "kubelet";
        let control_plane = component || on_control_plane;
        let made = !self.claims.contains_key(&uid);
        self.claims.insert(uid.clone(), Claim { name: name.clone(), control_plane });
        let made_at = claim.metadata.creation_timestamp.as_ref().map_or(at, |time| time.0);
        let since = time(status["since"].as_str()).unwrap_or(at);
        let others = || Whose::Others { than: uid.clone(), all: component || (control_plane && first) };
        let step = |said, what, whose| Step { version, said, at, what, whose };
        let waits = control_plane || first;
        if made && waits {
            self.taken.push(step(made_at, format!("{name} was claimed"), others()));
        }
        let state = status["state"].as_str().unwrap_or_default();
        if !self.told.insert(format!("{uid} {state} {} {}", status["attempt"], status["since"])) {
            return;
        }
        match state {
            "Upgrading" if waits => {
                self.taken.push(step(since, format!("{name} was given to its executor"), others()));
            }
            "Upgraded" => {
                let own = Whose::Claim(uid.clone());
                self.taken.push(step(since, format!("{name} was called upgraded"), own));
            }
            _ => {}
        }
    }

    /// A node that is no longer cordoned for the claim in `mark`.
    pub(super) fn given_back(&mut self, node: &Node, mark: &str, at: Timestamp) {
        let Some((claim, uid)) = mark.split_once('/') else { return };
        let what = format!("{} was given back by {claim}", node.name_any());
        let whose = Whose::Claim(uid.to_owned());
        let version = version(&node.metadata).unwrap_or_default();
        self.taken.push(Step { version, said: at, at, what, whose });
    }

    pub(super) fn job(&mut self, event: Event<Job>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(job) => {
                self.listed.extend(job.uid());
                self.work(&job, true);
            }
            Event::InitDone => {
                // When they went is not known, so it may have been at any time.
                let gone = self.work.iter_mut().filter(|(uid, _)| !self.listed.contains(*uid));
                for work in gone.map(|(_, work)| work) {
                    work.ended.get_or_insert(End { version: 0, said: None });
                }
            }
            Event::Apply(job) => self.work(&job, false),
            Event::Delete(job) => {
                self.work(&job, false);
                let version = version(&job.metadata).unwrap_or_default();
                if let Some(work) = job.uid().and_then(|uid| self.work.get_mut(&uid)) {
                    work.ended.get_or_insert(End { version, said: None });
                }
            }
        }
    }

    fn work(&mut self, job: &Job, listed: bool) {
        let (Some(uid), Some(version)) = (job.uid(), version(&job.metadata)) else { return };
        let claim = job.labels().get(OF_CLAIM).cloned().unwrap_or_default();
        let work = self.work.entry(uid);
        let work = work.or_insert(Work { name: job.name_any(), claim, began: version, ended: None });
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let end =
            conditions.find(|c| ["Complete", "Failed"].contains(&c.type_.as_str()) && c.status == "True");
        if let Some(end) = end {
            let said = end.last_transition_time.as_ref().map(|time| time.0).filter(|_| listed);
            work.ended.get_or_insert(End { version, said });
        }
    }

    /// Every step that was taken while a Job ran that it had to wait for.
    pub(super) fn wrong(&self) -> Vec<Noted> {
        let mut wrong = Vec::new();
        for step in &self.taken {
            for work in self.work.values().filter(|work| self.waits_for(step, work) && work.ran_at(step)) {
                let of = self.claims.get(&work.claim).map(|claim| format!(" of {}", claim.name));
                let line = format!("{} while Job {}{} ran", step.what, work.name, of.unwrap_or_default());
                wrong.push(Noted { at: step.at, line });
            }
        }
        wrong
    }

    fn waits_for(&self, step: &Step, work: &Work) -> bool {
        match &step.whose {
            Whose::Claim(uid) => work.claim == *uid,
            Whose::Others { than, all } => {
                let control_plane = || self.claims.get(&work.claim).is_some_and(|claim| claim.control_plane);
                work.claim != *than && (*all || control_plane())
            }
        }
    }
}

impl Work {
    fn ran_at(&self, step: &Step) -> bool {
        let ended = |end: End| end.version <= step.version || end.said.is_some_and(|said| said <= step.said);
        self.began <= step.version && !self.ended.is_some_and(ended)
    }
}

fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_ref()?.parse().ok()
}

/// A time in an object of Evenkeel.
pub(super) fn time(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}
