//! `metadata.managedFields`: who owns what after an update or an apply.
//!
//! Here belong the entries of `managedFields`; how two objects are compared is in `walk`. The invariant: a field that
//! changed is owned by whoever changed it.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::set::Set;
use super::walk::{self, Difference};
use crate::schema::Shape;

/// Who writes, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) manager: String,
    pub(crate) applies: bool,
    pub(crate) api_version: String,
    pub(crate) subresource: Option<String>,
}

impl Writer {
    /// Whether two writers share an entry. Whoever applies has one entry, whatever version it applies.
    fn is(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.applies == other.applies
            && self.subresource == other.subresource
            && (self.applies || self.api_version == other.api_version)
    }

    /// Whether this writer has this entry.
    fn wrote(&self, entry: &Value) -> bool {
        let word = |name: &str| entry[name].as_str().unwrap_or_default();
        self.manager == word("manager")
            && self.applies == (entry["operation"] == "Apply")
            && self.subresource.as_deref() == entry["subresource"].as_str()
            && (self.applies || self.api_version == word("apiVersion"))
    }

    fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.manager);
        if let Some(subresource) = &self.subresource {
            shown = format!("{shown} with subresource {subresource:?}");
        }
        if self.applies { shown } else { format!("{shown} using {}", self.api_version) }
    }
}

/// A field that somebody else owns with another value.
#[derive(Debug)]
pub(crate) struct Conflict {
    pub(crate) manager: String,
    pub(crate) path: String,
}

#[derive(Clone, Debug)]
struct Entry {
    writer: Writer,
    time: Option<String>,
    set: Set,
}

impl Entry {
    fn write(self) -> Value {
        let Writer { manager, applies, api_version, subresource } = self.writer;
        let mut value = Map::new();
        if !manager.is_empty() {
            value.insert("manager".into(), manager.into());
        }
        value.insert("operation".into(), if applies { "Apply" } else { "Update" }.into());
        value.insert("apiVersion".into(), api_version.into());
        value.insert("fieldsType".into(), "FieldsV1".into());
        value.insert("fieldsV1".into(), self.set.write());
        if let Some(time) = self.time {
            value.insert("time".into(), time.into());
        }
        if let Some(subresource) = subresource {
            value.insert("subresource".into(), subresource.into());
        }
        Value::Object(value)
    }
}

/// All owners of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Managed(Vec<Entry>);

/// If more entries of updates than this are there, the oldest are merged into one.
const MOST_UPDATERS: usize = 10;

impl Managed {
    pub(crate) fn read(object: &Value) -> Self {
        let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        Self(
            object["metadata"]["managedFields"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|entry| Entry {
                    writer: Writer {
                        manager: text(entry, "manager"),
                        applies: entry["operation"] == "Apply",
                        api_version: text(entry, "apiVersion"),
                        subresource: entry["subresource"].as_str().map(str::to_owned),
                    },
                    time: entry["time"].as_str().map(str::to_owned),
                    set: Set::read(&entry["fieldsV1"]),
                })
                .collect(),
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the owners into an object.
    pub(crate) fn write(mut self, object: &mut Value) {
        self.0.sort_by(|a, b| {
            fn key(entry: &Entry) -> impl Ord {
                let Writer { manager, applies, api_version, subresource } = &entry.writer;
                (!applies, &entry.time, manager, api_version, subresource)
            }
            key(a).cmp(&key(b))
        });
        let entries: Vec<Value> = self.0.into_iter().map(Entry::write).collect();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
            if !entries.is_empty() {
                metadata.insert("managedFields".into(), entries.into());
            }
        }
    }

    /// Takes this writer's entry away.
    pub(crate) fn forget(&mut self, writer: &Writer) {
        self.0.retain(|entry| !entry.writer.is(writer));
    }

    fn find(&mut self, writer: &Writer) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.writer.is(writer))
    }

    /// After a create, update or patch: what changed is the writer's, and nobody else's.
    pub(crate) fn update(
        &mut self,
        shape: &Shape,
        before: &Value,
        after: &Value,
        writer: &Writer,
        now: &str,
        status: bool,
    ) {
        let (mut own, removed) = changes(shape, before, after, writer, status);
        for entry in &mut self.0 {
            entry.set.take(&own);
            entry.set.take(&removed);
        }
        strip(&mut own);
        if own.is_empty() {
            self.0.retain(|entry| !entry.set.is_empty());
            return;
        }
        if let Some(entry) = self.find(writer) {
            entry.set.add(&own);
            entry.time = Some(now.to_owned());
        } else {
            self.0.push(Entry { writer: writer.clone(), time: Some(now.to_owned()), set: own });
        }
        self.0.retain(|entry| !entry.set.is_empty());
        self.cap();
    }

    /// The same in the object itself, without reading all of `managedFields`. `false`, and nothing is done, if the
    /// object's `managedFields` are not those of `old`, or so many that some have to be merged.
    pub(crate) fn update_written(
        shape: &Shape,
        before: &Value,
        after: &mut Value,
        writer: &Writer,
        now: &str,
        status: bool,
    ) -> bool {
        let known = &before["metadata"]["managedFields"];
        let plain = known.as_array().is_some_and(|known| {
            (1..MOST_UPDATERS).contains(&known.len())
                && known.iter().all(|entry| entry["fieldsV1"].is_object())
        });
        if !plain || after["metadata"]["managedFields"] != *known {
            return false;
        }
        let (mut own, removed) = changes(shape, before, after, writer, status);
        let Some(entries) = after.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) else {
            return false;
        };
        let fields = |entry: &mut Value| entry.get_mut("fieldsV1").map(Value::take);
        for entry in entries.iter_mut() {
            if let Some(Value::Object(mut fields)) = fields(entry) {
                own.take_from(&mut fields);
                removed.take_from(&mut fields);
                entry["fieldsV1"] = fields.into();
            }
        }
        strip(&mut own);
        if !own.is_empty() {
            if let Some(entry) = entries.iter_mut().find(|entry| writer.wrote(entry)) {
                if let Some(Value::Object(mut fields)) = fields(entry) {
                    own.add_to(&mut fields);
                    entry["fieldsV1"] = fields.into();
                }
                entry["time"] = now.into();
            } else {
                let (writer, time) = (writer.clone(), Some(now.to_owned()));
                entries.push(Entry { writer, time, set: own }.write());
            }
        }
        entries.retain(|entry| entry["fieldsV1"].as_object().is_some_and(|fields| !fields.is_empty()));
        entries.sort_by(|a, b| {
            fn key(entry: &Value) -> impl Ord {
                let text = |name: &str| entry[name].as_str();
                let word = |name: &str| text(name).unwrap_or_default();
                let applies = entry["operation"] == "Apply";
                (!applies, text("time"), word("manager"), word("apiVersion"), text("subresource"))
            }
            key(a).cmp(&key(b))
        });
        let none = entries.is_empty();
        if let Some(metadata) = after["metadata"].as_object_mut().filter(|_| none) {
            metadata.remove("managedFields");
        }
        true
    }

    fn cap(&mut self) {
        while self.0.iter().filter(|entry| !entry.writer.applies).count() > MOST_UPDATERS {
            let mut oldest: Vec<usize> = (0..self.0.len()).filter(|at| !self.0[*at].writer.applies).collect();
            oldest.sort_by_key(|at| (self.0[*at].time.clone(), self.0[*at].writer.manager.clone()));
            let Some([first, second]) = oldest.first_chunk::<2>().copied() else { return };
            let (keep, drop) = (first.min(second), first.max(second));
            let gone = self.0.remove(drop);
            let entry = &mut self.0[keep];
            entry.set = entry.set.union(&gone.set);
            entry.time = entry.time.clone().max(gone.time);
            "ancient-changes".clone_into(&mut entry.writer.manager);
            entry.writer.subresource = None;
        }
    }

    /// Lays an applied object over the live one: the new object, or the fields that others own.
    pub(crate) fn apply(
        &mut self,
        shape: &Shape,
        live: &Value,
        applied: &Value,
        writer: &Writer,
        now: &str,
        (force, status): (bool, bool),
    ) -> Result<Value, Vec<Conflict>> {
        let (live, applied) = (bare(live), bare(applied));
        let merged = walk::merge(shape, Some(&live), Some(&applied)).unwrap_or_default();
        let mut set = walk::fields(shape, &applied);
        reset(&mut set, writer, status);
        let last = self.find(writer).map(|entry| entry.set.clone());
        let time = self.find(writer).and_then(|entry| entry.time.clone());
        self.0.retain(|entry| !entry.writer.is(writer));
        let result = match last {
            Some(last) if !last.is_empty() => self.prune(shape, &merged, &last, &set),
            _ => merged,
        };
        let mut difference = Difference::between(shape, &live, &result);
        for part in [&mut difference.added, &mut difference.modified, &mut difference.removed] {
            reset(part, writer, status);
        }
        let changed = difference.added.union(&difference.modified);
        if !force {
            let mut conflicts = Vec::new();
            for entry in &self.0 {
                for path in entry.set.intersection(&changed).paths() {
                    conflicts.push(Conflict { manager: entry.writer.shown(), path });
                }
            }
            if !conflicts.is_empty() {
                return Err(conflicts);
            }
        }
        let lost = changed.union(&difference.removed);
        for entry in &mut self.0 {
            entry.set = entry.set.without(&lost);
        }
        strip(&mut set);
        let unchanged = live == result;
        if !set.is_empty() {
            // An apply that changes nothing leaves no time behind, not even its first.
            let time = if unchanged { time } else { Some(now.to_owned()) };
            self.0.push(Entry { writer: writer.clone(), time, set });
        }
        self.0.retain(|entry| !entry.set.is_empty());
        Ok(result)
    }

    /// Takes away what this manager applied before and no longer does, unless somebody else owns it too.
    fn prune(&self, shape: &Shape, merged: &Value, last: &Set, applied: &Set) -> Value {
        let last = last.named(shape);
        let pruned = walk::remove(shape, merged, &last);
        let others = self.0.iter().fold(applied.clone(), |all, entry| all.union(&entry.set)).named(shape);
        let all = walk::fields(shape, merged).named(shape);
        let kept = walk::fields(shape, &pruned).named(shape).union(&others);
        let pruned = walk::remove(shape, merged, &all.without(&kept));
        let kept = walk::fields(shape, &pruned).named(shape);
        walk::remove(shape, merged, &all.without(&kept).intersection(&last))
    }
}

/// The object without its `managedFields`, which are no one's field.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// What a writer set, and what it took away.
fn changes(shape: &Shape, before: &Value, after: &Value, writer: &Writer, status: bool) -> (Set, Set) {
    let mut difference = Difference::between(shape, before, after);
    for set in [&mut difference.added, &mut difference.modified, &mut difference.removed] {
        reset(set, writer, status);
    }
    let Difference { added: mut own, modified, removed } = difference;
    own.add(&modified);
    (own, removed)
}

/// Takes out the fields that a writer cannot change.
fn reset(set: &mut Set, writer: &Writer, status: bool) {
    match writer.subresource.as_deref() {
        Some("status") => set.forget("f:spec"),
        None if status => set.forget("f:status"),
        _ => {}
    }
}

/// Takes out the fields that name the object, which nobody owns.
fn strip(set: &mut Set) {
    static NOBODYS: LazyLock<Set> = LazyLock::new(|| {
        let none = json!({});
        let meta = json!({".": {}, "f:name": none, "f:namespace": none, "f:creationTimestamp": none, "f:selfLink": none,
            "f:uid": none, "f:clusterName": none, "f:generation": none, "f:managedFields": none, "f:resourceVersion": none});
        Set::read(&json!({"f:apiVersion": none, "f:kind": none, "f:metadata": meta}))
    });
    set.take(&NOBODYS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::builtin;

    fn writer(manager: &str, subresource: Option<&str>) -> Writer {
        Writer {
            manager: manager.into(),
            applies: false,
            api_version: "v1".into(),
            subresource: subresource.map(str::to_owned),
        }
    }

    /// One change after the other, by several writers: in the object itself, and with its owners taken apart.
    #[test]
    fn owners_are_the_same_either_way() {
        let shape = builtin("core.Pod");
        let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
        let container = |name: &str, image: &str| json!({"name": name, "image": image});
        let versions = [
            (
                "kubectl",
                None,
                json!({"metadata": {"name": "p", "labels": {"a": "1", "b": "2"}},
                "spec": {"containers": [container("c", "one"), container("d", "two")], "nodeSelector": {"x": "y"}}}),
            ),
            // Other values of the same fields, by another.
            (
                "editor",
                None,
                json!({"metadata": {"name": "p", "labels": {"a": "2", "b": "2"}, "finalizers": ["one/x", "two/x"]},
                "spec": {"containers": [container("c", "one"), container("d", "three")], "nodeSelector": {"x": "y"}}}),
            ),
            // What is below goes, what is above stays, and the other way round.
            (
                "kubelet",
                Some("status"),
                json!({"metadata": {"name": "p", "labels": {"a": "2", "b": "2"}, "finalizers": ["one/x", "two/x"]},
                "spec": {"containers": [container("c", "one"), container("d", "three")], "nodeSelector": {"x": "y"}},
                "status": {"phase": "Running", "conditions": [condition("Ready", "False"), condition("Initialized", "True")], "podIPs": [{"ip": "10.0.0.1"}]}}),
            ),
            (
                "kubelet",
                Some("status"),
                json!({"metadata": {"name": "p", "labels": {"a": "2", "b": "2"}, "finalizers": ["one/x", "two/x"]},
                "spec": {"containers": [container("c", "one"), container("d", "three")], "nodeSelector": {"x": "y"}},
                "status": {"phase": "Running", "conditions": [condition("Ready", "True")], "podIPs": []}}),
            ),
            (
                "editor",
                None,
                json!({"metadata": {"name": "p", "labels": {}, "finalizers": ["two/x"]},
                "spec": {"containers": [container("d", "three")], "nodeSelector": {}},
                "status": {"phase": "Running", "conditions": [condition("Ready", "True")], "podIPs": []}}),
            ),
            (
                "lifecycle",
                Some("status"),
                json!({"metadata": {"name": "p", "finalizers": ["two/x"]},
                "spec": {"containers": [container("d", "three")]},
                "status": {"phase": "Failed", "conditions": [condition("Ready", "False"), condition("Other", "True")]}}),
            ),
            (
                "editor",
                None,
                json!({"metadata": {"name": "p"}, "spec": {"containers": [container("e", "four")]},
                "status": {"phase": "Failed", "conditions": [condition("Ready", "False"), condition("Other", "True")]}}),
            ),
            // Nothing is left of what the first one wrote.
            (
                "editor",
                None,
                json!({"metadata": {"name": "p"}, "status": {"phase": "Failed",
                "conditions": [condition("Ready", "False"), condition("Other", "True")]}}),
            ),
        ];
        let mut before = json!({});
        for (at, (manager, subresource, object)) in versions.into_iter().enumerate() {
            let (writer, now) = (writer(manager, subresource), format!("2026-01-01T00:00:0{at}Z"));
            let mut managed = Managed::read(&before);
            managed.update(&shape, &before, &object, &writer, &now, true);
            let mut wanted = object.clone();
            managed.write(&mut wanted);
            let mut written = object;
            if let Some(owners) = before["metadata"].get("managedFields") {
                written["metadata"]["managedFields"] = owners.clone();
                assert!(Managed::update_written(&shape, &before, &mut written, &writer, &now, true));
                assert_eq!(written, wanted, "change {at}");
            }
            before = wanted;
        }
        let left = [0, 1, 2, 3].map(|at| before["metadata"]["managedFields"][at]["manager"].as_str());
        let owners = [Some("kubelet"), Some("lifecycle"), Some("editor"), None];
        assert_eq!(left, owners, "of what kubectl wrote nothing is left");
    }

    #[test]
    fn what_was_sent_otherwise_is_taken_apart() {
        let shape = builtin("core.Pod");
        let entry = json!({"manager": "a", "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:spec": {"f:nodeName": {}}}});
        let of = |owners: Vec<Value>| json!({"metadata": {"managedFields": owners}});
        let tried = |before: &Value, after: &Value| {
            Managed::update_written(&shape, before, &mut after.clone(), &writer("b", None), "now", true)
        };
        let (none, one, many) =
            (json!({"metadata": {}}), of(vec![entry.clone()]), of(vec![entry; MOST_UPDATERS]));
        assert!(tried(&one, &one));
        for (before, after) in [(&none, &none), (&one, &none), (&none, &one), (&many, &many)] {
            assert!(!tried(before, after));
        }
    }
}
