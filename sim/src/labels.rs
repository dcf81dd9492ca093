//! Labels, and what selects by them.
//!
//! How a request writes a selector never belongs here, nor does whose it is. The invariant: a selector that makes no
//! sense selects nothing.

use std::collections::BTreeMap;

use serde_json::Value;

/// Labels of one object.
pub(crate) type Labels = BTreeMap<String, String>;

/// What is asked of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LabelTest {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
    Greater(i64),
    Less(i64),
}

/// Which labels an object must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    tests: Vec<(String, LabelTest)>,
    nothing: bool,
}

impl LabelSelector {
    /// All of these tests, each of the label that it names.
    pub(crate) fn all(tests: Vec<(String, LabelTest)>) -> Self {
        Self { tests, nothing: false }
    }

    /// The selector of an object's `selector` field. Without the field it selects nothing; an empty one selects
    /// everything. `None` if the field makes no sense.
    pub(crate) fn object(selector: Option<&Value>) -> Option<Self> {
        let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
            return Some(Self { tests: Vec::new(), nothing: true });
        };
        let mut tests: Vec<(String, LabelTest)> = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            tests.push((key.clone(), LabelTest::In(vec![value.as_str()?.to_owned()])));
        }
        for test in selector["matchExpressions"].as_array().into_iter().flatten() {
            let values: Vec<String> = test["values"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|value| Some(value.as_str()?.to_owned()))
                .collect();
            let test_of = match (test["operator"].as_str()?, values.is_empty()) {
                ("In", false) => LabelTest::In(values),
                ("NotIn", false) => LabelTest::NotIn(values),
                ("Exists", true) => LabelTest::Exists,
                ("DoesNotExist", true) => LabelTest::Missing,
                _ => return None,
            };
            tests.push((test["key"].as_str()?.to_owned(), test_of));
        }
        Some(Self { tests, nothing: false })
    }

    /// Selects what has every label of a map, as the selector of a Service or a nodeSelector does.
    pub(crate) fn map(labels: &Value) -> Self {
        let tests = labels.as_object().into_iter().flatten();
        let tests = tests
            .filter_map(|(key, value)| Some((key.clone(), LabelTest::In(vec![value.as_str()?.to_owned()]))));
        Self { tests: tests.collect(), nothing: false }
    }

    /// A key and value that every selected object has, if the selector names one.
    pub(crate) fn pair(&self) -> Option<(&str, &str)> {
        self.tests.iter().find_map(|(key, test)| match test {
            LabelTest::In(values) => match values.as_slice() {
                [value] => Some((key.as_str(), value.as_str())),
                _ => None,
            },
            _ => None,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tests.is_empty() && !self.nothing
    }

    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        !self.nothing
            && self.tests.iter().all(|(key, test)| {
                let value = labels.get(key);
                let number = || value.and_then(|value| value.parse::<i64>().ok());
                match test {
                    LabelTest::In(values) => value.is_some_and(|value| values.contains(value)),
                    LabelTest::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                    LabelTest::Exists => value.is_some(),
                    LabelTest::Missing => value.is_none(),
                    LabelTest::Greater(than) => number().is_some_and(|number| number > *than),
                    LabelTest::Less(than) => number().is_some_and(|number| number < *than),
                }
            })
    }

    /// The selector as a scale subresource shows it.
    pub(crate) fn shown(&self) -> String {
        let mut parts: Vec<String> = self
            .tests
            .iter()
            .map(|(key, test)| match test {
                LabelTest::In(values) if values.len() == 1 => format!("{key}={}", values.join(",")),
                LabelTest::In(values) => format!("{key} in ({})", sorted(values)),
                LabelTest::NotIn(values) => format!("{key} notin ({})", sorted(values)),
                LabelTest::Exists => key.clone(),
                LabelTest::Missing => format!("!{key}"),
                LabelTest::Greater(than) => format!("{key}>{than}"),
                LabelTest::Less(than) => format!("{key}<{than}"),
            })
            .collect();
        parts.sort();
        parts.join(",")
    }
}

fn sorted(values: &[String]) -> String {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.join(",")
}
