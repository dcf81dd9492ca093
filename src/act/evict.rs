//! The eviction of one pod of one UID.

use evenkeel_core::disruption::Permit;
use evenkeel_core::disruption::answer::{self, Answer, Raw};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions, Status};
use kube::Api;
use kube::api::PostParams;

use super::{Hands, Outcome, Stop};
use crate::clients::{EFFECT_TIMEOUT, one_line, within};

impl Hands {
    /// Uses `permit` up. `Api::evict` is not used because it loses the delete options, and with them the UID.
    pub(super) async fn evict(&self, permit: Permit) -> Result<Outcome, Stop> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), permit.namespace());
        let (params, body) = (PostParams::default(), body(permit.pod(), permit.uid()));
        self.leading()?;
        let sent = pods.create_subresource::<_, Status>("eviction", permit.pod(), &params, &body);
        let answer = match within(EFFECT_TIMEOUT, sent).await {
            Ok(_) => Answer::Accepted,
            Err(kube::Error::Api(status)) => {
                let details = status.details.as_ref();
                let causes = details.iter().flat_map(|d| &d.causes).map(|cause| cause.reason.as_str());
                answer::read(&Raw {
                    code: status.code,
                    causes: causes.collect(),
                    retry_after: details.map_or(0, |d| d.retry_after_seconds),
                    message: &status.message,
                })
            }
            // It may have been carried out: the watch tells.
            Err(error) => {
                tracing::warn!(pod = permit.pod(), error = one_line(&error), "eviction unanswered");
                Answer::Unclear { wait: SignedDuration::from_secs(5) }
            }
        };
        Ok(Outcome::Eviction { uid: permit.uid().clone(), charge: permit.charge().cloned(), answer })
    }
}

/// The eviction of the pod of that name, if it still has that UID, with the pod's own grace period.
fn body(pod: &str, uid: &str) -> Eviction {
    Eviction {
        metadata: ObjectMeta { name: Some(pod.to_owned()), ..Default::default() },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..Default::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_carries_the_uid_as_a_precondition() {
        let sent = serde_json::to_value(body("web-1", "uid-1")).unwrap();
        assert_eq!(sent["apiVersion"], "policy/v1");
        assert_eq!(sent["metadata"]["name"], "web-1");
        assert_eq!(sent["deleteOptions"]["preconditions"]["uid"], "uid-1");
        assert_eq!(
            sent["deleteOptions"]["gracePeriodSeconds"],
            serde_json::Value::Null,
            "the pod's own grace period"
        );
    }
}
