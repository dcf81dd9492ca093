//! What is wrong with a JSON text or with an object in it, in words for a person.
//!
//! Here belongs how errors of the decoder are told. The invariant: none of its own words for types are shown, and
//! nothing of the text that is longer than a line.

use super::text::brief;

/// What is wrong with a JSON text, in words for a person.
pub(super) fn broken(error: &serde_json::Error) -> String {
    if error.is_eof() {
        format!("ends in the middle of its JSON (line {}); write the file again", error.line())
    } else if error.is_io() {
        // An error of the reader says what is wrong by itself.
        brief(without_line(&error.to_string()))
    } else if error.to_string().starts_with("recursion limit") {
        format!("is nested deeper than anything of a cluster (line {})", error.line())
    } else {
        format!("is not valid JSON: {}", brief(&error.to_string()))
    }
}

/// The error in words, without its line, which would be that of the object and not of the file.
pub(in super::super) fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = without_line(&text);
    let types = ["invalid type: ", "invalid value: "].into_iter().find_map(|start| text.strip_prefix(start));
    brief(&match types.and_then(|types| types.split_once(", expected ")) {
        Some((there, wanted)) => format!("it has {} where {} belongs", plain(there), plain(wanted)),
        None => text.to_owned(),
    })
}

fn without_line(text: &str) -> &str {
    text.rsplit_once(" at line ").map_or(text, |(text, _)| text)
}

/// Rust's names of what a field holds, as a person says them.
fn plain(what: &str) -> String {
    let (sort, value) = what.split_once(' ').unwrap_or((what, ""));
    let word = match sort {
        "integer" => "the number",
        "floating" => return format!("the number {}", value.trim_start_matches("point ")),
        "string" if value.is_empty() => "a text",
        "string" => "the text",
        "boolean" => "the value",
        "null" | "unit" => return "nothing".to_owned(),
        "map" | "struct" => return "an object".to_owned(),
        "sequence" => return "a list".to_owned(),
        "a" | "an" => {
            return match value {
                "string" | "borrowed string" => "a text".to_owned(),
                "map" => "an object".to_owned(),
                "sequence" => "a list".to_owned(),
                "boolean" => "true or false".to_owned(),
                value if value.starts_with("sequence") => "a list".to_owned(),
                _ => what.to_owned(),
            };
        }
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => {
            return "a number".to_owned();
        }
        _ => return if what.starts_with("struct ") { "an object".to_owned() } else { what.to_owned() },
    };
    if value.is_empty() { word.to_owned() } else { format!("{word} {value}") }
}
