//! What a person who watches an upgrade reads, line by line: printed as it happens, and judged afterwards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evenkeel_devcluster::Failure;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

/// What was said, in order: when, of what, and which words.
pub type Lines = Vec<(Duration, String, String)>;

#[derive(Clone)]
pub struct Story {
    lines: Arc<Mutex<Lines>>,
    began: Instant,
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("evenkeel.dev", "v1alpha1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

impl Story {
    pub fn new(began: Instant) -> Self {
        Self { lines: Arc::default(), began }
    }

    pub fn lines(&self) -> Lines {
        self.lines.lock().map(|lines| lines.clone()).unwrap_or_default()
    }

    /// Everything that was said of `what`, in order.
    pub fn of(&self, what: &str) -> Vec<String> {
        self.lines().into_iter().filter(|(_, of, _)| of == what).map(|(.., said)| said).collect()
    }

    /// Looks twice a second, until the future is dropped.
    pub async fn follow(&self, client: &Client) -> std::convert::Infallible {
        let mut before = BTreeMap::new();
        loop {
            // The API goes away while its own nodes are upgraded: then nobody reads anything.
            if let Ok(now) = look(client).await {
                for (what, said) in now {
                    if before.get(&what) != Some(&said) {
                        let at = self.began.elapsed();
                        println!("{:>5.0} s  {what}: {said}", at.as_secs_f64());
                        if let Ok(mut lines) = self.lines.lock() {
                            lines.push((at, what.clone(), said.clone()));
                        }
                        before.insert(what, said);
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

async fn look(client: &Client) -> Result<Vec<(String, String)>, Failure> {
    let mut said = Vec::new();
    for report in api(client, "ClusterSkewReport").list(&ListParams::default()).await?.items {
        said.push(("report".to_owned(), condition(&report.data["status"], "SkewSupported")));
    }
    for upgrade in api(client, "ClusterUpgrade").list(&ListParams::default()).await?.items {
        let status = &upgrade.data["status"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        said.push(("upgrade".to_owned(), condition(status, "Ready")));
        said.push(("stalled".to_owned(), condition(status, "Stalled")));
        said.push(("progress".to_owned(), text(&status["progress"]["summary"])));
        if status["parked"].as_array().is_some_and(|parked| !parked.is_empty()) {
            said.push(("parked".to_owned(), status["parked"].to_string()));
        }
    }
    for claim in api(client, "NodeUpgrade").list(&ListParams::default()).await?.items {
        let status = &claim.data["status"];
        // While it moves, its message is the upgrade's.
        let state = status["state"].as_str().unwrap_or_default();
        let why = if state == "Failed" || state == "Parked" { status["message"].as_str() } else { None };
        said.push((claim.name_any(), format!("{state} {}", why.unwrap_or_default()).trim().to_owned()));
    }
    Ok(said)
}

/// Status, reason and message of a condition.
fn condition(status: &Value, kind: &str) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|c| c["type"] == kind).map(|c| {
        let text = |field: &str| c[field].as_str().unwrap_or_default();
        format!("{} {}: {}", text("status"), text("reason"), text("message"))
    });
    found.next_back().unwrap_or_default()
}
