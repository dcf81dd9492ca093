//! The pods by what they are asked for all the time: their node, their owner, their labels.
//!
//! Never here: the pods themselves, only their keys. Invariant: every index says what the live records say; nothing goes
//! through a map without an order.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::record::{Labels, Record};

type Keys = BTreeSet<Arc<str>>;

/// Which pods are where, whose, and alike.
#[derive(Debug, Default)]
pub(crate) struct PodIndex {
    node: HashMap<Arc<str>, Keys>,
    /// By the owner's UID.
    owner: HashMap<Box<str>, Keys>,
    /// By namespace: those that nobody controls.
    loose: HashMap<Box<str>, Keys>,
    /// By namespace and labels: far fewer than pods.
    alike: HashMap<Box<str>, BTreeMap<Arc<Labels>, Keys>>,
}

fn add<K: Eq + Hash + Borrow<str> + for<'a> From<&'a str>>(
    map: &mut HashMap<K, Keys>,
    at: &str,
    key: &Arc<str>,
) {
    if let Some(keys) = map.get_mut(at) {
        keys.insert(key.clone());
    } else {
        map.insert(at.into(), [key.clone()].into());
    }
}

fn take<K: Eq + Hash + Borrow<str>>(map: &mut HashMap<K, Keys>, at: &str, key: &str) {
    if let Some(keys) = map.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            map.remove(at);
        }
    }
}

impl PodIndex {
    /// A pod was written: what it was and what it is, where it was or is there at all.
    pub(crate) fn written(&mut self, before: Option<&Record>, after: Option<&Record>) {
        if let (Some(before), Some(after)) = (before, after)
            && before.node == after.node
            && before.owners == after.owners
            && before.controller.is_some() == after.controller.is_some()
            && before.labels == after.labels
        {
            return;
        }
        if let Some(pod) = before {
            if let Some(node) = &pod.node {
                take(&mut self.node, node, &pod.key);
            }
            for owner in &pod.owners {
                take(&mut self.owner, owner, &pod.key);
            }
            take(&mut self.loose, pod.namespace(), &pod.key);
            if let Some(alike) = self.alike.get_mut(pod.namespace()) {
                if let Some(keys) = alike.get_mut(&pod.labels) {
                    keys.remove(&pod.key);
                }
                alike.retain(|_, keys| !keys.is_empty());
            }
        }
        if let Some(pod) = after {
            if let Some(node) = &pod.node {
                add(&mut self.node, node, &pod.key);
            }
            for owner in &pod.owners {
                add(&mut self.owner, owner, &pod.key);
            }
            if pod.controller.is_none() {
                add(&mut self.loose, pod.namespace(), &pod.key);
            }
            let alike = self.alike.entry(pod.namespace().into()).or_default();
            alike.entry(pod.labels.clone()).or_default().insert(pod.key.clone());
        }
    }

    /// Those on a node, in order.
    pub(crate) fn on_node(&self, node: &str) -> impl Iterator<Item = &Arc<str>> {
        self.node.get(node).into_iter().flatten()
    }

    /// Those that name an owner, in order.
    pub(crate) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Arc<str>> {
        self.owner.get(uid).into_iter().flatten()
    }

    /// Those of a namespace that nobody controls, in order.
    pub(crate) fn loose(&self, namespace: &str) -> impl Iterator<Item = &Arc<str>> {
        self.loose.get(namespace).into_iter().flatten()
    }

    /// Those of a namespace whose labels are such, in order.
    pub(crate) fn labeled(&self, namespace: &str, such: impl Fn(&Labels) -> bool) -> Vec<&Arc<str>> {
        let alike = self.alike.get(namespace).into_iter().flatten();
        let mut found: Vec<&Arc<str>> =
            alike.filter(|(labels, _)| such(labels)).flat_map(|(_, keys)| keys).collect();
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(key: &str, owner: Option<&str>, app: &str, node: Option<&str>) -> Record {
        let owners: Vec<_> = owner.iter().map(|uid| json!({"uid": uid, "controller": true})).collect();
        let labels = Labels::from([("app".to_owned(), app.to_owned())]);
        let object = json!({"metadata": {"ownerReferences": owners}});
        Record::new(key, 1, &object, Arc::new(labels), node.map(Into::into))
    }

    fn names<'a>(keys: impl IntoIterator<Item = &'a Arc<str>>) -> Vec<&'a str> {
        keys.into_iter().map(AsRef::as_ref).collect()
    }

    #[test]
    fn pods_are_where_they_were_written_last() {
        let mut index = PodIndex::default();
        let [b, a] = ["shop/b", "shop/a"].map(|key| pod(key, Some("one"), "web", None));
        let other = pod("other/c", None, "web", Some("n"));
        for pod in [&b, &a, &other] {
            index.written(None, Some(pod));
        }
        let web = |labels: &Labels| labels.get("app").is_some_and(|app| app == "web");
        assert_eq!(names(index.owned_by("one")), ["shop/a", "shop/b"], "in order");
        assert_eq!(names(index.labeled("shop", web)), ["shop/a", "shop/b"]);
        assert_eq!((names(index.loose("shop")), names(index.loose("other"))), (vec![], vec!["other/c"]));

        let moved = pod("shop/a", None, "db", Some("n"));
        index.written(Some(&a), Some(&moved));
        assert_eq!(names(index.on_node("n")), ["other/c", "shop/a"]);
        assert_eq!(
            (names(index.owned_by("one")), names(index.loose("shop"))),
            (vec!["shop/b"], vec!["shop/a"])
        );
        assert_eq!(names(index.labeled("shop", web)), ["shop/b"]);

        for pod in [&b, &moved, &other] {
            index.written(Some(pod), None);
        }
        assert!(index.node.is_empty() && index.owner.is_empty() && index.loose.is_empty(), "{index:?}");
        assert!(index.alike.values().all(BTreeMap::is_empty), "{index:?}");
    }
}
