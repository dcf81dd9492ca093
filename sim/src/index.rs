//! The pods by what they are asked for all the time: their node, their owner, their labels.
//!
//! Never here: what a pod means. Invariant: every index holds the live records, each as it was written last; nothing goes
//! through a map without an order.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::record::{Labels, Record};

/// By their keys.
type Pods = BTreeMap<Arc<str>, Arc<Record>>;

/// Which pods are where, whose, and alike.
#[derive(Debug, Default)]
pub(crate) struct PodIndex {
    node: HashMap<Arc<str>, Pods>,
    /// By the owner's UID.
    owner: HashMap<Box<str>, Pods>,
    /// By namespace: those that nobody controls.
    loose: HashMap<Box<str>, Pods>,
    /// By namespace and labels: far fewer than pods.
    alike: HashMap<Box<str>, BTreeMap<Arc<Labels>, Pods>>,
}

fn add<K: Eq + Hash + Borrow<str> + for<'a> From<&'a str>>(
    map: &mut HashMap<K, Pods>,
    at: &str,
    pod: &Arc<Record>,
) {
    if let Some(pods) = map.get_mut(at) {
        pods.insert(pod.key.clone(), pod.clone());
    } else {
        map.insert(at.into(), [(pod.key.clone(), pod.clone())].into());
    }
}

fn take<K: Eq + Hash + Borrow<str>>(map: &mut HashMap<K, Pods>, at: &str, key: &str) {
    if let Some(pods) = map.get_mut(at) {
        pods.remove(key);
        if pods.is_empty() {
            map.remove(at);
        }
    }
}

impl PodIndex {
    /// A pod was written: what it was and what it is, where it was or is there at all.
    pub(crate) fn written(&mut self, before: Option<&Record>, after: Option<&Arc<Record>>) {
        let stays = |before: &Record, after: &Arc<Record>| {
            before.node == after.node
                && before.owners == after.owners
                && before.controller.is_some() == after.controller.is_some()
                && before.labels == after.labels
        };
        if let Some(pod) = before.filter(|before| !after.is_some_and(|after| stays(before, after))) {
            if let Some(node) = &pod.node {
                take(&mut self.node, node, &pod.key);
            }
            for owner in &pod.owners {
                take(&mut self.owner, owner, &pod.key);
            }
            take(&mut self.loose, pod.namespace(), &pod.key);
            if let Some(alike) = self.alike.get_mut(pod.namespace()) {
                let last = alike.get_mut(&pod.labels).is_some_and(|pods| {
                    pods.remove(&pod.key);
                    pods.is_empty()
                });
                if last {
                    alike.remove(&pod.labels);
                }
            }
        }
        if let Some(pod) = after {
            if let Some(node) = &pod.node {
                add(&mut self.node, node, pod);
            }
            for owner in &pod.owners {
                add(&mut self.owner, owner, pod);
            }
            if pod.controller.is_none() {
                add(&mut self.loose, pod.namespace(), pod);
            }
            let alike = self.alike.entry(pod.namespace().into()).or_default();
            alike.entry(pod.labels.clone()).or_default().insert(pod.key.clone(), pod.clone());
        }
    }

    /// Those on a node, in order.
    pub(crate) fn on_node(&self, node: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.node.get(node).into_iter().flat_map(Pods::values)
    }

    /// Those that name an owner, in order.
    pub(crate) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.owner.get(uid).into_iter().flat_map(Pods::values)
    }

    /// Those of a namespace that nobody controls, in order.
    pub(crate) fn loose(&self, namespace: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.loose.get(namespace).into_iter().flat_map(Pods::values)
    }

    /// Those of a namespace whose labels are such, in order.
    pub(crate) fn labeled(&self, namespace: &str, such: impl Fn(&Labels) -> bool) -> Vec<Arc<Record>> {
        let alike = self.alike.get(namespace).into_iter().flatten();
        let mut found: Vec<Arc<Record>> =
            alike.filter(|(labels, _)| such(labels)).flat_map(|(_, pods)| pods.values().cloned()).collect();
        found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(key: &str, owner: Option<&str>, app: &str, node: Option<&str>) -> Arc<Record> {
        let owners: Vec<_> = owner.iter().map(|uid| json!({"uid": uid, "controller": true})).collect();
        let labels = Labels::from([("app".to_owned(), app.to_owned())]);
        let object = json!({"metadata": {"ownerReferences": owners}});
        Arc::new(Record::new(key, 1, &object, Arc::new(labels), node.map(Into::into)))
    }

    fn names(pods: impl IntoIterator<Item = impl Borrow<Arc<Record>>>) -> Vec<String> {
        pods.into_iter().map(|pod| pod.borrow().key.to_string()).collect()
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
        assert_eq!(
            (names(index.loose("shop")), names(index.loose("other"))),
            (vec![], vec!["other/c".to_owned()])
        );

        let moved = pod("shop/a", None, "db", Some("n"));
        index.written(Some(&a), Some(&moved));
        assert_eq!(names(index.on_node("n")), ["other/c", "shop/a"]);
        assert_eq!(
            (names(index.owned_by("one")), names(index.loose("shop"))),
            (vec!["shop/b".to_owned()], vec!["shop/a".to_owned()])
        );
        assert_eq!(names(index.labeled("shop", web)), ["shop/b"]);

        let again = pod("shop/b", Some("one"), "web", None);
        index.written(Some(&b), Some(&again));
        assert!(index.owned_by("one").all(|pod| Arc::ptr_eq(pod, &again)), "as it was written last");

        for pod in [&again, &moved, &other] {
            index.written(Some(pod), None);
        }
        assert!(index.node.is_empty() && index.owner.is_empty() && index.loose.is_empty(), "{index:?}");
        assert!(index.alike.values().all(BTreeMap::is_empty), "{index:?}");
    }
}
