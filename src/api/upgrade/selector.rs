//! Label selectors in a spec: their schema, and the core's value of one.
//!
//! Here belongs nothing of what is selected.

use std::collections::BTreeMap;

use evenkeel_core::cluster::{Expression, Selector};
use evenkeel_core::version::escape;
use kube::KubeSchema;
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
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)").message("`In` and `NotIn` need `values`, and `Exists` and `DoesNotExist` take none; name values, or take them out"))]
pub struct LabelExpression {
    /// The key of the label.
    pub key: String,
    /// How the label is compared: `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: LabelOperator,
    /// The values with which `In` and `NotIn` compare that of the label. They need at least one; `Exists` and `DoesNotExist` take
    /// none.
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

/// What is wrong with an expression, of which the key is named.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExpression {
    /// It compares with values, and has none.
    #[error("matchExpressions of {0}: {1:?} needs values; name at least one")]
    NoValues(String, LabelOperator),
    /// It has values, and compares with none.
    #[error("matchExpressions of {0}: {1:?} takes no values; take them out, or write In or NotIn")]
    Values(String, LabelOperator),
}

impl LabelExpression {
    /// What is wrong with it, as a kube-apiserver judges it.
    pub(super) fn wrong(&self) -> Option<InvalidExpression> {
        let compares = matches!(self.operator, LabelOperator::In | LabelOperator::NotIn);
        let wrong = match (compares, self.values.is_empty()) {
            (true, true) => InvalidExpression::NoValues,
            (false, false) => InvalidExpression::Values,
            _ => return None,
        };
        Some(wrong(escape(&self.key), self.operator))
    }
}

/// The core's value of `selector`.
///
/// # Errors
/// [`InvalidExpression`], which the server lets nobody write.
pub(super) fn selector(selector: &LabelSelector) -> Result<Selector, InvalidExpression> {
    if let Some(wrong) = selector.match_expressions.iter().find_map(LabelExpression::wrong) {
        return Err(wrong);
    }
    let expression = |term: &LabelExpression| Expression {
        key: term.key.clone(),
        operator: format!("{:?}", term.operator),
        values: term.values.clone(),
    };
    Ok(Selector {
        match_labels: selector.match_labels.clone(),
        match_expressions: selector.match_expressions.iter().map(expression).collect(),
    })
}
