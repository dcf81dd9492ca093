//! JSON and YAML: a `SkewReport`.
//!
//! The shape is that of a ClusterSkewReport's status, so that what reads the one reads the other. Its schema is kept
//! in `docs/skew-report.schema.json`.

use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::report::Report;
use crate::api::ClusterSkewReportStatus;
use crate::api::report::{Context, LiveFacts, status};
use crate::observe::platform::Platform;

const API_VERSION: &str = "cli.evenkeel.dev/v1alpha1";
const KIND: &str = "SkewReport";
/// The conditions about the judgement; the others are about an object in a cluster.
const CONDITIONS: [&str; 3] = ["SkewSupported", "NextMinorAllowed", "InventoryComplete"];

/// Where a cluster, or the cluster in some files, stands by the Kubernetes version skew policy.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_default)]
pub(super) struct SkewReport {
    /// `cli.evenkeel.dev/v1alpha1`.
    api_version: &'static str,
    /// `SkewReport`.
    kind: &'static str,
    #[serde(flatten)]
    status: ClusterSkewReportStatus,
}

/// The default of the status is what a server stores before an operator has written one.
fn without_default(schema: &mut schemars::Schema) {
    schema.remove("default");
}

pub(super) fn document(report: &Report) -> SkewReport {
    let context = Context {
        missing: &report.missing,
        platform: report.platform.map(Platform::name),
        hidden: &report.hidden,
        budgets: report.budgets.as_deref(),
        before: &[],
        generation: None,
        nodes: report.nodes,
        now: report.seen.unwrap_or_else(Timestamp::now),
        live: LiveFacts::default(),
    };
    let mut status = status(&report.judged, &context);
    if report.seen.is_none() {
        status.last_observed_time = None;
    }
    status.conditions.retain(|condition| CONDITIONS.contains(&condition.type_.as_str()));
    SkewReport { api_version: API_VERSION, kind: KIND, status }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_in_docs_is_that_of_the_code() {
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(SkewReport)).unwrap();
        expect_test::expect_file!["../../../docs/skew-report.schema.json"].assert_eq(&(schema + "\n"));
    }
}
