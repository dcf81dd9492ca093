//! Reading an object as the server does: an unknown field is dropped and remembered, a value of the wrong type is
//! refused, zero values are left out or written as the type says.
//!
//! Whether a value makes sense never belongs here; `api::validate` says that. The invariant: an error is the message of
//! Go's decoder.

use serde_json::{Map, Value};

use super::quantity;
use super::shape::{Scalar, Shape, Struct, Zero};
use crate::clock;

/// Where a value is, from the top of its object. It is made into text only for an error.
#[derive(Clone, Copy)]
enum Path<'a> {
    Top,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Top => Ok(()),
            Self::Field(Path::Top, name) => f.write_str(name),
            Self::Field(above, name) => write!(f, "{above}.{name}"),
            Self::Item(list, at) => write!(f, "{list}[{at}]"),
        }
    }
}

/// What was found when an object was read.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    /// Paths of fields that do not exist.
    pub(crate) unknown: Vec<String>,
}

impl Shape {
    /// Brings a value into the form in which the server keeps it. Parts that are the same in `kept` are in that form
    /// already.
    ///
    /// The error is the message of Go's decoder.
    pub(crate) fn decode(
        &self,
        value: &mut Value,
        kept: Option<&Value>,
        decoded: &mut Decoded,
    ) -> Result<(), String> {
        let name = match self {
            Self::Struct(of) => &of.name,
            _ => "",
        };
        self.read(value, kept, name, &Path::Top, decoded)
    }

    fn read(
        &self,
        value: &mut Value,
        kept: Option<&Value>,
        owner: &str,
        path: &Path<'_>,
        decoded: &mut Decoded,
    ) -> Result<(), String> {
        match self {
            Self::Any => Ok(()),
            Self::Scalar(scalar) => scalar.read(value, owner, path),
            Self::Struct(of) => of.read(value, kept, owner, path, decoded),
            Self::Map { of, .. } => {
                let Value::Object(entries) = value else {
                    return Err(mismatch(value, owner, path, &format!("map[string]{}", of.go())));
                };
                for (name, value) in entries {
                    let kept = kept.and_then(|kept| kept.get(name));
                    if value.is_null() {
                        *value = of.zero();
                    } else if kept != Some(value) {
                        of.read(value, kept, owner, path, decoded)?;
                    }
                }
                Ok(())
            }
            Self::List { of, .. } => {
                let Value::Array(items) = value else {
                    return Err(mismatch(value, owner, path, &format!("[]{}", of.go())));
                };
                for (at, item) in items.iter_mut().enumerate() {
                    let kept = kept.and_then(|kept| kept.get(at));
                    if kept == Some(item) {
                        continue;
                    }
                    if item.is_null() {
                        *item = of.zero();
                    }
                    if !item.is_null() {
                        of.read(item, kept, owner, &Path::Item(path, at), decoded)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Go's zero value of this shape.
    fn zero(&self) -> Value {
        match self {
            Self::Scalar(Scalar::String | Scalar::Quantity) => Value::String(String::new()),
            Self::Scalar(Scalar::Bool) => Value::Bool(false),
            Self::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Number | Scalar::IntOrString) => {
                Value::from(0)
            }
            Self::Struct(of) => {
                let mut fields = Map::new();
                of.write_zeros(&mut fields);
                Value::Object(fields)
            }
            _ => Value::Null,
        }
    }

    fn is_zero(&self, value: &Value) -> bool {
        match value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            Value::Bool(true) => false,
        }
    }

    fn go(&self) -> String {
        match self {
            Self::Scalar(scalar) => scalar.go().to_owned(),
            Self::Struct(of) => of.name.to_string(),
            Self::Map { of, .. } => format!("map[string]{}", of.go()),
            Self::List { of, .. } => format!("[]{}", of.go()),
            Self::Any => "interface {}".to_owned(),
        }
    }
}

impl Struct {
    fn read(
        &self,
        value: &mut Value,
        kept: Option<&Value>,
        owner: &str,
        path: &Path<'_>,
        decoded: &mut Decoded,
    ) -> Result<(), String> {
        let Value::Object(fields) = value else {
            return Err(mismatch(value, owner, path, &self.name));
        };
        if !self.open {
            fields.retain(|name, _| {
                let known = self.fields.contains_key(name.as_str());
                if !known {
                    decoded.unknown.push(Path::Field(path, name).to_string());
                }
                known
            });
        }
        for (name, field) in &self.fields {
            let Some(sent) = fields.get_mut(&**name) else { continue };
            let kept = kept.and_then(|kept| kept.get(&**name));
            if kept == Some(sent) {
                continue;
            }
            if sent.is_null() {
                if field.zero != Zero::Keep || !self.name.is_empty() {
                    fields.remove(&**name);
                }
                continue;
            }
            field.shape.read(sent, kept, &self.name, &Path::Field(path, name), decoded)?;
            if field.zero == Zero::Omit && field.shape.is_zero(sent) {
                fields.remove(&**name);
            }
        }
        self.write_zeros(fields);
        Ok(())
    }

    fn write_zeros(&self, fields: &mut Map<String, Value>) {
        for (name, field) in &self.fields {
            if field.zero == Zero::Write && !fields.contains_key(&**name) {
                fields.insert(name.to_string(), field.shape.zero());
            }
        }
    }
}

impl Scalar {
    fn go(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Bool => "bool",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Number => "float64",
            Self::Time => "v1.Time",
            Self::MicroTime => "v1.MicroTime",
            Self::Quantity => "resource.Quantity",
            Self::IntOrString => "int32",
            Self::Bytes => "[]uint8",
        }
    }

    fn read(self, value: &mut Value, owner: &str, path: &Path<'_>) -> Result<(), String> {
        let fits = match (self, &*value) {
            (Self::String | Self::Bytes | Self::IntOrString, Value::String(_))
            | (Self::Bool, Value::Bool(_)) => true,
            (Self::Int32 | Self::IntOrString, Value::Number(number)) => {
                number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
            }
            (Self::Int64, Value::Number(number)) => number.is_i64(),
            (Self::Number, Value::Number(_)) => true,
            (Self::Quantity, Value::String(_) | Value::Number(_)) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let Some(canonical) = quantity::canonical(&text) else {
                    return Err("quantities must match the regular expression \
                         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                        .to_owned());
                };
                *value = Value::String(canonical);
                true
            }
            (Self::Time | Self::MicroTime, Value::String(text)) => {
                let Some(time) = clock::read(text) else {
                    return Err(format!(
                        "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
                    ));
                };
                if self == Self::MicroTime && !text.contains('.') {
                    let from = text.get(19..).unwrap_or_default();
                    return Err(format!(
                        "parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {from:?} as \".000000\""
                    ));
                }
                let written = if self == Self::Time { clock::seconds(time) } else { clock::micros(time) };
                *value = Value::String(written);
                true
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(mismatch(value, owner, path, self.go())) }
    }
}

fn mismatch(value: &Value, owner: &str, path: &Path<'_>, wanted: &str) -> String {
    let sent = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if number.is_i64() && wanted.starts_with("int") => format!("number {number}"),
        Value::Number(number) if wanted.starts_with("int") => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    // Go leaves list positions out of the path.
    let mut plain = String::new();
    let mut inside = false;
    for c in path.to_string().chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            c if !inside => plain.push(c),
            _ => {}
        }
    }
    format!("json: cannot unmarshal {sent} into Go struct field {owner}.{plain} of type {wanted}")
}
