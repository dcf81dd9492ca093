//! A set of paths in an object, and its algebra; the same on `fieldsV1` as it is written.
//!
//! Whose the paths are never belongs here. The invariant: a set prints as the `fieldsV1` it was read from.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::Shape;

/// Paths in an object. A key is one step of a path as `fieldsV1` writes it: `f:name`, `k:{"name":"a"}`, `v:"a"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(pub(super) BTreeMap<String, SetNode>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SetNode {
    pub(super) member: bool,
    pub(super) below: Set,
}

impl SetNode {
    /// The node as `fieldsV1` writes it; `None` if nothing is a member.
    fn write(&self) -> Option<Value> {
        if self.below.is_empty() {
            return self.member.then(|| Value::Object(Map::new()));
        }
        let mut below = self.below.write();
        if self.member {
            below["."] = Value::Object(Map::new());
        }
        Some(below)
    }
}

/// Whether a place in written fields is a member itself.
fn is_member(fields: &Map<String, Value>) -> bool {
    fields.is_empty() || fields.contains_key(".")
}

/// Marks a place in written fields as a member, or takes the mark away. A place with nothing below it needs no mark.
fn mark(fields: &mut Map<String, Value>, member: bool) {
    let below = fields.len() > usize::from(fields.contains_key("."));
    if member && below {
        fields.entry(".").or_insert_with(|| Value::Object(Map::new()));
    } else {
        fields.remove(".");
    }
}

impl Set {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.values().all(|node| !node.member && node.below.is_empty())
    }

    pub(super) fn insert(&mut self, path: &[String]) {
        if let Some((last, steps)) = path.split_last() {
            let mut at = self;
            for step in steps {
                at = &mut at.0.entry(step.clone()).or_default().below;
            }
            at.0.entry(last.clone()).or_default().member = true;
        }
    }

    pub(super) fn has(&self, step: &str) -> bool {
        self.0.get(step).is_some_and(|node| node.member)
    }

    pub(super) fn below(&self, step: &str) -> Option<&Self> {
        self.0.get(step).map(|node| &node.below).filter(|below| !below.is_empty())
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.add(other);
        all
    }

    /// Adds every path of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        for (step, node) in &other.0 {
            let Some(mine) = self.0.get_mut(step) else {
                self.0.insert(step.clone(), node.clone());
                continue;
            };
            mine.member |= node.member;
            mine.below.add(&node.below);
        }
    }

    /// Takes every path of `other` out.
    pub(super) fn take(&mut self, other: &Self) {
        for (step, node) in &other.0 {
            let Some(mine) = self.0.get_mut(step) else { continue };
            mine.member &= !node.member;
            mine.below.take(&node.below);
            if !mine.member && mine.below.0.is_empty() {
                self.0.remove(step);
            }
        }
    }

    /// Adds every path of this set to written fields.
    pub(super) fn add_to(&self, fields: &mut Map<String, Value>) {
        for (step, node) in &self.0 {
            let Some(Value::Object(mine)) = fields.get_mut(step) else {
                fields.extend(node.write().map(|written| (step.clone(), written)));
                continue;
            };
            let member = node.member || is_member(mine);
            node.below.add_to(mine);
            mark(mine, member);
        }
    }

    /// Takes every path of this set out of written fields.
    pub(super) fn take_from(&self, fields: &mut Map<String, Value>) {
        for (step, node) in &self.0 {
            let Some(Value::Object(mine)) = fields.get_mut(step) else { continue };
            let member = is_member(mine) && !node.member;
            node.below.take_from(mine);
            mark(mine, member);
            if mine.is_empty() && !member {
                fields.remove(step);
            }
        }
    }

    pub(crate) fn without(&self, other: &Self) -> Self {
        self.both(other, |mine, theirs| mine && !theirs)
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.both(other, |mine, theirs| mine && theirs)
    }

    fn both(&self, other: &Self, keep: fn(bool, bool) -> bool) -> Self {
        let empty = Self::default();
        let mut kept = Self::default();
        for (step, node) in &self.0 {
            let theirs = other.0.get(step);
            let member = keep(node.member, theirs.is_some_and(|node| node.member));
            let below = node.below.both(theirs.map_or(&empty, |node| &node.below), keep);
            if member || !below.0.is_empty() {
                kept.0.insert(step.clone(), SetNode { member, below });
            }
        }
        kept
    }

    /// Drops a step with everything below it.
    pub(crate) fn forget(&mut self, step: &str) {
        self.0.remove(step);
    }

    /// The same set, in which the fields on the way to a member are members too if they are fields of a struct.
    pub(super) fn named(&self, shape: &Shape) -> Self {
        let mut all = Self::default();
        for (step, node) in &self.0 {
            let field = step.strip_prefix("f:");
            let below = field
                .map_or_else(|| node.below.named(shape.item()), |name| node.below.named(shape.child(name)));
            let member = node.member || (!below.is_empty() && field.is_some_and(|name| shape.names(name)));
            all.0.insert(step.clone(), SetNode { member, below });
        }
        all
    }

    pub(crate) fn read(fields: &Value) -> Self {
        let mut set = Self::default();
        for (step, value) in fields.as_object().into_iter().flatten().filter(|(step, _)| *step != ".") {
            let below = Self::read(value);
            let own = value.as_object().is_some_and(is_member);
            set.0.insert(step.clone(), SetNode { member: own, below });
        }
        set
    }

    pub(crate) fn write(&self) -> Value {
        let mut fields = Map::new();
        for (step, node) in &self.0 {
            fields.extend(node.write().map(|written| (step.clone(), written)));
        }
        Value::Object(fields)
    }

    /// Every path, as a person reads it: `.spec.containers[name="c"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(&mut String::new(), &mut paths);
        paths
    }

    fn collect(&self, path: &mut String, paths: &mut Vec<String>) {
        let length = path.len();
        let shown = |step: &str| match step.split_once(':') {
            Some(("f", name)) => format!(".{name}"),
            Some(("k", keys)) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("[{}]", keys.join(","))
            }
            Some((_, value)) => format!("[={value}]"),
            None => step.to_owned(),
        };
        for (step, _) in self.0.iter().filter(|(_, node)| node.member) {
            paths.push(format!("{path}{}", shown(step)));
        }
        for (step, node) in &self.0 {
            path.push_str(&shown(step));
            node.below.collect(path, paths);
            path.truncate(length);
        }
    }
}
