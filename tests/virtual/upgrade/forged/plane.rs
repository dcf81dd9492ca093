//! Forgeries of steps that move the control plane of a node as a whole.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::super::base::FIRST;
use super::{CLAIMS, FROM, Stage, TO, UP, Wrong, also, names, only, said, said_of};

const PLANE: &str = "control-plane";
const ALL: [&str; 3] = evenkeel_sim::COMPONENTS;

/// Records a claim of these components of `node`, which is given to its executor at once.
async fn upgrades(stage: &Stage, node: &str, components: &[&str]) {
    upgrades_by("machines", stage, node, components).await;
}

/// The same by this executor.
async fn upgrades_by(executor: &str, stage: &Stage, node: &str, components: &[&str]) {
    let claim = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeUpgrade",
        "metadata": {"name": format!("{UP}.{PLANE}.{node}")}, "spec": {"upgradeName": UP, "component": components[0],
        "components": components, "nodeName": node, "nodeUID": stage.uid_of(node).await, "fromVersion": FROM,
        "toVersion": TO, "executor": executor}});
    stage.forger.create(CLAIMS, &claim).await;
    stage.state(PLANE, node, "Upgrading", "").await;
}

#[test]
fn invariant_1_controllers_before_the_server_beside_them() {
    let moved =
        |components: &'static [&'static str]| said(async |stage| upgrades(stage, "cp-1", components).await);
    only(1, &moved(&["kube-scheduler"]));
    assert!(moved(&ALL).is_empty(), "their server moves before them");
}

#[test]
fn invariant_2_a_kubelet_while_the_control_plane_of_a_node_is_upgraded() {
    let wrong = said(async |stage| {
        stage.plane_is_there().await;
        upgrades(stage, "cp-3", &ALL).await;
        stage.take("main-1").await;
    });
    names(2, "claim up.control-plane.cp-3 is Upgrading", &wrong);
}

#[test]
fn invariant_13_the_executor_of_the_first_node_is_asked_again() {
    let second = |executor: &'static str| {
        said_of("at 0 whole; at 0 first", async |stage| {
            upgrades_by(FIRST, stage, "cp-1", &ALL).await;
            for component in ALL {
                stage.cluster.replace_component("cp-1", component, TO);
            }
            sleep(Duration::from_secs(50)).await;
            stage.state(PLANE, "cp-1", "Upgraded", "").await;
            sleep(Duration::from_secs(10)).await;
            upgrades_by(executor, stage, "cp-2", &ALL).await;
        })
    };
    let words = "up.control-plane.cp-2 is for executor first, although up.control-plane.cp-1 is Upgraded";
    names(13, words, &second(FIRST));
    assert_eq!(second("machines"), Wrong::new(), "the others follow");
}

#[test]
fn invariant_5_a_second_node_of_the_control_plane() {
    let second = said(async |stage| {
        upgrades(stage, "cp-1", &ALL).await;
        upgrades(stage, "cp-2", &ALL).await;
    });
    names(5, "up.control-plane.cp-1 is Upgrading", &second);
    // What is away is away for whatever reason.
    let away = said(async |stage| {
        stage.cluster.take_component("cp-1", "kube-scheduler");
        sleep(Duration::from_secs(50)).await;
        upgrades(stage, "cp-2", &ALL).await;
    });
    only(5, &away);
    names(5, "kube-scheduler on cp-1 is away", &away);
}

#[test]
fn invariant_5_components_of_two_nodes_are_away_because_of_us() {
    let beside = |ours: bool| {
        said(async |stage| {
            upgrades(stage, "cp-1", &ALL).await;
            stage.state(PLANE, "cp-1", "Failed", "it hangs").await;
            if ours {
                upgrades(stage, "cp-2", &ALL).await;
            }
            stage.cluster.take_component("cp-1", "kube-scheduler");
            sleep(Duration::from_secs(5)).await;
            stage.cluster.take_component("cp-2", "kube-scheduler");
            sleep(Duration::from_secs(5)).await;
        })
    };
    names(5, "kube-scheduler on cp-2 goes away because of us beside kube-scheduler on cp-1", &beside(true));
    let theirs = beside(false);
    assert!(!theirs.iter().any(|line| line.contains("because of us")), "{theirs:#?}");
}

#[test]
fn invariant_9_a_node_whose_executor_or_scheduler_is_not_done() {
    let upgraded = |jobs: bool, last: &'static str| -> Wrong {
        said_of(if jobs { "at 0 jobs" } else { "" }, async |stage| {
            upgrades(stage, "cp-1", &ALL).await;
            for component in ALL {
                let version = if component == "kube-scheduler" { last } else { TO };
                stage.cluster.replace_component("cp-1", component, version);
            }
            sleep(Duration::from_secs(50)).await;
            stage.state(PLANE, "cp-1", "Upgraded", "").await;
        })
    };
    only(9, &upgraded(true, TO));
    names(9, "its Job is not complete", &upgraded(true, TO));
    names(9, "kube-scheduler is at v1.36.4", &upgraded(false, FROM));
    assert!(upgraded(false, TO).is_empty(), "nobody hears somebody outside");
    also(9, &upgraded(true, FROM));
}
