//! A table of plain text: columns as wide as their widest cell, nothing truncated.

use super::paint::{Ink, Paint};

/// One cell; colour takes no room.
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) ink: Ink,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ink: Ink::Plain }
    }
}

/// `rows` under `header`, each line ending in a newline. Trailing blanks are not written.
pub(super) fn table(header: &[&str], rows: &[Vec<Cell>], paint: Paint) -> String {
    let head: Vec<Cell> =
        header.iter().map(|title| Cell { text: (*title).to_owned(), ink: Ink::Bold }).collect();
    let all = || std::iter::once(&head).chain(rows);
    let width = |column: usize| {
        all().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for row in all() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let blanks = width.saturating_sub(cell.text.chars().count()) + 3;
            line.push_str(&paint.on(cell.ink, &cell.text));
            line.extend(std::iter::repeat_n(' ', blanks));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
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
        assert_eq!(table(&["X", "Y"], &rows(), Paint(false)), "X     Y\na     long cell\nbcd\n");
    }

    #[test]
    fn colour_takes_no_room() {
        let coloured = table(&["X", "Y"], &rows(), Paint(true));
        assert!(coloured.contains("\u{1b}[1;31ma\u{1b}[0m     long cell\n"), "{coloured:?}");
    }
}
