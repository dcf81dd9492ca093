//! `UpgradeExecutor`: who changes versions, installed by the platform team.
//!
//! Here belong its schema and the way from the stored objects to the core's values. It is a kind of its own, because
//! whoever may write one is root on every node. Nothing is decided here. The invariant: an executor that cannot be read
//! is one that is not there, with a line that says why.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::plan;
use evenkeel_core::text::harmless;
use evenkeel_core::upgrade::{AbsentExecutor, Executor};
use evenkeel_core::version::escape;
use k8s_openapi::jiff::SignedDuration;
use kube::core::DynamicObject;
use kube::{CustomResource, KubeSchema, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checks;
use super::decode::decode_parts;

/// An UpgradeExecutor changes the version of a component or a node; Evenkeel only decides when. A ClusterUpgrade names it.
/// Whoever may write an UpgradeExecutor is root on every node. The hash of an upgrade's plan covers what its executors are:
/// a change of one asks for a new approval, and what has begun is finished as it began.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "evenkeel.dev",
    version = "v1alpha1",
    kind = "UpgradeExecutor",
    plural = "upgradeexecutors",
    shortname = "uex",
    category = "upgrades",
    doc = "An UpgradeExecutor changes the version of a component or a node; Evenkeel only decides when. A ClusterUpgrade names it. Whoever may write an UpgradeExecutor is root on every node. The hash of an upgrade's plan covers what its executors are: a change of one asks for a new approval, and what has begun is finished as it began.",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63").message("metadata.name must be at most 63 characters long, because it is part of other names; choose a shorter one"),
    printcolumn(name = "Deadline", type_ = "integer", json_path = ".spec.*.deadlineSeconds", description = "Seconds until the new version has to be observed"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.job.template.spec.containers[0].image", description = "What the Job runs; empty where somebody else changes the version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.job) != has(self.external)").message("exactly one of `job` and `external` must be set; `external` is for whoever changes versions outside of Evenkeel"))]
pub struct UpgradeExecutorSpec {
    /// A Job that runs on the node changes the version. A node is drained before its kubelet is upgraded, and is not drained
    /// for a control-plane component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobExecutor>,
    /// Somebody else changes the version: a cloud, Ansible, Terraform or a person, who begins when the NodeUpgrade is at
    /// state `Upgrading`. Evenkeel waits until it observes the new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalExecutor>,
}

/// A Job that runs on the node. A node is drained before its kubelet is upgraded, and is not drained for a
/// control-plane component.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct JobExecutor {
    /// The pod to run, as in `spec.template` of a Job (`batch/v1`). Evenkeel binds it to the node, lets it tolerate every
    /// taint, and sets the environment variables `EVENKEEL_NODE`, `EVENKEEL_COMPONENT`, `EVENKEEL_COMPONENTS`, `EVENKEEL_FROM`
    /// and `EVENKEEL_TO`. `EVENKEEL_COMPONENT` is the component that moves, or `control-plane` for a step of
    /// `controlPlane.unit: Node`; `EVENKEEL_COMPONENTS` is everything that moves, separated by blanks.
    #[schemars(schema_with = "any_object")]
    pub template: Value,
    /// How long the change may take, in seconds, from when the NodeUpgrade is at state `Upgrading` until the new version is
    /// observed and the Job has ended; for a step of `controlPlane.unit: Node`, until the Job is complete. A Job that runs
    /// for longer is not killed, and its node is not given back beside it: set `activeDeadlineSeconds` in the template to
    /// end it. What has begun keeps the deadline that it began with. Default 3600.
    #[serde(default = "an_hour")]
    #[schemars(schema_with = "checks::job_seconds")]
    pub deadline_seconds: i32,
}

fn an_hour() -> i32 {
    3600
}

fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// A cloud, Ansible, Terraform or a person changes the version, and begins when the NodeUpgrade is at state
/// `Upgrading`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ExternalExecutor {
    /// How long the change may take, in seconds, from when the NodeUpgrade is at state `Upgrading` until the new version is
    /// observed. What has begun keeps the deadline that it began with. Default 7200.
    #[serde(default = "two_hours")]
    #[schemars(schema_with = "checks::external_seconds")]
    pub deadline_seconds: i32,
}

fn two_hours() -> i32 {
    7200
}

/// The executors that there are, by name: what each is, or why it cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executors(BTreeMap<Arc<str>, Result<Executor, String>>);

impl Executors {
    /// Adds a stored object, or takes it in the place of another one of its name.
    pub fn add(&mut self, object: &DynamicObject) {
        self.0.insert(
            object.name_any().into(),
            decode_parts::<UpgradeExecutor>(object, &["spec"]).and_then(|read| value(&read)),
        );
    }

    /// What `name` is; `None` where it is not there or cannot be read.
    pub(super) fn get(&self, name: &str) -> Option<&Executor> {
        self.0.get(name)?.as_ref().ok()
    }

    /// Why `name` is not there, which `field` of a `ClusterUpgrade` refers to; `None` where it is.
    pub(super) fn absent(&self, field: &str, name: &str) -> Option<AbsentExecutor> {
        let (what, remedy) = match self.0.get(name) {
            Some(Ok(_)) => return None,
            Some(Err(why)) => (format!("cannot be read ({why})"), "mend it"),
            None => (
                "does not exist".to_owned(),
                "install it, for example with kubectl apply -k config/executors/kubeadm",
            ),
        };
        let what = harmless(&format!("{field} names UpgradeExecutor {}, which {what}", escape(name)));
        Some(AbsentExecutor { name: name.into(), what: what.into(), remedy: remedy.into() })
    }
}

fn value(object: &UpgradeExecutor) -> Result<Executor, String> {
    let seconds = |seconds: i32| SignedDuration::from_secs(i64::from(seconds));
    match (&object.spec.job, &object.spec.external) {
        (Some(job), None) => Ok(Executor::Job {
            template: plan::canonical_json(&job.template).into(),
            deadline: seconds(job.deadline_seconds),
        }),
        (None, Some(external)) => Ok(Executor::External { deadline: seconds(external.deadline_seconds) }),
        _ => Err("exactly one of job and external must be set".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn executors(specs: &[(&str, Value)]) -> Executors {
        let mut all = Executors::default();
        for (name, spec) in specs {
            let object = json!({
                "apiVersion": "evenkeel.dev/v1alpha1", "kind": "UpgradeExecutor", "metadata": { "name": name }, "spec": spec,
            });
            all.add(&serde_json::from_value(object).unwrap());
        }
        all
    }

    #[test]
    fn what_an_executor_is_and_why_there_is_none() {
        let template = json!({ "spec": { "hostPID": true, "containers": [] } });
        let all = executors(&[
            ("job", json!({ "job": { "template": template } })),
            ("hands", json!({ "external": { "deadlineSeconds": 60 } })),
            ("both", json!({ "job": { "template": {} }, "external": {} })),
            ("nothing", json!({})),
            ("odd", json!({ "job": { "template": {}, "deadlineSeconds": "soon" } })),
        ]);
        let told = |name: &str| match (all.get(name), all.absent("spec.controlPlane", name)) {
            (Some(Executor::Job { template, deadline }), None) => format!("{template} in {deadline:#}"),
            (Some(Executor::External { deadline }), None) => format!("somebody in {deadline:#}"),
            (None, Some(absent)) => absent.to_string(),
            both => panic!("{name} is there and is not: {both:?}"),
        };
        assert_eq!(told("job"), r#"{"spec":{"containers":[],"hostPID":true}} in 1h"#);
        assert_eq!(told("hands"), "somebody in 1m");
        let names = "spec.controlPlane names UpgradeExecutor";
        let one = "which cannot be read (exactly one of job and external must be set): mend it";
        assert_eq!(told("both"), format!("{names} both, {one}"));
        assert_eq!(told("nothing"), format!("{names} nothing, {one}"));
        let why = "UpgradeExecutor odd: invalid type: string \"soon\", expected i32";
        assert!(
            told("odd").starts_with(&format!("{names} odd, which cannot be read ({why}")),
            "{}",
            told("odd")
        );
        let install = "install it, for example with kubectl apply -k config/executors/kubeadm";
        assert_eq!(told("gone"), format!("{names} gone, which does not exist: {install}"));
    }

    #[test]
    fn a_later_object_of_a_name_takes_the_place_of_the_earlier() {
        let external = |seconds: i64| ("x", json!({ "external": { "deadlineSeconds": seconds } }));
        let all = executors(&[external(60), external(90)]);
        assert_eq!(all.get("x").map(Executor::deadline), Some(SignedDuration::from_secs(90)));
    }
}
