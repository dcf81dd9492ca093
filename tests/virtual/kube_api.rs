//! A client of objects as JSON, for whoever prepares or looks at a cluster. Nothing of the product's is in it.

use std::time::Duration;

use evenkeel_sim::Cluster;
use http::Request;
use kube::Client;
use serde_json::{Value, json};

pub const PODS: &str = "/api/v1/namespaces/shop/pods";
pub const BUDGETS: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
/// The seed of every [`Base`], which no run has: a copy with the seed of its base would give UIDs a second time, and the
/// garbage collector would take new objects for the owners of old ones.
pub const BASE_SEED: u64 = 0xba5e_0000;

/// What a scenario begins with, kept so that thousands of runs need not wait for it.
pub struct Base {
    objects: Vec<Value>,
    now: jiff::Timestamp,
}

impl Base {
    /// What `cluster` is now.
    pub fn of(cluster: &Cluster) -> Self {
        Self { objects: cluster.dump(), now: cluster.now() }
    }

    /// An object of it.
    pub fn find(&self, kind: &str, name: &str) -> Option<Value> {
        let named = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.objects.iter().find(named).cloned()
    }

    /// A cluster that begins as this one was.
    pub async fn start(&self, seed: u64) -> (Cluster, Kube) {
        let cluster = Cluster::builder().seed(seed).version("v1.37.1").starting_at(self.now).start();
        cluster.load(self.objects.iter().cloned());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let kube = Kube(cluster.client_of("kubectl"));
        (cluster, kube)
    }
}

/// Requests by path.
#[derive(Clone)]
pub struct Kube(pub Client);

impl Kube {
    pub async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> kube::Result<Value> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("Content-Type", kind).body(body);
        self.0.request(request.expect("a path of ours")).await
    }

    pub async fn get(&self, path: &str) -> Option<Value> {
        self.send("GET", path, "application/json", &Value::Null).await.ok()
    }

    pub async fn list(&self, path: &str) -> Vec<Value> {
        let list = self.get(path).await.unwrap_or_default();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.send("POST", path, "application/json", object)
            .await
            .unwrap_or_else(|error| panic!("create {path}: {error}"))
    }

    pub async fn merge(&self, path: &str, patch: &Value) -> kube::Result<Value> {
        self.send("PATCH", path, "application/merge-patch+json", patch).await
    }

    pub async fn delete(&self, path: &str) -> kube::Result<Value> {
        self.send("DELETE", path, "application/json", &Value::Null).await
    }

    /// Installs our custom resources.
    pub async fn install(&self) {
        for (_, definition) in evenkeel::api::definitions() {
            let definition = serde_json::to_value(definition).expect("a definition");
            self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
        }
    }

    pub async fn namespace(&self, name: &str) {
        self.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }

    /// A Deployment of `replicas` pods with label `app`, and if wanted a budget for them.
    pub async fn deployment(&self, name: &str, replicas: u32, budget: Option<Value>) {
        self.workload("deployments", name, replicas, &json!({})).await;
        self.budget(name, budget).await;
    }

    /// A Deployment or StatefulSet in `shop` whose pods have the label `app`, with more in its spec.
    pub async fn workload(&self, plural: &str, name: &str, replicas: u32, more: &Value) {
        let mut object = json!({
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"terminationGracePeriodSeconds": 10, "containers": [{"name": "c", "image": "registry.example/c:1"}]}}},
        });
        merge(&mut object, more);
        self.create(&format!("/apis/apps/v1/namespaces/shop/{plural}"), &object).await;
    }

    /// A budget in `shop` for the pods with that label `app`.
    pub async fn budget(&self, app: &str, budget: Option<Value>) {
        let Some(budget) = budget else { return };
        let mut object =
            json!({"metadata": {"name": app}, "spec": {"selector": {"matchLabels": {"app": app}}}});
        merge(&mut object, &json!({"spec": budget}));
        self.create("/apis/policy/v1/namespaces/shop/poddisruptionbudgets", &object).await;
    }
}

fn merge(object: &mut Value, more: &Value) {
    match (object, more) {
        (Value::Object(object), Value::Object(more)) => {
            for (key, value) in more {
                merge(object.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (object, more) => *object = more.clone(),
    }
}

/// The condition of that type of `object`, if it has one.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|of| of["type"] == kind)
}
