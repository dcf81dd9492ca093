//! Runs cases against one cluster and writes down what came back.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::{Value, json};

use super::case::Case;
use super::plain::Names;

/// What came back in each case. `at_once` cases run at the same time: each has a namespace of its own and touches
/// nothing else.
pub async fn all(cases: &[Case], client: &Client, target: &str, at_once: usize) -> Vec<String> {
    let runs = cases.iter().enumerate().map(|(at, case)| one(at, case, client, target));
    stream::iter(runs).buffered(at_once).collect().await
}

async fn one(at: usize, case: &Case, client: &Client, target: &str) -> String {
    let namespace = format!("case-{at}");
    let body = json!({"metadata": {"name": namespace}});
    let (code, answer) = send(client, "POST", "/api/v1/namespaces", "", &body.to_string()).await;
    assert_eq!(code, 201, "{answer}");
    let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    for _ in 0..200 {
        if send(client, "GET", &account, "", "").await.0 == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut run = Run {
        client,
        namespace: namespace.clone(),
        names: Names::default(),
        saved: BTreeMap::new(),
        watches: BTreeMap::new(),
        out: String::new(),
    };
    for step in &case.steps {
        run.step(step).await;
    }
    let text = run.out.replace(&namespace, "NS");
    if std::env::var_os("SHOW").is_some() {
        println!("--- {target}: {}\n{text}", case.name);
    }
    // Nobody waits for the end of the namespace: the next case has its own.
    send(client, "DELETE", &format!("/api/v1/namespaces/{namespace}"), "", "").await;
    text
}

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

type Lines = Arc<Mutex<Vec<String>>>;

struct Run<'a> {
    client: &'a Client,
    namespace: String,
    names: Names,
    saved: BTreeMap<String, Value>,
    watches: BTreeMap<String, (Lines, tokio::task::JoinHandle<()>)>,
    out: String,
}

impl Run<'_> {
    async fn step(&mut self, step: &str) {
        let mut text = step.replace("NS", &self.namespace);
        for (name, saved) in &self.saved {
            let uid = saved["metadata"]["uid"].as_str().unwrap_or_default();
            let revision = saved["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            let token = saved["metadata"]["continue"].as_str().unwrap_or_default();
            text = text
                .replace(&format!("~{name}"), uid)
                .replace(&format!("^{name}"), revision)
                .replace(&format!("@{name}"), token);
        }
        let mut saves = None;
        if let Some(rest) = text.clone().strip_prefix('=') {
            let (name, rest) = rest.split_once(' ').expect("a verb after the name");
            saves = Some(name.to_owned());
            text = rest.to_owned();
        }
        // A quiet step is carried out and not compared.
        let quiet = text.starts_with('-');
        let text = text.trim_start_matches('-').to_owned();
        let (head, body) = if let Some((head, body)) = text.split_once('\n') {
            (head.to_owned(), body.to_owned())
        } else {
            let mut words = text.splitn(3, ' ');
            let head = [words.next().unwrap_or_default(), words.next().unwrap_or_default()].join(" ");
            (head, words.next().unwrap_or_default().to_owned())
        };
        let (verb, path) = head.split_once(' ').unwrap_or((&head, ""));
        match verb {
            "WATCH" => return self.watch(path, body.trim(), "application/json").await,
            "WATCHTABLE" => return self.watch(path, body.trim(), TABLE).await,
            "EVENTS" => return self.events(path).await,
            "SLEEP" => {
                tokio::time::sleep(Duration::from_millis(path.parse().expect("milliseconds"))).await;
                return;
            }
            "WAIT" => return self.wait(path, body.trim()).await,
            _ => {}
        }
        let (method, kind) = match verb {
            "JSON" => ("PATCH", "application/json-patch+json"),
            "MERGE" => ("PATCH", "application/merge-patch+json"),
            "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
            "APPLY" => ("PATCH", "application/apply-patch+yaml"),
            "TABLE" | "META" | "METAS" | "GET" => ("GET", verb),
            method => (method, "application/json"),
        };
        let body = if body.trim().is_empty() {
            String::new()
        } else if let Some(raw) = body.trim().strip_prefix('!') {
            raw.to_owned()
        } else {
            serde_saphyr::from_str::<Value>(&body)
                .unwrap_or_else(|error| panic!("{step}: {error}"))
                .to_string()
        };
        let (code, mut answer) = send(self.client, method, path, kind, &body).await;
        if let Some(name) = saves {
            self.saved.insert(name, answer.clone());
        }
        if !quiet {
            self.names.plain(&mut answer);
            let _ = writeln!(self.out, "{} -> {code} {answer}", step.lines().next().unwrap_or_default());
        }
    }

    /// Waits until a field of an object has a value: `WAIT <path> <pointer> <json>`.
    async fn wait(&mut self, path: &str, rest: &str) {
        let (pointer, wanted) = rest.split_once(' ').expect("a pointer and a value");
        let wanted: Value = serde_json::from_str(wanted).expect("JSON");
        let mut last = Value::Null;
        // In the virtual cluster requests take no time at all; controllers do.
        tokio::time::sleep(Duration::from_millis(100)).await;
        for _ in 0..600 {
            last = send(self.client, "GET", path, "", "").await.1;
            if last.pointer(pointer).unwrap_or(&Value::Null) == &wanted {
                let _ = writeln!(self.out, "WAIT {path} {rest}: yes");
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let _ =
            writeln!(self.out, "WAIT {path} {rest}: no, {}", last.pointer(pointer).unwrap_or(&Value::Null));
    }

    async fn watch(&mut self, name: &str, path: &str, accept: &str) {
        let lines = Lines::default();
        let request = http::Request::get(path.trim())
            .header("accept", accept)
            .body(Vec::new().into())
            .expect("a request");
        let answer = self.client.send(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let mut body = answer.into_body();
        let _ = writeln!(self.out, "WATCH {name} -> {code}");
        let sink = lines.clone();
        let task = tokio::spawn(async move {
            let mut rest = String::new();
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(data) = frame.into_data() else { continue };
                rest.push_str(&String::from_utf8_lossy(&data));
                while let Some(end) = rest.find('\n') {
                    let line: String = rest.drain(..=end).collect();
                    sink.lock().unwrap().push(line.trim().to_owned());
                }
            }
            if !rest.trim().is_empty() {
                sink.lock().unwrap().push(rest.trim().to_owned());
            }
            sink.lock().unwrap().push("END".to_owned());
        });
        self.watches.insert(name.to_owned(), (lines, task));
    }

    /// What a watch has brought until now.
    async fn events(&mut self, name: &str) {
        let (lines, _) = self.watches.get(name).expect("a watch of that name");
        let lines = lines.clone();
        let mut count = usize::MAX;
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = lines.lock().unwrap().len();
            if now == count {
                break;
            }
            count = now;
        }
        let got: Vec<String> = std::mem::take(&mut *lines.lock().unwrap());
        for line in got {
            match serde_json::from_str::<Value>(&line) {
                // A server sends bookmarks when it likes; only the one that ends a streaming list must come.
                Ok(event)
                    if event["type"] == "BOOKMARK"
                        && event["object"]["metadata"]["annotations"].is_null() => {}
                Ok(mut event) => {
                    self.names.plain(&mut event);
                    let _ = writeln!(self.out, "  {name}: {event}");
                }
                Err(_) => {
                    let _ = writeln!(self.out, "  {name}: {line}");
                }
            }
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        for (_, task) in self.watches.values() {
            task.abort();
        }
    }
}

/// Sends one request. Returns status and body. A kind that was just defined may need a moment, so the request is sent
/// again while the server says so.
pub async fn send(client: &Client, method: &str, path: &str, kind: &str, body: &str) -> (u16, Value) {
    for _ in 0..50 {
        let (code, answer) = send_once(client, method, path, kind, body).await;
        if code != 429 || answer["message"] != INITIALIZING {
            return (code, answer);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{method} {path}: {INITIALIZING}")
}

const INITIALIZING: &str = "storage is (re)initializing";

async fn send_once(client: &Client, method: &str, path: &str, kind: &str, body: &str) -> (u16, Value) {
    let accept = match kind {
        "TABLE" => TABLE,
        "META" => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        "METAS" => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        _ => "application/json",
    };
    let kind = if kind.contains('/') { kind } else { "application/json" };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("accept", accept)
        .header("content-type", kind)
        .header("user-agent", "conformance/1")
        .body(body.as_bytes().to_vec().into())
        .unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    let answer = client.send(request).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    let code = answer.status().as_u16();
    let warning = answer.headers().get("warning").map(|value| value.to_str().unwrap_or_default().to_owned());
    let bytes =
        answer.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    if let Some(warning) = warning
        && value.is_object()
    {
        value["(warning)"] = warning.into();
    }
    (code, value)
}
