//! `OpenAPI` documents, with as much as clients use: which kinds there are, the schema of each, which parameters a
//! request takes, how a patch merges.
//!
//! What a type looks like never belongs here; `schema` says that. The invariant: a document is made from the schemas by
//! which objects are decoded, so it promises nothing else.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Map, Value, json};

use super::kinds::Kind;
use super::state::ApiState;
use crate::schema::{OBJECT_META, component, definitions};

/// Which documents there are, one for each version of each group.
pub(super) fn root(state: &ApiState) -> Value {
    let mut paths = Map::new();
    for (group, version) in versions(state) {
        let path = place(&group, &version);
        let mut hash = DefaultHasher::new();
        document(state, &path).map(|document| document.to_string()).hash(&mut hash);
        let url = format!("/openapi/v3/{path}?hash={:016X}", hash.finish());
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// The document of `api/v1` or `apis/<group>/<version>`; `None` if nothing is served there.
pub(super) fn document(state: &ApiState, path: &str) -> Option<Value> {
    let kinds: Vec<&Kind> = served(state).filter(|kind| place(&kind.group, &kind.version) == path).collect();
    if kinds.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": info(state),
        "paths": paths(&kinds),
        "components": {"schemas": schemas(&kinds)},
    }))
}

/// Everything in one document of version 2, as JSON.
pub(super) fn second(state: &ApiState) -> Value {
    let kinds: Vec<&Kind> = served(state).collect();
    let definitions = json!(schemas(&kinds)).to_string().replace("#/components/schemas/", "#/definitions/");
    let definitions: Value = serde_json::from_str(&definitions).unwrap_or_default();
    json!({"swagger": "2.0", "info": info(state), "paths": paths(&kinds), "definitions": definitions})
}

fn info(state: &ApiState) -> Value {
    json!({"title": "Kubernetes", "version": state.release.said["gitVersion"]})
}

fn served(state: &ApiState) -> impl Iterator<Item = &Kind> {
    state.kinds.all().map(AsRef::as_ref)
}

fn versions(state: &ApiState) -> std::collections::BTreeSet<(String, String)> {
    served(state).map(|kind| (kind.group.clone(), kind.version.clone())).collect()
}

fn place(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The component of a kind's own schema.
fn name(kind: &Kind) -> String {
    if kind.custom.is_some() {
        let group: Vec<&str> = kind.group.rsplit('.').collect();
        return format!("{}.{}.{}", group.join("."), kind.version, kind.kind);
    }
    component(&kind.type_name())
}

fn schemas(kinds: &[&Kind]) -> BTreeMap<String, Value> {
    let builtin: Vec<String> =
        kinds.iter().filter(|kind| kind.custom.is_none()).map(|kind| kind.type_name()).collect();
    let mut schemas = definitions(builtin.iter().map(String::as_str).chain([OBJECT_META]));
    for kind in kinds {
        if let Some(custom) = &kind.custom {
            let mut schema =
                if custom.schema.is_object() { custom.schema.clone() } else { json!({"type": "object"}) };
            for field in ["apiVersion", "kind"] {
                schema["properties"][field] = json!({"type": "string"});
            }
            let metadata = format!("#/components/schemas/{}", component(OBJECT_META));
            schema["properties"]["metadata"] = json!({"allOf": [{"$ref": metadata}]});
            schemas.insert(name(kind), schema);
        }
        if let Some(schema) = schemas.get_mut(&name(kind)) {
            schema["x-kubernetes-group-version-kind"] = json!([identity(kind)]);
        }
    }
    schemas
}

fn identity(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn paths(kinds: &[&Kind]) -> Map<String, Value> {
    let mut paths = Map::new();
    for kind in kinds {
        let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let all = format!("/{}{scope}/{}", place(&kind.group, &kind.version), kind.plural);
        let one = format!("{all}/{{name}}");
        paths.insert(
            all,
            json!({"get": operation(kind, "list", &[]), "post": operation(kind, "post", WRITES)}),
        );
        let mut item = json!({
            "get": operation(kind, "get", &[]),
            "put": operation(kind, "put", WRITES),
            "patch": operation(kind, "patch", WRITES),
            "delete": operation(kind, "delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
        });
        let mut forms = vec![
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
        ];
        if kind.custom.is_none() {
            forms.push("application/strategic-merge-patch+json");
        }
        let content: Map<String, Value> =
            forms.into_iter().map(|form| (form.to_owned(), json!({"schema": {"type": "object"}}))).collect();
        item["patch"]["requestBody"] = json!({"content": content, "required": true});
        paths.insert(one, item);
    }
    paths
}

const WRITES: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];

fn operation(kind: &Kind, action: &str, parameters: &[&str]) -> Value {
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    let reference = format!("#/components/schemas/{}", name(kind));
    json!({
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": reference}}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": identity(kind),
    })
}
