//! The eviction handler: whether a pod may go, and the budget that pays for it.
//!
//! It trusts `status.disruptionsAllowed` and never counts pods: that is the disruption controller's work. It changes
//! the budget first and deletes the pod after, so a deletion that fails has already cost one disruption.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::kinds::Kind;
use super::release::Release;
use super::request::{Request, RequestTarget};
use super::state::{ApiState, Entered, Shared};
use super::status::{Failure, Named, Outcome, StatusCause};
use super::write::{Deletion, WriteOptions};

use crate::record::{Phase, Record};

/// How often an eviction that meets conflicts is tried, and the time between two tries.
const TRIES: u32 = 20;
const BACK_OFF: Duration = Duration::from_millis(500);
/// A budget whose status has more pods in `disruptedPods` than this refuses evictions.
const MOST_DISRUPTED: usize = 2000;

fn is_conflict(failure: &Failure) -> bool {
    failure.code == 409 && failure.reason() == "Conflict"
}

/// `POST …/pods/<name>/eviction`, at a server that plays this version.
pub(crate) async fn evict(
    shared: &Shared,
    release: &Arc<Release>,
    request: &Request,
    subject: &RequestTarget,
    name: &str,
) -> Outcome<Value> {
    let how = asked(request, name)?;
    let key = subject.kind.key(subject.namespace.as_deref(), name);
    let namespace = subject.namespace.clone().unwrap_or_default();
    shared.enter(release).check_namespace(&subject.kind, Some(&namespace), name)?;
    let eviction = Eviction { shared, release, author: &request.agent, kind: &subject.kind, key, name };
    if !eviction.without_budget(&how).await? {
        eviction.with_budget(&namespace, how).await?;
    }
    Ok(done())
}

/// How the pod is to be deleted, by the Eviction that was sent.
fn asked(request: &Request, name: &str) -> Outcome<Deletion> {
    let body = request.object()?;
    match (body["apiVersion"].as_str(), body["kind"].as_str()) {
        (None | Some("" | "policy/v1" | "policy/v1beta1"), None | Some("" | "Eviction")) => {}
        (version, sent) => {
            let eviction = super::kinds::eviction();
            return Err(eviction.foreign(version.unwrap_or_default(), sent.unwrap_or_default()));
        }
    }
    let mut options = body["deleteOptions"].clone();
    if body["metadata"]["name"].as_str().unwrap_or_default() != name {
        return Err(Failure::bad_request("name in URL does not match name in Eviction object"));
    }
    if options["ignoreStoreReadErrorWithClusterBreakingPotential"] == true {
        let cause = StatusCause::invalid(
            "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential",
            &json!(true),
            "can not be set for pod eviction, try after removing the option",
        );
        return Err(Failure::invalid(Named { group: "policy", kind: "Eviction", name }, &[cause]));
    }
    let asked = request.dry_run()?;
    if options["dryRun"].as_array().is_none_or(Vec::is_empty) && asked {
        options["dryRun"] = json!(["All"]);
    }
    Ok(deletion(&options))
}

/// An eviction whose request is sound.
struct Eviction<'a> {
    shared: &'a Shared,
    release: &'a Arc<Release>,
    /// The program that asks for it.
    author: &'a str,
    kind: &'a Arc<Kind>,
    /// Where the pod is kept.
    key: String,
    name: &'a str,
}

impl Eviction<'_> {
    fn enter(&self) -> Entered<'_> {
        self.shared.enter(self.release)
    }

    fn enter_to_write(&self) -> Entered<'_> {
        self.shared.enter_as(self.release, self.author)
    }

    /// How long it waits between two tries.
    fn back_off(&self) -> Duration {
        BACK_OFF + Duration::from_millis(self.enter().random.below(50))
    }

    /// Deletes a pod that is pending, finished or terminating: it needs no budget. `false` if the pod needs one.
    async fn without_budget(&self, how: &Deletion) -> Outcome<bool> {
        let mut tries = 0;
        loop {
            match self.try_without_budget(how) {
                Err(failure) if is_conflict(&failure) && how.revision.is_none() && tries + 1 < TRIES => {
                    tries += 1;
                    tokio::time::sleep(self.back_off()).await;
                }
                tried => return tried,
            }
        }
    }

    fn try_without_budget(&self, how: &Deletion) -> Outcome<bool> {
        let mut state = self.enter_to_write();
        let pod = state.pod(self.kind, &self.key, self.name)?;
        let pending = pod.phase == Phase::Pending;
        if !pod.leaving && !pending && !pod.phase.finished() {
            return Ok(false);
        }
        let mut how = how.clone();
        if pending && !pod.leaving && how.revision.is_none() {
            how.revision = Some(pod.revision.to_string());
        }
        state.condition_and_delete(self.kind, &self.key, &how).map(|()| true)
    }

    /// Deletes a pod whose budget, if it has one, lets it go.
    async fn with_budget(&self, namespace: &str, mut how: Deletion) -> Outcome<()> {
        let given = how.revision.is_some();
        let (pod, budget) = {
            let state = self.enter();
            let pod = state.pod(self.kind, &self.key, self.name)?;
            let budget = state.budget(namespace, &pod)?;
            (pod, budget)
        };
        let free = budget.as_ref().is_some_and(|budget| is_free(&pod, &budget.value()));
        if free {
            how.revision = Some(pod.revision.to_string());
        }
        if let Some(budget) = budget.as_ref().filter(|_| !free) {
            self.pay(budget, how.dry_run).await?;
        }
        let deleted = self.enter_to_write().condition_and_delete(self.kind, &self.key, &how);
        match (deleted, budget) {
            (Err(failure), Some(budget)) if is_conflict(&failure) && free && !given => {
                Err(processing(budget.name()))
            }
            (deleted, _) => deleted,
        }
    }

    /// Takes the disruption from the budget, which other evictions may change meanwhile.
    async fn pay(&self, budget: &Arc<Record>, dry_run: bool) -> Outcome<()> {
        let mut tries = 0;
        let mut seen = budget.clone();
        loop {
            let taken = self.enter_to_write().take(&seen, self.name, dry_run);
            match taken {
                Err(failure) if is_conflict(&failure) && tries + 1 < TRIES => {
                    tries += 1;
                    tokio::time::sleep(self.back_off()).await;
                    let state = self.enter();
                    let named = Named { group: "policy", kind: "poddisruptionbudgets", name: budget.name() };
                    let found = state.store.get("poddisruptionbudgets.policy", &budget.key).cloned();
                    seen = found.ok_or_else(|| Failure::not_found(named))?;
                }
                taken => return taken,
            }
        }
    }
}

/// Whether a pod that is not ready may go without a disruption from its budget, as long as it is as it was seen.
fn is_free(pod: &Record, budget: &Value) -> bool {
    let count = |name: &str| budget["status"][name].as_i64().unwrap_or(0);
    let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
    let healthy = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
    !pod.ready && (always || healthy)
}

fn done() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// `DeleteOptions` as they were sent.
pub(crate) fn deletion(options: &Value) -> Deletion {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Deletion {
        grace: options["gracePeriodSeconds"].as_i64(),
        uid: text(&options["preconditions"]["uid"]),
        revision: text(&options["preconditions"]["resourceVersion"]),
        propagation: text(&options["propagationPolicy"]).or_else(|| {
            // The older field for the same.
            let orphans = options["orphanDependents"].as_bool()?;
            Some(if orphans { "Orphan" } else { "Background" }.to_owned())
        }),
        dry_run: options["dryRun"].as_array().is_some_and(|all| !all.is_empty()),
    }
}

fn too_many(cause: &str, retry_after: u32) -> Failure {
    Failure::new(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
        .with_cause("DisruptionBudget", cause, "")
        .retry_after(retry_after)
}

/// The answer for a budget that is spent, or with `retry_after` for one whose status is behind.
pub(crate) fn refused_by_budget(retry_after: u32) -> Failure {
    match retry_after {
        0 => too_many("The disruption budget fault needs 1 healthy pods and has 1 currently", 0),
        seconds => too_many("The disruption budget fault is still being processed by the server.", seconds),
    }
}

fn processing(budget: &str) -> Failure {
    too_many(&format!("The disruption budget {budget} is still being processed by the server."), 10)
}

impl ApiState {
    fn pod(&self, kind: &Kind, key: &str, name: &str) -> Outcome<Arc<Record>> {
        self.store.get(&kind.resource, key).cloned().ok_or_else(|| Failure::not_found(kind.named(name)))
    }

    /// The budget of a namespace that selects a pod. There may be only one.
    fn budget(&self, namespace: &str, pod: &Record) -> Outcome<Option<Arc<Record>>> {
        let budgets = self.store.within("poddisruptionbudgets.policy", namespace);
        let selects = |budget: &&Arc<Record>| {
            budget.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
        };
        let mut budgets = budgets.filter(selects).cloned();
        let budget = budgets.next();
        if budgets.next().is_some() {
            return Err(Failure::new(
                500,
                "",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
        Ok(budget)
    }

    /// Takes one disruption from a budget as it was seen.
    fn take(&mut self, seen: &Record, pod: &str, dry_run: bool) -> Outcome<()> {
        let mut budget = seen.copy();
        let name = seen.name();
        let named = Named { group: "policy", kind: "poddisruptionbudget", name };
        let status = &budget["status"];
        let count = |name: &str| status[name].as_i64().unwrap_or(0);
        if count("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
            return Err(processing(name));
        }
        let allowed = count("disruptionsAllowed");
        if allowed < 0 {
            return Err(Failure::forbidden(named, "pdb disruptions allowed is negative").with_cause(
                "DisruptionBudget",
                "pdb disruptions allowed is negative",
                "",
            ));
        }
        if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MOST_DISRUPTED) {
            let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
            return Err(Failure::forbidden(named, why).with_cause("DisruptionBudget", why, ""));
        }
        if allowed == 0 {
            let (current, desired) = (count("currentHealthy"), count("desiredHealthy"));
            let condition = status["conditions"].as_array().into_iter().flatten();
            let condition =
                condition.into_iter().find(|condition| condition["type"] == "DisruptionAllowed").cloned();
            let said =
                condition.as_ref().and_then(|condition| condition["message"].as_str()).unwrap_or_default();
            let failed = condition.as_ref().is_some_and(|condition| {
                condition["status"] == "False" && condition["reason"] == "SyncFailed"
            });
            let cause = if failed {
                format!(
                    "The disruption budget {name} does not allow evicting pods currently because it failed sync: {said}"
                )
            } else if current <= desired {
                format!(
                    "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
                )
            } else if !said.is_empty() {
                format!("The disruption budget {name} does not allow evicting pods currently: {said}")
            } else {
                format!("The disruption budget {name} does not allow evicting pods currently")
            };
            return Err(too_many(&cause, 0));
        }
        let now = self.now();
        budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
        if allowed == 1 {
            let generation = budget["metadata"]["generation"].clone();
            crate::models::condition(
                &mut budget["status"],
                &json!({"type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                    "observedGeneration": generation}),
                &now,
            );
        }
        budget["status"]["disruptedPods"][pod] = now.into();
        if dry_run {
            return Ok(());
        }
        let Some(kind) = self.kinds.stored("poddisruptionbudgets.policy").cloned() else { return Ok(()) };
        let options = WriteOptions {
            manager: "kube-apiserver".into(),
            subresource: Some("status".into()),
            tracked: true,
            ..WriteOptions::default()
        };
        let found = self.store.get("poddisruptionbudgets.policy", &seen.key).cloned();
        let found = found.ok_or_else(|| Failure::not_found(kind.named(name)))?;
        self.replace(&kind, &seen.key, &found, budget, &options).map(drop)
    }

    /// Says in the pod's status why it goes, and deletes it.
    fn condition_and_delete(&mut self, kind: &Arc<Kind>, key: &str, how: &Deletion) -> Outcome<()> {
        let name = key.rsplit('/').next().unwrap_or(key).to_owned();
        let mut how = how.clone();
        if !how.dry_run {
            let before = self.pod(kind, key, &name)?;
            let named = Named { group: "", kind: "Pod", name: &name };
            if let Some(uid) = how.uid.as_deref().filter(|uid| *uid != &*before.uid) {
                return Err(Failure::conflict(
                    named,
                    format!(
                        "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                        before.uid
                    ),
                ));
            }
            let current = before.revision.to_string();
            if let Some(asked) = how.revision.as_deref().filter(|asked| *asked != current) {
                return Err(Failure::conflict(
                    named,
                    format!(
                        "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({current}). The object might have been modified"
                    ),
                ));
            }
            let mut pod = before.copy();
            let now = self.now();
            let changed = crate::models::condition(
                &mut pod["status"],
                &json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                    "message": "Eviction API: evicting", "lastProbeTime": null}),
                &now,
            );
            // The server itself writes: no field gets another owner, and the spec is not checked again.
            if changed {
                let pod = self.put(kind, key, pod);
                if how.revision.is_some() {
                    how.revision = pod["metadata"]["resourceVersion"].as_str().map(str::to_owned);
                }
            }
        }
        self.delete(kind, key, &how).map(drop)
    }
}
