//! What the preflight of pods found, before it becomes causes.
//!
//! Here belongs how findings about many pods are put together, and which nodes may take a pod; what is wrong with a pod
//! is found in `pods` and `capacity`. The invariant: there is one entry for each code, outlook and object, however many
//! pods it is about.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cause::{CauseObject, Outlook};
use super::code::Code;
use super::question::Question;
use crate::cluster::{Node, Pod};

type Key = (Code, Outlook, CauseObject);

/// What was found, by code and object; the words are those of the first pod.
#[derive(Default)]
pub(super) struct CausesFound<'a>(pub(super) BTreeMap<Key, (String, String, Vec<&'a Pod>)>);

impl<'a> CausesFound<'a> {
    pub(super) fn put(
        &mut self,
        code: Code,
        outlook: Outlook,
        object: CauseObject,
        what: String,
        remedy: &str,
    ) {
        self.0.entry((code, outlook, object)).or_insert_with(|| (what, remedy.to_owned(), Vec::new()));
    }

    pub(super) fn add(
        &mut self,
        code: Code,
        outlook: Outlook,
        pod: &'a Pod,
        what: impl Into<String>,
        remedy: &str,
    ) {
        let key = (code, outlook, CauseObject::behind(pod));
        let entry = self.0.entry(key).or_insert_with(|| (what.into(), remedy.to_owned(), Vec::new()));
        entry.2.push(pod);
    }
}

/// The nodes that may take `node`'s pods while it alone is drained.
pub(super) fn others<'q>(question: &Question<'q>, node: &Node) -> impl Iterator<Item = &'q Node> {
    let name = Arc::clone(&node.name);
    question
        .cluster
        .nodes()
        .iter()
        .map(AsRef::as_ref)
        .filter(move |other| other.name != name && other.ready && !other.unschedulable)
}
