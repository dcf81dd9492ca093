//! Bytes as text, and texts that are not what they should be.
//!
//! Here belongs what a person may give instead of objects: archives, tables, errors of kubectl. The invariant: a
//! line says what each of these is and, where something can be done, what to do instead.

use std::borrow::Cow;

use evenkeel_core::text::harmless;

/// Longest text of a file that is shown, in characters.
const MAX_SHOWN: usize = 120;
/// Files that are packed, by their first bytes.
const PACKED: [(&[u8], &str); 6] = [
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
];
/// Longest message that is shown, in characters.
const MAX_SAID: usize = 300;
/// Where the mark of a tar archive is.
const TAR: (usize, &[u8]) = (257, b"ustar");
/// What kubectl writes for people when it could not do what it was asked to.
const ERRORS: [&str; 7] = [
    "Error from server",
    "error: ",
    "Error: ",
    "The connection to the server ",
    "Unable to connect to the server",
    "Error in configuration",
    "couldn't get ",
];
/// The words that tools write in place of what they took out; in lower case.
const BLACKENED: [&[u8]; 2] = [b"***hidden***", b"redacted"];
/// The texts by which a file is known to hold an object that a report or a status needs; in lower case.
const NEEDED: [&[u8]; 8] = [
    b"\"kind\":\"node",
    b"\"kind\": \"node",
    b"\"kind\":\"pod",
    b"\"kind\": \"pod",
    b"kind: node",
    b"kind: pod",
    b"kubeletversion",
    b"evenkeel.dev/",
];

/// What a file that begins with `start` is, if it is empty or no text.
pub(super) fn no_text(start: &[u8]) -> Option<String> {
    if start.is_empty() {
        return Some("is empty".to_owned());
    }
    if let Some((_, by)) = PACKED.iter().find(|(mark, _)| start.starts_with(mark)) {
        return Some(format!("is packed by {by}; unpack it first"));
    }
    if start.get(TAR.0..).is_some_and(|rest| rest.starts_with(TAR.1)) {
        return Some("is a tar archive; unpack it, and give the folder".to_owned());
    }
    start.contains(&0).then(not_text)
}

fn not_text() -> String {
    "is neither JSON nor YAML: it is not text".to_owned()
}

/// The text of `bytes`: UTF-8, or the UTF-16 that `>` writes in Windows PowerShell.
pub(super) fn decode(bytes: Vec<u8>) -> Result<String, String> {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        String::from_utf16(&units).map_err(|_| "is not text: broken UTF-16".to_owned())
    };
    match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(Cow::Borrowed(rest)),
        _ => utf8(Cow::Owned(bytes)),
    }
}

fn utf8(bytes: Cow<'_, [u8]>) -> Result<String, String> {
    if bytes.contains(&0) {
        return Err(not_text());
    }
    let text = String::from_utf8(bytes.into_owned()).map_err(|_| not_text())?;
    // A proxy's login page, most often.
    if text.trim_start().starts_with('<') {
        return Err("is HTML or XML, not what kubectl writes".to_owned());
    }
    Ok(text)
}

/// What a text is that kubectl wrote for people: a table, an error, nothing found.
pub(super) fn for_people(text: &str) -> Option<String> {
    // kubectl writes warnings before its output.
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("Warning: "));
    let first = lines.next()?;
    if ERRORS.iter().any(|error| first.starts_with(error)) {
        return Some(format!("is an error of kubectl: {}", said(first)));
    }
    if first.starts_with("No resources found") {
        return Some("is what kubectl says where it finds nothing: No resources found".to_owned());
    }
    let heads = |word: &str| word.chars().all(|c| c.is_ascii_uppercase() || "-()%".contains(c));
    let words: Vec<&str> = first.split_whitespace().collect();
    let names = matches!(words.first(), Some(&("NAME" | "NAMESPACE" | "LAST")));
    (names && words.len() > 1 && words.iter().all(|word| heads(word)))
        .then(|| "is a table for people; write it with -o json or -o yaml".to_owned())
}

/// What kubectl or the server said, which is for people and may be long.
pub(super) fn said(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_SAID).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    harmless(&short)
}

/// Whether something was taken out of a file that begins with `start`, and `start` shows no object that a report or a
/// status needs.
pub(super) fn is_blackened(start: &[u8]) -> bool {
    let small = start.to_ascii_lowercase();
    let has = |wanted: &[u8]| small.windows(wanted.len()).any(|window| window == wanted);
    BLACKENED.into_iter().any(has) && !NEEDED.into_iter().any(has)
}

/// Whether `name` is no name but a word that a tool wrote in place of one.
pub(super) fn is_blackened_name(name: &str) -> bool {
    let small = name.to_ascii_lowercase();
    BLACKENED.iter().any(|mark| std::str::from_utf8(mark).is_ok_and(|mark| small.contains(mark)))
}

/// YAML may begin with a brace too; but then no quote follows it.
pub(super) fn is_json(text: &str) -> bool {
    let mut start = text.trim_start().chars();
    match start.next() {
        Some('{') => matches!(start.find(|c| !c.is_whitespace()), Some('"' | '}') | None),
        Some('[') => matches!(start.find(|c| !c.is_whitespace()), Some('{' | ']' | '[' | '"') | None),
        _ => false,
    }
}

/// `text` on one line, short, without anything that acts on a terminal.
pub(super) fn brief(text: &str) -> String {
    let short: String = text.chars().take(MAX_SHOWN).collect();
    let cut = if text.chars().nth(MAX_SHOWN).is_some() { "..." } else { "" };
    harmless(&short) + cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubectl_wrote_for_people_is_told() {
        for (text, told) in [
            ("NAME   STATUS   ROLES   AGE   VERSION\nn1     Ready    <none>  3d    v1.36.4\n", "is a table"),
            ("\nNAMESPACE NAME READY STATUS\n", "is a table"),
            (
                "Warning: old\nError from server (Forbidden): nodes is forbidden\n",
                "is an error of kubectl: Error from",
            ),
            ("The connection to the server localhost:8080 was refused\n", "is an error of kubectl: The conn"),
            ("No resources found in default namespace.\n", "is what kubectl says where it finds nothing"),
            ("NAME: n1\n", ""),
            ("apiVersion: v1\nkind: List\n", ""),
            ("", ""),
        ] {
            let found = for_people(text).unwrap_or_default();
            assert!(found.starts_with(told) && found.is_empty() == told.is_empty(), "{text:?}: {found}");
        }
    }

    #[test]
    fn what_is_blackened_may_still_be_needed() {
        assert!(is_blackened(b"{\"data\": ***HIDDEN***"));
        assert!(!is_blackened(b"{\"kind\": \"NodeList\", \"items\": ***HIDDEN***"));
        assert!(!is_blackened(
            b"apiVersion: evenkeel.dev/v1alpha1\nkind: ClusterUpgrade\nspec: ***HIDDEN***"
        ));
        assert!(!is_blackened(b"{\"data\": cut"));
    }
}
