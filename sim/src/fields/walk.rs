//! Walking two objects side by side along their shape.
//!
//! Here belong the difference of two objects, the fields that an object sets, the merge, and the removal of fields; which
//! manager owns a field is in `managed`.
//! The invariant: all four take an object apart in the same way.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::{Set, SetNode};
use crate::schema::{Listed, Shape};

/// What differs between two versions of an object.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub(super) added: Set,
    pub(super) modified: Set,
    pub(super) removed: Set,
}

/// How a value is taken apart: not at all, by fields, or by items.
enum ValueForm<'a> {
    Leaf,
    Fields,
    Items(&'a Listed),
}

/// The form of a value. Where the shape is not known, an object is taken apart by fields and a list not at all.
fn form<'a>(shape: &'a Shape, left: Option<&Value>, right: Option<&Value>) -> ValueForm<'a> {
    match shape {
        Shape::Struct(of) if of.atomic => ValueForm::Leaf,
        Shape::Map { atomic: true, .. } | Shape::List { listed: Listed::Atomic, .. } | Shape::Scalar(_) => {
            ValueForm::Leaf
        }
        Shape::Struct(_) | Shape::Map { .. } => ValueForm::Fields,
        Shape::List { listed, .. } => ValueForm::Items(listed),
        Shape::Any if right.or(left).is_some_and(Value::is_object) => ValueForm::Fields,
        Shape::Any => ValueForm::Leaf,
    }
}

/// The step that names an item of a list; `None` if a key is missing.
fn step(listed: &Listed, item: &Value) -> Option<String> {
    let Listed::Map(keys) = listed else { return Some(format!("v:{item}")) };
    let mut named = Map::new();
    for key in keys {
        match item.get(&**key) {
            Some(value) => named.insert(key.to_string(), value.clone()),
            // `protocol` is the only key that has a default.
            None if &**key == "protocol" => named.insert("protocol".into(), "TCP".into()),
            None => continue,
        };
    }
    (!named.is_empty()).then(|| format!("k:{}", Value::Object(named)))
}

fn empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// The steps of a list's items in order, and the items by their step; `None` for a step that several items have.
fn items<'a>(
    listed: &Listed,
    value: Option<&'a Value>,
) -> (Vec<String>, BTreeMap<String, Option<&'a Value>>) {
    let (mut order, mut found) = (Vec::new(), BTreeMap::new());
    for item in value.and_then(Value::as_array).into_iter().flatten() {
        let Some(step) = step(listed, item) else { continue };
        if let Some(twice) = found.get_mut(&step) {
            *twice = None;
        } else {
            order.push(step.clone());
            found.insert(step, Some(item));
        }
    }
    (order, found)
}

/// The items of two versions of a list in pairs, if each item is where it was. Mostly it is, and then no item has to be
/// found by its step.
fn in_place<'a>(
    listed: &Listed,
    left: Option<&'a Value>,
    right: Option<&'a Value>,
) -> Option<impl Iterator<Item = (&'a Value, &'a Value)>> {
    /// Longer lists are not looked at: each item is compared with each, to find two of one name.
    const MOST: usize = 16;
    let (left, right) = (left?.as_array()?, right?.as_array()?);
    let Listed::Map(keys) = listed else { return None };
    let same = |a: &Value, b: &Value| {
        let mut keys = keys.iter();
        keys.all(|key| a.get(&**key).is_some() && a.get(&**key) == b.get(&**key))
    };
    let twice = |(at, item): (usize, &Value)| left.iter().skip(at + 1).any(|other| same(item, other));
    let fits = left.len() == right.len()
        && left.len() <= MOST
        && left.iter().zip(right).all(|(was, now)| same(was, now))
        && !left.iter().enumerate().any(twice);
    fits.then(|| left.iter().zip(right))
}

/// What differs at one place and below it.
#[derive(Default)]
struct Differences {
    added: SetNode,
    modified: SetNode,
    removed: SetNode,
}

/// Where in an object a place is: only the fields of `metadata` are special.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Object,
    Metadata,
    Below,
}

impl Difference {
    pub(super) fn between(shape: &Shape, left: &Value, right: &Value) -> Self {
        let mut top = Differences::default();
        top.walk(shape, Some(left), Some(right), Depth::Object);
        Self { added: top.added.below, modified: top.modified.below, removed: top.removed.below }
    }
}

impl Differences {
    fn leaf(&mut self, left: Option<&Value>, right: Option<&Value>) {
        match (left, right) {
            (None, _) => self.added.member = true,
            (_, None) => self.removed.member = true,
            (Some(left), Some(right)) => self.modified.member |= left != right,
        }
    }

    /// Adds what differs below the next step, if anything does.
    fn put(&mut self, step: impl Fn() -> String, below: Self) {
        let parts = [
            (&mut self.added, below.added),
            (&mut self.modified, below.modified),
            (&mut self.removed, below.removed),
        ];
        for (part, node) in parts {
            if node.member || !node.below.0.is_empty() {
                part.below.0.insert(step(), node);
            }
        }
    }

    fn walk(&mut self, shape: &Shape, left: Option<&Value>, right: Option<&Value>, depth: Depth) {
        // Most parts of an object stay as they were, so this saves most of the work.
        if left.is_some() && left == right {
            return;
        }
        match form(shape, left, right) {
            ValueForm::Leaf => return self.leaf(left, right),
            _ if empty(left) && empty(right) => return self.leaf(left, right),
            ValueForm::Fields => {
                let (left, right) = (left.and_then(Value::as_object), right.and_then(Value::as_object));
                let before = |name: &String| left.is_some_and(|left| left.contains_key(name));
                let new = right.into_iter().flat_map(Map::keys).filter(|name| !before(name));
                let names = left.into_iter().flat_map(Map::keys).chain(new);
                // `managedFields` are no one's field.
                let but = if depth == Depth::Metadata { "managedFields" } else { "" };
                for name in names.filter(|name| *name != but) {
                    let (l, r) = (left.and_then(|l| l.get(name)), right.and_then(|r| r.get(name)));
                    if l.is_some() && l == r {
                        continue;
                    }
                    let depth = match depth {
                        Depth::Object if name == "metadata" => Depth::Metadata,
                        _ => Depth::Below,
                    };
                    let mut below = Self::default();
                    below.walk(shape.child(name), l, r, depth);
                    self.put(|| format!("f:{name}"), below);
                }
            }
            ValueForm::Items(listed) if let Some(pairs) = in_place(listed, left, right) => {
                for (was, now) in pairs.filter(|(was, now)| was != now) {
                    let mut below = Self::default();
                    below.walk(shape.item(), Some(was), Some(now), Depth::Below);
                    self.put(|| step(listed, now).unwrap_or_default(), below);
                }
            }
            ValueForm::Items(listed) => {
                let (mut order, before) = items(listed, left);
                let (more, after) = items(listed, right);
                order.extend(more.into_iter().filter(|step| !before.contains_key(step)));
                for step in order {
                    let mut below = Self::default();
                    match (before.get(&step), after.get(&step)) {
                        (Some(None), Some(None)) => {}
                        (Some(None), now) => {
                            if let Some(Some(now)) = now {
                                below.walk(shape.item(), None, Some(now), Depth::Below);
                            }
                            below.removed.member = true;
                        }
                        (was, Some(None)) => {
                            if let Some(Some(was)) = was {
                                below.walk(shape.item(), Some(was), None, Depth::Below);
                            }
                            below.added.member = true;
                        }
                        (was, now) => {
                            let (was, now) = (was.copied().flatten(), now.copied().flatten());
                            below.walk(shape.item(), was, now, Depth::Below);
                        }
                    }
                    self.put(|| step.clone(), below);
                }
            }
        }
        if left.is_none() {
            self.added.member = true;
        } else if right.is_none() {
            self.removed.member = true;
        }
    }
}

/// Every field that an applied object speaks of.
pub(super) fn fields(shape: &Shape, value: &Value) -> Set {
    let mut set = Set::default();
    speak(shape, value, &mut Vec::new(), &mut set);
    set
}

fn speak(shape: &Shape, value: &Value, path: &mut Vec<String>, set: &mut Set) {
    match form(shape, None, Some(value)) {
        ValueForm::Leaf => set.insert(path),
        ValueForm::Fields => {
            for (name, value) in value.as_object().into_iter().flatten() {
                path.push(format!("f:{name}"));
                speak(shape.child(name), value, path, set);
                let bare = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if bare || !shape.names(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
        ValueForm::Items(listed) => {
            for (step, item) in items(listed, Some(value)).1 {
                path.push(step);
                if let Some(item) = item {
                    speak(shape.item(), item, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
    }
}

/// The applied object laid over the live one.
pub(super) fn merge(shape: &Shape, left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    let (Some(live), Some(applied)) = (left, right) else { return right.or(left).cloned() };
    match form(shape, left, right) {
        ValueForm::Leaf => Some(applied.clone()),
        ValueForm::Fields => {
            let (Some(live), Some(applied)) = (live.as_object(), applied.as_object()) else {
                return Some(applied.clone());
            };
            let mut merged = live.clone();
            for (name, value) in applied {
                if let Some(value) = merge(shape.child(name), live.get(name), Some(value)) {
                    merged.insert(name.clone(), value);
                }
            }
            Some(Value::Object(merged))
        }
        ValueForm::Items(listed) => {
            let (before, had) = items(listed, left);
            let (after, has) = items(listed, right);
            let mut merged = Vec::new();
            let mut push = |step: &String| {
                let was = had.get(step).copied().flatten();
                merged.extend(merge(shape.item(), was, has.get(step).copied().flatten()));
            };
            // The order of the applied list wins; an item that only the live list has stays before the item that
            // followed it.
            let mut rest = before.iter().peekable();
            for step in &after {
                if had.contains_key(step) {
                    while let Some(next) = rest.peek() {
                        if *next == step {
                            rest.next();
                            break;
                        }
                        if !has.contains_key(*next) {
                            push(next);
                        }
                        rest.next();
                    }
                } else if let Some(next) = rest.peek()
                    && !has.contains_key(*next)
                {
                    for next in rest.by_ref().take_while(|next| !has.contains_key(*next)) {
                        push(next);
                    }
                }
                push(step);
            }
            for step in rest.filter(|step| !has.contains_key(*step)) {
                push(step);
            }
            Some(Value::Array(merged))
        }
    }
}

/// The object without these fields and items.
pub(super) fn remove(shape: &Shape, value: &Value, gone: &Set) -> Value {
    match (form(shape, None, Some(value)), value) {
        (ValueForm::Fields, Value::Object(fields)) => {
            let mut kept = Map::new();
            for (name, value) in fields {
                let step = format!("f:{name}");
                if gone.has(&step) {
                    continue;
                }
                let value = match gone.below(&step) {
                    Some(below) => remove(shape.child(name), value, below),
                    None => value.clone(),
                };
                kept.insert(name.clone(), value);
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (ValueForm::Items(listed), Value::Array(items)) => {
            let mut kept = Vec::new();
            for item in items {
                let Some(step) = step(listed, item) else { continue };
                if gone.has(&step) {
                    continue;
                }
                kept.push(match gone.below(&step) {
                    Some(below) => remove(shape.item(), item, below),
                    None => item.clone(),
                });
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (ValueForm::Leaf, Value::Object(_) | Value::Array(_)) => Value::Null,
        _ => value.clone(),
    }
}
