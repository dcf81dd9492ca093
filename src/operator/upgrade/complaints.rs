//! Writes that failed, so that the log tells of each once.
//!
//! Here belongs what the log has already; whether a write is sent again is decided elsewhere. The invariant: while the
//! server answers no write, each line about one is logged once; as soon as the server has answered, every line is news
//! again.

use std::collections::BTreeSet;

use crate::act::{Outcome, ReadNow};

/// What the log has since the server last answered a write.
#[derive(Default)]
pub(super) struct Complaints(BTreeSet<String>);

impl Complaints {
    /// Logs that a write failed, unless the log has the same line already.
    pub(super) fn failed(&mut self, line: &str, message: &'static str) {
        if self.is_news(line) {
            tracing::warn!(line, message);
        }
    }

    fn is_news(&mut self, line: &str) -> bool {
        self.0.insert(line.to_owned())
    }

    /// Hears an outcome; some are the same whether there was an answer or not.
    pub(super) fn hear(&mut self, outcome: &Outcome) {
        let silent = matches!(
            outcome,
            Outcome::Failed(_)
                | Outcome::NotLeading
                | Outcome::Read(ReadNow::Gate { .. })
                | Outcome::Eviction { .. }
                | Outcome::Deletion { .. }
        );
        if !silent {
            self.answered();
        }
    }

    /// The server answered: what fails from now on is news.
    pub(super) fn answered(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_news_once_for_each_time_that_the_server_is_away() {
        let mut complaints = Complaints::default();
        for _ in 0..2 {
            let lines = ["status of a: refused", "status of b: refused", "status of a: refused"];
            assert_eq!(lines.map(|line| complaints.is_news(line)), [true, true, false]);
            complaints.answered();
        }
    }
}
