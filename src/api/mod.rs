//! The custom resources, and the way between them and the core's values.
//!
//! Here belong schema, validation by CEL, printer columns and the texts of `kubectl explain`; a field appears when it
//! works. No rule is decided here. The invariant: what [`upgrade::validate`] lets through is complete, so that
//! nothing behind it can fail because of what a person wrote.

mod claim;
mod conditions;
pub mod report;
pub mod upgrade;

pub use claim::{BadClaim, NodeUpgrade, NodeUpgradeSpec, NodeUpgradeStatus, claim_of, spec_of, status_of};
pub use conditions::conditions;
pub use report::{ClusterSkewReport, ClusterSkewReportSpec, ClusterSkewReportStatus};
pub use upgrade::{ClusterUpgrade, ClusterUpgradeSpec, ClusterUpgradeStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

/// The API group of everything that Evenkeel defines.
pub const GROUP: &str = "evenkeel.dev";

/// An object of ours as it was watched, decoded.
///
/// # Errors
/// One line that names the object and what cannot be read.
pub fn decode<K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned>(
    object: &kube::core::DynamicObject,
) -> Result<K, String> {
    use kube::ResourceExt as _;
    // By its text: a tree of values of a large object takes longer to make than to read.
    let decoded = serde_json::to_string(object).and_then(|text| serde_json::from_str(&text));
    decoded.map_err(|error| format!("{} {}: {error}", K::kind(&()), object.name_any()))
}

/// The definitions as they are installed, with the name of the file each is kept in.
pub fn definitions() -> [(&'static str, CustomResourceDefinition); 3] {
    [
        ("evenkeel.dev_clusterskewreports.yaml", ClusterSkewReport::crd()),
        ("evenkeel.dev_clusterupgrades.yaml", ClusterUpgrade::crd()),
        ("evenkeel.dev_nodeupgrades.yaml", NodeUpgrade::crd()),
    ]
}
