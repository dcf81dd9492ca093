//! The objects of one kind, and the writes to them that are remembered.
//!
//! Which write comes next never belongs here, nor does who is told of it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::by_key::Live;
use crate::record::Record;
use crate::signal::Signal;

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    /// What the object was before; `None` when it was created.
    pub(crate) before: Option<Arc<Record>>,
    /// What it is now; of a deletion, what it was, with the deletion's revision.
    pub(crate) record: Arc<Record>,
    pub(crate) deleted: bool,
    /// It is a heartbeat, which changes nothing that anybody decides by.
    pub(crate) quiet: bool,
}

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub(crate) resource: Arc<str>,
    pub(crate) live: Live,
    pub(crate) log: VecDeque<Change>,
    pub(crate) wake: Signal,
}

impl Shelf {
    pub(crate) fn new(resource: Arc<str>) -> Self {
        Self { resource, live: Live::default(), log: VecDeque::new(), wake: Signal::default() }
    }
}
