//! What a person wants: `--to` and what goes with it, or a ClusterUpgrade in a file.
//!
//! The invariant: an object that a kube-apiserver would refuse or cut is refused here too, with the field's name.

use std::path::Path;

use evenkeel_core::text::harmless;
use evenkeel_core::upgrade::{Unit, Upgrade, not_on_the_way};
use evenkeel_core::version::{KubeVersion, escape};
use kube::core::DynamicObject;
use kube::{CustomResourceExt, ResourceExt as _};
use serde_json::Value;

use super::args::PlanArgs;
use super::executors::{self, SeenExecutors};
use super::object;
use crate::api::upgrade::Invalid;
use crate::api::{ClusterUpgrade, GROUP, UpgradeExecutor};
use crate::observe::files::shown_path;

/// An upgrade, and where it was written.
pub(super) struct RequestedUpgrade {
    pub(super) upgrade: Upgrade,
    /// `ClusterUpgrade prod-137 in prod-137.yaml`; `None` for `--to`.
    pub(super) source: Option<String>,
    /// The object of the file; `None` for `--to`.
    pub(super) object: Option<ClusterUpgrade>,
    /// The UpgradeExecutors beside it.
    pub(super) executors: Vec<DynamicObject>,
}

impl RequestedUpgrade {
    /// The upgrade of `object`, with the `executors` beside it.
    pub(super) fn of_object(object: ClusterUpgrade, executors: Vec<DynamicObject>) -> Result<Self, Invalid> {
        let upgrade = SeenExecutors::default().upgrade(&object, &executors)?.upgrade;
        let source = Some(format!("ClusterUpgrade {}", upgrade.name));
        Ok(Self { upgrade, source, object: Some(object), executors })
    }
}

/// What is wrong with `args`, whatever is in the files that they name.
pub(super) fn wrong_arguments(args: &PlanArgs) -> Option<String> {
    let stdin = |path: &Path| path.as_os_str() == "-";
    let upgrade = args.target.upgrade.as_deref();
    if upgrade.is_some_and(stdin) && args.observe.files.iter().any(|file| stdin(file)) {
        let line = "standard input cannot be both --upgrade and --file; put one of them into a file";
        return Some(line.to_owned());
    }
    let mut minors: Vec<_> = args.via.iter().map(KubeVersion::minor).collect();
    minors.sort_unstable();
    if let Some([minor, _]) = minors.array_windows::<2>().find(|[one, next]| one == next) {
        return Some(format!("--via: two versions of {minor}; name one for each minor"));
    }
    let to = args.target.to.as_ref()?;
    let late = not_on_the_way(&args.via, to)?;
    Some(format!("--via {late} is not on the way to {to}: name versions of minors before it"))
}

pub(super) fn requested(args: &PlanArgs) -> Result<RequestedUpgrade, String> {
    if let Some(path) = &args.target.upgrade {
        let (object, executors) = of_file(path)?;
        let name = object.name_any();
        let requested = RequestedUpgrade::of_object(object, executors)
            .map_err(|invalid| told(path, "ClusterUpgrade", &name, &invalid))?;
        let source = Some(format!("ClusterUpgrade {name} in {}", shown_path(path)));
        return Ok(RequestedUpgrade { source, ..requested });
    }
    let to = args.target.to.clone().ok_or("say --to VERSION or --upgrade FILE")?;
    let mut upgrade = Upgrade::to(to);
    upgrade.via.clone_from(&args.via);
    upgrade.control_plane.unit = args.unit.map_or(Unit::Component, Unit::from);
    if let Some(amount) = args.max_unavailable {
        upgrade.groups.iter_mut().for_each(|group| group.max_unavailable = amount);
    }
    Ok(RequestedUpgrade { upgrade, source: None, object: None, executors: Vec::new() })
}

/// What is wrong with an object of the file that `--upgrade` names.
fn told(path: &Path, kind: &str, name: &str, why: &impl std::fmt::Display) -> String {
    format!("--upgrade {}: {kind} {}: {why}", shown_path(path), escape(name))
}

/// The ClusterUpgrade in a file, and the UpgradeExecutors beside it.
fn of_file(path: &Path) -> Result<(ClusterUpgrade, Vec<DynamicObject>), String> {
    let advice = "give the one ClusterUpgrade that is to be planned";
    let kind = (GROUP, "ClusterUpgrade");
    let (value, beside) = object::only_beside("--upgrade", path, kind, executors::KIND, advice)?;
    let name = shown_path(path);
    if let Some(wrong) = wrong::<ClusterUpgrade>(&value) {
        return Err(format!("--upgrade {name}: {wrong}"));
    }
    let object: ClusterUpgrade = serde_json::from_value(value).map_err(|error| {
        format!("--upgrade {name}: the ClusterUpgrade cannot be read: {}", harmless(&error.to_string()))
    })?;
    let mut executors = Vec::new();
    for value in beside {
        let of = value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(wrong) = wrong::<UpgradeExecutor>(&value) {
            return Err(told(path, executors::KIND, &of, &wrong));
        }
        let executor = serde_json::from_value(value);
        executors
            .push(executor.map_err(|error| told(path, executors::KIND, &of, &harmless(&error.to_string())))?);
    }
    Ok((object, executors))
}

/// What is wrong with the first field of `object`'s spec that the schema does not have, or has with another type.
fn wrong<K: kube::Resource<DynamicType = ()> + CustomResourceExt>(object: &Value) -> Option<String> {
    let definition = serde_json::to_value(K::crd()).ok()?;
    let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")?;
    wrong_in(object.get("spec")?, schema, "spec").map(|wrong| match wrong {
        Wrong::NoField(path) => {
            let kind = K::kind(&());
            let a = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
            format!("{path} is no field of {a} {kind}; look at its spelling and its place")
        }
        Wrong::Otherwise(line) => line,
    })
}

/// What is wrong with a field.
enum Wrong {
    /// There is none at this path.
    NoField(String),
    /// Something else, in one line.
    Otherwise(String),
}

fn wrong_in(value: &Value, schema: &Value, path: &str) -> Option<Wrong> {
    let otherwise = |line: String| Some(Wrong::Otherwise(line));
    let expected = schema.get("type").and_then(Value::as_str);
    let fits = match (expected.unwrap_or_default(), value) {
        ("string", Value::Number(_) | Value::Bool(_)) => {
            return otherwise(format!("{path} is read as {value} and must be a text: put it in quotes"));
        }
        (_, Value::Null) => return otherwise(format!("{path} is empty: give it a value, or take it out")),
        ("string", value) => value.is_string(),
        ("integer", value) => value.is_i64(),
        ("boolean", value) => value.is_boolean(),
        ("array", value) => value.is_array(),
        ("object", value) => value.is_object(),
        _ => true,
    };
    if !fits {
        return otherwise(format!("{path} must be of type {}", expected.unwrap_or_default()));
    }
    match value {
        Value::Object(_) if schema.get("x-kubernetes-preserve-unknown-fields").is_some() => None,
        Value::Object(fields) => {
            let missing = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let missing = missing.filter_map(Value::as_str).find(|name| !fields.contains_key(*name));
            if let Some(name) = missing {
                return otherwise(format!("{path}.{name} is missing"));
            }
            let more = schema.get("additionalProperties");
            fields.iter().find_map(|(key, value)| {
                let path = format!("{path}.{}", escape(key));
                match schema.get("properties").and_then(|known| known.get(key)).or(more) {
                    Some(schema) => wrong_in(value, schema, &path),
                    None => Some(Wrong::NoField(path)),
                }
            })
        }
        Value::Array(items) => {
            let schema = schema.get("items")?;
            items.iter().enumerate().find_map(|(at, item)| wrong_in(item, schema, &format!("{path}[{at}]")))
        }
        _ => None,
    }
}
