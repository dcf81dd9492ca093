//! What a drain meets besides budgets that open and close: pods that come back, orders, pinned pods under two budgets,
//! kubelets that are silent, crashes, webhooks, deletions that hang. Each has nodes and a namespace of its own in one
//! cluster, and all are drained at the same time.

use std::time::Duration;

use evenkeel_devcluster::{AuditEntry, Failure, TestResult, in_namespace};

use super::watcher::Watcher;
use super::{Ran, Scene, evictions};

/// Namespace, node and how many pods of the one begin on the other.
const PLACES: [(&str, &str, usize); 14] = [
    ("returns", "w-1", 2),
    ("order", "w-2", 5),
    ("guards", "w-3", 2),
    ("guards", "w-4", 2),
    ("guards", "w-5", 2),
    ("away", "w-6", 1),
    ("crash", "w-7", 6),
    ("hook", "w-8", 1),
    ("forced", "w-9", 1),
    ("lost", "w-10", 2),
    ("kinds", "w-11", 4),
    ("ending", "w-12", 1),
    ("names", "w-13", 1),
    ("volumes", "w-14", 2),
];
/// Where pods may go.
const ELSEWHERE: [&str; 2] = ["w-15", "w-16"];
/// How many nodes that is.
pub const NODES: usize = 16;

impl Scene {
    fn asked(&self, namespace: &str) -> Result<Vec<AuditEntry>, Failure> {
        Ok(self.requests()?.into_iter().filter(|entry| entry.namespace == namespace).collect())
    }

    async fn condition(&self, node: &str, name: &str) -> Result<String, Failure> {
        let path = format!(r#"jsonpath={{.status.conditions[?(@.type=="{name}")].status}}"#);
        self.kubectl(&["get", "node", node, "-o", &path]).await
    }
}

#[test]
fn what_a_drain_meets() -> TestResult {
    in_namespace("cases::what_a_drain_meets", async || {
        let scene = Scene::begin(NODES, "cases.yaml").await?;
        begin(&scene).await?;
        let watcher = Watcher::default();
        let all = async {
            futures::try_join!(
                pods_that_come_back(&scene),
                an_order(&scene),
                two_guards_on_each_node(&scene),
                a_silent_kubelet(&scene),
                crashing_pods(&scene),
                a_webhook_that_is_down(&scene),
                a_person_who_forces_it(&scene),
                an_eviction_that_is_lost(&scene),
                pods_of_every_kind(&scene),
                a_pod_that_comes_back_under_its_name(&scene),
                volumes_that_are_detached_late(&scene),
            )?;
            a_namespace_that_is_deleted(&scene).await
        };
        tokio::select! {
            done = all => done?,
            ended = watcher.watch(scene.cluster.client()) => ended?,
        }
        let seen = watcher.seen();
        assert!(seen.events > 20, "the watcher saw only {} events", seen.events);
        let mut fallen = seen.fallen;
        fallen.sort();
        fallen.dedup();
        let by_us = ["PDB forced/never: 0 healthy, 1 needed", "PDB names/db: 0 healthy, 1 needed"];
        assert_eq!(fallen, by_us, "what was forced, what the test deletes, and nothing else");
        Ok(())
    })
}

/// Everything runs where it should, two crash, and a kubelet goes silent.
pub async fn begin(scene: &Scene) -> TestResult {
    for (namespace, node, _) in PLACES {
        scene.kubectl(&["label", "node", node, &format!("{namespace}=yes")]).await?;
    }
    for (namespace, node, pods) in PLACES {
        scene
            .until(&format!("{pods} pods of {namespace} are on {node}"), 60, async || {
                let ready = scene.on_node(namespace, node).await?;
                Ok(ready.len() == pods)
            })
            .await?;
    }
    let path = r#"jsonpath={range .items[?(@.status.phase=="Running")]}{.metadata.namespace} {end}"#;
    scene
        .until("what shall run runs", 60, async || {
            let all = scene.kubectl(&["get", "pods", "-A", "-o", path]).await?;
            let ours = all.split_whitespace().filter(|namespace| *namespace != "kube-system").count();
            // A mirror pod and a slow one are pending, a Job is done.
            Ok(ours == PLACES.iter().map(|place| place.2).sum::<usize>() - 3)
        })
        .await?;
    scene.cluster.stop_kubelet("w-6").await?;
    for app in ["short", "open"] {
        let label = format!("app={app}");
        let names = scene.kubectl(&["get", "pods", "-n", "crash", "-l", &label, "-o", "name"]).await?;
        for pod in names.split_whitespace().take(2) {
            let patch = r#"{"status":{"conditions":[{"type":"Ready","status":"False"}],
                "containerStatuses":[{"name":"c","image":"i","imageID":"","ready":false,"restartCount":7,
                "state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}"#;
            scene.kubectl(&["patch", "-n", "crash", pod, "--subresource=status", "-p", patch]).await?;
        }
    }
    let webhook = r#"{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "asked"}, "webhooks": [{"name": "asked.example.com", "failurePolicy": "Fail",
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 2,
        "clientConfig": {"url": "https://127.0.0.1:9"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "hook"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["pods/eviction"]}]}]}"#;
    scene.with_file("webhook.json", webhook, &["apply"]).await?;
    // An eviction with the UID of another pod is taken off the budget before the pod's deletion finds out.
    let cart = scene.on_node("lost", "w-10").await?.remove(0);
    let eviction = format!(
        r#"{{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {{"namespace": "lost", "name": "{cart}"}},
        "deleteOptions": {{"preconditions": {{"uid": "of-another"}}}}}}"#
    );
    let path = format!("/api/v1/namespaces/lost/pods/{cart}/eviction");
    let refused = scene.with_file("eviction.json", &eviction, &["create", "--raw", &path]).await;
    assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("UID")), "{refused:?}");
    for node in ELSEWHERE {
        // What comes back has nowhere else to go.
        for (namespace, ..) in PLACES.iter().filter(|place| place.0 != "returns") {
            scene.kubectl(&["label", "node", node, &format!("{namespace}=yes"), "--overwrite"]).await?;
        }
    }
    Ok(())
}

fn shows(ran: &Ran, lines: &[&str]) {
    println!("{}{}", ran.out, ran.err);
    for line in lines {
        assert!(ran.out.contains(line), "no `{line}` in {ran:?}");
    }
}

/// Reported, and evicted once; a second time where a late binding could be the reason.
async fn pods_that_come_back(scene: &Scene) -> TestResult {
    let ran = scene.run(&["drain", "w-1", "--timeout", "45s"]).await?;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    shows(
        &ran,
        &[
            ": tolerates the cordon and came back; it is not evicted again",
            ": came back although the node is cordoned, as pods do whose template names it (nodeName)",
            "node/w-1: not drained: ",
        ],
    );
    let requests = scene.asked("returns")?;
    let mut evicted: Vec<_> = evictions(&requests, true).iter().map(|entry| entry.name.clone()).collect();
    evicted.sort();
    let of_each = evicted.iter().map(|name| name.split('-').next().unwrap_or_default());
    let (fixed, tolerant): (Vec<_>, Vec<_>) = of_each.partition(|name| *name == "fixed");
    // Of the pods that came until a late binding was out of the question, each once.
    assert!(tolerant.len() == 1 && (2..=4).contains(&fixed.len()), "{evicted:?}");
    Ok(())
}

/// The system's priority classes last, `wait-completed` never evicted, `skip` left alone.
async fn an_order(scene: &Scene) -> TestResult {
    let ran = scene.run(&["drain", "w-2", "--order", "critical-last", "--respect-drain-labels"]).await?;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    shows(&ran, &["node/w-2: drained in "]);
    let requests = scene.asked("order")?;
    let evicted = evictions(&requests, true);
    let names: Vec<_> =
        evicted.iter().map(|entry| entry.name.split('-').next().unwrap_or_default()).collect();
    assert_eq!(names, ["web", "web", "dns"]);
    let end = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].lastTransitionTime}";
    let finished = scene.kubectl(&["get", "pods", "-n", "order", "-l", "job-name=batch", "-o", end]).await?;
    let finished: jiff::Timestamp =
        finished.parse().map_err(|error| Failure::new(format!("`{finished}`: {error}")))?;
    assert!(evicted[2].received >= finished, "the Job's pod was waited for");
    let mut left = scene.on_node("order", "w-2").await?;
    left.retain(|pod| !pod.starts_with("batch-"));
    assert_eq!(left, ["stay"]);
    Ok(())
}

/// Pinned pods under two budgets (openshift/machine-api-operator#1066).
async fn two_guards_on_each_node(scene: &Scene) -> TestResult {
    let drains =
        async { scene.run(&["drain", "w-3", "w-4", "--concurrency", "2", "--node-conditions"]).await };
    let brings_back = async {
        // Whichever was first is given back; the other can only begin then.
        let mut drained = "w-3";
        scene
            .until("one of the two is drained", 60, async || {
                for node in ["w-3", "w-4"] {
                    if scene.condition(node, "Drained").await? == "True" {
                        drained = node;
                        return Ok(true);
                    }
                }
                Ok(false)
            })
            .await?;
        let other = if drained == "w-3" { "w-4" } else { "w-3" };
        assert_eq!(scene.on_node("guards", other).await?.len(), 2, "all or nothing");
        scene.kubectl(&["uncordon", drained]).await
    };
    let (ran, _) = futures::try_join!(drains, brings_back)?;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    shows(&ran, &["node/w-3: drained in ", "node/w-4: drained in "]);
    let requests = scene.asked("guards")?;
    assert_eq!((evictions(&requests, true).len(), evictions(&requests, false).len()), (4, 0));
    Ok(())
}

/// A kubelet that is gone confirms no pod's end; nothing is deleted by force.
async fn a_silent_kubelet(scene: &Scene) -> TestResult {
    let ran = scene.run(&["drain", "w-6"]).await?;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    shows(
        &ran,
        &["node/w-6: not drained: its kubelet confirms no pod's end: pod away/web-", " is still there"],
    );
    let requests = scene.asked("away")?;
    assert_eq!(evictions(&requests, true).len(), 1);
    assert!(!requests.iter().any(|entry| entry.verb == "delete"), "{requests:?}");
    assert_eq!(scene.on_node("away", "w-6").await?.len(), 1, "it is still there");
    Ok(())
}

/// A budget that is short of healthy pods keeps unready ones, and one with `AlwaysAllow` does not.
async fn crashing_pods(scene: &Scene) -> TestResult {
    let ran = scene.run(&["drain", "w-7", "--timeout", "25s"]).await?;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    shows(
        &ran,
        &[
            "PDB crash/short allows 0 evictions: 1 of 3 healthy, 2 needed",
            "; the pod is not ready (CrashLoopBackOff): unhealthyPodEvictionPolicy AlwaysAllow",
            "not drained within 25 s: ",
        ],
    );
    let left = scene.on_node("crash", "w-7").await?;
    assert!(left.len() == 3 && left.iter().all(|pod| pod.starts_with("short-")), "{left:?}");
    let requests = scene.asked("crash")?;
    assert_eq!((evictions(&requests, true).len(), evictions(&requests, false).len()), (3, 0));
    let ran = scene.run(&["explain", "pdb/crash/short"]).await?;
    shows(&ran, &["1 of 3 healthy, 2 needed; not ready: ", "(CrashLoopBackOff)"]);
    Ok(())
}

/// A webhook that fails closed and is down: said, not hammered, and mended in the middle.
async fn a_webhook_that_is_down(scene: &Scene) -> TestResult {
    let mends = async {
        scene
            .until("an eviction has failed", 30, async || {
                Ok(!evictions(&scene.asked("hook")?, false).is_empty())
            })
            .await?;
        tokio::time::sleep(Duration::from_secs(8)).await;
        scene.kubectl(&["delete", "validatingwebhookconfiguration", "asked"]).await
    };
    let drains = async { scene.run(&["drain", "w-8"]).await };
    let (ran, _) = futures::try_join!(drains, mends)?;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    shows(&ran, &[": its eviction needs an admission webhook that is down: ", "asked.example.com"]);
    let requests = scene.asked("hook")?;
    let refused = evictions(&requests, false);
    assert!(refused.len() <= 2 && refused.iter().all(|entry| entry.code == 500), "{refused:?}");
    Ok(())
}

/// `--on-timeout force`: only after the deadline, by a deletion with some grace.
async fn a_person_who_forces_it(scene: &Scene) -> TestResult {
    let ran = scene.run(&["drain", "w-9", "--timeout", "8s", "--on-timeout", "force"]).await?;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    shows(&ran, &["PDB forced/never can never allow an eviction", "deleted past its PDBs: its time is over"]);
    assert!(ran.took >= Duration::from_secs(8), "{ran:?}");
    let requests = scene.asked("forced")?;
    assert_eq!(requests.iter().filter(|entry| entry.verb == "delete").count(), 1);
    assert_eq!(evictions(&requests, true).len() + evictions(&requests, false).len(), 0, "none was in vain");
    Ok(())
}

/// A budget counts an eviction that deleted nothing for two minutes: the reason and the time are told.
async fn an_eviction_that_is_lost(scene: &Scene) -> TestResult {
    let ran = scene.run(&["drain", "w-10", "--timeout", "20s"]).await?;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    shows(
        &ran,
        &[
            "PDB lost/cart allows 0 evictions: 1 of 2 healthy, 1 needed; pod cart-",
            " counts as evicted until ",
        ],
    );
    let requests = scene.asked("lost")?;
    assert_eq!(evictions(&requests, true).len() + evictions(&requests, false).len(), 0, "none was in vain");
    Ok(())
}

/// Static pods stay, finished and pending ones ask no budget, terminating ones are only awaited.
async fn pods_of_every_kind(scene: &Scene) -> TestResult {
    let lets_go = async {
        scene
            .until("the held pod is terminating", 30, async || {
                let path = "jsonpath={.items[*].metadata.deletionTimestamp}";
                let deleting = ["get", "pods", "-n", "kinds", "-l", "app=final", "-o", path];
                Ok(!scene.kubectl(&deleting).await?.trim().is_empty())
            })
            .await?;
        tokio::time::sleep(Duration::from_secs(8)).await;
        let on_node = scene.on_node("kinds", "w-11").await?;
        let held = on_node.iter().find(|pod| pod.starts_with("final-"));
        let held = held.ok_or_else(|| Failure::new(format!("it did not wait: {on_node:?}")))?;
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        scene.kubectl(&["patch", "pod", "-n", "kinds", held, "--type=merge", "-p", patch]).await
    };
    let drains = async { scene.run(&["drain", "w-11"]).await };
    let (ran, _) = futures::try_join!(drains, lets_go)?;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    shows(&ran, &["stays until its finalizer example.com/held is taken off", "node/w-11: drained in "]);
    let requests = scene.asked("kinds")?;
    let mut evicted: Vec<_> = evictions(&requests, true).iter().map(|entry| entry.name.clone()).collect();
    evicted.sort();
    let kinds: Vec<_> = evicted.iter().map(|name| name.split('-').next().unwrap_or_default()).collect();
    assert_eq!(kinds, ["done", "final", "slow"], "each once, a finished one as kubectl does");
    assert_eq!(evictions(&requests, false).len(), 0);
    assert_eq!(scene.on_node("kinds", "w-11").await?, ["mirror"]);
    Ok(())
}

/// Who has the name on another node is somebody else (kubernetes/kubectl#1767).
async fn a_pod_that_comes_back_under_its_name(scene: &Scene) -> TestResult {
    let meanwhile = async {
        scene.until("w-13 is cordoned", 20, async || Ok(scene.cordons().await?.contains("w-13 "))).await?;
        tokio::time::sleep(Duration::from_secs(6)).await;
        scene.kubectl(&["delete", "pod", "-n", "names", "db-0"]).await?;
        scene
            .until("db-0 is back elsewhere", 20, async || {
                Ok(scene.on_node("names", ELSEWHERE[0]).await?.len()
                    + scene.on_node("names", ELSEWHERE[1]).await?.len()
                    == 1)
            })
            .await?;
        // Now it could be evicted.
        let patch = r#"{"spec":{"maxUnavailable":1}}"#;
        scene.kubectl(&["patch", "pdb", "-n", "names", "db", "--type=merge", "-p", patch]).await
    };
    let drains = async { scene.run(&["drain", "w-13"]).await };
    let (ran, _) = futures::try_join!(drains, meanwhile)?;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    shows(&ran, &["PDB names/db can never allow an eviction", "node/w-13: drained in "]);
    let requests = scene.asked("names")?;
    assert_eq!(evictions(&requests, true).len() + evictions(&requests, false).len(), 0, "{requests:?}");
    Ok(())
}

/// A node that is rebooted next is drained when the volumes are gone; those of pods that stay are theirs.
async fn volumes_that_are_detached_late(scene: &Scene) -> TestResult {
    let meanwhile = async {
        scene
            .until("only the agent is left", 30, async || {
                Ok(scene.on_node("volumes", "w-14").await? == ["agent"])
            })
            .await?;
        tokio::time::sleep(Duration::from_secs(8)).await;
        scene.kubectl(&["delete", "volumeattachment", "of-db"]).await
    };
    let drain = ["drain", "w-14", "--wait-for-volumes", "--respect-drain-labels"];
    let drains = async { scene.run(&drain).await };
    let (ran, _) = futures::try_join!(drains, meanwhile)?;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    shows(&ran, &["node/w-14: volume of-db (volumes/data) still attached to it", "node/w-14: drained in "]);
    let attached = scene.kubectl(&["get", "volumeattachments", "-o", "name"]).await?;
    assert_eq!(attached.trim(), "volumeattachment.storage.k8s.io/of-agent");
    Ok(())
}

/// Evictions in a namespace that is being deleted are refused, and its pods go with it.
async fn a_namespace_that_is_deleted(scene: &Scene) -> TestResult {
    // While no controller manager runs, the namespace's pods stay.
    let manager = scene.cluster.controller_manager(0);
    manager.stop().await?;
    scene.kubectl(&["delete", "namespace", "ending", "--wait=false"]).await?;
    let goes_on = async {
        scene
            .until("an eviction was refused", 30, async || {
                Ok(evictions(&scene.asked("ending")?, false).iter().any(|entry| entry.code == 403))
            })
            .await?;
        tokio::time::sleep(Duration::from_secs(7)).await;
        manager.start().await.map_err(Failure::from)
    };
    let drains = async { scene.run(&["drain", "w-12"]).await };
    let (ran, ()) = futures::try_join!(drains, goes_on)?;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    shows(&ran, &[": its namespace is being deleted: it is not evicted", "node/w-12: drained in "]);
    let requests = scene.asked("ending")?;
    let refused = evictions(&requests, false).len();
    assert!((1..=8).contains(&refused), "{refused} in about {:?}", ran.took);
    Ok(())
}
