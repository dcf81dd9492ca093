//! Files that a person named and that gave nothing.
//!
//! Here belongs the line that tells of such a file. The invariant: a person who gave a file that was not used learns
//! that, and what the file was taken for.

use super::objects::PieceContent;

/// How many lines there are at most: a shell's `*` names many files.
const MAX_LINES: usize = 10;

/// A line for each of `given` that gave nothing.
pub(super) fn lines(given: &[GivenPath]) -> Vec<String> {
    few(given.iter().filter_map(GivenPath::told).collect())
}

/// The lines of [`lines`] about those that hold something else than objects.
pub(super) fn not_objects(given: &[GivenPath]) -> Vec<String> {
    few(given.iter().filter(|given| given.note.is_some()).filter_map(GivenPath::told).collect())
}

fn few(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > MAX_LINES {
        let more = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(format!("and {more} more"));
    }
    lines
}

/// A path that was given, and what was in it.
#[derive(Default)]
pub(super) struct GivenPath {
    name: String,
    used: usize,
    others: usize,
    empty_lists: usize,
    unread: usize,
    /// What the file is instead, such as a table for people; the first note counts.
    note: Option<String>,
}

impl GivenPath {
    pub(super) fn of(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// How much of it was of use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Something of it is of use.
    pub(super) fn uses(&mut self) {
        self.used += 1;
    }

    /// Something of it would be of use, and cannot be read.
    pub(super) fn lacks(&mut self) {
        self.unread += 1;
    }

    /// It is something else.
    pub(super) fn notes(&mut self, what: String) {
        self.note.get_or_insert(what);
    }

    /// Counts what was found in it.
    pub(super) fn takes(&mut self, content: &PieceContent) {
        match content {
            PieceContent::Other(count) => self.others += count,
            PieceContent::EmptyList { of_webhooks: false } => self.empty_lists += 1,
            PieceContent::Refused(why) => self.notes(format!("is the server's refusal: {why}")),
            PieceContent::Table => self.notes("is a table for people; write it with -o json".to_owned()),
            // That kubectl did not reach a server is told where the version is missing.
            _ => self.used += 1,
        }
    }

    /// The line about it, if nothing of it was of use.
    pub(super) fn told(&self) -> Option<String> {
        if self.used > 0 {
            return None;
        }
        let what = match &self.note {
            Some(note) => note.clone(),
            None if self.unread > 0 => "holds nothing that can be read".to_owned(),
            None if self.others > 0 => "holds nothing that is looked for".to_owned(),
            None if self.empty_lists > 0 => {
                "is an empty list: there was nothing, or not in that namespace".to_owned()
            }
            None => "holds no object".to_owned(),
        };
        Some(format!("{} {what}", self.name))
    }
}
