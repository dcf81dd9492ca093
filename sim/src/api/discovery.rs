//! What the server serves, its version and its health.
//!
//! Here belongs every path that names no resource. The invariant: it reads the same table of kinds as `route`, so what
//! it lists is what is served.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::openapi;
use super::reply::Reply;
use super::request::Request;
use super::state::ApiState;
use super::status::Failure;

/// The media type of aggregated discovery, by which clients tell it from the older form.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The answer to a path that names no resource; `None` if there is nothing at that path.
pub(super) fn answer(state: &ApiState, request: &Request) -> Option<Reply> {
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    let value = match parts.as_slice() {
        ["healthz" | "readyz" | "livez", ..] => return Some(Reply::Plain(200, "ok".into())),
        ["version"] => state.release.said.clone(),
        [] => json!({"paths": roots(state)}),
        ["openapi", "v3"] => openapi::root(state),
        ["openapi", "v3", rest @ ..] => openapi::document(state, &rest.join("/"))?,
        ["openapi", "v2"] if request.takes_json() => openapi::second(state),
        ["openapi", "v2"] => return Some(Failure::unacceptable("application/json").into()),
        ["api" | "apis"] if request.accept.contains("as=APIGroupDiscoveryList") => {
            return Some(Reply::Typed(AGGREGATED, aggregated(state, parts.first() == Some(&"api"))));
        }
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "192.0.2.1:6443"}]}),
        ["apis"] => {
            let groups: Vec<Value> =
                groups(state).into_iter().map(|(group, versions)| described(&group, &versions)).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", group] => {
            let versions = groups(state).remove(*group)?;
            let mut described = described(group, &versions);
            described["kind"] = "APIGroup".into();
            described["apiVersion"] = "v1".into();
            described
        }
        ["api", "v1"] => resources(state, "", "v1")?,
        ["apis", group, version] => resources(state, group, version)?,
        // A real cluster has another server for the groups of custom resources, with this answer to unknown paths.
        ["apis", group, _, _, ..]
            if state.kinds.all().any(|kind| kind.group == *group && kind.custom.is_some()) =>
        {
            return Some(Reply::Plain(404, "404 page not found\n".into()));
        }
        ["apis", group, _, ..] if !groups(state).contains_key(*group) => {
            return Some(Reply::Plain(404, "404 page not found\n".into()));
        }
        ["api" | "apis", _, ..] => return None,
        _ => return Some(Reply::Plain(404, "404 page not found\n".into())),
    };
    if request.method != Method::GET {
        return None;
    }
    Some(Reply::Value(200, value.into(), Vec::new()))
}

fn groups(state: &ApiState) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in state.kinds.all().filter(|kind| !kind.group.is_empty()) {
        let versions = groups.entry(kind.group.clone()).or_default();
        if !versions.contains(&kind.version) {
            versions.push(kind.version.clone());
        }
    }
    groups
}

/// The paths that `/` lists.
fn roots(state: &ApiState) -> Vec<String> {
    let mut roots = vec!["/api".to_owned(), "/api/v1".into(), "/apis".into()];
    for (group, versions) in groups(state) {
        roots.push(format!("/apis/{group}"));
        roots.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    roots.extend(
        ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(str::to_owned),
    );
    roots
}

fn described(group: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

/// The subresources of a kind, with the kind that each takes and what can be done with it.
fn below(
    kind: &Kind,
) -> Vec<(&'static str, Option<(&'static str, &'static str, &'static str)>, Vec<&'static str>)> {
    let mut below = Vec::new();
    if kind.kind == "Pod" {
        below.push(("binding", Some(("", "v1", "Binding")), vec!["create"]));
        below.push(("eviction", Some(("policy", "v1", "Eviction")), vec!["create"]));
    }
    if kind.scale {
        below.push(("scale", Some(("autoscaling", "v1", "Scale")), vec!["get", "patch", "update"]));
    }
    if kind.status {
        below.push(("status", None, vec!["get", "patch", "update"]));
    }
    below
}

fn resources(state: &ApiState, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in state.kinds.all().filter(|kind| kind.group == group && kind.version == version) {
        let mut resource = json!({"name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": VERBS});
        if !kind.short.is_empty() {
            resource["shortNames"] = json!(kind.short);
        }
        if !kind.categories.is_empty() {
            resource["categories"] = json!(kind.categories);
        }
        resources.push(resource);
        for (name, takes, verbs) in below(kind) {
            let mut resource = json!({"name": format!("{}/{name}", kind.plural), "singularName": "",
                "namespaced": kind.namespaced, "kind": kind.kind, "verbs": verbs});
            if let Some((group, version, kind)) = takes {
                resource["kind"] = kind.into();
                if !group.is_empty() {
                    resource["group"] = group.into();
                    resource["version"] = version.into();
                }
            }
            resources.push(resource);
        }
    }
    if resources.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn aggregated(state: &ApiState, core: bool) -> Value {
    let mut items: BTreeMap<String, BTreeMap<String, Vec<Value>>> = BTreeMap::new();
    for kind in state.kinds.all().filter(|kind| kind.group.is_empty() == core) {
        let response = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
        let mut resource = json!({"resource": kind.plural, "responseKind": response(&kind.group, &kind.version, &kind.kind),
            "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "singularResource": kind.singular, "verbs": VERBS});
        if !kind.short.is_empty() {
            resource["shortNames"] = json!(kind.short);
        }
        if !kind.categories.is_empty() {
            resource["categories"] = json!(kind.categories);
        }
        let subresources: Vec<Value> = below(kind)
            .into_iter()
            .map(|(name, takes, verbs)| {
                let takes = takes.map_or_else(
                    || response(&kind.group, &kind.version, &kind.kind),
                    |(group, version, kind)| response(group, version, kind),
                );
                json!({"subresource": name, "responseKind": takes, "verbs": verbs})
            })
            .collect();
        if !subresources.is_empty() {
            resource["subresources"] = subresources.into();
        }
        items.entry(kind.group.clone()).or_default().entry(kind.version.clone()).or_default().push(resource);
    }
    let items: Vec<Value> = items
        .into_iter()
        .map(|(group, versions)| {
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|(version, resources)| json!({"version": version, "resources": resources, "freshness": "Current"}))
                .collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}
