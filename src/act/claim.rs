//! Claims: created before the Node is touched, moved from state to state, deleted when there is nothing left to claim.
//!
//! Here belong the writes of `NodeUpgrade`; the core decides the states. The invariant: a claim that has changed
//! since it was read is not written; a step that needs a drained node is recorded only after a fresh read confirms that
//! the node is drained; and a state is recorded with everything that is to be remembered of it, or not at all.

use std::sync::Arc;

use evenkeel_core::cluster::Surroundings;
use evenkeel_core::disruption::may_stay;
use evenkeel_core::rollout::{Drained, Subject};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, ValidationDirective};
use kube::core::DynamicObject;
use kube::{CustomResourceExt as _, Resource as _, ResourceExt as _};
use serde_json::json;

use super::actions::{Hands, claims, nodes};
use super::outcome::{FIELD_MANAGER, NextState, Outcome, ReadNow, Stop, gone, is_absent, stop};
use super::status::unknown_field;
use crate::api::upgrade::FINALIZER;
use crate::api::{ClusterUpgrade, NodeUpgrade, decode, job_result, spec_of, status_of};
use crate::observe::fold::Watched as _;
use crate::observe::interner::Interner;

impl Hands {
    /// Records the claim; fails when one of that name exists.
    pub(super) async fn create_claim(
        &self,
        upgrade: &ClusterUpgrade,
        name: &str,
        subject: &Subject,
    ) -> Result<Outcome, Stop> {
        let spec = spec_of(&upgrade.name_any(), &upgrade.uid().unwrap_or_default(), subject);
        let mut claim = NodeUpgrade::new(name, spec);
        claim.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        claim.metadata.owner_references = upgrade.controller_owner_ref(&()).map(|owner| vec![owner]);
        let what = format!("create NodeUpgrade {name}");
        let body = serde_json::to_value(&claim).and_then(serde_json::from_value::<DynamicObject>);
        let body = body.map_err(|error| Stop::Failed(format!("{what}: {error}")))?;
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        let sent = self.send(async |client| claims(client).create(&params, &body).await).await;
        sent.map(|claim| Outcome::Claim(Box::new(claim))).map_err(|error| stop(&what, &error))
    }

    /// Moves `claim` on; fails when it has changed since `resource_version`, or when `drained` names a node that a fresh
    /// read does not find cordoned by this claim and empty.
    pub(super) async fn record(
        &self,
        upgrade: &ClusterUpgrade,
        claim: &DynamicObject,
        resource_version: &str,
        next: NextState,
        drained: Option<Box<Drained>>,
    ) -> Result<Outcome, Stop> {
        if let Some(drained) = drained
            && let Some(not) = self.confirm(&drained).await?
        {
            return Ok(not);
        }
        let (name, now) = (claim.name_any(), self.clock.now());
        let before = decode::<NodeUpgrade>(claim).map_err(Stop::Failed)?;
        let mut status = status_of(&before, &next.state, next.attempt, &next.message, &next.blockers, now);
        status.job = job_result(&before, next.attempt, next.job.as_ref());
        let patch =
            json!({ "metadata": { "resourceVersion": resource_version }, "status": replace(&status) });
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            // A server drops what its definition lacks, and the next state would be decided by what is left.
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&patch);
        let sent = self.send(async |client| claims(client).patch_status(&name, &params, &patch).await).await;
        let claim = sent.map_err(|error| {
            let what = format!("record NodeUpgrade {name}");
            match unknown_field(&error, NodeUpgrade::crd_name()) {
                Some(why) => Stop::Refused(what, why),
                None => stop(&what, &error),
            }
        })?;
        let stays = before.status.is_some_and(|before| before.state == status.state);
        self.events.claim(upgrade, &claim, &next, stays);
        Ok(Outcome::Claim(Box::new(claim)))
    }

    /// Reads the node and its pods afresh: what follows cannot be undone, and a watch may be behind. [`Stop::Lost`]
    /// when the node is not cordoned by this claim; what was found, when it is gone or a pod that must leave is still on it.
    async fn confirm(&self, drained: &Drained) -> Result<Option<Outcome>, Stop> {
        let Drained { node: expected, mark, rules } = drained;
        let name = &expected.name;
        let mut names = Interner::default();
        let found = match self.send(async |client| nodes(client).get(name).await).await {
            Ok(found) => found,
            Err(error) if is_absent(&error, name) => return Ok(Some(gone(expected))),
            Err(error) => return Err(stop(&format!("read node {name}"), &error)),
        };
        let node = &found.clone().keep(&mut names).node;
        let ours = node.cordoned_by.as_deref() == Some(mark.as_str());
        if node.uid != expected.uid || !node.unschedulable || !ours {
            return Err(Stop::Lost(format!("node {name} is not cordoned by {mark} any more")));
        }
        let Some(rules) = rules else { return Ok(None) };
        let (all, version) = self.pods_of(name).await?;
        let mut pods = all.iter().map(|pod| pod.clone().keep(&mut names).pod.clone());
        // A pod that is pinned to its node has to leave it like any other, so volumes need not be read for this.
        let (surroundings, now) = (Surroundings::default(), self.clock.now());
        let left = pods.find(|pod| !may_stay(pod, rules, &surroundings, now));
        let line = left.map(|pod| format!("node {name} still runs {}/{}", pod.namespace, pod.name));
        Ok(line.map(|line| {
            let node = Some(Box::new(found));
            let read = ReadNow::Node { name: Arc::clone(name), node, pods: all, version, job: None };
            Outcome::NotDrained { line, read }
        }))
    }

    /// Deletes the claim; fails when it has changed. `finalizers` is given only for a claim that is marked as deleted
    /// already: these finalizers of others stay, ours is taken off, and so the claim can go as far as we are concerned.
    pub(super) async fn delete_claim(
        &self,
        name: Arc<str>,
        uid: Arc<str>,
        resource_version: &str,
        finalizers: Option<Vec<Arc<str>>>,
    ) -> Result<Outcome, Stop> {
        let what = format!("delete NodeUpgrade {name}");
        let Some(finalizers) = finalizers else {
            let params = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some(uid.to_string()),
                    resource_version: Some(resource_version.to_owned()),
                }),
                ..Default::default()
            };
            let sent = self.send(async |client| claims(client).delete(&name, &params).await).await;
            // A claim with a finalizer stays, marked as deleted, and is returned.
            let left = sent.map_err(|error| stop(&what, &error))?.left();
            return Ok(left.map_or(Outcome::ClaimGone { name, uid }, |claim| Outcome::Claim(Box::new(claim))));
        };
        let others: Vec<&str> = finalizers.iter().map(AsRef::as_ref).collect();
        let patch = Patch::Merge(super::finalizer::patch(&uid, resource_version, &others));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        let sent = self.send(async |client| claims(client).patch(&name, &params, &patch).await).await;
        let left = sent.map_err(|error| stop(&what, &error))?;
        let is_gone = left.finalizers().is_empty();
        Ok(if is_gone { Outcome::ClaimGone { name, uid } } else { Outcome::ClaimKept(Box::new(left)) })
    }
}

/// The status as a merge patch that also clears what is not set: a merge patch keeps what it does not name.
fn replace(status: &crate::api::NodeUpgradeStatus) -> serde_json::Value {
    let mut all = json!({
        "retryTime": null, "incarnationBefore": null, "componentsBefore": null, "notReadyBefore": null, "stalledTime": null,
        "blockedBy": null, "executorKind": null, "deadlineTime": null, "staticPodsBefore": null, "observedTime": null,
        "job": null,
    });
    if let (Some(all), Ok(serde_json::Value::Object(set))) =
        (all.as_object_mut(), serde_json::to_value(status))
    {
        all.extend(set);
    }
    all
}

#[cfg(test)]
mod tests;
