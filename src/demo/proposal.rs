//! What a person does about an upgrade in the demonstration: propose it, approve it, suspend it.
//!
//! The invariant is the parent's: all of it goes through the cluster's own API.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{Demo, scenario};
use crate::api::{ClusterUpgrade, ConditionType};
use crate::clients::one_line;

/// Longest time, in the cluster, that is waited for an upgrade to get somewhere.
const PATIENCE: Duration = Duration::from_hours(12);

impl Demo {
    /// The ClusterUpgrade that a person keeps in git, as text.
    pub const fn manifest() -> &'static str {
        scenario::MANIFEST
    }

    /// The same, as an object.
    ///
    /// # Errors
    /// One line, if the text, which is part of the program, is no ClusterUpgrade.
    pub fn proposed() -> Result<ClusterUpgrade, String> {
        serde_saphyr::from_str(scenario::MANIFEST).map_err(|error| error.to_string())
    }

    fn upgrades(&self) -> Api<ClusterUpgrade> {
        Api::all(self.client.clone())
    }

    /// The oldest ClusterUpgrade that is not complete, or else the newest.
    ///
    /// # Errors
    /// One line, if they cannot be listed.
    pub async fn upgrade(&self) -> Result<Option<ClusterUpgrade>, String> {
        let list = self.upgrades().list(&kube::api::ListParams::default()).await;
        let mut all = list.map_err(|error| one_line(&error))?.items;
        all.sort_by_key(ResourceExt::creation_timestamp);
        let complete = |upgrade: &ClusterUpgrade| {
            upgrade.status.as_ref().is_some_and(|status| status.completion_time.is_some())
        };
        let under_way = all.iter().position(|upgrade| !complete(upgrade));
        Ok(match under_way {
            Some(at) => Some(all.swap_remove(at)),
            None => all.pop(),
        })
    }

    /// Writes the ClusterUpgrade, if there is none; else approves its plan, if that is what it waits for.
    ///
    /// # Errors
    /// One line, if the cluster refuses it.
    pub async fn propose_or_approve(&self) -> Result<(), String> {
        let Some(upgrade) = self.upgrade().await? else {
            let manifest: Value =
                serde_saphyr::from_str(scenario::MANIFEST).map_err(|error| error.to_string())?;
            scenario::create(&self.client, &manifest).await?;
            let (name, version) = (&manifest["metadata"]["name"], &manifest["spec"]["version"]);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            self.did(format!("kubectl apply: ClusterUpgrade {} to {}", text(name), text(version)));
            return Ok(());
        };
        let name = upgrade.name_any();
        let plan = upgrade.status.as_ref().and_then(|status| status.plan.as_ref());
        let approved = upgrade.spec.approval.as_ref().map(|approval| approval.plan_hash.as_str());
        let Some(hash) = plan.map(|plan| plan.hash.as_str()).filter(|hash| Some(*hash) != approved) else {
            self.did(format!("ClusterUpgrade {name} waits for no approval"));
            return Ok(());
        };
        self.patch(&name, json!({"spec": {"approval": {"planHash": hash}}})).await?;
        self.did(format!("plan {hash} of ClusterUpgrade {name} is approved"));
        Ok(())
    }

    /// Suspends the upgrade, or resumes it.
    ///
    /// # Errors
    /// One line, if the cluster refuses it.
    pub async fn suspend_or_resume(&self) -> Result<(), String> {
        let Some(upgrade) = self.upgrade().await? else {
            self.did("there is no ClusterUpgrade".to_owned());
            return Ok(());
        };
        let (name, suspend) = (upgrade.name_any(), !upgrade.spec.suspend);
        self.patch(&name, json!({"spec": {"suspend": suspend}})).await?;
        self.did(format!("ClusterUpgrade {name} is {}", if suspend { "suspended" } else { "resumed" }));
        Ok(())
    }

    async fn patch(&self, name: &str, patch: Value) -> Result<(), String> {
        let sent = self.upgrades().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        sent.map(drop).map_err(|error| format!("ClusterUpgrade {name}: {}", one_line(&error)))
    }

    /// Waits until the condition Ready of the upgrade has one of `reasons`, which its column STAGE shows.
    ///
    /// # Errors
    /// One line, if that takes half a day in the cluster.
    pub async fn until(&self, reasons: &[&str]) -> Result<(), String> {
        let begun = tokio::time::Instant::now();
        let mut said = String::new();
        while begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let Some(status) = self.upgrade().await?.and_then(|upgrade| upgrade.status) else { continue };
            let ready = ConditionType::Ready.of(&status.conditions);
            said = ready.map(|ready| ready.reason.clone()).unwrap_or_default();
            if reasons.contains(&said.as_str()) {
                return Ok(());
            }
        }
        Err(format!("the upgrade did not get to {}: it is {said}", reasons.join(" or ")))
    }
}
