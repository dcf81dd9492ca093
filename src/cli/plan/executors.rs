//! The UpgradeExecutors that an upgrade names: beside it in its file, in the cluster, or in the files that stand for
//! it.
//!
//! Here belongs where they are looked for; what they are is read where the operator reads it. The invariant: one that
//! could not be looked for is never taken for one that does not exist.

use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_core::upgrade::{AbsentExecutor, Executor, Upgrade};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};

use super::object::is_of;
use super::times::PATIENCE;
use crate::api::upgrade::Invalid;
use crate::api::{ClusterUpgrade, Executors, GROUP, UpgradeExecutor, upgrade};
use crate::clients::{one_line, within};
use crate::observe::files::{Piece, Use, pieces};

pub(super) const KIND: &str = "UpgradeExecutor";
/// Why the plan has no hash.
const WITHOUT: &str = "what it does is part of the plan's hash, which is not known without it";

/// The `UpgradeExecutors` that are there, and what keeps others from being seen.
#[derive(Default)]
pub(super) struct SeenExecutors {
    there: Executors,
    /// Where there may be others: why those are not seen. `None` where there are none.
    others: Option<String>,
    /// The files that hold some.
    files: Vec<Arc<str>>,
}

/// An upgrade, and what became of the executors that it names.
pub(super) struct UpgradeWithExecutors {
    pub(super) upgrade: Upgrade,
    /// Those that are not there.
    pub(super) absent: Vec<AbsentExecutor>,
    /// Those that could not be looked for, which do not block the plan: why it has no hash, one line each.
    pub(super) unseen: Vec<String>,
}

impl SeenExecutors {
    pub(super) async fn of_cluster(client: &Client) -> Self {
        let all: Api<DynamicObject> =
            Api::all_with(client.clone(), &ApiResource::erase::<UpgradeExecutor>(&()));
        let mut found = Self::default();
        match within(PATIENCE, all.list(&ListParams::default())).await {
            Ok(list) => list.items.iter().for_each(|object| found.there.add(object)),
            // The kind is not installed, so there is none.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                found.others = Some(format!("cannot list upgradeexecutors: {}", one_line(&error)));
            }
        }
        found
    }

    /// Those in `paths`. A file that cannot be read is told of where the cluster is read from it.
    pub(super) fn of_files(paths: &[PathBuf]) -> Self {
        let others = "it is not in the files (`kubectl get upgradeexecutors -o yaml`)".to_owned();
        let mut found = Self { others: Some(others), ..Self::default() };
        let _ = pieces(paths, &mut |file, piece| {
            let Piece::Object { raw, list, .. } = piece else { return Use::None };
            if raw.get().contains("evenkeel.dev")
                && is_of((GROUP, KIND), raw, list)
                && let Ok(object) = serde_json::from_str(raw.get())
            {
                found.there.add(&object);
                found.files.push(Arc::clone(file));
            }
            Use::Some
        });
        found
    }

    /// Whether `line` is about a file in which an executor was found.
    pub(super) fn uses(&self, line: &str) -> bool {
        self.files.iter().any(|file| line.strip_prefix(&**file).is_some_and(|rest| rest.starts_with(' ')))
    }

    /// The core's value of `object`, by these executors and those `beside` it in its file, which count first.
    pub(super) fn upgrade(
        mut self,
        object: &ClusterUpgrade,
        beside: &[DynamicObject],
    ) -> Result<UpgradeWithExecutors, Invalid> {
        for executor in beside {
            self.there.add(executor);
        }
        let mut upgrade = upgrade::validate(object, &self.there)?;
        let absent = upgrade::absent_executors(object, &self.there);
        let Some(why) = self.others else {
            return Ok(UpgradeWithExecutors { upgrade, absent, unseen: Vec::new() });
        };
        let unseen =
            absent.iter().map(|executor| format!("UpgradeExecutor {}: {why}; {WITHOUT}", executor.name));
        let unseen = unseen.collect();
        let somebody = Executor::External { deadline: Executor::UNKNOWN_DEADLINE };
        upgrade.executors.extend(absent.into_iter().map(|executor| (executor.name, somebody.clone())));
        Ok(UpgradeWithExecutors { upgrade, absent: Vec::new(), unseen })
    }
}
