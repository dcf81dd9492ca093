//! Forgeries of what only a person may answer for: hidden controllers, webhooks, plans that wait for their approval, and
//! pods that would be lost.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{PODS, Stage, UP, UPGRADES, Wrong, names, people, said_of};

#[test]
fn invariant_2_a_kubelet_although_nobody_answers_for_a_hidden_controller() {
    let claims = |begins: &str| {
        said_of(&format!("at 0 hosts{begins}"), async |stage| {
            stage.plane_is_there().await;
            let uid = stage.uid_of("main-1").await;
            stage.claim("kubelet", "main-1", &uid).await;
        })
    };
    let risks = |until: u64| {
        format!("; at 0 risk H1/kube-controller-manager 86400; at 0 risk H1/kube-scheduler {until}")
    };
    names(2, "nobody answers for kube-controller-manager", &claims(""));
    names(2, "nobody answers for kube-scheduler", &claims(&risks(20)));
    assert_eq!(claims("; at 0 accept"), Wrong::new());
    assert_eq!(claims(&risks(86_400)), Wrong::new());
}

#[test]
fn invariant_1_another_minor_in_spite_of_a_webhook() {
    let moves = |begins: &str, served: bool| {
        said_of(begins, async |stage| {
            people::webhook(&stage.person).await;
            if served {
                stage.cluster.replace_component("cp-2", "kube-apiserver", super::TO);
            }
            sleep(Duration::from_secs(50)).await;
            stage.claim("kube-apiserver", "cp-1", "").await;
            stage.state("kube-apiserver", "cp-1", "Upgrading", "").await;
        })
    };
    let words = "takes cp-1 to v1.37.1 in spite of O5/guard/guard.example.com";
    names(1, words, &moves("", false));
    names(1, words, &moves("at 0 risk O5/guard/guard.example.com 20", false));
    assert_eq!(moves("at 0 risk O5/guard/guard.example.com 86400", false), Wrong::new());
    assert_eq!(moves("", true), Wrong::new());
}

#[test]
fn invariant_13_something_new_by_a_plan_that_nobody_approved() {
    let claims = |begins: &str, approved: Option<&'static str>| {
        said_of(begins, async |stage| {
            let plan = json!({"plan": {"hash": "0123456789abcdef0123456789abcdef", "from": "v1.36.4", "to": "v1.37.1"}});
            let path = format!("{UPGRADES}/{UP}");
            stage.forger.merge(&format!("{path}/status"), &json!({"status": plan})).await.unwrap();
            if let Some(hash) = approved {
                let spec = json!({"spec": {"approval": {"planHash": hash}}});
                stage.person.merge(&path, &spec).await.unwrap();
            }
            sleep(Duration::from_secs(10)).await;
            stage.claim("kube-apiserver", "cp-1", "").await;
        })
    };
    let words = "claims cp-1 although the plan as it is is not approved";
    names(13, words, &claims("at 0 approval", None));
    names(13, words, &claims("at 0 approval", Some("fedcba9876543210fedcba9876543210")));
    assert_eq!(claims("at 0 approval", Some("0123456789abcdef0123456789abcdef")), Wrong::new());
    assert_eq!(claims("", None), Wrong::new());
}

/// Asks the one pod of `app` to leave main-1.
async fn evicts(stage: &Stage, app: &str) {
    stage.plane_is_there().await;
    stage.take("main-1").await;
    stage.state("kubelet", "main-1", "Draining", "").await;
    let pod: Value = stage.pods_of(app).await.remove(0);
    let (name, uid) = (pod["metadata"]["name"].as_str().unwrap(), &pod["metadata"]["uid"]);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
        "deleteOptions": {"preconditions": {"uid": uid}}});
    stage.forger.create(&format!("{PODS}/{name}/eviction"), &eviction).await;
}

#[test]
fn invariant_3_a_pod_that_would_be_lost() {
    let bare = |begins: &str| {
        said_of(begins, async |stage| {
            people::bare(&stage.person, "main-1").await;
            evicts(stage, "alone").await;
        })
    };
    let cache = |begins: &str| {
        said_of(begins, async |stage| {
            people::cache(&stage.person, "main-1").await;
            evicts(stage, "cache-main-1").await;
        })
    };
    let is_wrong = |words: &str, wrong: &Wrong| wrong.iter().any(|line| line.contains(words));
    let (again, data) = ("which nothing would make again", "whose data would be lost");
    names(3, again, &bare(""));
    assert!(!is_wrong(again, &bare("at 0 bare-pods Evict")));
    names(3, data, &cache("at 0 empty-dir Refuse"));
    assert!(!is_wrong(data, &cache("")));
}
