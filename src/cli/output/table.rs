//! A table of plain text: columns as wide as their widest cell. Where a line is too long for the terminal, its last
//! cell goes on below itself.
//!
//! Here belongs the layout and nothing about what the cells say. The invariant: nothing is cut off.

use super::paint::{Ink, Paint};

/// One cell: its text, and its colour, which adds no width.
pub(in super::super) struct Cell {
    pub(super) text: String,
    pub(super) ink: Ink,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ink: Ink::Plain }
    }
}

/// Blanks between columns.
const GAP: usize = 3;
/// The last column is not made narrower than this.
const NARROWEST: usize = 20;

/// `rows` under `header`, each line ending in a newline. Trailing blanks are not written.
pub(in super::super) fn table(
    header: &[&str],
    rows: &[Vec<Cell>],
    paint: Paint,
    width: Option<usize>,
) -> String {
    let head: Vec<Cell> =
        header.iter().map(|title| Cell { text: (*title).to_owned(), ink: Ink::Bold }).collect();
    let all = || std::iter::once(&head).chain(rows);
    let widest = |column: usize| {
        all().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(widest).collect();
    let before: usize = widths.iter().rev().skip(1).map(|width| width + GAP).sum();
    let room = width.and_then(|width| width.checked_sub(before)).filter(|room| *room >= NARROWEST);
    let mut text = String::new();
    for row in all() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let blanks = width.saturating_sub(cell.text.chars().count()) + GAP;
            line.push_str(&paint.on(cell.ink, &cell.text));
            line.extend(std::iter::repeat_n(' ', blanks));
        }
        let line = line.trim_end();
        match room.zip(width) {
            Some((_, width)) => push_wrapped(&mut text, line, width, before),
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// `text` in lines of at most `width` columns; what goes on is indented.
pub(in super::super) fn fitting(text: &str, width: usize) -> String {
    let mut fitting = String::with_capacity(text.len());
    for line in text.lines() {
        push_wrapped(&mut fitting, line, width, 4);
        fitting.push('\n');
    }
    fitting
}

/// Adds `line` in lines of at most `width` columns, all but the first behind `indent` blanks.
pub(super) fn push_wrapped(text: &mut String, line: &str, width: usize, indent: usize) {
    let indent = " ".repeat(indent);
    // A name that is longer than the line stays whole: it may have to be copied.
    let options = textwrap::Options::new(width).subsequent_indent(&indent).break_words(false);
    let options = options.word_splitter(textwrap::WordSplitter::NoHyphenation);
    text.push_str(&textwrap::fill(line, options));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        let bad = Cell { text: "a".to_owned(), ink: Ink::Bad };
        vec![vec![bad, "long cell".to_owned().into()], vec!["bcd".to_owned().into(), String::new().into()]]
    }

    #[test]
    fn columns_are_aligned_and_nothing_is_cut() {
        assert_eq!(table(&["X", "Y"], &rows(), Paint(false), None), "X     Y\na     long cell\nbcd\n");
    }

    #[test]
    fn a_narrow_terminal_wraps_the_last_column_and_cuts_nothing() {
        let names = "node-1, node-2, a-name-that-is-longer-than-the-column, node-3";
        let rows = vec![vec!["kubelet".to_owned().into(), names.to_owned().into()]];
        let fitted = "X         NAMES\n\
                      kubelet   node-1, node-2,\n          \
                      a-name-that-is-longer-than-the-column,\n          \
                      node-3\n";
        assert_eq!(table(&["X", "NAMES"], &rows, Paint(false), Some(32)), fitted);
        let whole = format!("X         NAMES\nkubelet   {names}\n");
        assert_eq!(table(&["X", "NAMES"], &rows, Paint(false), Some(29)), whole, "too narrow for a column");
    }

    #[test]
    fn colour_takes_no_room() {
        let coloured = table(&["X", "Y"], &rows(), Paint(true), None);
        assert!(coloured.contains("\u{1b}[1;31ma\u{1b}[0m     long cell\n"), "{coloured:?}");
    }
}
