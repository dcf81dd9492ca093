//! The executor's Job: its pod template, bound to the node.
//!
//! Here belongs how the Job looks; when one starts is the core's decision. The invariant: a claim and an attempt name
//! exactly one Job, so that asking twice never starts two.

use std::sync::Arc;

use evenkeel_core::rollout::Subject;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

use super::actions::Hands;
use super::authority::NotDone;
use super::outcome::{FIELD_MANAGER, Outcome, Stop, refusal, stop};
use crate::api::job_name;
use crate::observe::lean::{EXECUTOR_LABEL, Job};

/// Label that tells which attempt of its claim a Job is.
pub const ATTEMPT_LABEL: &str = "evenkeel.dev/attempt";
/// How long a finished Job is kept to look at, in seconds.
const KEPT_SECONDS: u32 = 86_400;

impl Hands {
    /// Creates the Job of this attempt. If a Job of its name exists already, returns that one.
    pub(super) async fn start_job(
        &self,
        claim: &str,
        uid: &Arc<str>,
        attempt: u32,
        subject: &Subject,
        template: &str,
    ) -> Result<Outcome, Stop> {
        let name = job_name(uid, attempt);
        let manifest = manifest(&name, claim, uid, attempt, subject, read(template)?);
        let what = format!("create Job {}/{name} of NodeUpgrade {claim}", self.executors_namespace);
        let namespace = &*self.executors_namespace;
        let create = async |client: Client| client.request(creation(namespace, &manifest, false)?).await;
        match self.send(create).await {
            Ok(job) => Ok(Outcome::Job(Box::new(job))),
            Err(error) if error.code() == Some(409) => {
                let jobs = |client| Api::<Job>::namespaced(client, namespace);
                let found = self.send(async |client| jobs(client).get(&name).await).await;
                found.map(|job| Outcome::Job(Box::new(job))).map_err(|error| stop(&what, &error))
            }
            Err(error) => match refusal(&error) {
                Some(why) => Ok(Outcome::JobRefused { claim: Arc::clone(uid), why }),
                None => Err(stop(&what, &error)),
            },
        }
    }

    /// Asks the server whether it would take the Job that `executor` would get, without making it.
    pub(super) async fn try_job(
        &self,
        executor: Arc<str>,
        template: Arc<str>,
        subject: &Subject,
    ) -> Result<Outcome, Stop> {
        let (name, namespace) = ("dry-run", &*self.executors_namespace);
        let manifest = manifest("evenkeel-dry-run", name, name, 1, subject, read(&template)?);
        let what = format!("try the Job of executor {executor} in {namespace}");
        let create = async |client: Client| client.request(creation(namespace, &manifest, true)?).await;
        let refused = match self.send::<Job>(create).await {
            Ok(_) => None,
            Err(error) => told_of_trial(&error, &what)?,
        };
        Ok(Outcome::JobTried { executor, template, refused })
    }
}

/// Why the server would refuse the Job with whose trial it answered `error`, if it would.
fn told_of_trial(error: &NotDone, what: &str) -> Result<Option<String>, Stop> {
    if cannot_be_tried(error) {
        let why = error.line();
        tracing::info!(what, why, "the server can try no Job, so that only a real one is refused");
        return Ok(None);
    }
    refusal(error).map(Some).ok_or_else(|| stop(what, error))
}

/// Whether the server did not ask an admission webhook, because what that one does cannot be undone. A real Job it would
/// ask about (`k8s.io/apiserver/pkg/admission/plugin/webhook/errors`, `NewDryRunUnsupportedErr`).
fn cannot_be_tried(error: &NotDone) -> bool {
    let NotDone::Failed(kube::Error::Api(status)) = error else { return false };
    let name = status.message.strip_prefix("admission webhook \"");
    let rest = name.and_then(|name| name.split_once('"')).map(|(_, rest)| rest);
    status.code == 400 && rest == Some(" does not support dry run")
}

/// The request that creates the Job of `manifest`.
fn creation(namespace: &str, manifest: &Value, dry_run: bool) -> kube::Result<http::Request<Vec<u8>>> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), dry_run };
    let body = serde_json::to_vec(manifest).map_err(kube::Error::SerdeError)?;
    let url = <Job as kube::Resource>::url_path(&(), Some(namespace));
    kube::core::Request::new(url).create(&params, body).map_err(kube::Error::BuildRequest)
}

/// `template` as JSON: what the core gave out, and so readable unless the core is at fault.
fn read(template: &str) -> Result<Value, Stop> {
    serde_json::from_str(template).map_err(|error| Stop::Failed(format!("the executor's template: {error}")))
}

fn manifest(
    name: &str,
    claim: &str,
    uid: &str,
    attempt: u32,
    subject: &Subject,
    mut template: Value,
) -> Value {
    let labels = json!({ EXECUTOR_LABEL: uid, ATTEMPT_LABEL: attempt.to_string() });
    let metadata = object(&mut template, "metadata");
    let labels_of = object_in(metadata, "labels");
    labels_of.insert(EXECUTOR_LABEL.to_owned(), json!(uid));
    labels_of.insert(ATTEMPT_LABEL.to_owned(), json!(attempt.to_string()));
    let spec = object(&mut template, "spec");
    // Bound directly: the node is cordoned, and the scheduler would keep it off.
    spec.insert("nodeName".to_owned(), json!(&*subject.node));
    unless_set(spec, "restartPolicy", json!("Never"));
    push(spec, "tolerations", &[json!({ "operator": "Exists" })]);
    let component = if subject.is_of_plane() { "control-plane" } else { subject.component.name() };
    let components: Vec<&str> = subject.moves().iter().map(|component| component.name()).collect();
    let env = [
        json!({ "name": "EVENKEEL_NODE", "value": &*subject.node }),
        json!({ "name": "EVENKEEL_COMPONENT", "value": component }),
        json!({ "name": "EVENKEEL_COMPONENTS", "value": components.join(" ") }),
        json!({ "name": "EVENKEEL_FROM", "value": subject.from }),
        json!({ "name": "EVENKEEL_TO", "value": subject.to.to_string() }),
    ];
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                push(container, "env", &env);
                // What a program says when it refuses is read in the NodeUpgrade.
                unless_set(container, "terminationMessagePolicy", json!("FallbackToLogsOnError"));
            }
        }
    }
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": { "evenkeel.dev/node-upgrade-name": claim },
            "ownerReferences": owners(subject),
        },
        "spec": {
            "backoffLimit": 2,
            // A pod that is slow to end has ended before another begins: two executors never work on one node.
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": template,
        },
    })
}

/// Whom the Job goes with: its Node. Whoever deletes a NodeUpgrade in the foreground, as Argo CD does when it prunes, would
/// have the server kill what the NodeUpgrade owns at once, and a half upgraded node is worse than a Job that is kept.
fn owners(subject: &Subject) -> Value {
    let Subject { node, node_uid, .. } = subject;
    if node_uid.is_empty() {
        return json!([]);
    }
    json!([{ "apiVersion": "v1", "kind": "Node", "name": &**node, "uid": &**node_uid }])
}

/// The object at `key`, made when it is missing or no object.
fn object<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => object_in(map, key),
        _ => unreachable!("it was made an object above"),
    }
}

fn object_in<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let entry = map.entry(key).or_insert_with(|| json!({}));
    if !entry.is_object() {
        *entry = json!({});
    }
    match entry {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object above"),
    }
}

/// What is at `key`, where nothing is: `value`. Null is nothing, as it is to the server.
fn unless_set<'a>(map: &'a mut Map<String, Value>, key: &str, value: Value) -> &'a mut Value {
    let entry = map.entry(key).or_insert(Value::Null);
    if entry.is_null() {
        *entry = value;
    }
    entry
}

/// Adds `items` to the list at `key`, made when it is missing. What is no list stays as it is written: the server
/// refuses such a Job and says why, which a person could not see of one that we had mended.
fn push(map: &mut Map<String, Value>, key: &str, items: &[Value]) {
    if let Some(list) = unless_set(map, key, json!([])).as_array_mut() {
        list.extend(items.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::cluster::Component;

    fn subject() -> Subject {
        Subject {
            component: Component::Kubelet,
            components: Vec::new(),
            node: "n-1".into(),
            node_uid: "u".into(),
            from: "v1.36.4".into(),
            to: "v1.37.1".parse().unwrap(),
            executor: "job".into(),
        }
    }

    #[test]
    fn the_template_is_kept_and_bound_to_the_node() {
        let template = json!({
            "metadata": { "labels": { "team": "platform" } },
            "spec": {
                "hostPID": true,
                "containers": [{ "name": "up", "image": "x", "env": [{ "name": "A", "value": "b" }] }],
                "initContainers": [{ "name": "get", "image": "x", "terminationMessagePolicy": "File" }],
            },
        });
        let job = manifest("evenkeel-uid-1", "up.kubelet.n-1", "uid", 1, &subject(), template);
        let pod = &job["spec"]["template"];
        assert_eq!(pod["metadata"]["labels"]["team"], "platform");
        assert_eq!(pod["metadata"]["labels"][EXECUTOR_LABEL], "uid");
        assert_eq!(pod["spec"]["nodeName"], "n-1");
        assert_eq!(pod["spec"]["restartPolicy"], "Never");
        assert_eq!(pod["spec"]["hostPID"], true);
        assert_eq!(pod["spec"]["containers"][0]["env"].as_array().unwrap().len(), 6);
        assert_eq!(pod["spec"]["containers"][0]["terminationMessagePolicy"], "FallbackToLogsOnError");
        assert_eq!(pod["spec"]["initContainers"][0]["terminationMessagePolicy"], "File", "as it is written");
        assert_eq!(job["spec"]["podReplacementPolicy"], "Failed");
        let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n-1", "uid": "u" }]);
        assert_eq!(
            job["metadata"]["ownerReferences"], owner,
            "it ends with its Node, and not with its claim"
        );
    }

    #[test]
    fn a_job_is_told_what_moves() {
        let template = json!({ "spec": { "containers": [{ "name": "up", "image": "x" }] } });
        let plane = vec![Component::KubeApiserver, Component::KubeScheduler];
        for (components, one, all) in
            [(Vec::new(), "kubelet", "kubelet"), (plane, "control-plane", "kube-apiserver kube-scheduler")]
        {
            let subject = Subject { components, ..subject() };
            let job = manifest("evenkeel-uid-1", "claim", "uid", 1, &subject, template.clone());
            let env = job["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
            let value = |name: &str| env.iter().find(|of| of["name"] == name).unwrap()["value"].clone();
            assert_eq!((value("EVENKEEL_COMPONENT"), value("EVENKEEL_COMPONENTS")), (json!(one), json!(all)));
        }
    }

    /// A server does not call a webhook in a dry run that may have effects elsewhere, and answers so for it.
    #[test]
    fn a_job_that_cannot_be_tried_is_not_refused() {
        let tried = |code: u16, message: &str| {
            let status = kube::core::Status::failure(message, "BadRequest").with_code(code);
            told_of_trial(&NotDone::Failed(kube::Error::Api(status.boxed())), "try it").ok()
        };
        let webhook = r#"admission webhook "audit.example.com""#;
        assert_eq!(tried(400, &format!("{webhook} does not support dry run")), Some(None));
        for denied in [
            format!("{webhook} denied the request: team a does not support dry run"),
            "the namespace does not support dry run".to_owned(),
        ] {
            assert_eq!(tried(400, &denied), Some(Some(format!("{denied} (HTTP 400)"))));
        }
        assert_eq!(tried(503, &format!("{webhook} does not support dry run")), None, "it was not heard");
    }

    /// In YAML, `env:` with nothing behind it is null, which the server takes for nothing.
    #[test]
    fn a_field_that_is_null_is_filled_as_one_that_is_missing() {
        let container = |more: Value| {
            let mut container = json!({ "name": "up", "image": "x" });
            container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            container
        };
        let missing = json!({ "spec": { "containers": [container(json!({}))] } });
        let null = json!({
            "metadata": { "labels": null },
            "spec": {
                "nodeName": null,
                "restartPolicy": null,
                "tolerations": null,
                "containers": [container(json!({ "env": null, "terminationMessagePolicy": null }))],
            },
        });
        let job = |template| manifest("evenkeel-uid-1", "claim", "uid", 1, &subject(), template);
        assert_eq!(job(null), job(missing));
        let odd =
            json!({ "spec": { "tolerations": "all", "containers": [container(json!({ "env": {} }))] } });
        let pod = &job(odd)["spec"]["template"]["spec"];
        assert_eq!(
            (&pod["tolerations"], &pod["containers"][0]["env"]),
            (&json!("all"), &json!({})),
            "for the server"
        );
    }

    #[test]
    fn nonsense_templates_do_not_panic() {
        let spec = json!({ "spec": { "containers": [7] } });
        for template in [json!(null), json!([1]), json!({ "spec": 3, "metadata": [] }), spec] {
            let job = manifest("n", "c", "u", 1, &subject(), template);
            assert_eq!(job["spec"]["template"]["spec"]["nodeName"], "n-1");
        }
    }
}
