//! Forgeries of an approval: nobody approved the plan, and the status says that somebody did.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::base::CHANGERS;
use super::{FROM, Stage, TO, UP, UPGRADES, Wrong, names, said_of};

const HASH: &str = "0123456789abcdef0123456789abcdef";
const WORDS: &str = "claims main-1 although nobody approved what is asked for now";

impl Stage {
    async fn says_hash(&self, hash: &str) {
        let status = json!({"status": {"plan": {"hash": hash, "from": FROM, "to": TO}}});
        self.forger.merge(&format!("{UPGRADES}/{UP}/status"), &status).await.unwrap();
    }

    async fn spec(&self, spec: &Value) {
        self.person.merge(&format!("{UPGRADES}/{UP}"), &json!({"spec": spec})).await.unwrap();
    }
}

/// What is said when a node is claimed after `deeds` of an upgrade that a person approved.
fn claimed(deeds: impl AsyncFnOnce(&Stage)) -> Wrong {
    said_of("at 0 approval", async |stage| {
        stage.says_hash(HASH).await;
        stage.spec(&json!({"approval": {"planHash": HASH}})).await;
        deeds(stage).await;
        stage.plane_is_there().await;
        sleep(Duration::from_secs(5)).await;
        let uid = stage.uid_of("main-1").await;
        stage.claim("kubelet", "main-1", &uid).await;
    })
}

fn is_said(wrong: &Wrong) -> bool {
    wrong.iter().any(|line| line.contains(WORDS))
}

#[test]
fn invariant_13_something_new_that_nobody_approved() {
    assert!(!is_said(&claimed(async |_| {})));
    let changed = [
        json!({"version": "v1.37.2"}),
        json!({"drain": {"timeoutSeconds": 900}}),
        json!({"nodeGroups": []}),
        json!({"approval": null}),
    ];
    for change in changed {
        // The status still shows the hash that was approved.
        names(13, WORDS, &claimed(async |stage| stage.spec(&change).await));
    }
    // What has no part in the plan is no other one, and neither is one that is again as it was.
    assert!(!is_said(&claimed(async |stage| stage.spec(&json!({"suspend": false})).await)));
    let back = claimed(async |stage| {
        stage.spec(&json!({"version": "v1.37.2"})).await;
        stage.spec(&json!({"version": TO})).await;
    });
    assert!(!is_said(&back), "{back:#?}");
}

#[test]
fn invariant_13_an_executor_that_nobody_approved() {
    let seconds = |seconds: u64| json!({"spec": {"external": {"deadlineSeconds": seconds}}});
    let machines = format!("{CHANGERS}/machines");
    let other = claimed(async |stage| _ = stage.person.merge(&machines, &seconds(4000)).await.unwrap());
    names(13, WORDS, &other);
    let anew = claimed(async |stage| {
        stage.person.merge(&machines, &seconds(4000)).await.unwrap();
        let another = HASH.replace('0', "f");
        stage.says_hash(&another).await;
        stage.spec(&json!({"approval": {"planHash": another}})).await;
    });
    assert!(!is_said(&anew), "{anew:#?}");
}

#[test]
fn invariant_13_a_hash_that_the_status_showed_only_after_a_person_wrote_it() {
    let wrong = said_of("at 0 approval", async |stage| {
        stage.spec(&json!({"approval": {"planHash": HASH}})).await;
        stage.says_hash(HASH).await;
        stage.plane_is_there().await;
        let uid = stage.uid_of("main-1").await;
        stage.claim("kubelet", "main-1", &uid).await;
    });
    names(13, WORDS, &wrong);
}
