//! Another process that leads: what only a person ends it tells at once, by the word of the one before.
//!
//! Here belongs how such a process begins; what is told is in the tests of each reason.

use super::cluster::Toy;
use super::*;

impl Toy {
    /// Another process leads: it knows what is stored, and has looked at nothing so far.
    pub(super) fn leads_anew(&mut self) {
        self.memory = Memory::default();
        self.freshness = Freshness { unbroken_since: at(self.seconds), ..Freshness::default() };
    }

    /// What only a person ends is told at once by whoever leads anew, and goes on being told.
    pub(super) fn is_told_by_the_next_leader(&mut self) {
        self.tick();
        let (phase, message) = (self.phase(), self.status().message);
        self.leads_anew();
        for _ in 0..3 {
            assert_eq!((self.phase(), self.status().message), (phase, message.clone()));
            self.tick();
        }
        assert!(phase.stalled(), "{phase:?}");
        // Whoever has not been told has to look for a while.
        self.leads_anew();
        let lasting = std::mem::take(&mut self.progress.lasting);
        assert!(!lasting.is_empty(), "it is remembered");
        assert!(!self.phase().stalled(), "{:?}", self.status());
        self.progress.lasting = lasting;
    }
}
