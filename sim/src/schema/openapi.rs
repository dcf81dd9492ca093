//! Built-in types as `OpenAPI` schemas, made from the same lines as their shapes.
//!
//! Paths never belong here, nor do custom resources, whose definitions bring their schemas along.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::builtin::lines;

/// The metadata of every object, as components call it.
pub(crate) const OBJECT_META: &str = "meta.ObjectMeta";

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// What a type of `kubernetes.txt` is called in `OpenAPI` documents.
pub(crate) fn component(name: &str) -> String {
    let (package, name) = name.split_once('.').unwrap_or(("", name));
    match package {
        "meta" => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}"),
        "apiextensions" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{name}"),
        package => format!("io.k8s.api.{package}.v1.{name}"),
    }
}

/// A reference to a component, inside `allOf` so that other fields may stand beside it.
fn reference(component: &str) -> Value {
    json!({"allOf": [{"$ref": format!("#/components/schemas/{component}")}]})
}

/// The schemas of these types and of all that they use, by the names of their components.
pub(crate) fn definitions<'a>(roots: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut wanted: Vec<String> = roots.into_iter().map(str::to_owned).collect();
    while let Some(name) = wanted.pop() {
        let component = component(&name);
        let Some(fields) = lines().get(name.as_str()).filter(|_| !found.contains_key(&component)) else {
            continue;
        };
        let mut properties = Map::new();
        for field in fields {
            let mut words = field.split(' ');
            let (name, shape) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let mut schema = schema(shape, &mut wanted);
            for word in words {
                extend(&mut schema, word);
            }
            properties.insert(name.to_owned(), schema);
        }
        found.insert(component, json!({"type": "object", "properties": properties}));
    }
    let either = |a: &str, b: &str| json!({"oneOf": [{"type": a}, {"type": b}]});
    found.insert(QUANTITY.into(), either("string", "number"));
    let mut port = either("integer", "string");
    port["format"] = "int-or-string".into();
    found.insert(INT_OR_STRING.into(), port);
    found
}

fn extend(schema: &mut Value, word: &str) {
    match word.split_once('=') {
        None if word == "atomic" => schema["x-kubernetes-map-type"] = "atomic".into(),
        Some(("list", kind)) => {
            let (kind, keys) = kind.split_once(':').unwrap_or((kind, ""));
            schema["x-kubernetes-list-type"] = kind.into();
            if !keys.is_empty() {
                schema["x-kubernetes-list-map-keys"] = keys.split(',').collect();
            }
        }
        Some(("key", key)) => schema["x-kubernetes-patch-merge-key"] = key.into(),
        Some(("patch", how)) => schema["x-kubernetes-patch-strategy"] = how.into(),
        _ => {}
    }
}

fn schema(shape: &str, wanted: &mut Vec<String>) -> Value {
    let inside = |open, close| shape.strip_prefix(open)?.strip_suffix(close);
    if let Some(of) = inside('[', ']') {
        return json!({"type": "array", "items": schema(of, wanted)});
    }
    if let Some(of) = inside('{', '}') {
        return json!({"type": "object", "additionalProperties": schema(of, wanted)});
    }
    match shape {
        "string" => json!({"type": "string"}),
        "bool" => json!({"type": "boolean"}),
        "int32" | "int64" => json!({"type": "integer", "format": shape}),
        "number" => json!({"type": "number", "format": "double"}),
        "time" | "microtime" => json!({"type": "string", "format": "date-time"}),
        "bytes" => json!({"type": "string", "format": "byte"}),
        "quantity" => reference(QUANTITY),
        "intstr" => reference(INT_OR_STRING),
        "any" => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        name => {
            let name = name.trim_end_matches('!');
            wanted.push(name.to_owned());
            reference(&component(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere() {
        let all = definitions(["core.Pod", "apps.Deployment", "policy.PodDisruptionBudget"]);
        let text = json!(all).to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap_or_default();
            assert!(all.contains_key(name), "{name}");
        }
        let containers = &all["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(
            containers["items"]["allOf"][0]["$ref"],
            "#/components/schemas/io.k8s.api.core.v1.Container"
        );
    }
}
