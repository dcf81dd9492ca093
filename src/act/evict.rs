//! The eviction of one pod of one UID, and its deletion past a budget.
//!
//! Here belongs how a pod is asked to leave and how the answer is read; which pod leaves is the core's decision. The
//! invariant: each request names the UID of its pod, so it never hits a later pod of the same name.

use evenkeel_core::disruption::Permit;
use evenkeel_core::disruption::answer::{self, Answer, Raw};
use evenkeel_core::drain::Forced;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions, Status};
use kube::Api;
use kube::api::{DeleteParams, PostParams};

use super::actions::Hands;
use super::authority::{Authority, Effects, EvictionPlace, NotDone};
use super::elect::LeadershipLost;
use super::outcome::Outcome;
use crate::clients::one_line;

/// The role without which nobody may force a drain.
const FORCE_ROLE: &str = "evenkeel-upgrader-force";

/// The answer that stands for a request without one: the pod watch tells whether it was carried out.
pub const UNANSWERED: Answer = Answer::NoAnswer { wait: SignedDuration::from_secs(5) };

/// How an eviction is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Another grace period than the pod's own, in seconds.
    pub grace: Option<i64>,
    /// The server only says what it would do.
    pub dry_run: bool,
}

impl Hands {
    /// Sends the eviction that `permit` allows, in `place`. A permit is used once.
    pub(super) async fn evict(&self, permit: Permit, place: EvictionPlace) -> Outcome {
        let sent = evict(&self.effects, &self.authority, place, &permit, Manner::default()).await;
        let Ok(answer) = sent else { return Outcome::NotLeading };
        Outcome::Eviction { uid: permit.uid().clone(), charge: permit.charge().cloned(), answer }
    }

    /// Sends the deletion that `forced` allows, in `place`.
    pub(super) async fn delete(&self, forced: Forced, place: EvictionPlace) -> Outcome {
        let pod = format!("{}/{}", forced.namespace(), forced.pod());
        let sent = delete(&self.effects, &self.authority, place, &forced, None).await;
        let Ok(answer) = sent else { return Outcome::NotLeading };
        tracing::warn!(
            pod,
            answer = answer.label(),
            "a pod was to be deleted past its budgets: the time of its node's drain is over"
        );
        let answer = match answer {
            Answer::Forbidden { why } if why.contains(NO_RIGHT) => Answer::Forbidden {
                why: format!(
                    "the operator may not delete pods: onTimeout Force needs ClusterRole {FORCE_ROLE} \
                     (kubectl apply -k config/force)"
                ),
            },
            other => other,
        };
        Outcome::Deletion { uid: forced.uid().clone(), answer }
    }
}

/// What the server says of a deletion that we have no right to.
const NO_RIGHT: &str = "cannot delete resource \"pods\"";

/// Sends the eviction that `permit` allows, once, in `place`, and returns what the server's answer means.
///
/// `Api::evict` is not used because it loses the delete options, and with them the UID.
///
/// # Errors
/// [`LeadershipLost`] when we do not lead any more. An error of the server or the connection is an [`Answer`].
pub async fn evict(
    effects: &Effects,
    authority: &Authority,
    place: EvictionPlace,
    permit: &Permit,
    manner: Manner,
) -> Result<Answer, LeadershipLost> {
    let (params, body) = (PostParams::default(), body(permit.pod(), permit.uid(), manner));
    let request = async |client| {
        let pods: Api<Pod> = Api::namespaced(client, permit.namespace());
        pods.create_subresource::<_, Status>("eviction", permit.pod(), &params, &body).await
    };
    match authority.send_eviction(effects, place, request).await {
        Ok(status) => Ok(Answer::Accepted(status.metadata.resource_version.map(String::into_boxed_str))),
        Err(error) => failed(permit.pod(), error),
    }
}

/// Deletes the pod that `forced` names, without asking its budget, once. `grace` is in seconds, `None` for what
/// `forced` asks for; zero becomes one, because a pod that is killed without grace may still run when its successor begins.
///
/// # Errors
/// [`LeadershipLost`] when we do not lead any more. An error of the server or the connection is an [`Answer`].
pub async fn delete(
    effects: &Effects,
    authority: &Authority,
    place: EvictionPlace,
    forced: &Forced,
    grace: Option<i64>,
) -> Result<Answer, LeadershipLost> {
    let params = DeleteParams {
        preconditions: Some(kube::api::Preconditions {
            uid: Some(forced.uid().to_string()),
            resource_version: None,
        }),
        grace_period_seconds: grace
            .or(forced.grace())
            .map(|seconds| u32::try_from(seconds).unwrap_or(1).max(1)),
        ..Default::default()
    };
    let request = async |client| {
        let pods: Api<Pod> = Api::namespaced(client, forced.namespace());
        pods.delete(forced.pod(), &params).await
    };
    match authority.send_eviction(effects, place, request).await {
        Ok(_) => Ok(Answer::Accepted(None)),
        Err(error) => failed(forced.pod(), error),
    }
}

/// What an error means for the pod that was asked to leave.
fn failed(pod: &str, error: NotDone) -> Result<Answer, LeadershipLost> {
    let error = match error {
        NotDone::NotLeading(lost) => return Err(lost),
        NotDone::Failed(error) => error,
    };
    if let kube::Error::Api(status) = &error {
        let details = status.details.as_ref();
        let causes = details.iter().flat_map(|d| &d.causes).map(|cause| cause.reason.as_str());
        return Ok(answer::read(&Raw {
            code: status.code,
            causes: causes.collect(),
            retry_after: details.map_or(0, |d| d.retry_after_seconds),
            message: &one_line(&error),
        }));
    }
    // The server may have carried it out: the pod watch tells.
    tracing::warn!(pod, error = one_line(&error), "eviction unanswered");
    Ok(UNANSWERED)
}

/// The eviction of the pod of that name, if it still has that UID.
fn body(pod: &str, uid: &str, manner: Manner) -> Eviction {
    Eviction {
        metadata: ObjectMeta { name: Some(pod.to_owned()), ..Default::default() },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            grace_period_seconds: manner.grace,
            dry_run: manner.dry_run.then(|| vec!["All".to_owned()]),
            ..Default::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_carries_the_uid_as_a_precondition() {
        let sent = serde_json::to_value(body("web-1", "uid-1", Manner::default())).unwrap();
        assert_eq!(sent["apiVersion"], "policy/v1");
        assert_eq!(sent["metadata"]["name"], "web-1");
        assert_eq!(sent["deleteOptions"]["preconditions"]["uid"], "uid-1");
        assert_eq!(
            sent["deleteOptions"]["gracePeriodSeconds"],
            serde_json::Value::Null,
            "the pod's own grace period"
        );
    }

    #[test]
    fn a_dry_run_says_so_where_both_servers_and_webhooks_read_it() {
        let manner = Manner { grace: Some(5), dry_run: true };
        let sent = serde_json::to_value(body("web-1", "uid-1", manner)).unwrap();
        assert_eq!(sent["deleteOptions"]["dryRun"], serde_json::json!(["All"]));
        assert_eq!(sent["deleteOptions"]["gracePeriodSeconds"], 5);
    }
}
