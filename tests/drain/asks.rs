//! What a drain asks of the server, and what it does not: a rehearsal changes nothing, a grace period arrives, what is
//! refused is not begun, and a budget that cannot be computed is not tried.

use std::time::Duration;

use evenkeel_devcluster::{Failure, TestResult, in_namespace};

use super::{Scene, evictions, watched};

const SPARE: &str = "w-5";
/// The label of what runs on each node, and how many pods that are.
const PLACES: [(&str, &str, usize); 4] =
    [("rehearsed", "w-1", 4), ("slow", "w-2", 1), ("bare", "w-3", 2), ("long", "w-4", 1)];

#[test]
fn what_is_asked_and_what_is_not() -> TestResult {
    in_namespace("asks::what_is_asked_and_what_is_not", async || {
        let scene = Scene::begin(5, "asks.yaml").await?;
        for (label, node, _) in PLACES {
            scene.kubectl(&["label", "node", node, &format!("{label}=yes")]).await?;
        }
        for (_, node, pods) in PLACES {
            let what = format!("{pods} pods are on {node} and run");
            scene.until(&what, 60, async || Ok(running(&scene, node).await?.len() == pods)).await?;
        }
        for (label, ..) in PLACES {
            scene.kubectl(&["label", "node", SPARE, &format!("{label}=yes")]).await?;
        }
        watched(&scene, async || {
            rehearsed(&scene).await?;
            a_grace_period_and_a_late_binding(&scene).await?;
            refused(&scene).await?;
            another_cordon_than_ours(&scene).await?;
            a_budget_that_cannot_be_computed(&scene).await
        })
        .await
    })
}

async fn running(scene: &Scene, node: &str) -> Result<Vec<String>, Failure> {
    let selector = format!("spec.nodeName={node},status.phase=Running");
    let path = "jsonpath={range .items[*]}{.metadata.name}{.metadata.deletionTimestamp} {end}";
    let all =
        scene.kubectl(&["get", "pods", "-n", "asks", "--field-selector", &selector, "-o", path]).await?;
    Ok(all.split_whitespace().map(str::to_owned).collect())
}

/// By what is seen, and by asking the server; either way nothing is changed.
async fn rehearsed(scene: &Scene) -> TestResult {
    let before = running(scene, "w-1").await?;
    for (who, asked, denied) in [
        ("client", 0, "would be evicted"),
        ("server", 3, "the server would refuse: its eviction is denied: "),
    ] {
        let already = scene.requests()?.len();
        let ran = scene.run(&["drain", "w-1", &format!("--dry-run={who}")]).await?;
        println!("{}{}", ran.out, ran.err);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        let line = |pod: &str, what: &str| {
            let pod = format!("node/w-1: pod asks/{pod}-");
            ran.out.lines().filter(|line| line.starts_with(&pod) && line.contains(what)).count()
        };
        assert_eq!(line("free", "would be evicted"), 2, "{ran:?}");
        assert_eq!(line("never", "would wait: PDB asks/never can never allow an eviction"), 1, "{ran:?}");
        assert_eq!(line("denied", denied), 1, "{ran:?}");
        let requests = scene.requests()?.split_off(already);
        let anonymous: Vec<_> =
            requests.iter().filter(|request| !request.user_agent.ends_with(") drain")).collect();
        assert!(!requests.is_empty() && anonymous.is_empty(), "the server knows who asks: {anonymous:?}");
        let evicted = evictions(&requests, true).len() + evictions(&requests, false).len();
        assert_eq!(evicted, asked, "what never goes is not even asked for: {requests:?}");
        assert_eq!(
            (running(scene, "w-1").await?, scene.cordons().await?),
            (before.clone(), String::new()),
            "nothing is changed"
        );
    }
    Ok(())
}

/// `--grace-period` goes with the eviction; and who is bound to the node after its cordon leaves, too.
async fn a_grace_period_and_a_late_binding(scene: &Scene) -> TestResult {
    let late = scene.kubectl(&["get", "pods", "-n", "asks", "-l", "app=late", "-o", "name"]).await?;
    let late = late.trim().trim_start_matches("pod/");
    let meanwhile = async {
        scene.until("w-2 is cordoned", 20, async || Ok(scene.cordons().await?.contains("w-2"))).await?;
        let binding = format!(
            r#"{{"apiVersion": "v1", "kind": "Binding", "metadata": {{"name": "{late}", "namespace": "asks"}},
            "target": {{"apiVersion": "v1", "kind": "Node", "name": "w-2"}}}}"#
        );
        let path = format!("/api/v1/namespaces/asks/pods/{late}/binding");
        scene.with_file("binding.json", &binding, &["create", "--raw", &path]).await?;
        let path = "jsonpath={.items[*].metadata.deletionGracePeriodSeconds}";
        scene
            .until("the slow pod has 7 s", 20, async || {
                let grace =
                    scene.kubectl(&["get", "pods", "-n", "asks", "-l", "app=slow", "-o", path]).await?;
                Ok(grace.trim() == "7")
            })
            .await
    };
    let drains = async { scene.run(&["drain", "w-2", "--grace-period", "7"]).await };
    let (ran, ()) = futures::try_join!(drains, meanwhile)?;
    println!("{}", ran.out);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.took >= Duration::from_secs(4), "{ran:?}");
    assert!(ran.out.contains(&format!("node/w-2: pod asks/{late}: gone")), "{ran:?}");
    assert_eq!(running(scene, "w-2").await?, Vec::<String>::new());
    Ok(())
}

/// A pod that nobody would bring back and one whose data would be lost: the node is not touched before a person says so.
async fn refused(scene: &Scene) -> TestResult {
    let keeps = ["--force", "--delete-emptydir-data=false"];
    for (flags, why) in [
        (&[][..], "pod asks/bare has no controller that would bring it back"),
        (&keeps, "has an emptyDir, whose data an eviction destroys"),
    ] {
        let ran = scene.run(&[&["drain", "w-3"], flags].concat()).await?;
        assert_eq!((ran.code, ran.out.contains(why)), (Some(2), true), "{ran:?}");
        assert!(!scene.cordons().await?.contains("w-3"), "it is not begun");
        assert_eq!(running(scene, "w-3").await?.len(), 2);
    }
    let ran = scene.run(&["drain", "w-3", "--force"]).await?;
    println!("{}", ran.out);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for warning in ["it is not made again: asks/bare", "the data of its emptyDir is lost: asks/cache-"] {
        assert!(ran.out.contains(warning), "no `{warning}` in {ran:?}");
    }
    assert_eq!(running(scene, "w-3").await?, Vec::<String>::new());
    Ok(())
}

/// Who uncordons with kubectl leaves our mark behind. Whoever cordons the node after that keeps it cordoned.
async fn another_cordon_than_ours(scene: &Scene) -> TestResult {
    scene.kubectl(&["uncordon", "w-3"]).await?;
    scene.kubectl(&["cordon", "w-3"]).await?;
    let ran = scene.run(&["uncordon", "w-3"]).await?;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.out.contains("node/w-3: cordoned by somebody else"), "{ran:?}");
    let ran = scene.run(&["drain", "w-3", "--settle", "0"]).await?;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(scene.cordons().await?.contains("w-3"));

    scene.kubectl(&["uncordon", "w-3"]).await?;
    let ran = scene.run(&["drain", "w-3", "--settle", "0"]).await?;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = scene.run(&["uncordon", "w-3"]).await?;
    println!("{}", ran.out);
    assert_eq!((ran.code, scene.cordons().await?.contains("w-3")), (Some(0), false), "{ran:?}");

    let ran = scene.run(&["drain", "w-3", "--settle", "0"]).await?;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    scene.kubectl(&["uncordon", "w-3"]).await?;
    for line in ["is schedulable already; what our drain had left", "is schedulable already"] {
        let ran = scene.run(&["uncordon", "w-3"]).await?;
        assert_eq!((ran.code, ran.out.contains(line)), (Some(0), true), "{ran:?}");
    }
    Ok(())
}

/// The other numbers of such a budget are stale; its condition says so, and it is believed.
async fn a_budget_that_cannot_be_computed(scene: &Scene) -> TestResult {
    let already = scene.requests()?.len();
    let ran = scene.run(&["drain", "w-4", "--timeout", "8s", "--uncordon-on-failure"]).await?;
    println!("{}", ran.out);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let why = "PDB asks/long failed to sync: jobs.batch does not implement the scale subresource";
    assert!(ran.out.contains(why), "{ran:?}");
    let requests = scene.requests()?.split_off(already);
    assert_eq!(evictions(&requests, true).len() + evictions(&requests, false).len(), 0, "{requests:?}");
    assert_eq!(running(scene, "w-4").await?.len(), 1);
    Ok(())
}
