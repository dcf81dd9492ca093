//! Custom resources of ours, from the undecoded form in which they are watched.
//!
//! Nothing else belongs here. The invariants: what cannot be read is an error that names the object, never a default; and of
//! what somebody is to act on, a field that only a newer version knows is such an error too.

use kube::core::DynamicObject;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

/// Decodes a custom resource of ours from the undecoded form in which it is watched.
///
/// # Errors
/// One line that names the object and what cannot be read.
pub fn decode<K: Resource<DynamicType = ()> + DeserializeOwned>(object: &DynamicObject) -> Result<K, String> {
    decode_parts(object, &[])
}

/// The same where each field of `parts`, such as `spec`, has to be known: one that is not may be what a newer version waits
/// for, or forbids.
///
/// # Errors
/// One line that names the object and what cannot be read, or is not known.
pub fn decode_parts<K: Resource<DynamicType = ()> + DeserializeOwned>(
    object: &DynamicObject,
    parts: &[&str],
) -> Result<K, String> {
    let bad = |why: String| format!("{} {}: {why}", K::kind(&()), object.name_any());
    // Through JSON text: for a large object that is faster than through a tree of values.
    let text = serde_json::to_string(object).map_err(|error| bad(error.to_string()))?;
    let mut unknown = None;
    let is_of_parts = |path: &str| path.split_once('.').is_some_and(|(part, _)| parts.contains(&part));
    let decoded = serde_ignored::deserialize(&mut serde_json::Deserializer::from_str(&text), |path| {
        // An optional part is a step of its own.
        let path = path.to_string().replace(".?", "");
        if unknown.is_none() && is_of_parts(&path) {
            unknown = Some(path);
        }
    });
    match (decoded, unknown) {
        (Err(error), _) => Err(bad(error.to_string())),
        (Ok(_), Some(path)) => Err(bad(format!(
            "{path} is not known to this version, {}; a newer one has to read it",
            env!("CARGO_PKG_VERSION")
        ))),
        (Ok(decoded), None) => Ok(decoded),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::NodeUpgrade;

    #[test]
    fn a_field_that_only_a_newer_version_knows_is_named() {
        let claim = |more: &str| {
            let mut object = json!({
                "apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeUpgrade", "metadata": {"name": "a"},
                "spec": {"upgradeName": "up", "component": "kubelet", "nodeName": "n", "fromVersion": "v1.36.4",
                         "toVersion": "v1.37.1", "executor": "x"},
                "status": {"state": "Upgrading"},
            });
            if !more.is_empty() {
                object[more]["delaySeconds"] = json!(5);
            }
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            decode_parts::<NodeUpgrade>(&object, &["spec", "status"]).map(|_| ())
        };
        assert_eq!(claim(""), Ok(()));
        for part in ["spec", "status"] {
            let line = format!("NodeUpgrade a: {part}.delaySeconds is not known to this version");
            assert!(claim(part).unwrap_err().starts_with(&line), "{:?}", claim(part));
        }
        assert_eq!(claim("metadata"), Ok(()), "nobody acts on those");
    }
}
