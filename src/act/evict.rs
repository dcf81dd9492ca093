//! The eviction of one pod of one UID.

use evenkeel_core::disruption::Permit;
use evenkeel_core::disruption::answer::{self, Answer, Raw};
use evenkeel_core::drain::Forced;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions, Status};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};

use super::{Hands, Outcome, Stop};
use crate::clients::{EFFECT_TIMEOUT, one_line, within};

/// How an eviction is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Another grace period than the pod's own, in seconds.
    pub grace: Option<i64>,
    /// The server only says what it would do.
    pub dry_run: bool,
}

impl Hands {
    /// Uses `permit` up.
    pub(super) async fn evict(&self, permit: Permit) -> Result<Outcome, Stop> {
        self.leading()?;
        let answer = evict(&self.client, &permit, Manner::default()).await;
        Ok(Outcome::Eviction { uid: permit.uid().clone(), charge: permit.charge().cloned(), answer })
    }
}

/// Sends the eviction of `permit` with `client` (an effects client), once.
///
/// `Api::evict` is not used because it loses the delete options, and with them the UID.
pub async fn evict(client: &Client, permit: &Permit, manner: Manner) -> Answer {
    let pods: Api<Pod> = Api::namespaced(client.clone(), permit.namespace());
    let (params, body) = (PostParams::default(), body(permit.pod(), permit.uid(), manner));
    let sent = pods.create_subresource::<_, Status>("eviction", permit.pod(), &params, &body);
    match within(EFFECT_TIMEOUT, sent).await {
        Ok(status) => Answer::Accepted(status.metadata.resource_version.map(String::into_boxed_str)),
        Err(error) => failed(permit.pod(), &error),
    }
}

/// Deletes the pod that `forced` is about past its budget, once, with at least a second of grace: a pod that is killed
/// at once may still run when its successor begins.
pub async fn delete(client: &Client, forced: &Forced, grace: Option<i64>) -> Answer {
    let pods: Api<Pod> = Api::namespaced(client.clone(), forced.namespace());
    let params = DeleteParams {
        preconditions: Some(kube::api::Preconditions {
            uid: Some(forced.uid().to_string()),
            resource_version: None,
        }),
        grace_period_seconds: grace.map(|seconds| u32::try_from(seconds).unwrap_or(1).max(1)),
        ..Default::default()
    };
    match within(EFFECT_TIMEOUT, pods.delete(forced.pod(), &params)).await {
        Ok(_) => Answer::Accepted(None),
        Err(error) => failed(forced.pod(), &error),
    }
}

/// What an error means for the pod that was asked to leave.
fn failed(pod: &str, error: &kube::Error) -> Answer {
    if let kube::Error::Api(status) = error {
        let details = status.details.as_ref();
        let causes = details.iter().flat_map(|d| &d.causes).map(|cause| cause.reason.as_str());
        return answer::read(&Raw {
            code: status.code,
            causes: causes.collect(),
            retry_after: details.map_or(0, |d| d.retry_after_seconds),
            message: &one_line(error),
        });
    }
    // It may have been carried out: the watch tells.
    tracing::warn!(pod, error = one_line(error), "eviction unanswered");
    Answer::NoAnswer { wait: SignedDuration::from_secs(5) }
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
