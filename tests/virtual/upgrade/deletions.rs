//! A person deletes a claim, or the upgrade, at every stage: just after each claim came into each of its states. What must
//! hold is checked by the module above.

use std::time::Duration;

use evenkeel_sim::faults::Call;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::script::{self, Step};
use super::attacks::{Attacked, Script, at, spread, steps};
use super::base::{CLAIMS, FROM, TO, UPGRADES};
use super::installed::{nodes_that_are, story};
use super::{UP, campaign, condition};

/// What a person deletes at `millis`: the claim that has just changed, the upgrade, or the upgrade to ask for it again.
fn deeds(millis: u64, component: &str, node: &str) -> Vec<Vec<Step>> {
    let again = at(millis + 30_000, "upgrade up v1.37.1");
    vec![
        vec![at(millis, &format!("delete-claim {component} {node}"))],
        vec![at(millis, "delete-upgrade up")],
        vec![at(millis, "delete-upgrade up"), again],
        vec![at(millis, &format!("delete-claim {component} {node} foreground"))],
        vec![at(millis, "delete-upgrade up foreground")],
    ]
}

/// One script for each deletion; at one moment the upgrade is deleted once.
fn scripts(attacked: &Attacked) -> Vec<Script> {
    let mut scripts = attacked.after_turns(deeds);
    let mut known = std::collections::BTreeSet::new();
    scripts.retain(|(_, script)| known.insert(script::line(script)));
    scripts
}

/// The upgrade that begins so comes to all of `states`, and deletions in each of them are harmless.
fn at_every_stage(kind: &str, begins: &str, states: &[&str], some: usize) {
    let attacked = Attacked::of(steps(begins));
    for state in states {
        assert!(attacked.comes_to(state), "no claim is {state}: {begins}");
    }
    campaign(&format!("upgrade: deletions, {kind}"), spread(scripts(&attacked), some));
}

#[test]
fn deletions_at_every_stage() {
    at_every_stage("as usual", "", &["Claimed", "Draining", "Upgrading", "Upgraded"], 6);
}

#[test]
fn deletions_at_every_stage_of_jobs() {
    at_every_stage("Jobs", "at 0 jobs", &["Claimed", "Draining", "Upgrading", "Upgraded"], 3);
}

#[test]
fn deletions_at_every_stage_of_whole_nodes() {
    let begins = "at 0 jobs; at 0 whole; at 0 first";
    at_every_stage("whole nodes", begins, &["Claimed", "Draining", "Upgrading", "Upgraded"], 3);
}

#[test]
fn deletions_at_every_stage_above_hosts() {
    let begins = "at 0 hosts; at 0 accept";
    at_every_stage("hosts", begins, &["Claimed", "Draining", "Upgrading", "Upgraded"], 12);
}

/// Nothing says any more since when the controller runs that was replaced last.
#[test]
fn deletions_of_the_last_controllers_claim() {
    let of_last = |millis: u64, component: &str, node: &str| {
        let is_last = (component, node) == ("kube-scheduler", "cp-3");
        if is_last { deeds(millis, component, node) } else { Vec::new() }
    };
    for begins in ["", "at 0 jobs"] {
        let scripts = Attacked::of(steps(begins)).after_turns(of_last);
        assert!(!scripts.is_empty(), "kube-scheduler on cp-3 has no claim: {begins}");
        campaign(&format!("upgrade: deletions at the last controller ({begins})"), scripts);
    }
}

/// A node is parked, and the executor of another one never comes.
#[test]
fn deletions_of_what_is_stuck() {
    let begins = "at 0 drain 60; at 0 returning; at 0 deadline 60; at 0 executor kubelet/main-3 hang";
    at_every_stage("stuck nodes", begins, &["Draining", "Upgrading", "Parked", "Failed"], 6);
}

/// A claim whose deletion somebody else waits for settles as any other, and its node waits for it by name.
#[test]
fn a_claim_that_others_keep_holds_its_node_and_says_why() {
    story("", "Automatic", async |story| {
        let at_work =
            |claim: &Value| claim["spec"]["component"] == "kubelet" && claim["status"]["state"] == "Draining";
        story.until("a node drains", |_, claims| claims.iter().any(at_work)).await;
        let claims = story.kube.list(CLAIMS).await;
        let claim = claims.iter().find(|claim| at_work(claim)).unwrap();
        let name = claim["metadata"]["name"].as_str().unwrap();
        let path = format!("{CLAIMS}/{name}");
        let mut finalizers = claim["metadata"]["finalizers"].clone();
        finalizers.as_array_mut().unwrap().push("example.com/keep".into());
        story.kube.merge(&path, &json!({"metadata": {"finalizers": finalizers}})).await.unwrap();
        story.kube.delete(&path).await.unwrap();
        let words =
            format!("NodeUpgrade {name} is deleted and stays until finalizer example.com/keep is taken off");
        story.is("NodesHeld", &words).await;
        let before = story.cluster.faults().record();
        sleep(Duration::from_mins(10)).await;
        let calls = story.cluster.faults().record();
        let writes = |call: &&Call| call.is_write() && call.line().contains(name);
        assert_eq!(calls.iter().filter(writes).count(), 0, "there is nothing to do");
        let creates = |call: &&Call| call.verb == "create" && call.sent()["metadata"]["name"] == name;
        assert_eq!(before.iter().filter(creates).count(), 1, "it is made once");
        let left = story.kube.get(&path).await.unwrap();
        assert_eq!(left["metadata"]["finalizers"], json!(["example.com/keep"]));
        story.kube.merge(&path, &json!({"metadata": {"finalizers": []}})).await.unwrap();
        story.is("Completed", "").await;
    });
}

/// What an earlier upgrade left behind, as after `kubectl delete --cascade=orphan`, is named until somebody deletes it.
#[test]
fn a_claim_of_an_earlier_upgrade_of_the_same_name_is_named() {
    story("", "Automatic", async |story| {
        let left_behind = async |component: &str, node: &str| {
            let name = format!("up.{component}.{node}");
            let claim = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeUpgrade",
                "metadata": {"name": name, "finalizers": ["evenkeel.dev/settle"]},
                "spec": {"upgradeName": "up", "upgradeUID": "earlier", "component": component, "nodeName": node,
                    "nodeUID": "", "fromVersion": FROM, "toVersion": TO, "executor": "machines"}});
            story.kube.create(CLAIMS, &claim).await;
            let status = json!({"status": {"state": "Upgraded", "since": "2026-01-01T00:00:00Z"}});
            _ = story.kube.merge(&format!("{CLAIMS}/{name}/status"), &status).await.unwrap();
            name
        };
        let nodes = story.kube.list("/api/v1/nodes").await;
        let worker = nodes.iter().find(|node| node["metadata"]["labels"]["pool"] == "main").unwrap();
        let worker = worker["metadata"]["name"].as_str().unwrap();
        for (component, node, reason) in
            [("kube-scheduler", "cp-1", "ControlPlaneHeld"), ("kubelet", worker, "NodesHeld")]
        {
            let name = left_behind(component, node).await;
            let words = format!(
                "NodeUpgrade {name} is of an earlier ClusterUpgrade of the same name: it waits for somebody to delete it"
            );
            story.is(reason, &words).await;
            story.kube.delete(&format!("{CLAIMS}/{name}")).await.unwrap();
        }
        story.is("Completed", "").await;
    });
}

/// It is settled, so that whoever keeps it keeps nobody waiting.
#[test]
fn a_deleted_upgrade_that_others_keep_says_so_and_holds_up_no_other() {
    story("", "Automatic", async |story| {
        let path = format!("{UPGRADES}/{UP}");
        let upgrade = story.until("nodes move", |_, claims| nodes_that_are(claims, "Upgraded") > 2).await;
        let mut finalizers = upgrade["metadata"]["finalizers"].clone();
        finalizers.as_array_mut().unwrap().push("example.com/keep".into());
        story.kube.merge(&path, &json!({"metadata": {"finalizers": finalizers}})).await.unwrap();
        let mut second = story.setting.upgrade("second", TO);
        second["spec"]["mode"] = "Automatic".into();
        story.kube.create(UPGRADES, &second).await;
        let of_second = |claim: &Value| claim["spec"]["upgradeName"] == "second";
        sleep(Duration::from_secs(5)).await;
        assert!(!story.kube.list(CLAIMS).await.iter().any(of_second), "it waits for its turn");
        story.kube.delete(&path).await.unwrap();
        story.is("Deleting", "it stays until finalizer example.com/keep is taken off").await;
        story.until("the second begins", |_, claims| claims.iter().any(of_second)).await;
        story.kube.merge(&path, &json!({"metadata": {"finalizers": []}})).await.unwrap();
        let second = format!("{UPGRADES}/second");
        let is_done = async || {
            let object = story.kube.get(&second).await.unwrap();
            condition(&object, "Ready").is_some_and(|of| of["reason"] == "Completed")
        };
        for _ in 0..360 {
            if is_done().await {
                break;
            }
            sleep(Duration::from_secs(10)).await;
        }
        assert!(is_done().await, "{:#}", story.kube.get(&second).await.unwrap());
    });
}
