//! A table of plain text: columns as wide as their widest cell, nothing truncated.

use std::fmt::Write as _;

/// `rows` under `header`, each line ending in a newline. Trailing blanks are not written.
pub(super) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(header.get(column).map(|cell| cell.len())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::new();
        for (cell, width) in cells.zip(&widths) {
            // Writing to a String cannot fail.
            let _ = write!(out, "{cell:width$}   ");
        }
        text.push_str(out.trim_end());
        text.push('\n');
    };
    line(&mut header.into_iter());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_nothing_is_cut() {
        let rows = [["a".to_owned(), "long cell".to_owned()], ["bcd".to_owned(), String::new()]];
        assert_eq!(table(["X", "Y"], &rows), "X     Y\na     long cell\nbcd\n");
    }
}
