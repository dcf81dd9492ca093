//! What every form of the demonstration says: its cluster as `evenkeel` and kubectl show it, and what happened in it.
//!
//! Here belong texts that are made of what is seen now. Where and in which order they are shown never belongs here, nor
//! does what a person does meanwhile. The invariant: nothing here changes the cluster.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::skew::lifecycle::Catalogue;
use http::Request;
use kube::Client;
use serde_json::Value;

use super::super::judge::judged;
use super::super::output::table::{Cell, table};
use super::super::output::{self, Output, Paint, ReportStyle};
use super::super::plan;
use crate::api::{ConditionStatus, ConditionType};
use crate::clients::one_line;
use crate::demo::{Demo, Scenario};

/// Resources of our group.
pub(super) const REPORTS: &str = "clusterskewreports";
pub(super) const UPGRADES: &str = "clusterupgrades";
/// How long the story waits after a scene: the operator asks a dead kube-apiserver again after 30 s.
pub(super) const SETTLE: Duration = Duration::from_secs(45);

/// The demonstration and how it is shown.
pub(super) struct Presentation {
    pub(super) demo: Demo,
    pub(super) style: ReportStyle,
    pub(super) releases: Catalogue,
    pub(super) scenario: Scenario,
    /// `upgrade, seed 1`.
    pub(super) title: String,
}

impl Presentation {
    /// What `evenkeel report` says, once everything is seen.
    pub(super) async fn report(&self) -> Result<String, String> {
        for _ in 0..100 {
            if let Ok((_, inventory)) = self.demo.look()
                && inventory.is_settled()
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.report_now(self.style)
    }

    /// What `evenkeel report` says of what is seen now, in this style. An error names what is not seen yet.
    pub(super) fn report_now(&self, style: ReportStyle) -> Result<String, String> {
        let (cluster, inventory) = self.demo.look().map_err(|not_ready| not_ready.to_string())?;
        let subject = vec![("Cluster", format!("made up, {}", self.title))];
        let report = judged(subject, &cluster, &inventory, &self.releases, self.demo.now());
        output::render(&report, Output::Table, style)
    }

    /// What `evenkeel plan --upgrade` says of the upgrade that a person keeps in git.
    pub(super) async fn plan(&self) -> Result<String, String> {
        let (cluster, inventory) = self.demo.look().map_err(|not_ready| not_ready.to_string())?;
        let live = plan::LiveCluster {
            client: self.demo.client(),
            seen: Arc::unwrap_or_clone(cluster),
            inventory: &inventory,
            about: vec![("Cluster", format!("made up, {}", self.title))],
            now: self.demo.now(),
        };
        plan::of_object(live, Demo::proposed()?, &self.releases, self.style).await
    }

    /// What `kubectl get` prints of `resource` of our group, made from the table that the server sends.
    pub(super) async fn kubectl(&self, resource: &str) -> Result<String, String> {
        let table = self.table(resource).await.map_err(|error| one_line(&error))?;
        Ok(printed(&table, self.style.paint))
    }

    async fn table(&self, resource: &str) -> kube::Result<Value> {
        let request = Request::get(format!("/apis/evenkeel.dev/v1alpha1/{resource}"))
            .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        let client: &Client = self.demo.client();
        client.request(request).await
    }

    /// What the upgrade waits for, one line each; else what it says of itself, unless it is done.
    pub(super) async fn waits(&self) -> Result<String, String> {
        let status = self.demo.upgrade().await?.and_then(|upgrade| upgrade.status).unwrap_or_default();
        let mut lines: Vec<String> = status.waiting_for.into_iter().map(|of| of.message).collect();
        if lines.is_empty() {
            let ready = ConditionType::Ready.of(&status.conditions);
            let ready = ready.filter(|ready| !ConditionStatus::True.is(&ready.status));
            lines.extend(ready.map(|ready| ready.message.clone()));
        }
        Ok(lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect())
    }

    /// What happened since the `from`th line, and how many lines there are now.
    pub(super) fn happened(&self, from: usize) -> (String, usize) {
        let mut text = String::new();
        let happened = self.demo.happened(from);
        for one in &happened {
            let who = if one.by_operator { "evenkeel" } else { "you" };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}  {who:<9}{}", one.at.strftime("%H:%M:%S"), one.line);
        }
        (text, from + happened.len())
    }
}

/// A server's table as kubectl prints it.
fn printed(found: &Value, paint: Paint) -> String {
    let columns = found["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown: Vec<usize> = (0..columns.len())
        .filter(|at| columns.get(*at).is_some_and(|column| column["priority"] == 0))
        .collect();
    let header: Vec<String> =
        shown.iter().filter_map(|at| Some(columns.get(*at)?["name"].as_str()?.to_uppercase())).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let text = |cell: &Value| match cell {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let rows = found["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<Vec<Cell>> =
        rows.iter().map(|row| shown.iter().map(|at| text(&row["cells"][*at]).into()).collect()).collect();
    table(&header, &rows, paint, None)
}

/// `text` as a part of a story.
pub(super) fn indented(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("   {line}\n") }).collect()
}
