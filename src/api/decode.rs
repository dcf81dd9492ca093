//! Custom resources of ours, from the undecoded form in which they are watched.
//!
//! Nothing else belongs here. The invariant: what cannot be read is an error that names the object, never a default.

use kube::core::DynamicObject;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

/// Decodes a custom resource of ours from the undecoded form in which it is watched.
///
/// # Errors
/// One line that names the object and what cannot be read.
pub fn decode<K: Resource<DynamicType = ()> + DeserializeOwned>(object: &DynamicObject) -> Result<K, String> {
    // Through JSON text: for a large object that is faster than through a tree of values.
    let decoded = serde_json::to_string(object).and_then(|text| serde_json::from_str(&text));
    decoded.map_err(|error| format!("{} {}: {error}", K::kind(&()), object.name_any()))
}
