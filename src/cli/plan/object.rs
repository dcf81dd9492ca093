//! The one object of a kind in a file that a person names: a ClusterUpgrade as it lies in git, an older plan.
//!
//! Here belongs how it is found among other documents. The invariant: exactly one is found, or one line says what the
//! file holds instead and what to give.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use evenkeel_core::version::escape;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::observe::files::{List, Piece, Use, pieces, shown_path};

/// How many kinds of other objects are named.
const NAMED: usize = 3;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KindFields {
    api_version: Option<String>,
    kind: Option<String>,
}

/// Group and kind of what `raw` holds; `list` is what its list says of it.
fn of(raw: &RawValue, list: &List) -> (String, String) {
    let head: KindFields = serde_json::from_str(raw.get()).unwrap_or_default();
    let kind = head.kind.or_else(|| list.kind.clone()).unwrap_or_default();
    let api_version = head.api_version.or_else(|| list.api_version.clone()).unwrap_or_default();
    (api_version.split('/').next().unwrap_or_default().to_owned(), kind)
}

/// Whether `raw` is an object of that group and kind.
pub(super) fn is_of((group, kind): (&str, &str), raw: &RawValue, list: &List) -> bool {
    of(raw, list) == (group.to_owned(), kind.to_owned())
}

/// The only object of `kind`, of the API group `group`, that is in `path`; `advice` says what to give instead.
///
/// # Errors
/// When the file cannot be read, or holds none or several; one line that begins with `flag`.
pub(super) fn only(flag: &str, path: &Path, kind: (&str, &str), advice: &str) -> Result<Value, String> {
    only_beside(flag, path, kind, "", advice).map(|(object, _)| object)
}

/// The same, and every object of kind `beside`, of the same group.
pub(super) fn only_beside(
    flag: &str,
    path: &Path,
    (group, kind): (&str, &str),
    beside: &str,
    advice: &str,
) -> Result<(Value, Vec<Value>), String> {
    let (mut found, mut more): (Vec<Value>, Vec<Value>) = Default::default();
    let mut others: BTreeMap<String, usize> = BTreeMap::new();
    let paths = [PathBuf::from(path)];
    let read = pieces(&paths, &mut |_, piece| {
        let Piece::Object { raw, list, .. } = piece else { return Use::None };
        let (of_group, this) = of(raw, list);
        if of_group == group && this == kind {
            found.extend(serde_json::from_str::<Value>(raw.get()));
        } else {
            if of_group == group && this == beside {
                more.extend(serde_json::from_str::<Value>(raw.get()));
            }
            let name = if this.is_empty() { "objects without a kind".to_owned() } else { escape(&this) };
            *others.entry(name).or_default() += 1;
        }
        Use::Some
    });
    let read = read.map_err(|error| format!("{flag} {error}"))?;
    let (name, mut found) = (shown_path(path), found.into_iter());
    match (found.next(), found.len()) {
        (Some(object), 0) => Ok((object, more)),
        (Some(_), others) => {
            Err(format!("{flag} {name}: holds {} objects of kind {kind}; {advice}", others + 1))
        }
        (None, _) => {
            let kinds: Vec<_> = others.keys().take(NAMED).cloned().collect();
            let instead = read.faults.first().or(read.unused.first()).cloned();
            let instead = match kinds.len() {
                0 => instead.map(|line| format!(" ({line})")).unwrap_or_default(),
                _ => format!(" (only {})", kinds.join(", ")),
            };
            Err(format!("{flag} {name}: holds no {kind}{instead}; {advice}"))
        }
    }
}
