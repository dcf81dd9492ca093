//! The structural schema of a custom resource: its shape, its defaults and what its values must satisfy.
//!
//! Here belongs what a definition says; that it is served is in `api::custom`. The invariant: a rule is compiled once,
//! at its first use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Number, Value, json};

use super::builtin::builtin;
use super::shape::{Field, Listed, Scalar, Shape, Struct, Zero};

/// The field of a schema that holds its rules in CEL.
const RULES: &str = "x-kubernetes-validations";
/// What a rule can read of an object's metadata.
const READ_OF_METADATA: [&str; 2] = ["name", "generateName"];

/// One version of a custom resource.
#[derive(Debug)]
pub(crate) struct Custom {
    pub(crate) schema: Value,
    /// The rules of the schema, compiled at their first use.
    pub(crate) rules: OnceLock<CelRules>,
    pub(crate) storage: bool,
    /// `additionalPrinterColumns`.
    pub(crate) columns: Value,
    /// `subresources.scale`.
    pub(crate) scale: Value,
}

/// The rules in CEL of a schema.
#[derive(Debug)]
pub(crate) struct CelRules {
    compiled: kube_cel::CompiledSchema,
    /// The fields of the object that a rule on the whole object can read.
    of_all: BTreeSet<String>,
    /// The fields of the object that have rules, or have them further in.
    of: BTreeSet<String>,
}

impl CelRules {
    fn of(schema: &Value) -> Self {
        let has = |schema: &Value| schema.to_string().contains(RULES);
        let fields = || schema["properties"].as_object().into_iter().flatten();
        // The server lets a rule on the whole object read these of what every object has.
        let known = fields().map(|(name, _)| name.as_str()).chain(["apiVersion", "kind", "metadata"]);
        let texts = schema[RULES].to_string();
        Self {
            compiled: kube_cel::compile_schema(schema),
            of_all: known.filter(|name| texts.contains(name)).map(str::to_owned).collect(),
            of: fields().filter(|(_, schema)| has(schema)).map(|(name, _)| name.clone()).collect(),
        }
    }

    /// The fields that a rule can object to after the change from `old`. A field that an update leaves as it was is not
    /// checked again (KEP-4008).
    fn asked(&self, object: &Value, old: Option<&Value>) -> BTreeSet<&String> {
        let changed = |field: &&String| old.is_none_or(|old| object.get(*field) != old.get(*field));
        self.of.iter().filter(changed).chain(&self.of_all).collect()
    }
}

/// A value that does not satisfy its schema.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) field: String,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Violation {
    fn new(field: &str, reason: &'static str, message: String) -> Self {
        Self { field: field.to_owned(), reason, message }
    }
}

impl Custom {
    /// The shape of a whole object.
    pub(crate) fn shape(schema: &Value) -> Arc<Shape> {
        let mut of = match shape(schema) {
            Shape::Struct(of) => of,
            _ => Struct { open: true, ..Struct::default() },
        };
        let text = || Arc::new(Shape::Scalar(Scalar::String));
        for (name, shape) in
            [("apiVersion", text()), ("kind", text()), ("metadata", builtin("meta.ObjectMeta"))]
        {
            of.fields.insert(name.into(), field(shape));
        }
        Arc::new(Shape::Struct(of))
    }

    /// Fills in the defaults of the schema.
    pub(crate) fn default(&self, object: &mut Value) {
        fill(&self.schema, object);
    }

    /// What the rules in CEL say of an object, and of its change.
    pub(crate) fn rules(&self, object: &Value, old: Option<&Value>) -> Vec<Violation> {
        let rules = self.rules.get_or_init(|| CelRules::of(&self.schema));
        let asked = rules.asked(object, old);
        if asked.is_empty() {
            return Vec::new();
        }
        // To make an object known to CEL costs more than all rules, so that it gets only what they may read.
        let (new, old) = (only(object, &asked), old.map(|old| only(old, &asked)));
        let validator = kube_cel::Validator::new();
        let Err(errors) = validator.validate_compiled(&rules.compiled, &new, old.as_ref()) else {
            return Vec::new();
        };
        errors
            .into_vec()
            .into_iter()
            // A rule that cannot be evaluated here does not count against the object.
            .filter(|error| error.kind != kube_cel::ErrorKind::UnsupportedReference)
            .map(|error| {
                let pointer = format!("/{}", error.field_path.replace('.', "/"));
                let value = object.pointer(&pointer).unwrap_or(object);
                let shown = match value {
                    Value::Object(_) | Value::Array(_) => String::new(),
                    value => format!("{value}: "),
                };
                let message = format!("Invalid value: {shown}{}", error.message);
                Violation { field: error.field_path, reason: "FieldValueInvalid", message }
            })
            .collect()
    }

    /// What is wrong with an object by its schema, rules in CEL aside.
    pub(crate) fn violations(&self, object: &Value) -> Vec<Violation> {
        let mut found = Vec::new();
        check(&self.schema, object, "", true, &mut found);
        found
    }
}

/// These fields of `object`; of `metadata`, only what the server lets a rule read.
fn only(object: &Value, fields: &BTreeSet<&String>) -> Value {
    let present = |name: &&String| {
        let value = object.get(*name)?;
        let value = match name.as_str() {
            "metadata" => {
                READ_OF_METADATA.iter().filter_map(|&of| Some((of, value.get(of)?.clone()))).collect()
            }
            _ => value.clone(),
        };
        Some(((*name).clone(), value))
    };
    Value::Object(fields.iter().filter_map(present).collect())
}

fn field(shape: Arc<Shape>) -> Field {
    Field { shape, zero: Zero::Keep, merge_key: None, merges: false, number: Box::default() }
}

fn shape(schema: &Value) -> Shape {
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let atomic = schema["x-kubernetes-map-type"] == "atomic";
    if schema["x-kubernetes-int-or-string"] == true {
        return Shape::Scalar(Scalar::IntOrString);
    }
    match schema["type"].as_str() {
        Some("object") => {
            let more = &schema["additionalProperties"];
            if more.is_object() {
                return Shape::Map { of: Arc::new(shape(more)), atomic };
            }
            let properties = schema["properties"].as_object();
            let fields: BTreeMap<Box<str>, Field> = properties
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.as_str().into(), field(Arc::new(shape(schema)))))
                .collect();
            if fields.is_empty() && (open || more == &json!(true)) {
                return Shape::Any;
            }
            Shape::Struct(Struct { name: "".into(), fields, atomic, open })
        }
        Some("array") => {
            let listed = match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => Listed::Set,
                Some("map") => Listed::Map(
                    schema["x-kubernetes-list-map-keys"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(|key| Some(key.as_str()?.into()))
                        .collect(),
                ),
                _ => Listed::Atomic,
            };
            Shape::List { of: Arc::new(shape(&schema["items"])), listed }
        }
        // Validation finds a value of a wrong type, and names the field.
        _ => Shape::Any,
    }
}

fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                let default = &schema["default"];
                let missing = match fields.get(name) {
                    None => true,
                    Some(Value::Null) => schema["nullable"] != true,
                    Some(_) => false,
                };
                if missing && !default.is_null() {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(value) = fields.get_mut(name) {
                    fill(schema, value);
                }
            }
            let more = &schema["additionalProperties"];
            if more.is_object() {
                fields.values_mut().for_each(|value| fill(more, value));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(&schema["items"], item)),
        _ => {}
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The type that the schema wants instead of `kind`; `None` if a value of `kind` will do.
fn wrong_type<'a>(schema: &'a Value, kind: &str) -> Option<&'a str> {
    if schema["x-kubernetes-int-or-string"] == true {
        return (!matches!(kind, "integer" | "string")).then_some("integer,string");
    }
    let wanted = schema["type"].as_str()?;
    let fits = wanted == kind || wanted == "number" && kind == "integer";
    (!fits).then_some(wanted)
}

fn check(schema: &Value, value: &Value, path: &str, root: bool, found: &mut Vec<Violation>) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    let kind = kind_of(value);
    if let Some(wanted) = wrong_type(schema, kind) {
        let message = format!("Invalid value: {kind:?}: {path} in body must be of type {wanted}: {kind:?}");
        found.push(Violation::new(path, "FieldValueTypeInvalid", message));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let names: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", names.join(", "));
        found.push(Violation::new(path, "FieldValueNotSupported", message));
    }
    match value {
        Value::Number(number) => check_bounds(schema, number, path, found),
        Value::String(text) => check_length(schema, text, path, found),
        Value::Array(items) => check_items(schema, items, path, found),
        Value::Object(fields) => check_fields(schema, fields, path, root, found),
        _ => {}
    }
}

/// `minimum` and `maximum`.
fn check_bounds(schema: &Value, number: &Number, path: &str, found: &mut Vec<Violation>) {
    let at = number.as_f64().unwrap_or_default();
    let mut say = |bound: &str, limit: f64| {
        let message = format!("Invalid value: {number}: {path} in body should be {bound} {limit}");
        found.push(Violation::new(path, "FieldValueInvalid", message));
    };
    if let Some(least) = schema["minimum"].as_f64()
        && (at < least || schema["exclusiveMinimum"] == true && at <= least)
    {
        let open = schema["exclusiveMinimum"] == true;
        say(if open { "greater than" } else { "greater than or equal to" }, least);
    }
    if let Some(most) = schema["maximum"].as_f64()
        && (at > most || schema["exclusiveMaximum"] == true && at >= most)
    {
        let open = schema["exclusiveMaximum"] == true;
        say(if open { "less than" } else { "less than or equal to" }, most);
    }
}

/// `minLength` and `maxLength`.
fn check_length(schema: &Value, text: &str, path: &str, found: &mut Vec<Violation>) {
    let length = text.chars().count() as u64;
    if schema["minLength"].as_u64().is_some_and(|least| length < least) {
        let least = &schema["minLength"];
        let message =
            format!("Invalid value: {text:?}: {path} in body should be at least {least} chars long");
        found.push(Violation::new(path, "FieldValueInvalid", message));
    }
    if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
        let most = &schema["maxLength"];
        let message = format!("Too long: may not be more than {most} bytes");
        found.push(Violation::new(path, "FieldValueTooLong", message));
    }
}

/// How many items there are, and each of them.
fn check_items(schema: &Value, items: &[Value], path: &str, found: &mut Vec<Violation>) {
    let has = items.len();
    if schema["minItems"].as_u64().is_some_and(|least| (has as u64) < least) {
        let least = &schema["minItems"];
        let message = format!("Invalid value: {has}: {path} in body should have at least {least} items");
        found.push(Violation::new(path, "FieldValueInvalid", message));
    }
    if schema["maxItems"].as_u64().is_some_and(|most| has as u64 > most) {
        let most = &schema["maxItems"];
        let message = format!("Too many: {has}: must have at most {most} items");
        found.push(Violation::new(path, "FieldValueTooMany", message));
    }
    for (at, item) in items.iter().enumerate() {
        check(&schema["items"], item, &format!("{path}[{at}]"), false, found);
    }
}

/// Which fields are missing, and each that is there.
fn check_fields(
    schema: &Value,
    fields: &Map<String, Value>,
    path: &str,
    root: bool,
    found: &mut Vec<Violation>,
) {
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            let message = "Required value".to_owned();
            found.push(Violation::new(&join(path, name), "FieldValueRequired", message));
        }
    }
    for (name, value) in fields {
        if root && matches!(name.as_str(), "metadata" | "apiVersion" | "kind") {
            continue;
        }
        let of = match schema["properties"].get(name) {
            Some(of) => of,
            None if schema["additionalProperties"].is_object() => &schema["additionalProperties"],
            None => continue,
        };
        check(of, value, &join(path, name), false, found);
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
