//! The custom resources, and the way between them and the core's values.
//!
//! Here belong schema, validation by CEL, printer columns and the texts of `kubectl explain`; a field appears in the
//! schema when it works, not before. No rule is decided here. The invariant: what [`upgrade::validate`] accepts is
//! complete, so that no later step can fail because of what a person wrote.

mod bounds;
mod checks;
mod claim;
mod conditions;
mod decode;
mod executor;
pub mod report;
pub mod upgrade;

pub use claim::{
    BadClaim, NodeUpgrade, NodeUpgradeSpec, NodeUpgradeStatus, claim_of, job_name, job_result, spec_of,
    status_of, unreadable_claim,
};
pub use conditions::{ConditionStatus, ConditionType, Kstatus, Wanted, conditions};
pub use decode::{decode, decode_parts};
pub use executor::{Executors, ExternalExecutor, JobExecutor, UpgradeExecutor, UpgradeExecutorSpec};
pub use report::{ClusterSkewReport, ClusterSkewReportSpec, ClusterSkewReportStatus};
pub use upgrade::{ClusterUpgrade, ClusterUpgradeSpec, ClusterUpgradeStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;

/// The API group of everything that Evenkeel defines.
pub const GROUP: &str = "evenkeel.dev";

/// The `CustomResourceDefinitions` as they are installed, each with the name of its file in `crds/`.
pub fn definitions() -> [(&'static str, CustomResourceDefinition); 4] {
    [
        ("evenkeel.dev_clusterskewreports.yaml", with_known_formats(ClusterSkewReport::crd())),
        ("evenkeel.dev_clusterupgrades.yaml", with_known_formats(ClusterUpgrade::crd())),
        ("evenkeel.dev_nodeupgrades.yaml", with_known_formats(NodeUpgrade::crd())),
        ("evenkeel.dev_upgradeexecutors.yaml", with_known_formats(UpgradeExecutor::crd())),
    ]
}

/// Replaces the formats of Rust's integers by `int32` and `int64`: a server warns of every format that it does not
/// know. That an integer is not negative is said by its `minimum`.
fn with_known_formats(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let versions = definition.spec.versions.iter_mut();
    for schema in versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut()) {
        known_formats(schema);
    }
    definition
}

fn known_formats(schema: &mut JSONSchemaProps) {
    let known = match schema.format.as_deref() {
        Some("uint8" | "uint16" | "int8" | "int16") => Some("int32"),
        Some("uint32" | "uint64" | "uint") => Some("int64"),
        _ => None,
    };
    if let Some(known) = known {
        schema.format = Some(known.to_owned());
    }
    schema.properties.iter_mut().flat_map(|fields| fields.values_mut()).for_each(known_formats);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => known_formats(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(known_formats),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        known_formats(values);
    }
    for choice in [&mut schema.all_of, &mut schema.any_of, &mut schema.one_of] {
        choice.iter_mut().flatten().for_each(known_formats);
    }
}
