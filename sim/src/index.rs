//! The pods by their node, their owner and their labels, by which everybody looks them up.
//!
//! What a pod means never belongs here. The invariant: every index holds the live records, each as it was written last;
//! what is found is in the order of the keys, whatever map it was found in.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::labels::{LabelSelector, Labels};
use crate::record::Record;

/// By their keys.
type Pods = BTreeMap<Arc<str>, Arc<Record>>;

/// The pods by their node, owner and labels.
#[derive(Debug, Default)]
pub(crate) struct PodIndex {
    node: HashMap<Arc<str>, Pods>,
    /// By the owner's UID.
    owner: HashMap<Box<str>, Pods>,
    /// By namespace: the pods that no controller owns.
    loose: HashMap<Box<str>, Pods>,
    /// By namespace and labels: there are far fewer sets of labels than pods.
    alike: HashMap<Box<str>, Alike>,
}

/// The pods of a namespace by their labels.
#[derive(Debug, Default)]
struct Alike {
    pods: HashMap<Arc<Labels>, Pods>,
    /// The sets of labels that have this key and value.
    with: HashMap<String, HashMap<String, Vec<Arc<Labels>>>>,
}

impl Alike {
    fn add(&mut self, pod: &Arc<Record>) {
        if let Some(pods) = self.pods.get_mut(&pod.labels) {
            pods.insert(pod.key.clone(), pod.clone());
            return;
        }
        for (key, value) in &*pod.labels {
            let values = self.with.entry(key.clone()).or_default();
            values.entry(value.clone()).or_default().push(pod.labels.clone());
        }
        self.pods.insert(pod.labels.clone(), [(pod.key.clone(), pod.clone())].into());
    }

    fn take(&mut self, pod: &Record) {
        let Some(pods) = self.pods.get_mut(&pod.labels) else { return };
        pods.remove(&pod.key);
        if !pods.is_empty() {
            return;
        }
        self.pods.remove(&pod.labels);
        for (key, value) in &*pod.labels {
            let Some(values) = self.with.get_mut(key) else { continue };
            if let Some(all) = values.get_mut(value) {
                all.retain(|labels| *labels != pod.labels);
                if all.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.with.remove(key);
            }
        }
    }

    /// The pods that a selector selects, in order. Where the selector names a value, only labels with that value are
    /// looked at.
    fn such(&self, selector: &LabelSelector) -> Vec<Arc<Record>> {
        let matches = |labels: &&Arc<Labels>| selector.matches(labels);
        let mut found: Vec<Arc<Record>> = if let Some((key, value)) = selector.pair() {
            let all = self.with.get(key).and_then(|values| values.get(value)).into_iter().flatten();
            let pods = all.filter(matches).filter_map(|labels| self.pods.get(labels));
            pods.flat_map(|pods| pods.values().cloned()).collect()
        } else {
            let all = self.pods.iter().filter(|(labels, _)| matches(labels));
            all.flat_map(|(_, pods)| pods.values().cloned()).collect()
        };
        found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        found
    }
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
    /// Takes in a write of a pod: what it was before, if it was there, and what it is after, if it is there.
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
                alike.take(pod);
                if alike.pods.is_empty() {
                    self.alike.remove(pod.namespace());
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
            match self.alike.get_mut(pod.namespace()) {
                Some(alike) => alike.add(pod),
                None => self.alike.entry(pod.namespace().into()).or_default().add(pod),
            }
        }
    }

    /// The pods on a node, in order.
    pub(crate) fn on_node(&self, node: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.node.get(node).into_iter().flat_map(Pods::values)
    }

    /// The pods that name an owner, in order.
    pub(crate) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.owner.get(uid).into_iter().flat_map(Pods::values)
    }

    /// The pods of a namespace that no controller owns, in order.
    pub(crate) fn loose(&self, namespace: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.loose.get(namespace).into_iter().flat_map(Pods::values)
    }

    /// The pods of a namespace that a selector selects, in order.
    pub(crate) fn labeled(&self, namespace: &str, such: &LabelSelector) -> Vec<Arc<Record>> {
        self.alike.get(namespace).map(|alike| alike.such(such)).unwrap_or_default()
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
        let text = object.to_string().into();
        Arc::new(Record::new(key, 1, &object.into(), text, Arc::new(labels), node.map(Into::into)))
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
        let web = &LabelSelector::map(&json!({"app": "web"}));
        assert_eq!(names(index.owned_by("one")), ["shop/a", "shop/b"], "in order");
        assert_eq!(names(index.labeled("shop", web)), ["shop/a", "shop/b"]);
        let any =
            LabelSelector::object(Some(&json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]})));
        assert_eq!(names(index.labeled("shop", &any.unwrap())), ["shop/a", "shop/b"], "by no value");
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
        assert!(index.alike.is_empty(), "{index:?}");
    }
}
