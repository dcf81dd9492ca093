//! How much an object of ours may hold: the length of a text, and the size of a whole status.
//!
//! Nothing is decided here. The invariants: a text that is cut lacks its middle, where it has `…`; and a status is made with
//! shorter lists until it fits, so that what must be remembered is never cut to make room for what is only shown.

use serde::Serialize;

/// The longest line of a list, and the longest message of a condition, in characters: an event takes no more than twice
/// that, and shows the same words.
pub(super) const MAX_LINE: usize = 500;

/// The largest status that is written, in bytes of JSON, where lists for people can make it that small.
pub(super) const MAX_BYTES: usize = 64 * 1024;

/// `text` in at most `most` characters. In a longer one `…` takes the place of the middle: it begins with the object that it is
/// about, and its cause comes last.
pub(super) fn short(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let (begin, end) = (kept.div_ceil(2), kept / 2);
    text.chars().take(begin).chain(['…']).chain(text.chars().skip(count - end)).collect()
}

/// What `make` makes when its lists have all that they may have, or else a half, a quarter and so on of it: the first
/// that fits into [`MAX_BYTES`], or the smallest. `make` is told by how much to divide.
pub(super) fn fitting<S: Serialize>(make: impl Fn(usize) -> S) -> S {
    let mut divisor = 1;
    loop {
        let made = make(divisor);
        if divisor >= 64 || size(&made) <= MAX_BYTES {
            return made;
        }
        divisor *= 2;
    }
}

/// The bytes of `value` as JSON.
fn size(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // What cannot be written as JSON fails where it is sent, which says so.
    _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_cut_says_so() {
        assert_eq!(short("größer", 6), "größer");
        assert_eq!(short("größer", 5), "gr…er");
        assert_eq!(short("größer", 4), "gr…r");
    }

    #[test]
    fn lists_are_halved_until_the_whole_fits() {
        let list = |bytes: usize| move |divisor: usize| vec!["x".repeat(bytes - 3); 64 / divisor];
        assert_eq!(fitting(list(100)).len(), 64);
        assert_eq!(fitting(list(2_000)).len(), 32);
        assert_eq!(fitting(list(100_000)).len(), 1);
    }
}
