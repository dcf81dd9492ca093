//! Label and field selectors, as a request writes them.
//!
//! Here belongs how the text is read and, for fields, compared; labels are compared in `crate::labels`.

use std::sync::Arc;

use serde_json::Value;

use super::status::{Failure, Outcome};
use crate::labels::{LabelSelector, LabelTest};
use crate::record::Record;

impl LabelSelector {
    /// As in `?labelSelector=`: `a=b,c!=d,e in (f,g),!h`.
    pub(crate) fn query(text: &str) -> Outcome<Self> {
        let bad = |why: &str| Failure::bad_request(format!("unable to parse requirement: {why}"));
        let mut tests = Vec::new();
        for part in split(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            let (key, test) = if let Some(key) = part.strip_prefix('!') {
                (key, LabelTest::Missing)
            } else if let Some((key, value)) = part.split_once("!=") {
                (key, LabelTest::NotIn(vec![value.trim().into()]))
            } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (key, LabelTest::In(vec![value.trim().into()]))
            } else if let Some((key, rest)) =
                part.split_once(" notin ").or_else(|| part.split_once(" notin("))
            {
                (key, LabelTest::NotIn(list(rest).ok_or_else(|| bad("found '', expected: ')'"))?))
            } else if let Some((key, rest)) = part.split_once(" in ").or_else(|| part.split_once(" in(")) {
                (key, LabelTest::In(list(rest).ok_or_else(|| bad("found '', expected: ')'"))?))
            } else if let Some((key, value)) = part.split_once('>') {
                (
                    key,
                    LabelTest::Greater(
                        value
                            .trim()
                            .parse()
                            .map_err(|_| bad("for 'Gt', 'Lt' operators, the value must be an integer"))?,
                    ),
                )
            } else if let Some((key, value)) = part.split_once('<') {
                (
                    key,
                    LabelTest::Less(
                        value
                            .trim()
                            .parse()
                            .map_err(|_| bad("for 'Gt', 'Lt' operators, the value must be an integer"))?,
                    ),
                )
            } else {
                (part, LabelTest::Exists)
            };
            let key = key.trim();
            if let (LabelTest::Exists, Some((_, second))) = (&test, key.split_once(' ')) {
                let second = second.trim();
                return Err(bad(&format!("found '{second}', expected: in, notin, =, ==, !=, gt, lt")));
            }
            if key.is_empty() || key.contains(|c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c))) {
                return Err(bad(&format!("<nil>: Invalid value: {key:?}")));
            }
            tests.push((key.to_owned(), test));
        }
        Ok(Self::all(tests))
    }
}

/// At commas that are not in parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn list(text: &str) -> Option<Vec<String>> {
    let inside = text.trim().trim_start_matches('(').strip_suffix(')')?;
    Some(inside.split(',').map(|value| value.trim().to_owned()).collect())
}

/// Which fields an object must have.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldSelector(Vec<(String, String, bool)>);

impl FieldSelector {
    /// The node that a pod must be on.
    pub(crate) fn node(&self) -> Option<&str> {
        let on = |(field, _, equal): &&(String, String, bool)| field == "spec.nodeName" && *equal;
        self.0.iter().find(on).map(|(_, node, _)| node.as_str()).filter(|node| !node.is_empty())
    }

    /// As in `?fieldSelector=`. `known` are the fields that the kind can be selected by.
    pub(crate) fn query(text: &str, known: &[&str]) -> Outcome<Self> {
        let mut tests = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (field, value, equal) = if let Some((field, value)) = part.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (field, value, true)
            } else {
                return Err(Failure::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            if !known.contains(&field) {
                return Err(Failure::bad_request(if known.len() > 2 || known.len() == 1 {
                    format!("field label not supported: {field}")
                } else {
                    format!(
                        "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    )
                }));
            }
            tests.push((field.to_owned(), value.to_owned(), equal));
        }
        Ok(Self(tests))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, record: &Record) -> bool {
        let mut object: Option<Arc<Value>> = None;
        self.0.iter().all(|(field, value, equal)| {
            let same = match field.as_str() {
                "metadata.name" => record.name() == value,
                "metadata.namespace" => record.namespace() == value,
                "spec.nodeName" => record.node.as_deref().unwrap_or_default() == value,
                field => {
                    let object = object.get_or_insert_with(|| record.value());
                    let path = format!("/{}", field.replace('.', "/"));
                    match object.pointer(&path) {
                        Some(Value::String(found)) => found == value,
                        Some(Value::Null) | None => {
                            // Go's zero values.
                            value.is_empty()
                                || (field == "spec.hostNetwork" || field == "spec.unschedulable")
                                    && value == "false"
                        }
                        Some(Value::Bool(found)) => *value == if *found { "true" } else { "false" },
                        Some(found) => found.as_i64() == value.parse().ok(),
                    }
                }
            };
            same == *equal
        })
    }
}
