//! Who is told of a write: the models, whoever waits, whoever observes, and the hash of the whole history.
//!
//! What is written never belongs here, nor does whether it may be. The invariant: everybody is told of every write, in
//! order, as soon as it is done.

use std::borrow::Cow;
use std::sync::Arc;

use crate::kind_history::{Change, Shelf};
use crate::signal::{Signal, Waiter};

/// Who is told of every write.
pub(crate) struct WriteObserver(pub(crate) Box<dyn FnMut(&str, &Change, &str) + Send>);

impl std::fmt::Debug for WriteObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

/// Tells every write to the models, to whoever waits and to the observers.
#[derive(Debug)]
pub(crate) struct Journal {
    hash: Option<u64>,
    /// What was written since the models were last told.
    news: Vec<(Arc<str>, Change)>,
    any: Signal,
    /// Who writes now.
    author: Cow<'static, str>,
    observers: Vec<WriteObserver>,
}

impl Journal {
    pub(crate) fn new(hashed: bool) -> Self {
        Self {
            hash: hashed.then_some(0x9e37_79b9_7f4a_7c15),
            news: Vec::new(),
            any: Signal::default(),
            author: Cow::Borrowed(""),
            observers: Vec::new(),
        }
    }

    pub(crate) fn authored_by(&mut self, author: &str) {
        if self.author != author {
            self.author = Cow::Owned(author.to_owned());
        }
    }

    pub(crate) fn observe(&mut self, observer: WriteObserver) {
        self.observers.push(observer);
    }

    pub(crate) fn hash(&self) -> Option<u64> {
        self.hash
    }

    pub(crate) fn changes(&self) -> Waiter {
        self.any.subscribe()
    }

    pub(crate) fn news(&mut self, news: &mut Vec<(Arc<str>, Change)>) {
        std::mem::swap(&mut self.news, news);
    }

    /// Tells everybody of a change that was just made to this shelf.
    pub(crate) fn log(&mut self, shelf: &mut Shelf, change: Change) {
        if let Some(hash) = &mut self.hash {
            for chunk in
                [shelf.resource.as_bytes(), change.record.key.as_bytes(), &[u8::from(change.deleted)]]
            {
                mix(hash, chunk);
            }
            mix(hash, change.record.text().as_bytes());
        }
        for observer in &mut self.observers {
            (observer.0)(&shelf.resource, &change, &self.author);
        }
        let quiet = change.quiet;
        shelf.log.push_back(change.clone());
        shelf.wake.give();
        self.news.push((shelf.resource.clone(), change));
        // Models alone write heartbeats, and whoever drives them looks for news after each step.
        if !quiet {
            self.any.give();
        }
    }
}

/// Eight bytes at a time, multiplied and rotated: made to notice a difference, not to resist an attacker.
fn mix(hash: &mut u64, bytes: &[u8]) {
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        *hash = (*hash ^ u64::from_le_bytes(word)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
    }
    *hash = hash.wrapping_add(bytes.len() as u64).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
}
