//! Statuses of reports and upgrades, by server-side apply of fields that nobody else owns.

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde_json::json;

use crate::act::elect::Leadership;
use crate::api::{ClusterSkewReport, ClusterSkewReportSpec, report};
use crate::clients::{EFFECT_TIMEOUT, one_line, within};

/// Why a status was not written.
#[derive(Debug, thiserror::Error)]
pub enum NotWritten {
    /// The object has changed or is gone; it is read again.
    #[error("{0}")]
    Lost(String),
    /// The request failed.
    #[error("{0}")]
    Failed(String),
    /// We do not lead any more; nothing was sent.
    #[error("not leading")]
    NotLeading,
}

/// Writes `status` of `object`, whose uid and resourceVersion are the precondition; returns the object as it is now.
///
/// # Errors
/// [`NotWritten`].
pub async fn write<K>(
    client: &Client,
    leadership: &Leadership,
    manager: &str,
    object: &K,
    status: &impl Serialize,
) -> Result<DynamicObject, NotWritten>
where
    K: Resource<DynamicType = ()>,
{
    let name = object.name_any();
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": { "name": name, "uid": object.uid(), "resourceVersion": object.resource_version() },
        "status": status,
    });
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    leadership.proof().ok_or(NotWritten::NotLeading)?;
    let params = PatchParams::apply(manager).force();
    let sent = within(EFFECT_TIMEOUT, objects.patch_status(&name, &params, &Patch::Apply(&body))).await;
    sent.map_err(|error| not_written(&format!("status of {} {name}", K::kind(&())), &error))
}

/// Makes the report when there is none.
///
/// # Errors
/// [`NotWritten`].
pub async fn create_report(client: &Client, leadership: &Leadership) -> Result<DynamicObject, NotWritten> {
    let report = ClusterSkewReport::new(report::NAME, ClusterSkewReportSpec::default());
    let body = serde_json::to_value(&report).and_then(serde_json::from_value::<DynamicObject>);
    let body = body.map_err(|error| NotWritten::Failed(error.to_string()))?;
    let reports: Api<DynamicObject> =
        Api::all_with(client.clone(), &ApiResource::erase::<ClusterSkewReport>(&()));
    leadership.proof().ok_or(NotWritten::NotLeading)?;
    let sent = within(EFFECT_TIMEOUT, reports.create(&PostParams::default(), &body)).await;
    sent.map_err(|error| not_written("create ClusterSkewReport cluster", &error))
}

fn not_written(what: &str, error: &kube::Error) -> NotWritten {
    let line = format!("{what}: {}", one_line(error));
    match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => NotWritten::Lost(line),
        _ => NotWritten::Failed(line),
    }
}
