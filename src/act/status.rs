//! Statuses of reports and upgrades, by server-side apply of fields that nobody else owns.

use std::borrow::Cow;

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};

use super::authority::{Authority, Effects, NotDone};
use crate::api::{ClusterSkewReport, ClusterSkewReportSpec, report};

/// An apply is refused as a whole where the definition lacks one of its fields; a patch loses only that field.
const UNDECLARED: &str = "field not declared in schema";

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

/// An object as it is applied. The status goes to its text at once, for it may be large.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Applied<'a, S> {
    api_version: Cow<'a, str>,
    kind: Cow<'a, str>,
    metadata: Value,
    status: &'a S,
}

/// Writes `status` of `object`, whose uid and resourceVersion are the precondition; returns the object as it is now.
///
/// # Errors
/// [`NotWritten`].
pub async fn write<K>(
    effects: &Effects,
    authority: &Authority,
    manager: &str,
    object: &K,
    status: &(impl Serialize + std::fmt::Debug),
) -> Result<DynamicObject, NotWritten>
where
    K: Resource<DynamicType = ()>,
{
    let name = object.name_any();
    let body = Applied {
        api_version: K::api_version(&()),
        kind: K::kind(&()),
        metadata: json!({ "name": name, "uid": object.uid(), "resourceVersion": object.resource_version() }),
        status,
    };
    let resource = ApiResource::erase::<K>(&());
    let objects = |client| -> Api<DynamicObject> { Api::all_with(client, &resource) };
    let (params, patch) = (PatchParams::apply(manager).force(), Patch::Apply(&body));
    let apply = async |client| objects(client).patch_status(&name, &params, &patch).await;
    let mut sent = authority.send(effects, apply).await;
    if matches!(&sent, Err(NotDone::Failed(kube::Error::Api(status))) if status.message.contains(UNDECLARED))
    {
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(&body);
        let merge = async |client| objects(client).patch_status(&name, &params, &patch).await;
        sent = authority.send(effects, merge).await;
    }
    sent.map_err(|error| not_written(&format!("status of {} {name}", K::kind(&())), &error))
}

/// Takes out of `written`'s status what is not in `wanted`, by name: an apply leaves fields of others alone. Returns the
/// object as it is now, or `None` when there was nothing to take out.
///
/// # Errors
/// [`NotWritten`].
pub async fn repair(
    effects: &Effects,
    authority: &Authority,
    manager: &str,
    written: &DynamicObject,
    wanted: &Value,
) -> Result<Option<DynamicObject>, NotWritten> {
    let Some(patch) = excess(&written.data["status"], wanted) else { return Ok(None) };
    let name = written.name_any();
    let body = json!({ "metadata": { "resourceVersion": written.resource_version() }, "status": patch });
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(&body);
    let request = async |client| reports(client).patch_status(&name, &params, &patch).await;
    let sent = authority.send(effects, request).await;
    sent.map(Some).map_err(|error| not_written(&format!("status of ClusterSkewReport {name}"), &error))
}

/// The first field of `wanted` that `written`'s status lacks: a server drops what its definition does not know.
pub fn dropped(written: &DynamicObject, wanted: &Value) -> Option<String> {
    lacks(&written.data["status"], wanted, "status")
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

/// The merge patch that takes out of `is` what is too much or different in `wanted`; `None` where nothing is.
fn excess(is: &Value, wanted: &Value) -> Option<Value> {
    let (Value::Object(is), Value::Object(wanted)) = (is, wanted) else {
        let longer =
            matches!((is, wanted), (Value::Array(is), Value::Array(wanted)) if is.len() > wanted.len());
        return longer.then(|| wanted.clone());
    };
    let changes = is.iter().filter_map(|(key, is)| {
        let change = match wanted.get(key).filter(|value| !value.is_null()) {
            None => Value::Null,
            Some(wanted) => excess(is, wanted)?,
        };
        Some((key.clone(), change))
    });
    let changes: serde_json::Map<_, _> = changes.collect();
    (!changes.is_empty()).then_some(Value::Object(changes))
}

/// Makes the report when there is none.
///
/// # Errors
/// [`NotWritten`].
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
    fn what_others_put_into_a_status_is_taken_out() {
        for (is, wanted, patch) in [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1}), json!({"a": 1, "b": null}), None),
            (json!({"a": 1, "b": 2}), json!({"a": 1, "b": null}), Some(json!({"b": null}))),
            (json!({"o": {"x": 1, "y": 2}}), json!({"o": {"x": 1}}), Some(json!({"o": {"y": null}}))),
            (json!({"l": [1, 2]}), json!({"l": [1]}), Some(json!({"l": [1]}))),
            // What the server dropped is not put back: it would be dropped again.
            (json!({}), json!({"l": [1]}), None),
        ] {
            assert_eq!(excess(&is, &wanted), patch, "{is} to {wanted}");
        }
    }

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
