//! Forgeries of taints: those that the operator may not give, take away or leave behind.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::UP;
use super::super::base::{TO, UPGRADES};
use super::{Stage, names, only, said};

impl Stage {
    async fn taint(&self, node: &str, taints: Value) {
        let patch = json!({"spec": {"taints": taints}});
        self.forger.merge(&format!("/api/v1/nodes/{node}"), &patch).await.unwrap();
    }

    async fn outdated(&self) -> Value {
        let upgrade = self.person.get(&format!("{UPGRADES}/{UP}")).await.unwrap();
        json!({"key": "evenkeel.dev/outdated", "value": upgrade["metadata"]["uid"], "effect": "PreferNoSchedule"})
    }
}

#[test]
fn invariant_6_a_taint_of_others_goes_or_ours_is_of_nobody() {
    let wrong = said(async |stage| {
        let ours = stage.outdated().await;
        stage.taint("cp-1", json!([ours])).await;
    });
    names(6, "changes taints of cp-1 that are not ours", &wrong);
    let wrong = said(async |stage| {
        let mut ours = stage.outdated().await;
        ours["value"] = "nobody".into();
        stage.taint("main-1", json!([ours])).await;
    });
    names(6, "avoids main-1 for an upgrade that is not there", &wrong);
    names(7, "main-1 is left to be avoided, and its upgrade is gone", &wrong);
}

#[test]
fn a_taint_of_ours_on_a_node_that_is_to_move_is_no_fault() {
    let wrong = said(async |stage| {
        let ours = stage.outdated().await;
        stage.taint("main-1", json!([ours])).await;
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn invariant_7_and_11_a_node_that_was_upgraded_is_avoided() {
    let wrong = said(async |stage| {
        let ours = stage.outdated().await;
        stage.cluster.restart_kubelet("main-1", TO);
        sleep(Duration::from_mins(1)).await;
        stage.taint("main-1", json!([ours])).await;
    });
    names(11, "avoids main-1, which is at v1.37.1", &wrong);
    names(7, "main-1 is left to be avoided, and runs v1.37.1", &wrong);
}

#[test]
fn invariant_13_a_node_is_avoided_after_a_person_said_stop() {
    let wrong = said(async |stage| {
        let ours = stage.outdated().await;
        let stop = json!({"spec": {"suspend": true}});
        stage.person.merge(&format!("{UPGRADES}/{UP}"), &stop).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        stage.taint("main-1", json!([ours])).await;
    });
    only(13, &wrong);
}
