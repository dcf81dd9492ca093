//! Label selectors in a spec: their schema, and the core's value of one.
//!
//! Here belongs nothing of what is selected.

use std::collections::BTreeMap;

use evenkeel_core::cluster::{Expression, Selector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A label selector, as everywhere in Kubernetes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// The labels that must be there, each with the value that is given here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Expressions about labels, which must all be true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<LabelExpression>,
}

/// One expression about a label.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LabelExpression {
    /// The key of the label.
    pub key: String,
    /// How the label is compared: `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: LabelOperator,
    /// The values with which `In` and `NotIn` compare that of the label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// Its value is one of `values`.
    In,
    /// It is absent or its value is none of `values`.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

/// The core's value of `selector`.
pub(super) fn selector(selector: &LabelSelector) -> Selector {
    let expression = |term: &LabelExpression| Expression {
        key: term.key.clone(),
        operator: format!("{:?}", term.operator),
        values: term.values.clone(),
    };
    Selector {
        match_labels: selector.match_labels.clone(),
        match_expressions: selector.match_expressions.iter().map(expression).collect(),
    }
}
