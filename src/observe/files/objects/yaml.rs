//! YAML, turned into JSON document by document, and inside of lists item by item.
//!
//! So every rule about objects exists once, for JSON, and of a large list only one item at a time is held as a tree.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use serde_saphyr::Error;

use super::super::text::brief;

pub(super) fn parse(text: &str, each: &mut dyn FnMut(&RawValue)) -> Result<(), String> {
    // The defaults are for configuration files; a dump of a large cluster is of another size. What bombs are made of
    // (aliases, nesting) stays as it is.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: None,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_documents: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
        },
        with_snippet: false,
        emit_comments: false,
    };
    let mut reader = text.as_bytes();
    for document in serde_saphyr::read_with_options::<_, Document>(&mut reader, options) {
        let document = document.map_err(|error| broken(&error))?;
        let raw: &RawValue = serde_json::from_str(&document.0).map_err(|error| error.to_string())?;
        each(raw);
    }
    Ok(())
}

/// What is wrong with a YAML text, for a person.
fn broken(error: &Error) -> String {
    let place = error.location().map_or_else(String::new, |at| format!(" (line {})", at.line()));
    match error.without_snippet() {
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().map_or_else(String::new, |key| format!(" {}", brief(key)));
            format!("has the key{key} twice in one object{place}; take one of them away")
        }
        Error::Eof { .. } => format!("ends in the middle of its YAML{place}; write the file again"),
        Error::UnknownAnchor { .. } => format!("uses a YAML anchor that it does not define{place}"),
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            format!("has more aliases, or is nested deeper, than anything that kubectl writes{place}")
        }
        Error::BinaryNotUtf8 { .. } | Error::InvalidBinaryBase64 { .. } => {
            format!("has a !!binary value that is no text{place}")
        }
        _ => {
            // The library's own words name options that only a programmer can set.
            let text = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
            format!("is not valid YAML: {}", brief(text.lines().next().unwrap_or_default()))
        }
    }
}

/// A document as JSON.
struct Document(String);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ToJson)
    }
}

struct ToJson;

impl<'de> Visitor<'de> for ToJson {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
        let mut json = String::from("{");
        while let Some(key) = map.next_key::<String>()? {
            if json.len() > 1 {
                json.push(',');
            }
            json.push_str(&Value::from(key.as_str()).to_string());
            json.push(':');
            if key == "items" {
                json.push_str(&map.next_value::<Document>()?.0);
            } else {
                json.push_str(&map.next_value::<Value>()?.to_string());
            }
        }
        json.push('}');
        Ok(Document(json))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Document, A::Error> {
        let mut json = String::from("[");
        while let Some(item) = items.next_element::<Value>()? {
            if json.len() > 1 {
                json.push(',');
            }
            json.push_str(&item.to_string());
        }
        json.push(']');
        Ok(Document(json))
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(scalar())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Document, E> {
        Ok(scalar())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Document, E> {
        Ok(scalar())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Document, E> {
        Ok(scalar())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Document, E> {
        Ok(scalar())
    }

    // In place of a list's items a text is told of, and must not be read as no items.
    fn visit_str<E>(self, text: &str) -> Result<Document, E> {
        Ok(Document(Value::from(text).to_string()))
    }
}

/// A number or other scalar that is no text, in place of a document: it tells nothing, so it becomes `null`.
fn scalar() -> Document {
    Document("null".to_owned())
}
