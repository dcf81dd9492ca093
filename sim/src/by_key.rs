//! The objects of a kind by their keys: a key is found at once, and all objects are iterated in the order of their
//! keys.
//!
//! What the objects are never belongs here, nor does what they were. The invariant: both ways show the same objects,
//! each exactly once.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crate::record::Record;

/// Objects by their keys.
///
/// A tree alone would do. But a search in a tree of thousands of keys looks at a dozen keys that are anywhere in
/// memory, and searches are most of what happens in a big cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    order: BTreeMap<Arc<str>, usize>,
    /// Never iterated, so its order does not matter.
    places: HashMap<Arc<str>, usize>,
    objects: Vec<Option<Arc<Record>>>,
    free: Vec<usize>,
}

impl Live {
    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Record>> {
        self.objects.get(*self.places.get(key)?)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Arc<Record>> {
        self.objects.get_mut(*self.places.get(key)?)?.as_mut()
    }

    /// Puts an object under its key. Returns the object that was there before.
    pub(crate) fn insert(&mut self, record: Arc<Record>) -> Option<Arc<Record>> {
        if let Some(there) = self.get_mut(&record.key) {
            return Some(std::mem::replace(there, record));
        }
        let key = record.key.clone();
        let free = self.free.pop();
        let place = free.unwrap_or(self.objects.len());
        if let Some(object) = self.objects.get_mut(place) {
            *object = Some(record);
        } else {
            self.objects.push(Some(record));
        }
        self.order.insert(key.clone(), place);
        self.places.insert(key, place);
        None
    }

    /// Takes an object away.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Arc<Record>> {
        let place = self.places.remove(key)?;
        self.order.remove(key);
        self.free.push(place);
        self.objects.get_mut(place)?.take()
    }

    /// All of them, in the order of their keys.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Record>> + Clone {
        self.from("")
    }

    /// The objects from a key on, in order.
    pub(crate) fn from<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Arc<Record>> + Clone + use<'a> {
        let places = self.order.range::<str, _>((Bound::Included(key), Bound::Unbounded));
        places.filter_map(|(_, place)| self.objects.get(*place)?.as_ref())
    }
}

impl FromIterator<Arc<Record>> for Live {
    fn from_iter<T: IntoIterator<Item = Arc<Record>>>(records: T) -> Self {
        let mut live = Self::default();
        for record in records {
            live.insert(record);
        }
        live
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::labels::Labels;

    fn record(key: &str, revision: u64) -> Arc<Record> {
        let object = Arc::new(json!({}));
        Arc::new(Record::new(key, revision, &object, "{}".into(), Arc::new(Labels::new()), None))
    }

    #[test]
    fn found_and_in_order_whatever_came_and_went() {
        let mut live: Live = ["b", "d", "a"].map(|key| record(key, 1)).into_iter().collect();
        assert!(live.remove("d").is_some() && live.remove("d").is_none());
        assert_eq!(live.insert(record("a", 2)).map(|before| before.revision), Some(1));
        assert!(live.insert(record("c", 3)).is_none());
        *live.get_mut("b").unwrap() = record("b", 4);
        let all = |live: &Live, from: &str| {
            live.from(from).map(|of| format!("{}{}", of.key, of.revision)).collect::<Vec<_>>()
        };
        assert_eq!(all(&live, ""), ["a2", "b4", "c3"]);
        assert_eq!(all(&live, "b"), ["b4", "c3"]);
        for key in ["a", "b", "c"] {
            assert_eq!(live.get(key).map(|of| &*of.key), Some(key));
        }
        assert!(live.get("d").is_none() && live.get_mut("d").is_none());
        assert_eq!(live.objects.len(), 3, "a place that is free is taken again");
    }
}
