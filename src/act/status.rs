//! Statuses of reports and upgrades: each belongs to us as a whole, and is replaced as a whole.
//!
//! A replacement costs the server a quarter less than an apply, which the server reads as YAML, twice. It also removes
//! whatever somebody else wrote into the status. The invariant: an object that has changed since it was read is not
//! written.

use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject, ObjectMeta, TypeMeta};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde_json::{Value, json};

use super::authority::{Authority, Effects, NotDone};
use crate::api::{ClusterSkewReport, ClusterSkewReportSpec, report};

/// Why a status was not written.
#[derive(Debug, thiserror::Error)]
pub enum NotWritten {
    /// The object has changed or is gone; it is read again.
    #[error("{0}")]
    Lost(String),
    /// The server refused or did not answer: the message, in one line.
    #[error("{0}")]
    Failed(String),
    /// We do not lead any more; nothing was sent, or it was given up on its way.
    #[error("not leading")]
    NotLeading,
}

/// Replaces the status of the `K` that has the metadata `of` by `status`, and returns the object as the server has it now.
/// The precondition is the UID and resourceVersion of `of`.
///
/// # Errors
/// [`NotWritten`].
pub async fn write<K>(
    effects: &Effects,
    authority: &Authority,
    manager: &str,
    of: &ObjectMeta,
    status: &(impl Serialize + Sync),
) -> Result<DynamicObject, NotWritten>
where
    K: Resource<DynamicType = ()>,
{
    let name = of.name.clone().unwrap_or_default();
    let what = format!("status of {} {name}", K::kind(&()));
    let status =
        serde_json::to_value(status).map_err(|error| NotWritten::Failed(format!("{what}: {error}")))?;
    let body = DynamicObject {
        types: Some(TypeMeta { api_version: K::api_version(&()).into(), kind: K::kind(&()).into() }),
        metadata: ObjectMeta {
            name: Some(name.clone()),
            uid: of.uid.clone(),
            resource_version: of.resource_version.clone(),
            ..ObjectMeta::default()
        },
        data: json!({ "status": status }),
    };
    let resource = ApiResource::erase::<K>(&());
    let objects = |client| -> Api<DynamicObject> { Api::all_with(client, &resource) };
    let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    let replace = async |client| objects(client).replace_status(&name, &params, &body).await;
    let sent = authority.send(effects, replace).await;
    sent.map_err(|error| not_written(&what, &error))
}

/// What a person has to do where the status of `written` lacks a field of `wanted`, in one line that names the first: a
/// server drops every field that its `CustomResourceDefinition`, here `definition`, does not have. `None` when nothing is
/// missing.
pub fn dropped(written: &DynamicObject, wanted: &Value, definition: &str) -> Option<String> {
    let field = lacks(&written.data["status"], wanted, "status")?;
    Some(format!("the server drops {field}: {}", of_another_version(definition)))
}

/// The same of a write that was to be refused rather than lose a field (`fieldValidation=Strict`): `None` where the
/// server says anything else.
pub(super) fn unknown_field(error: &NotDone, definition: &str) -> Option<String> {
    let NotDone::Failed(kube::Error::Api(status)) = error else { return None };
    // Before that, the message has the whole object, longer than a line may be.
    let (_, unknown) = status.message.rsplit_once("strict decoding error: unknown field \"")?;
    let field = unknown.split('"').next()?;
    Some(format!("the server does not know {field}: {}", of_another_version(definition)))
}

fn of_another_version(definition: &str) -> String {
    format!(
        "its CustomResourceDefinition {definition} is of another version; install this one's with kubectl apply -k \
         config/crd"
    )
}

fn lacks(is: &Value, wanted: &Value, path: &str) -> Option<String> {
    match (is, wanted) {
        (Value::Object(is), Value::Object(wanted)) => wanted.iter().find_map(|(key, wanted)| {
            let path = format!("{path}.{key}");
            match is.get(key) {
                None => (!wanted.is_null()).then_some(path),
                Some(is) => lacks(is, wanted, &path),
            }
        }),
        (Value::Array(is), Value::Array(wanted)) => {
            is.iter().zip(wanted).find_map(|(is, wanted)| lacks(is, wanted, &format!("{path}[]")))
        }
        _ => None,
    }
}

/// Creates the `ClusterSkewReport` with the default spec and no status.
///
/// # Errors
/// [`NotWritten`]; [`NotWritten::Lost`] when it exists already.
pub async fn create_report(effects: &Effects, authority: &Authority) -> Result<DynamicObject, NotWritten> {
    let report = ClusterSkewReport::new(report::NAME, ClusterSkewReportSpec::default());
    let body = serde_json::to_value(&report).and_then(serde_json::from_value::<DynamicObject>);
    let body = body.map_err(|error| NotWritten::Failed(error.to_string()))?;
    let request = async |client| reports(client).create(&PostParams::default(), &body).await;
    let sent = authority.send(effects, request).await;
    sent.map_err(|error| not_written("create ClusterSkewReport cluster", &error))
}

fn reports(client: Client) -> Api<DynamicObject> {
    Api::all_with(client, &ApiResource::erase::<ClusterSkewReport>(&()))
}

fn not_written(what: &str, error: &NotDone) -> NotWritten {
    let line = format!("{what}: {}", error.line());
    match (error, error.code()) {
        (NotDone::NotLeading(_), _) => NotWritten::NotLeading,
        (_, Some(404 | 409)) => NotWritten::Lost(line),
        _ => NotWritten::Failed(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_dropped_is_named() {
        for (is, wanted, path) in [
            (json!({"a": 1}), json!({"a": 1, "b": null}), None),
            (json!({"a": 1}), json!({"a": 1, "b": 2}), Some("status.b")),
            (json!({"l": [{"x": 1}]}), json!({"l": [{"x": 1, "y": 2}]}), Some("status.l[].y")),
        ] {
            assert_eq!(lacks(&is, &wanted, "status").as_deref(), path, "{is} to {wanted}");
        }
    }
}
