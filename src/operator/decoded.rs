//! What stored objects say, read once for each version of an object.
//!
//! What is done about the objects never belongs here. The invariant: what is returned for an object is what reading
//! that very object gives, so losing all of it costs time alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::core::DynamicObject;

/// What the objects of one kind say, by their names.
pub(super) struct Decoded<T>(BTreeMap<String, (Arc<DynamicObject>, T)>);

impl<T> Default for Decoded<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Clone> Decoded<T> {
    /// What `read` makes of each object of `stored`, in their order. An object that was returned by the last call is not
    /// read again.
    pub(super) fn of(&mut self, stored: &[Arc<DynamicObject>], read: impl Fn(&DynamicObject) -> T) -> Vec<T> {
        let mut before = std::mem::take(&mut self.0);
        let mut all = Vec::with_capacity(stored.len());
        for object in stored {
            let name = object.name_any();
            // While the old object is held here, no other one can be at its address.
            let known = before.remove(&name).filter(|(old, _)| Arc::ptr_eq(old, object));
            let (_, said) = self.0.entry(name).or_insert(match known {
                Some(known) => known,
                None => (Arc::clone(object), read(object)),
            });
            all.push(said.clone());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_read_again_only_when_it_was_replaced() {
        let object = |name: &str, says: i64| {
            let object = json!({"metadata": {"name": name}, "says": says});
            Arc::new(serde_json::from_value::<DynamicObject>(object).unwrap())
        };
        let reads = Cell::new(0);
        let mut decoded = Decoded::default();
        let mut look = |stored: &[Arc<DynamicObject>]| {
            let says = decoded.of(stored, |object| {
                reads.set(reads.get() + 1);
                object.data["says"].as_i64().unwrap()
            });
            (says, reads.replace(0))
        };
        let (a, b) = (object("a", 1), object("b", 2));
        assert_eq!(look(&[a.clone(), b.clone()]), (vec![1, 2], 2));
        assert_eq!(look(&[a.clone(), b.clone()]), (vec![1, 2], 0));
        assert_eq!(look(&[object("a", 3), b.clone()]), (vec![3, 2], 1), "another version");
        assert_eq!(look(std::slice::from_ref(&b)), (vec![2], 0));
        assert_eq!(look(&[a, b]), (vec![1, 2], 1), "it was gone meanwhile");
    }
}
