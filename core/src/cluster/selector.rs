//! Label selectors, and whether they match.
//!
//! Here belongs what the API server would select; how people write selectors is in `select.rs`. The invariant: what is
//! invalid matches nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A label selector. An empty one matches everything; a null one matches nothing and is no value of this type.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    /// Labels that must be equal.
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must hold.
    pub match_expressions: Vec<Expression>,
}

/// One `matchExpressions` term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Expression {
    /// The label's key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`; any other makes the selector invalid, so that it matches nothing.
    pub operator: String,
    /// The values of `In` and `NotIn`, which need some; with values, another operator makes the selector invalid.
    #[serde(default)]
    pub values: Vec<String>,
}

impl Selector {
    /// Whether `labels` are selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|term| term.holds(labels.get(&term.key).map(String::as_str)))
    }
}

impl Expression {
    /// Whether this expression holds for an object whose label `key` has `value`; `None`: it has no such label.
    pub fn holds(&self, value: Option<&str>) -> bool {
        let named = |value: &str| self.values.iter().any(|named| named == value);
        match (self.operator.as_str(), self.values.is_empty()) {
            ("In", false) => value.is_some_and(named),
            ("NotIn", false) => !value.is_some_and(named),
            ("Exists", true) => value.is_some(),
            ("DoesNotExist", true) => value.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn term(key: &str, operator: &str, values: &[&str]) -> Expression {
        Expression {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        }
    }

    #[test]
    fn selectors_match_as_the_api_server_does() {
        let have = labels(&[("app", "cart"), ("tier", "web")]);
        let expressions = |terms: &[Expression]| Selector {
            match_labels: BTreeMap::new(),
            match_expressions: terms.to_vec(),
        };
        assert!(Selector::default().matches(&have), "an empty selector matches every pod of the namespace");
        assert!(Selector { match_labels: labels(&[("app", "cart")]), ..Default::default() }.matches(&have));
        assert!(!Selector { match_labels: labels(&[("app", "db")]), ..Default::default() }.matches(&have));
        assert!(expressions(&[term("app", "In", &["cart", "db"])]).matches(&have));
        assert!(expressions(&[term("zone", "NotIn", &["a"])]).matches(&have), "an absent label is not in");
        assert!(
            expressions(&[term("tier", "Exists", &[]), term("zone", "DoesNotExist", &[])]).matches(&have)
        );
        // The API server refuses them (`NewRequirement` in `apimachinery/pkg/labels/selector.go`).
        for invalid in [
            term("tier", "Gt", &["1"]),
            term("app", "In", &[]),
            term("app", "NotIn", &[]),
            term("zone", "NotIn", &[]),
            term("tier", "Exists", &["web"]),
            term("zone", "DoesNotExist", &["a"]),
        ] {
            assert!(!expressions(std::slice::from_ref(&invalid)).matches(&have), "{invalid:?}");
        }
    }
}
