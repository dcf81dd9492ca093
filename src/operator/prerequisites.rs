//! What the cluster has to have before the controllers can start: a server that answers, our kinds in it, and in those
//! of upgrades every field that this program knows.
//!
//! Here belongs what is asked before anything is decided; nothing is written. The invariant: a program that drives
//! upgrades waits, and says so, while one of their `CustomResourceDefinitions` is too old for it. A server drops what
//! its definition lacks, and what an upgrade remembers of itself would be lost.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, CustomResourceExt, Resource};
use serde_json::Value;
use tokio::time::sleep;

use crate::api::{ClusterSkewReport, ClusterUpgrade, NodeUpgrade, definitions};
use crate::clients::{one_line, within};

/// Longest pause between two questions.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
/// Where a server shows the schemas of our kinds.
const SCHEMAS: &str = "/openapi/v3/apis/evenkeel.dev/v1alpha1";

/// The line that says what the cluster lacks before the controllers can start, or `None`. `/readyz` shows it, and the
/// log has it once.
#[derive(Default)]
pub(super) struct Needs(Mutex<Option<String>>);

impl Needs {
    /// Waits until the server answers and knows our kinds; those of upgrades too, if `upgrades`.
    pub(super) async fn met(&self, client: &Client, upgrades: bool) {
        let mut wait = Duration::from_secs(1);
        while let Err(line) = all(client, upgrades).await {
            if self.set(Some(line.clone())).as_ref() != Some(&line) {
                tracing::warn!(problem = line, "waits, and tries again");
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        self.set(None);
    }

    /// Puts `line` in, and returns the line before it.
    fn set(&self, line: Option<String>) -> Option<String> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), line)
    }

    /// What the cluster lacks now.
    pub(super) fn line(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn all(client: &Client, upgrades: bool) -> Result<(), String> {
    installed::<ClusterSkewReport>(client).await?;
    if upgrades {
        installed::<ClusterUpgrade>(client).await?;
        installed::<NodeUpgrade>(client).await?;
        // An upgrade says itself that the definition of UpgradeExecutors is missing.
        // A report that is not whole says so itself, and loses nothing.
        whole(client).await?;
    }
    Ok(())
}

/// Asks whether the kube-apiserver answers and knows the kind `K`; an error is one line with the reason or the remedy.
async fn installed<K>(client: &Client) -> Result<(), String>
where
    K: Resource<DynamicType = ()> + CustomResourceExt,
{
    let resource = ApiResource::erase::<K>(&());
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let one = kube::api::ListParams::default().limit(1);
    match within(ANSWER, objects.list(&one)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(format!(
            "the CustomResourceDefinition {} is not installed; install it with kubectl apply -k config/crd",
            K::crd_name()
        )),
        Err(error) => Err(format!("cannot list {}: {}", resource.plural, one_line(&error))),
    }
}

/// Asks whether the definitions of upgrades have every field that this program knows.
async fn whole(client: &Client) -> Result<(), String> {
    let request = http::Request::get(SCHEMAS).body(Vec::new()).map_err(|error| error.to_string())?;
    let served: Value = match within(ANSWER, client.request(request)).await {
        Ok(served) => served,
        // Some clusters show nobody their schemas. Then what a server drops cannot be known before.
        Err(kube::Error::Api(status)) if [403, 404].contains(&status.code) => {
            tracing::warn!(
                path = SCHEMAS,
                code = status.code,
                "cannot see whether the definitions have every field"
            );
            return Ok(());
        }
        Err(error) => return Err(format!("cannot read {SCHEMAS}: {}", one_line(&error))),
    };
    OURS.iter().filter_map(|ours| ours.lack(&served)).map(Err).next().unwrap_or(Ok(()))
}

/// A kind of ours, as this program knows it.
struct Ours {
    kind: String,
    definition: String,
    schema: Value,
}

/// The kinds that upgrades are made of.
static OURS: LazyLock<Vec<Ours>> = LazyLock::new(|| {
    let ours = definitions().into_iter().filter_map(|(_, definition)| {
        let version = definition.spec.versions.first()?;
        let schema = serde_json::to_value(version.schema.as_ref()?.open_api_v3_schema.as_ref()?).ok()?;
        let kind = definition.spec.names.kind.clone();
        Some(Ours { kind, definition: definition.metadata.name.unwrap_or_default(), schema })
    });
    ours.filter(|ours| ours.kind != ClusterSkewReport::kind(&())).collect()
});

impl Ours {
    /// What the definition lacks in `served`, the document of a server, and what to do; `None` if nothing. A kind that
    /// is not served at all is none of this.
    fn lack(&self, served: &Value) -> Option<String> {
        let there = served["components"]["schemas"].get(format!("dev.evenkeel.v1alpha1.{}", self.kind))?;
        let lack = ["spec", "status"]
            .into_iter()
            .find_map(|part| lack(self.schema["properties"].get(part)?, &there["properties"][part], part))?;
        Some(format!(
            "the CustomResourceDefinition {} is older than this program: it lacks {lack}; install this one's with \
             kubectl apply -k config/crd",
            self.definition
        ))
    }
}

/// The first field, or value of a field, of the schema `ours` that `there` lacks.
fn lack(ours: &Value, there: &Value, path: &str) -> Option<String> {
    if there["x-kubernetes-preserve-unknown-fields"] == true {
        return None;
    }
    let values = |schema: &Value| schema["enum"].as_array().cloned().unwrap_or_default();
    let known = values(there);
    if let Some(value) = values(ours).into_iter().find(|value| !known.is_empty() && !known.contains(value)) {
        return Some(format!("the value {value} of {path}"));
    }
    let of_field = |(name, field): (&String, &Value)| {
        let path = format!("{path}.{name}");
        match there["properties"].get(name) {
            Some(there) => lack(field, there, &path),
            None => Some(path),
        }
    };
    let of_each =
        |of: &str| lack(ours.get(of).filter(|each| each.is_object())?, &there[of], &format!("{path}[]"));
    let fields = ours["properties"].as_object().into_iter().flatten();
    fields
        .map(of_field)
        .find_map(|lack| lack)
        .or_else(|| of_each("items"))
        .or_else(|| of_each("additionalProperties"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The document of a server with our definitions, changed by `change`.
    fn served(kind: &str, change: impl FnOnce(&mut Value)) -> Value {
        let name = |ours: &Ours| format!("dev.evenkeel.v1alpha1.{}", ours.kind);
        let mut all: serde_json::Map<_, _> =
            OURS.iter().map(|ours| (name(ours), ours.schema.clone())).collect();
        change(&mut all[&format!("dev.evenkeel.v1alpha1.{kind}")]);
        json!({"components": {"schemas": all}})
    }

    fn lacks(served: &Value) -> Vec<String> {
        OURS.iter().filter_map(|ours| ours.lack(served)).collect()
    }

    #[tokio::test]
    async fn each_kind_that_is_not_installed_is_named() {
        // The server lists nothing of a kind that it serves.
        let lacks = async |plural: &'static str, upgrades: bool| {
            let service = tower::service_fn(move |request: http::Request<kube::client::Body>| async move {
                let path = request.uri().path();
                let code = if path.ends_with(plural) || path == SCHEMAS { 404 } else { 200 };
                let status = json!({"kind": "Status", "status": "Failure", "code": 404, "message": "no"});
                let list = json!({"metadata": {"resourceVersion": "1"}, "items": []});
                let answer = if code == 404 { status } else { list }.to_string().into_bytes();
                let answer = http::Response::builder().status(code).body(kube::client::Body::from(answer));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            });
            all(&Client::new(service, "default"), upgrades).await
        };
        let of_upgrades = ["clusterupgrades", "nodeupgrades"];
        for plural in [&["clusterskewreports"][..], &of_upgrades].concat() {
            let missing = Err(format!(
                "the CustomResourceDefinition {plural}.evenkeel.dev is not installed; install it with kubectl apply -k \
                 config/crd"
            ));
            assert_eq!(lacks(plural, true).await, missing);
            let alone = if of_upgrades.contains(&plural) { Ok(()) } else { missing };
            assert_eq!(lacks(plural, false).await, alone, "{plural}");
        }
        assert_eq!(lacks("upgradeexecutors", true).await, Ok(()), "an upgrade says so itself");
    }

    #[test]
    fn a_definition_that_lacks_a_field_or_a_value_is_named() {
        assert_eq!(OURS.len(), 3);
        assert_eq!(lacks(&served("ClusterUpgrade", |_| ())), Vec::<String>::new());
        assert_eq!(lacks(&json!({})), Vec::<String>::new(), "what is not served is not old");
        let of = |kind: &str, path: &str, key: &str| {
            lacks(&served(kind, |schema| {
                _ = schema.pointer_mut(path).and_then(Value::as_object_mut).unwrap().remove(key);
            }))
        };
        let remedy = "install this one's with kubectl apply -k config/crd";
        let old = |definition: &str, lack: &str| {
            vec![format!(
                "the CustomResourceDefinition {definition} is older than this program: it lacks {lack}; {remedy}"
            )]
        };
        let upgrades = "clusterupgrades.evenkeel.dev";
        assert_eq!(
            of("ClusterUpgrade", "/properties/status/properties", "soaks"),
            old(upgrades, "status.soaks")
        );
        let soak = "/properties/status/properties/soaks/items/properties";
        assert_eq!(of("ClusterUpgrade", soak, "kind"), old(upgrades, "status.soaks[].kind"));
        assert_eq!(
            of("ClusterUpgrade", "/properties", "status").len(),
            1,
            "without a status it remembers nothing"
        );
        let modes = served("ClusterUpgrade", |schema| {
            schema["properties"]["spec"]["properties"]["mode"]["enum"] = json!(["PlanOnly", "Automatic"]);
        });
        assert_eq!(lacks(&modes), old(upgrades, "the value \"RequireApproval\" of spec.mode"));
    }

    #[test]
    fn what_a_newer_definition_has_besides_is_no_lack() {
        let newer = served("ClusterUpgrade", |schema| {
            schema["properties"]["status"]["properties"]["verdict"] = json!({"type": "string"});
            let modes = &mut schema["properties"]["spec"]["properties"]["mode"]["enum"];
            modes.as_array_mut().unwrap().push(json!("Rehearse"));
        });
        assert_eq!(lacks(&newer), Vec::<String>::new());
    }
}
