//! Create, update, delete: the one way into the store, for requests and models alike.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::kinds::{Kind, Kinds};
use super::status::{Failure, Named, Outcome, success};
use super::{State, Subject, custom, defaults, validate};
use crate::clock;
use crate::fields::{Managed, Writer};
use crate::schema::Decoded;
use crate::store::Record;

/// How a write is made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) manager: String,
    pub(crate) subresource: Option<String>,
    pub(crate) dry_run: bool,
    /// Who owns which field is worked out. Models leave that out.
    pub(crate) tracked: bool,
}

/// How an object is deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deletion {
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) propagation: Option<String>,
    pub(crate) dry_run: bool,
}

/// What a write came to.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

fn text<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    object.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn drop_field(object: &mut Value, name: &str) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove(name);
    }
}

impl Subject {
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.kind.group, kind: &self.kind.plural, name }
    }
}

impl Kind {
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.group, kind: &self.plural, name }
    }

    /// As `named`, but by the kind: for what is invalid.
    pub(crate) fn typed<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { group: &self.group, kind: &self.kind, name }
    }

    /// Brings what was sent into the form that is kept; the paths of unknown fields.
    pub(crate) fn decode(&self, object: &mut Value) -> Outcome<Vec<String>> {
        let (api_version, kind) = (self.api_version(), self.kind.clone());
        if !object.is_object() {
            return Err(Failure::bad_request(format!(
                "{kind} in version {:?} cannot be handled as a {kind}: json: cannot unmarshal into Go value of type map[string]interface {{}}",
                self.version
            )));
        }
        let sent =
            (text(object, "/apiVersion").unwrap_or(&api_version), text(object, "/kind").unwrap_or(&kind));
        if sent != (api_version.as_str(), kind.as_str()) {
            return Err(self.foreign(sent.0, sent.1));
        }
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.clone().into();
        let mut decoded = Decoded::default();
        self.shape.decode(object, &mut decoded).map_err(|error| {
            Failure::bad_request(format!(
                "{kind} in version {:?} cannot be handled as a {kind}: {error}",
                self.version
            ))
        })?;
        if object["metadata"].is_null() {
            object["metadata"] = json!({});
        }
        Ok(decoded.unknown)
    }

    /// What is said of an object of another kind.
    pub(crate) fn foreign(&self, api_version: &str, kind: &str) -> Failure {
        if self.custom.is_some() {
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let group = if group.is_empty() { String::new() } else { format!("{group}, ") };
            let _ = (group, version);
            return Failure::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                self.api_version()
            ));
        }
        let version = api_version.rsplit('/').next().unwrap_or(api_version);
        let known = Kinds::default().by_kind(api_version, kind).is_some();
        let package =
            if self.group.is_empty() { "core" } else { self.group.split('.').next().unwrap_or_default() };
        let why = if known {
            format!("converting ({version}.{kind}) to ({package}.{}): unknown conversion", self.kind)
        } else {
            format!(
                "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )
        };
        Failure::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: {why}",
            self.kind
        ))
    }

    /// An object of this kind about which nothing is said.
    pub(crate) fn blank(&self) -> Value {
        let mut blank = json!({"apiVersion": self.api_version(), "kind": self.kind});
        let _ = self.shape.decode(&mut blank, &mut Decoded::default());
        blank
    }

    fn blank_status(&self) -> Value {
        self.blank().get_mut("status").map(Value::take).unwrap_or_default()
    }

    fn writer(&self, options: &Options, applies: bool) -> Writer {
        Writer {
            manager: options.manager.clone(),
            applies,
            api_version: self.api_version(),
            subresource: options.subresource.clone(),
        }
    }

    /// What a change of the spec is, for the count of generations.
    fn counted(&self, object: &Value) -> Value {
        let mut counted = object.clone();
        if let Some(fields) = counted.as_object_mut() {
            for name in ["metadata", "apiVersion", "kind"] {
                fields.remove(name);
            }
            if self.status {
                fields.remove("status");
            }
        }
        if self.kind == "Deployment" {
            counted["annotations"] = object["metadata"]["annotations"].clone();
        }
        counted
    }
}

impl State {
    pub(crate) fn now(&self) -> String {
        clock::seconds(self.clock.now())
    }

    /// Refuses a namespace that is not there, or on its way out.
    pub(crate) fn check_namespace(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Outcome<()> {
        let Some(namespace) = namespace.filter(|_| kind.namespaced) else { return Ok(()) };
        let missing = Named { group: "", kind: "namespaces", name: namespace };
        let record = self.store.get("namespaces", namespace).ok_or_else(|| Failure::not_found(missing))?;
        if record.text.contains("\"deletionTimestamp\"") {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            return Err(Failure::forbidden(kind.named(name), why).with_cause(
                "NamespaceTerminating",
                &format!("namespace {namespace} is being terminated"),
                "metadata.namespace",
            ));
        }
        Ok(())
    }

    /// Makes an object.
    pub(crate) fn create(
        &mut self,
        kind: &std::sync::Arc<Kind>,
        namespace: Option<&str>,
        mut object: Value,
        options: &Options,
    ) -> Outcome<Written> {
        let unknown = kind.decode(&mut object)?;
        self.check_names(kind, namespace, &mut object, None)?;
        let sent_name = text(&object, "/metadata/name").unwrap_or_default().to_owned();
        let generate = text(&object, "/metadata/generateName").map(str::to_owned);
        if sent_name.is_empty() && generate.is_none() {
            let cause = super::status::Cause::required("metadata.name", "name or generateName is required");
            return Err(Failure::invalid(kind.typed(""), &[cause]));
        }
        self.check_namespace(kind, namespace, &sent_name)?;
        if text(&object, "/metadata/resourceVersion").is_some() {
            return Err(
                Failure::internal("resourceVersion should not be set on objects to be created").bare()
            );
        }
        for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            drop_field(&mut object, name);
        }
        let metadata = &mut object["metadata"];
        metadata["uid"] = self.random.uid().into();
        metadata["creationTimestamp"] = clock::seconds(self.clock.now()).into();
        if kind.generation {
            metadata["generation"] = 1.into();
        }
        if sent_name.is_empty() {
            let generate = generate.unwrap_or_default();
            let base: String = generate.chars().take(58).collect();
            object["metadata"]["name"] = format!("{base}{}", self.random.suffix(5)).into();
        }
        if kind.status && !matches!(kind.kind.as_str(), "Node") {
            match (&kind.custom, kind.blank_status()) {
                (Some(_), _) => drop(object.as_object_mut().map(|object| object.remove("status"))),
                (None, status) => object["status"] = status,
            }
        }
        if let Some(custom) = &kind.custom {
            custom.default(&mut object);
        }
        defaults::fill(kind, &mut object, self.minor);
        let warnings = warnings(unknown);
        if options.tracked {
            let mut managed = Managed::read(&object);
            let before = kind.blank();
            managed.update(
                &kind.shape,
                &before,
                &object,
                &kind.writer(options, false),
                &self.now(),
                kind.status,
            );
            managed.write(&mut object);
        }
        // What admission adds is nobody's.
        self.admit(kind, &mut object)?;
        let name = text(&object, "/metadata/name").unwrap_or_default().to_owned();
        let mut causes = validate::create(kind, &object, self.minor);
        if causes.is_empty() {
            causes = validate::rules(kind, &object);
        }
        if !causes.is_empty() {
            return Err(Failure::invalid(kind.typed(&name), &causes));
        }
        let key = kind.key(namespace, &name);
        if let Some(found) = self.store.get(&kind.resource, &key) {
            let mut failure = Failure::exists(kind.named(&name));
            if found.text.contains("\"deletionTimestamp\"") {
                let said = failure.body["message"].as_str().unwrap_or_default();
                failure.body["message"] = format!("object is being deleted: {said}").into();
            }
            return Err(failure);
        }
        if options.dry_run {
            return Ok(Written { object, warnings });
        }
        self.put(kind, &key, &mut object);
        Ok(Written { object, warnings })
    }

    /// Name and namespace must be those of the request.
    fn check_names(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        object: &mut Value,
        name: Option<&str>,
    ) -> Outcome<()> {
        if let Some(name) = name {
            match text(object, "/metadata/name") {
                Some(sent) if sent != name => {
                    return Err(Failure::bad_request(format!(
                        "the name of the object ({sent}) does not match the name on the URL ({name})"
                    )));
                }
                Some(_) => {}
                None => object["metadata"]["name"] = name.into(),
            }
        }
        match namespace.filter(|_| kind.namespaced) {
            Some(namespace) => {
                if text(object, "/metadata/namespace").is_some_and(|sent| sent != namespace) {
                    return Err(Failure::bad_request(
                        "the namespace of the provided object does not match the namespace sent on the request",
                    ));
                }
                object["metadata"]["namespace"] = namespace.into();
            }
            None => drop_field(object, "namespace"),
        }
        Ok(())
    }

    /// Changes an object from what it is to `object`, which may be a patch's result.
    pub(crate) fn replace(
        &mut self,
        kind: &std::sync::Arc<Kind>,
        key: &str,
        before: &Record,
        mut object: Value,
        options: &Options,
    ) -> Outcome<Written> {
        let (namespace, name) = (Some(before.namespace()), before.name());
        let old = before.value();
        let unknown = kind.decode(&mut object)?;
        self.check_names(kind, namespace, &mut object, Some(name))?;
        match text(&object, "/metadata/uid") {
            Some(uid) if uid != &*before.uid => {
                let why = precondition(
                    kind,
                    key,
                    &format!("UID in precondition: {uid}, UID in object meta: {}", before.uid),
                );
                return Err(Failure::conflict(kind.named(name), why));
            }
            _ => {}
        }
        match text(&object, "/metadata/resourceVersion") {
            Some("0") | None => {
                if kind.conditional || kind.custom.is_some() {
                    let cause = super::status::Cause::invalid(
                        "metadata.resourceVersion",
                        &json!(0),
                        "must be specified for an update",
                    );
                    let mut cause = cause;
                    cause.message = "Invalid value: 0: must be specified for an update".into();
                    return Err(Failure::invalid(kind.named(name), &[cause]));
                }
            }
            Some(sent) if sent != before.revision.to_string() => {
                return Err(Failure::modified(kind.named(name)));
            }
            Some(_) => {}
        }
        self.keep(kind, &old, &mut object, options);
        if let Some(custom) = &kind.custom {
            custom.default(&mut object);
        }
        defaults::fill(kind, &mut object, self.minor);
        let warnings = warnings(unknown);
        let counts = kind.generation && options.subresource.as_deref() != Some("status");
        if counts && kind.counted(&old) != kind.counted(&object) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            object["metadata"]["generation"] = generation.into();
        }
        if options.tracked {
            let sent = &object["metadata"]["managedFields"];
            let reset = sent.as_array().is_some_and(|sent| {
                matches!(sent.as_slice(), [] | [Value::Object(_)])
                    && sent.iter().all(|entry| entry == &json!({}))
            });
            let mut managed = if reset { Managed::default() } else { Managed::read(&object) };
            if !reset && (managed.is_empty() || options.subresource.is_some()) {
                managed = Managed::read(&old);
            }
            if !managed.is_empty() {
                managed.update(
                    &kind.shape,
                    &old,
                    &object,
                    &kind.writer(options, false),
                    &self.now(),
                    kind.status,
                );
            }
            // A scale of zero replicas does not name them, so nobody owns them through it.
            if options.subresource.as_deref() == Some("scale") && object["spec"]["replicas"] == 0 {
                managed.forget(&kind.writer(options, false));
            }
            managed.write(&mut object);
        } else if let Some(fields) = old["metadata"].get("managedFields") {
            object["metadata"]["managedFields"] = fields.clone();
        }
        self.store_update(kind, key, before, &old, object, warnings, options)
    }

    /// The end of an update or an apply: validation, no change for no difference, and the last finalizer.
    #[allow(clippy::too_many_arguments, reason = "the two callers have all of it at hand")]
    fn store_update(
        &mut self,
        kind: &std::sync::Arc<Kind>,
        key: &str,
        before: &Record,
        old: &Value,
        mut object: Value,
        warnings: Vec<String>,
        options: &Options,
    ) -> Outcome<Written> {
        object["metadata"]["resourceVersion"] = before.revision.to_string().into();
        let mut causes = validate::create(kind, &object, self.minor);
        causes.extend(validate::update(kind, old, &object, options.subresource.as_deref(), self.minor));
        if !causes.is_empty() {
            return Err(Failure::invalid(kind.typed(before.name()), &causes));
        }
        if same(old, &object) {
            return Ok(Written { object: old.clone(), warnings });
        }
        if options.dry_run {
            return Ok(Written { object, warnings });
        }
        let leaving = object["metadata"].get("deletionTimestamp").is_some();
        let free = object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
            && object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
            && object["spec"]["finalizers"]
                .as_array()
                .is_none_or(|left| kind.kind != "Namespace" || left.is_empty());
        if leaving && free {
            self.remove(kind, key);
            return Ok(Written { object, warnings });
        }
        self.put(kind, key, &mut object);
        Ok(Written { object, warnings })
    }

    /// What this write may not touch stays as it was.
    fn keep(&self, kind: &Kind, old: &Value, object: &mut Value, options: &Options) {
        let metadata = &mut object["metadata"];
        for name in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "generateName",
        ] {
            match old["metadata"].get(name) {
                Some(value) => metadata[name] = value.clone(),
                None => drop(metadata.as_object_mut().map(|metadata| metadata.remove(name))),
            }
        }
        let was = |name: &str| old.get(name).cloned();
        let set = |object: &mut Value, name: &str, value: Option<Value>| match value {
            Some(value) => object[name] = value,
            None => drop(object.as_object_mut().map(|object| object.remove(name))),
        };
        match options.subresource.as_deref() {
            Some("status") => {
                if kind.custom.is_some() {
                    let (metadata, status) = (object["metadata"].take(), was("status"));
                    let new = object.get("status").cloned().or(status.filter(|_| false));
                    *object = old.clone();
                    set(object, "status", new);
                    for name in ["managedFields", "resourceVersion"] {
                        if let Some(value) = metadata.get(name) {
                            object["metadata"][name] = value.clone();
                        }
                    }
                } else {
                    set(object, "spec", was("spec"));
                    let kept: &[&str] = match kind.kind.as_str() {
                        "Pod" => &["ownerReferences"],
                        "Deployment" => &["labels"],
                        _ => &[],
                    };
                    for name in kept {
                        match old["metadata"].get(*name) {
                            Some(value) => object["metadata"][*name] = value.clone(),
                            None => drop_field(object, name),
                        }
                    }
                }
            }
            None if kind.status => set(object, "status", was("status")),
            _ => {}
        }
    }

    /// Server-side apply.
    pub(crate) fn apply(
        &mut self,
        subject: &Subject,
        name: &str,
        mut applied: Value,
        options: &Options,
        force: bool,
    ) -> Outcome<(Written, bool)> {
        let kind = &subject.kind;
        let key = kind.key(subject.namespace.as_deref(), name);
        let before = self.store.get(&kind.resource, &key).cloned();
        let refuse = |what: &str| Err(Failure::bad_request(what.to_owned()));
        match (text(&applied, "/apiVersion"), text(&applied, "/kind")) {
            (Some(version), Some(sent)) if version != kind.api_version() => {
                let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
                return refuse(&format!("invalid object type: {version}, Kind={sent}"));
            }
            (Some(_), Some(_)) => {}
            _ => return refuse("invalid object type: /, Kind="),
        }
        if applied["metadata"].get("managedFields").is_some_and(|fields| !fields.is_null()) {
            return refuse("metadata.managedFields must be nil");
        }
        self.check_names(kind, subject.namespace.as_deref(), &mut applied, Some(name))?;
        let writer = kind.writer(options, true);
        let old = before.as_ref().map_or_else(|| kind.blank(), |before| before.value());
        let mut managed = Managed::read(&old);
        if before.is_some() && managed.is_empty() {
            let first = Writer { manager: "before-first-apply".into(), applies: false, ..writer.clone() };
            managed.update(&kind.shape, &kind.blank(), &old, &first, &self.now(), kind.status);
        }
        if let (Some(sent), Some(before)) = (text(&applied, "/metadata/resourceVersion"), &before)
            && sent != before.revision.to_string()
        {
            return Err(Failure::modified(kind.named(name)));
        }
        let result = managed.apply(&kind.shape, &old, &applied, &writer, &self.now(), (force, kind.status));
        let mut object = result.map_err(|conflicts| {
            let message = if let [conflict] = conflicts.as_slice() {
                format!("Apply failed with 1 conflict: conflict with {}: {}", conflict.manager, conflict.path)
            } else {
                let mut by: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                for conflict in &conflicts {
                    by.entry(&conflict.manager).or_default().push(&conflict.path);
                }
                let lines: Vec<String> = by
                    .into_iter()
                    .map(|(manager, paths)| format!("conflicts with {manager}:\n- {}", paths.join("\n- ")))
                    .collect();
                format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
            };
            conflicts.iter().fold(Failure::new(409, "Conflict", message), |failure, conflict| {
                let said = format!("conflict with {}", conflict.manager);
                failure.with_cause("FieldManagerConflict", &said, &conflict.path)
            })
        })?;
        let Some(before) = before else {
            let plain = Options { tracked: false, ..options.clone() };
            if options.subresource.is_some() {
                return Err(Failure::not_found(kind.named(name)));
            }
            drop_field(&mut object, "resourceVersion");
            // The owners are known already; creating works out no others.
            managed.write(&mut object);
            let fields = object["metadata"]["managedFields"].clone();
            object["metadata"]["managedFields"] = fields;
            let written = self.create(kind, subject.namespace.as_deref(), object, &plain)?;
            return Ok((written, true));
        };
        let unknown = kind.decode(&mut object)?;
        self.keep(kind, &old, &mut object, options);
        if let Some(custom) = &kind.custom {
            custom.default(&mut object);
        }
        defaults::fill(kind, &mut object, self.minor);
        if kind.counted(&old) != kind.counted(&object) && kind.generation {
            object["metadata"]["generation"] =
                (old["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into();
        }
        managed.write(&mut object);
        let written = self.store_update(kind, &key, &before, &old, object, warnings(unknown), options)?;
        Ok((written, false))
    }

    /// Deletes an object, at once or when its grace and finalizers allow.
    pub(crate) fn delete(
        &mut self,
        kind: &std::sync::Arc<Kind>,
        key: &str,
        how: &Deletion,
    ) -> Outcome<Value> {
        let name = key.rsplit('/').next().unwrap_or(key).to_owned();
        let named = kind.named(&name);
        let before = self.store.get(&kind.resource, key).cloned().ok_or_else(|| Failure::not_found(named))?;
        if let Some(uid) = how.uid.as_deref().filter(|uid| *uid != &*before.uid) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                before.uid
            );
            return Err(Failure::conflict(kind.typed(&name), why));
        }
        if let Some(revision) =
            how.revision.as_deref().filter(|revision| *revision != before.revision.to_string())
        {
            let why = format!(
                "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({}). \
                 The object might have been modified",
                before.revision
            );
            return Err(Failure::conflict(kind.typed(&name), why));
        }
        let mut object = before.value();
        let pod = kind.kind == "Pod";
        let grace = if pod {
            let unborn = object["spec"]["nodeName"].is_null()
                || matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
            let wanted =
                how.grace.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
            if unborn {
                0
            } else if wanted < 0 {
                1
            } else {
                wanted
            }
        } else {
            0
        };
        let metadata = &mut object["metadata"];
        let leaving = metadata.get("deletionTimestamp").is_some();
        if leaving && pod {
            let left = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
            // A second deletion can only make it sooner.
            if how.grace.is_none_or(|grace| grace >= left) && grace > 0 && left > 0 || left == 0 && grace > 0
            {
                return Ok(object);
            }
        }
        let mut finalizers: Vec<Value> = metadata["finalizers"].as_array().cloned().unwrap_or_default();
        for (policy, finalizer) in [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")] {
            let wanted = how.propagation.as_deref() == Some(policy);
            let at = finalizers.iter().position(|found| found == finalizer);
            match at {
                None if wanted => finalizers.push(finalizer.into()),
                Some(at) if !wanted && how.propagation.is_some() => drop(finalizers.remove(at)),
                _ => {}
            }
        }
        let waits = !finalizers.is_empty()
            || kind.kind == "Namespace"
                && object["spec"]["finalizers"].as_array().is_some_and(|left| !left.is_empty());
        if how.dry_run {
            return Ok(self.gone(kind, object, &before));
        }
        if waits || grace > 0 {
            let metadata = &mut object["metadata"];
            if finalizers.is_empty() {
                drop(metadata.as_object_mut().map(|metadata| metadata.remove("finalizers")));
            } else {
                metadata["finalizers"] = finalizers.into();
            }
            let sooner = metadata["deletionGracePeriodSeconds"].as_i64().is_none_or(|left| grace < left);
            if !leaving || sooner {
                let end = self.clock.now() + SignedDuration::from_secs(grace);
                metadata["deletionTimestamp"] = clock::seconds(end).into();
                metadata["deletionGracePeriodSeconds"] = grace.into();
                if let Some(generation) =
                    metadata["generation"].as_i64().filter(|generation| *generation > 0 && !leaving)
                {
                    metadata["generation"] = (generation + 1).into();
                }
            }
            if kind.kind == "Namespace" {
                object["status"]["phase"] = "Terminating".into();
            }
            if !same(&before.value(), &object) {
                self.put(kind, key, &mut object);
            }
            return Ok(object);
        }
        if pod {
            let now = self.now();
            let metadata = &mut object["metadata"];
            metadata["deletionTimestamp"] = now.into();
            metadata["deletionGracePeriodSeconds"] = 0.into();
            if let Some(generation) = metadata["generation"].as_i64().filter(|_| !leaving) {
                metadata["generation"] = (generation + 1).into();
            }
        }
        if let Some(gone) = self.remove(kind, key) {
            object["metadata"]["resourceVersion"] = gone["metadata"]["resourceVersion"].clone();
        }
        Ok(self.gone(kind, object, &before))
    }

    fn gone(&self, kind: &Kind, object: Value, before: &Record) -> Value {
        if kind.shows_deleted { object } else { success(kind.named(before.name()), &before.uid) }
    }

    /// Stores, and takes note of kinds that come.
    pub(crate) fn put(&mut self, kind: &std::sync::Arc<Kind>, key: &str, object: &mut Value) {
        self.put_quietly(kind, key, object);
        if kind.kind == "CustomResourceDefinition" {
            custom::serve(&mut self.kinds, object);
        }
    }

    fn put_quietly(&mut self, kind: &std::sync::Arc<Kind>, key: &str, object: &mut Value) {
        self.store.put(&kind.resource, key, object, false);
    }

    /// Takes an object out of the store, and with a CustomResourceDefinition its kind.
    pub(crate) fn remove(&mut self, kind: &std::sync::Arc<Kind>, key: &str) -> Option<Value> {
        let gone = self.store.remove(&kind.resource, key)?.value();
        if kind.kind == "CustomResourceDefinition" {
            self.kinds.remove(key);
        }
        Some(gone)
    }
}

/// A precondition of an update that the store found wrong.
fn precondition(kind: &Kind, key: &str, why: &str) -> String {
    let path = match kind.group.as_str() {
        "" | "apps" | "batch" | "policy" => kind.plural.clone(),
        "coordination.k8s.io" => "leases".to_owned(),
        group => format!("{group}/{}", kind.plural),
    };
    format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{path}/{key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: {why}"
    )
}

/// Are these the same but for their revision and the times of their owners?
fn same(old: &Value, new: &Value) -> bool {
    let plain = |object: &Value| {
        let mut object = object.clone();
        drop_field(&mut object, "resourceVersion");
        for entry in
            object["metadata"].get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten()
        {
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
        }
        object
    };
    plain(old) == plain(new)
}

fn warnings(unknown: Vec<String>) -> Vec<String> {
    unknown.into_iter().map(|field| format!("unknown field {field:?}")).collect()
}
