//! Reads the binary form (protocol buffers) in which Go clients send built-in kinds, by the field numbers in
//! `kubernetes.txt`.
//!
//! The envelope around an object never belongs here, nor does writing, because answers are JSON, which every client
//! reads.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::json_schema;
use super::shape::{Scalar, Shape, Struct};
use super::wire::{Wire, fields, inside, number, text};
use crate::clock;

/// How Go writes a negative number: in all 64 bits.
#[allow(clippy::cast_possible_wrap, reason = "two's complement is what is on the wire")]
fn signed(number: u64) -> i64 {
    number as i64
}

impl Shape {
    /// A value of this shape; `None` if the bytes are not one.
    pub(crate) fn binary(&self, bytes: &[u8]) -> Option<Value> {
        match self {
            Self::Struct(of) => {
                let mut object = Map::new();
                of.binary(bytes, &[], &mut object)?;
                Some(object.into())
            }
            Self::Scalar(scalar) => scalar.bytes(bytes),
            // A field of unknown shape holds its JSON as bytes.
            Self::Any => serde_json::from_slice(inside(bytes, 1)?).ok(),
            Self::Map { .. } | Self::List { .. } => None,
        }
    }

    fn wire(&self, wire: &Wire<'_>) -> Option<Value> {
        match (self, wire) {
            (Self::Scalar(scalar), Wire::Number(number)) => scalar.number(*number),
            (shape, Wire::Bytes(bytes)) => shape.binary(bytes),
            _ => None,
        }
    }
}

impl Struct {
    /// Reads the message at `place`: the struct itself, or a part of it that is inlined in JSON and a message here.
    fn binary(&self, bytes: &[u8], place: &[u64], object: &mut Map<String, Value>) -> Option<()> {
        for (number, wire) in fields(bytes)? {
            let path = [place, &[number]].concat();
            let named = self.fields.iter().find(|(_, field)| *field.number == *path);
            let Some((name, field)) = named else {
                // Fields that are not known, of a newer version perhaps, are left out as the server does.
                if let Wire::Bytes(bytes) = wire
                    && self.fields.values().any(|field| field.number.starts_with(&path))
                {
                    self.binary(bytes, &path, object)?;
                }
                continue;
            };
            match &*field.shape {
                Shape::List { of, .. } => {
                    let item = of.wire(&wire)?;
                    match object.entry(name.to_string()).or_insert_with(|| json!([])) {
                        Value::Array(items) => items.push(item),
                        _ => return None,
                    }
                }
                Shape::Map { of, .. } => {
                    let Wire::Bytes(entry) = wire else { return None };
                    let key = std::str::from_utf8(inside(entry, 1).unwrap_or_default()).ok()?;
                    let value = fields(entry)?.into_iter().find(|(at, _)| *at == 2);
                    let value = match value {
                        Some((_, value)) => of.wire(&value)?,
                        None => of.binary(&[])?,
                    };
                    object.entry(name.to_string()).or_insert_with(|| json!({}))[key] = value;
                }
                Shape::Any if &**name == "openAPIV3Schema" => {
                    let Wire::Bytes(bytes) = wire else { return None };
                    object.insert(name.to_string(), json_schema::schema(bytes)?);
                }
                shape => {
                    let value = shape.wire(&wire)?;
                    object.insert(name.to_string(), value);
                }
            }
        }
        Some(())
    }
}

impl Scalar {
    fn number(self, number: u64) -> Option<Value> {
        match self {
            Self::Bool => Some((number != 0).into()),
            Self::Int32 | Self::Int64 => Some(signed(number).into()),
            Self::Number => Some(f64::from_bits(number).into()),
            _ => None,
        }
    }

    fn bytes(self, bytes: &[u8]) -> Option<Value> {
        match self {
            Self::String => text(bytes),
            Self::Bytes => Some(STANDARD.encode(bytes).into()),
            Self::Quantity => text(inside(bytes, 1).unwrap_or_default()),
            Self::IntOrString if number(bytes, 1).unwrap_or(0) == 0 => {
                Some(signed(number(bytes, 2).unwrap_or(0)).into())
            }
            Self::IntOrString => text(inside(bytes, 3).unwrap_or_default()),
            Self::Time | Self::MicroTime => {
                let seconds = signed(number(bytes, 1).unwrap_or(0));
                let nanoseconds = i32::try_from(signed(number(bytes, 2).unwrap_or(0))).ok()?;
                if bytes.is_empty() || seconds == 0 && nanoseconds == 0 {
                    return Some(Value::Null);
                }
                let time = Timestamp::new(seconds, nanoseconds).ok()?;
                Some(if self == Self::Time { clock::seconds(time) } else { clock::micros(time) }.into())
            }
            Self::Bool | Self::Int32 | Self::Int64 | Self::Number => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::builtin::builtin;
    use super::*;

    fn written(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number > 0x7f {
            bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
            number >>= 7;
        }
        bytes.push(u8::try_from(number).unwrap());
        bytes
    }

    /// A field with bytes.
    fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
        [written(number << 3 | 2), written(bytes.len() as u64), bytes.to_vec()].concat()
    }

    #[test]
    fn a_config_map_is_read() {
        let metadata =
            field(1, &[field(1, b"notes"), field(8, &[vec![8], written(1_767_225_600)].concat())].concat());
        let data = field(2, &[field(1, b"a"), field(2, b"b")].concat());
        let bytes = field(3, &[field(1, b"c"), field(2, &[0, 1])].concat());
        let read = builtin("core.ConfigMap").binary(&[metadata, data, bytes].concat()).unwrap();
        let created = json!({"name": "notes", "creationTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(read, json!({"metadata": created, "data": {"a": "b"}, "binaryData": {"c": "AAE="}}));
    }

    #[test]
    fn what_is_inlined_in_json_is_a_message_of_its_own() {
        // A volume: its name, and its source with a config map of a name.
        let source = field(2, &field(19, &field(1, &field(1, b"settings"))));
        let volume = [field(1, b"v"), source].concat();
        let pod = field(2, &field(1, &volume));
        let read = builtin("core.Pod").binary(&pod).unwrap();
        assert_eq!(read["spec"]["volumes"], json!([{"name": "v", "configMap": {"name": "settings"}}]));
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let pod = builtin("core.Pod");
        for bytes in [&[0x0a][..], &[0x0a, 5, 1], &[0x0f], &[0xff; 12], &[0x0a, 2, 0x0a, 9]] {
            assert_eq!(pod.binary(bytes), None, "{bytes:?}");
        }
    }
}
