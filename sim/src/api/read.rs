//! Get and list: from now, from a revision, and page by page.
//!
//! Here belongs what of the store is shown, in which order and in which form; nothing is changed here.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::request::{Request, RequestTarget};
use super::selector::FieldSelector;
use super::shown_as::{self, ShownForm, shown};
use super::state::ApiState;
use super::status::{Failure, Named, Outcome, StatusCause};
use super::table::{self, Style};

use crate::by_key::Live;
use crate::labels::LabelSelector;
use crate::record::Record;

/// What a list or watch is narrowed to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) prefix: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

impl Filter {
    pub(crate) fn of(request: &Request, subject: &RequestTarget) -> Outcome<Self> {
        let known: Vec<&str> = subject.kind.selectable.iter().map(String::as_str).collect();
        let labels = request.param("labelSelector").unwrap_or_default();
        Ok(Self {
            prefix: subject.namespace.as_ref().map(|namespace| format!("{namespace}/")),
            name: subject.name.clone(),
            labels: LabelSelector::query(labels)?,
            fields: FieldSelector::query(request.param("fieldSelector").unwrap_or_default(), &known)?,
        })
    }

    pub(crate) fn within(&self, record: &Record) -> bool {
        self.prefix.as_ref().is_none_or(|prefix| record.key.starts_with(prefix.as_str()))
            && self.name.as_ref().is_none_or(|name| record.name() == name)
    }

    pub(crate) fn matches(&self, record: &Record) -> bool {
        self.labels.matches(&record.labels) && (self.fields.is_empty() || self.fields.matches(record))
    }

    fn narrows(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }
}

/// One object, in the form that was asked for.
pub(crate) fn one(
    state: &ApiState,
    kind: &Kind,
    object: Arc<Value>,
    request: &Request,
) -> Outcome<Arc<Value>> {
    Ok(match ShownForm::of(request) {
        ShownForm::Whole => object,
        ShownForm::Metadata => shown_as::metadata(&object).into(),
        ShownForm::Table => {
            let revision = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            table::of(kind, [&*object], Style::of(request)?, state.clock.now(), &revision, true).into()
        }
    })
}

/// `resourceVersion` as a number.
pub(crate) fn revision(request: &Request) -> Outcome<Option<u64>> {
    let Some(text) = request.param("resourceVersion") else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        Failure::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: {why}"
        ))
    })
}

fn list_options(causes: &[StatusCause]) -> Failure {
    Failure::invalid(Named { group: "meta.k8s.io", kind: "ListOptions", name: "" }, causes)
}

/// The rules of `resourceVersionMatch`, for lists and watches.
pub(crate) fn check_match(request: &Request, watch: bool) -> Outcome<()> {
    let matching = request.param("resourceVersionMatch");
    let revision = request.param("resourceVersion");
    let mut causes = Vec::new();
    if watch {
        let initial = request.query.contains_key("sendInitialEvents");
        if initial && matching != Some("NotOlderThan") {
            causes.push(StatusCause::forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
            if let Some(matching) = matching {
                causes.push(StatusCause::unsupported(
                    "resourceVersionMatch",
                    &matching.into(),
                    &["NotOlderThan"],
                ));
            }
        }
        if !initial && matching.is_some() {
            causes.push(StatusCause::forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
    } else {
        if request.query.contains_key("sendInitialEvents") {
            causes
                .push(StatusCause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        if let Some(matching) = matching {
            if revision.is_none() {
                causes.push(StatusCause::forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if request.param("continue").is_some() {
                causes.push(StatusCause::forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                causes.push(StatusCause::unsupported(
                    "resourceVersionMatch",
                    &matching.into(),
                    &["Exact", "NotOlderThan", ""],
                ));
            }
            if matching == "Exact" && revision == Some("0") {
                causes.push(StatusCause::forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(list_options(&causes)) }
}

impl ApiState {
    pub(crate) fn get(&self, subject: &RequestTarget, name: &str) -> Outcome<Arc<Value>> {
        let key = subject.kind.key(subject.namespace.as_deref(), name);
        let record = self.store.get(&subject.kind.resource, &key);
        let record = record.ok_or_else(|| Failure::not_found(subject.named(name)))?;
        Ok(subject.kind.seen(record))
    }

    /// A list as JSON text: the texts of its objects are put together as they are.
    pub(crate) fn list(&self, request: &Request, subject: &RequestTarget) -> Outcome<String> {
        let filter = Filter::of(request, subject)?;
        check_match(request, false)?;
        let current = self.store.revision();
        let limit: usize = request.param("limit").map_or(Ok(0), str::parse).map_err(|_| {
            let text = request.param("limit").unwrap_or_default();
            Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
        })?;
        let resource = &subject.kind.resource;
        let (at, start) = if let Some(token) = request.param("continue") {
            if revision(request)?.is_some_and(|revision| revision != 0) {
                return Err(Failure::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let (at, start) = read_token(token)?;
            if at < self.store.compacted() {
                return Err(self.token_expired(&start));
            }
            (if at == u64::MAX { current } else { at }, Some(start))
        } else {
            let asked = revision(request)?.unwrap_or(0);
            if asked > current {
                return Err(Failure::too_large_revision(asked, current));
            }
            let exact = request.param("resourceVersionMatch") == Some("Exact")
                || limit > 0 && asked > 0 && request.param("resourceVersionMatch").is_none();
            if exact && asked < self.store.compacted() {
                return Err(Failure::expired(
                    "The resourceVersion for the provided list is too old.".to_string(),
                ));
            }
            (if exact { asked } else { current }, None)
        };
        // The pods of a node are listed all the time, and are few of many.
        let placed: Option<Live> = filter
            .fields
            .node()
            .filter(|_| resource.as_ref() == "pods" && at == current)
            .map(|node| self.store.pods_of(node).into_iter().collect());
        let then = placed.or_else(|| (at < current).then(|| self.store.at(resource, at)));
        let empty = Live::default();
        let live =
            then.as_ref().or_else(|| self.store.shelf(resource).map(|shelf| &shelf.live)).unwrap_or(&empty);
        let from = start.clone().or_else(|| filter.prefix.clone()).unwrap_or_default();
        let mut records = live
            .from(&from)
            .take_while(|record| {
                filter.prefix.as_ref().is_none_or(|prefix| record.key.starts_with(prefix.as_str()))
            })
            .filter(|record| filter.within(record));
        let mut found = Vec::new();
        let mut metadata = json!({"resourceVersion": at.to_string()});
        if subject.kind.custom.is_some() && ShownForm::of(request) == ShownForm::Whole {
            // An untyped list always has it.
            metadata["continue"] = "".into();
        }
        while let Some(record) = records.next() {
            if !filter.matches(record) {
                continue;
            }
            found.push(record);
            if limit > 0 && found.len() == limit {
                let rest = records.clone();
                let more = records.by_ref().any(|record| filter.matches(record));
                if more {
                    metadata["continue"] = token(at, &record.key).into();
                    if !filter.narrows() {
                        metadata["remainingItemCount"] = rest.count().into();
                    }
                }
                break;
            }
        }
        self.print(request, &subject.kind, &found, &metadata)
    }

    fn print(
        &self,
        request: &Request,
        kind: &Kind,
        found: &[&Arc<Record>],
        metadata: &Value,
    ) -> Outcome<String> {
        let form = ShownForm::of(request);
        if form == ShownForm::Table {
            let objects: Vec<Arc<Value>> = found.iter().map(|record| kind.seen(record)).collect();
            let objects = objects.iter().map(|object| &**object);
            let table = table::of(kind, objects, Style::of(request)?, self.clock.now(), metadata, true);
            return Ok(table.to_string());
        }
        let (api_version, list) = match form {
            ShownForm::Whole => (kind.api_version(), format!("{}List", kind.kind)),
            _ => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList".to_owned()),
        };
        let mut text =
            format!("{{\"kind\":{list:?},\"apiVersion\":{api_version:?},\"metadata\":{metadata},\"items\":[");
        // A typed list does not repeat what its items are. Fields are written in alphabetical order, so of most kinds both
        // come first.
        let prefix = format!("{{\"apiVersion\":{:?},\"kind\":{:?},", kind.api_version(), kind.kind);
        for (at, record) in found.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            if form == ShownForm::Metadata {
                text.push_str(&shown_as::metadata(&record.value()).to_string());
            } else if kind.custom.is_some() {
                text.push_str(&shown(kind, record));
            } else if let Some(rest) = record.text().strip_prefix(&prefix).filter(|_| !kind.converts()) {
                text.push('{');
                text.push_str(rest);
            } else {
                let mut object = Arc::unwrap_or_clone(kind.seen(record));
                for field in ["apiVersion", "kind"] {
                    drop(object.as_object_mut().and_then(|fields| fields.remove(field)));
                }
                text.push_str(&object.to_string());
            }
        }
        if form == ShownForm::Metadata && found.is_empty() {
            text.truncate(text.len() - 1);
            text.push_str("null}");
            return Ok(text);
        }
        text.push_str("]}");
        Ok(text)
    }

    fn token_expired(&self, start: &str) -> Failure {
        let mut failure = Failure::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of \
             the results. Continuing with the provided token results in an inconsistent list - objects that were \
             created, modified, or deleted between the time the first chunk was returned and now may show up in the \
             list.",
        );
        failure.body["metadata"] = json!({"continue": URL_SAFE_NO_PAD.encode(format!("{{\"v\":\"meta.k8s.io/v1\",\"rv\":-1,\"start\":{start:?}}}"))});
        failure
    }
}

/// Where the next page begins: after this key.
fn token(revision: u64, last: &str) -> String {
    let start = Value::String(format!("{last}\0"));
    URL_SAFE_NO_PAD.encode(format!("{{\"v\":\"meta.k8s.io/v1\",\"rv\":{revision},\"start\":{start}}}"))
}

fn read_token(token: &str) -> Outcome<(u64, String)> {
    let bad =
        |why: &str| Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let text = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|_| bad("illegal base64 data"))?;
    let text = String::from_utf8(text).map_err(|error| {
        let first = error.as_bytes().first().copied().unwrap_or_default();
        bad(&format!("invalid character '\\u{first:04x}' looking for beginning of value"))
    })?;
    let token: Value = serde_json::from_str(&text).map_err(|_| bad("invalid character"))?;
    if token["v"] != "meta.k8s.io/v1" {
        return Err(bad("server does not recognize this encoded version"));
    }
    let revision = match token["rv"].as_i64() {
        // The remainder of a list whose beginning has expired: from now.
        Some(-1) => u64::MAX,
        other => other
            .and_then(|revision| u64::try_from(revision).ok())
            .ok_or_else(|| bad("incorrect encoded start resourceVersion"))?,
    };
    let start = token["start"].as_str().filter(|start| !start.is_empty());
    Ok((revision, start.ok_or_else(|| bad("encoded start key empty"))?.to_owned()))
}
