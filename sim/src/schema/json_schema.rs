//! Reads a `JSONSchemaProps` in its binary form: the only type of the API whose JSON is not made field by field.
//!
//! The source is `generated.proto` and `marshal.go` of `k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1`. What
//! a schema means never belongs here; that is in `custom`.

use serde_json::{Map, Number, Value, json};

use super::wire::{Wire, fields, inside, number, text};

/// What a field of a schema is.
#[derive(Clone, Copy)]
enum Part {
    Text,
    Texts,
    Flag,
    Integer,
    Double,
    /// JSON as it is, in a message of its own.
    Json,
    Jsons,
    Schema,
    Schemas,
    Named,
    /// A schema or several.
    OrArray,
    /// A schema, or whether anything is allowed.
    OrBool,
    /// By name, a schema or names.
    OrTexts,
    /// A message of texts and flags, by their numbers.
    Message(&'static [(u64, &'static str, Self)]),
    Messages(&'static [(u64, &'static str, Self)]),
}

const DOCS: &[(u64, &str, Part)] = &[(1, "description", Part::Text), (2, "url", Part::Text)];
const RULE: &[(u64, &str, Part)] = &[
    (1, "rule", Part::Text),
    (2, "message", Part::Text),
    (3, "messageExpression", Part::Text),
    (4, "reason", Part::Text),
    (5, "fieldPath", Part::Text),
    (6, "optionalOldSelf", Part::Flag),
];
const SCHEMA: &[(u64, &str, Part)] = &[
    (1, "id", Part::Text),
    (2, "$schema", Part::Text),
    (3, "$ref", Part::Text),
    (4, "description", Part::Text),
    (5, "type", Part::Text),
    (6, "format", Part::Text),
    (7, "title", Part::Text),
    (8, "default", Part::Json),
    (9, "maximum", Part::Double),
    (10, "exclusiveMaximum", Part::Flag),
    (11, "minimum", Part::Double),
    (12, "exclusiveMinimum", Part::Flag),
    (13, "maxLength", Part::Integer),
    (14, "minLength", Part::Integer),
    (15, "pattern", Part::Text),
    (16, "maxItems", Part::Integer),
    (17, "minItems", Part::Integer),
    (18, "uniqueItems", Part::Flag),
    (19, "multipleOf", Part::Double),
    (20, "enum", Part::Jsons),
    (21, "maxProperties", Part::Integer),
    (22, "minProperties", Part::Integer),
    (23, "required", Part::Texts),
    (24, "items", Part::OrArray),
    (25, "allOf", Part::Schemas),
    (26, "oneOf", Part::Schemas),
    (27, "anyOf", Part::Schemas),
    (28, "not", Part::Schema),
    (29, "properties", Part::Named),
    (30, "additionalProperties", Part::OrBool),
    (31, "patternProperties", Part::Named),
    (32, "dependencies", Part::OrTexts),
    (33, "additionalItems", Part::OrBool),
    (34, "definitions", Part::Named),
    (35, "externalDocs", Part::Message(DOCS)),
    (36, "example", Part::Json),
    (37, "nullable", Part::Flag),
    (38, "x-kubernetes-preserve-unknown-fields", Part::Flag),
    (39, "x-kubernetes-embedded-resource", Part::Flag),
    (40, "x-kubernetes-int-or-string", Part::Flag),
    (41, "x-kubernetes-list-map-keys", Part::Texts),
    (42, "x-kubernetes-list-type", Part::Text),
    (43, "x-kubernetes-map-type", Part::Text),
    (44, "x-kubernetes-validations", Part::Messages(RULE)),
];

/// The schema in `bytes`; `None` if they are none.
pub(super) fn schema(bytes: &[u8]) -> Option<Value> {
    message(bytes, SCHEMA)
}

fn message(bytes: &[u8], parts: &[(u64, &str, Part)]) -> Option<Value> {
    let mut object = Map::new();
    for (number, wire) in fields(bytes)? {
        // Fields that are not known, of a newer version perhaps, are left out as the server does.
        let Some((_, name, part)) = parts.iter().find(|(at, ..)| *at == number) else { continue };
        part.put(&wire, (*name).to_owned(), &mut object)?;
    }
    Some(object.into())
}

fn texts(bytes: &[u8], number: u64) -> Option<Value> {
    let all = fields(bytes)?.into_iter().filter(|(at, _)| *at == number);
    all.map(|(_, wire)| if let Wire::Bytes(bytes) = wire { text(bytes) } else { None }).collect()
}

impl Part {
    fn put(self, wire: &Wire<'_>, name: String, object: &mut Map<String, Value>) -> Option<()> {
        let bytes = if let Wire::Bytes(bytes) = wire { *bytes } else { &[] };
        let value_of = if let Wire::Number(number) = wire { *number } else { 0 };
        let mut push = |name: String, value: Value| {
            if let Value::Array(items) = object.entry(name).or_insert_with(|| json!([])) {
                items.push(value);
            }
        };
        let value = match self {
            // Go leaves out what is empty, also where it is sent.
            Self::Text if bytes.is_empty() => return Some(()),
            Self::Flag if value_of == 0 && name != "x-kubernetes-preserve-unknown-fields" => return Some(()),
            Self::Text => text(bytes)?,
            Self::Flag => (value_of != 0).into(),
            Self::Integer => value_of.cast_signed().into(),
            Self::Double => double(f64::from_bits(value_of))?,
            Self::Json => json(bytes)?,
            Self::Schema => schema(bytes)?,
            Self::Message(parts) => message(bytes, parts)?,
            Self::OrArray => {
                if let Some(of) = inside(bytes, 1) {
                    schema(of)?
                } else {
                    let all = fields(bytes)?.into_iter().filter(|(at, _)| *at == 2);
                    let all = all.map(|(_, wire)| if let Wire::Bytes(of) = wire { schema(of) } else { None });
                    all.collect::<Option<Vec<_>>>()?.into()
                }
            }
            Self::OrBool => match inside(bytes, 2) {
                Some(of) => schema(of)?,
                None => (number(bytes, 1) == Some(1)).into(),
            },
            Self::Texts => {
                push(name, text(bytes)?);
                return Some(());
            }
            Self::Jsons => {
                push(name, json(bytes)?);
                return Some(());
            }
            Self::Schemas => {
                push(name, schema(bytes)?);
                return Some(());
            }
            Self::Messages(parts) => {
                push(name, message(bytes, parts)?);
                return Some(());
            }
            Self::Named | Self::OrTexts => {
                let (key, of) = (inside(bytes, 1)?, inside(bytes, 2).unwrap_or_default());
                let of = match (self, inside(of, 1)) {
                    (Self::OrTexts, Some(of)) => schema(of)?,
                    (Self::OrTexts, None) => texts(of, 2)?,
                    _ => schema(of)?,
                };
                let all = object.entry(name).or_insert_with(|| json!({}));
                all.as_object_mut()?.insert(std::str::from_utf8(key).ok()?.to_owned(), of);
                return Some(());
            }
        };
        object.insert(name, value);
        Some(())
    }
}

fn json(bytes: &[u8]) -> Option<Value> {
    inside(bytes, 1).map_or(Some(Value::Null), |raw| serde_json::from_slice(raw).ok())
}

/// A number as Go writes it: without a point where it is whole.
#[allow(clippy::cast_possible_truncation, reason = "whole and within the range")]
fn double(number: f64) -> Option<Value> {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        Some((number as i64).into())
    } else {
        Number::from_f64(number).map(Value::Number)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// A field with bytes; all of these are short.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let tag = u16::from(number) << 3 | 2;
        let mut all = if tag < 128 {
            vec![u8::try_from(tag).unwrap()]
        } else {
            vec![u8::try_from(tag & 0x7f).unwrap() | 0x80, u8::try_from(tag >> 7).unwrap()]
        };
        all.push(u8::try_from(bytes.len()).unwrap());
        all.extend_from_slice(bytes);
        all
    }

    fn flag(number: u16) -> Vec<u8> {
        let tag = number << 3;
        vec![u8::try_from(tag & 0x7f).unwrap() | 0x80, u8::try_from(tag >> 7).unwrap(), 1]
    }

    #[test]
    fn a_schema_is_read() {
        let of_type = |name: &[u8]| field(5, name);
        let replicas = [
            of_type(b"integer"),
            vec![9 << 3 | 1],
            10.0_f64.to_le_bytes().to_vec(),
            field(8, &field(1, b"3")),
        ]
        .concat();
        let tags = [of_type(b"array"), field(24, &field(1, &of_type(b"string"))), field(42, b"set")].concat();
        let property = |name: &[u8], of: &[u8]| field(29, &[field(1, name), field(2, of)].concat());
        let bytes = [
            of_type(b"object"),
            property(b"replicas", &replicas),
            property(b"tags", &tags),
            field(23, b"replicas"),
            field(20, &field(1, b"\"a\"")),
            field(30, &[8, 1]),
            flag(38),
            field(44, &[field(1, b"self > 0"), field(2, b"no")].concat()),
        ]
        .concat();
        assert_eq!(
            schema(&bytes).unwrap(),
            json!({
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer", "maximum": 10, "default": 3},
                    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                },
                "required": ["replicas"],
                "enum": ["a"],
                "additionalProperties": true,
                "x-kubernetes-preserve-unknown-fields": true,
                "x-kubernetes-validations": [{"rule": "self > 0", "message": "no"}],
            })
        );
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        assert_eq!(schema(&[0x0a, 5, 1]), None);
        assert_eq!(schema(&field(29, &[])), None, "a property without a name");
    }
}
