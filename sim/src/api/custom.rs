//! CustomResourceDefinitions: what they make the server serve.
//!
//! Here belongs how a definition becomes kinds; what a schema demands of an object is in `schema::custom`. The
//! invariant: a kind is served as long as its definition is there.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::{Kind, Kinds};
use crate::schema::Custom;

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
}

/// Serves the served versions of a CustomResourceDefinition, and stops serving its others.
pub(crate) fn serve(kinds: &mut Kinds, definition: &Value) {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource: Arc<str> = text(&definition["metadata"]["name"]).into();
    kinds.remove(&resource);
    for version in spec["versions"].as_array().into_iter().flatten() {
        let storage = version["storage"] == true;
        if version["served"] != true && !storage {
            continue;
        }
        let schema = version["schema"]["openAPIV3Schema"].clone();
        let has = |name: &str| version["subresources"].get(name).is_some_and(|found| !found.is_null());
        let mut selectable = vec!["metadata.name".to_owned(), "metadata.namespace".to_owned()];
        for field in version["selectableFields"].as_array().into_iter().flatten() {
            selectable.push(text(&field["jsonPath"]).trim_start_matches('.').to_owned());
        }
        kinds.insert(Kind {
            group: text(&spec["group"]),
            version: text(&version["name"]),
            kind: text(&names["kind"]),
            plural: text(&names["plural"]),
            singular: text(&names["singular"]),
            short: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            namespaced: spec["scope"] == "Namespaced",
            shape: Custom::shape(&schema),
            resource: resource.clone(),
            status: has("status"),
            scale: has("scale"),
            generation: true,
            conditional: true,
            shows_deleted: false,
            selectable,
            custom: Some(Arc::new(Custom {
                rules: std::sync::OnceLock::new(),
                schema,
                storage,
                columns: version["additionalPrinterColumns"].clone(),
                scale: version["subresources"]["scale"].clone(),
            })),
        });
    }
}

/// The status that a definition without problems gets.
pub(crate) fn established(definition: &mut Value, now: &str) {
    let stored = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<Value> =
        stored.filter(|version| version["storage"] == true).map(|version| version["name"].clone()).collect();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message});
    definition["status"] = json!({
        "acceptedNames": definition["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored,
        "observedGeneration": definition["metadata"]["generation"],
    });
}
