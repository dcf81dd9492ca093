//! Text that others wrote, made safe to show, and words for numbers.
//!
//! Names and messages come from whoever may write an object, or from a file that anybody wrote. Here belongs what is
//! taken out of such a text before a person sees it; whoever shows the text limits its length. The invariant: what is
//! returned moves no terminal's cursor, ends no line and does not turn the direction of writing.

/// Whether a terminal does not print `c` as itself: controls, and the marks that are format characters.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// `text` with a `?` for each character that would do something instead of being seen.
pub fn harmless(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { '?' } else { c }).collect()
}

/// `1 pod`, `3 pods`.
pub fn plural(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn what_would_act_is_seen_instead() {
        for (text, shown) in [
            ("shop/cart: 2 of 3 healthy", "shop/cart: 2 of 3 healthy"),
            ("größer 大", "größer 大"),
            ("\u{1b}[2Jgone", "?[2Jgone"),
            ("two\nlines\r", "two?lines?"),
            ("\u{202e}drawkcab\u{2069}", "?drawkcab?"),
            ("a\u{200b}b\u{feff}", "a?b?"),
        ] {
            assert_eq!(harmless(text), shown);
        }
    }
}
