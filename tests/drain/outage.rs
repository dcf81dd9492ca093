//! A drain through an apiserver that is killed, restarted and hung in the middle of it: it waits, says so, and goes on
//! where it was. `kubectl drain` gives up at the first answer that is none.

use std::cell::Cell;
use std::time::Duration;

use evenkeel_devcluster::{Failure, TestResult, in_namespace};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{Scene, nothing_twice, watched};

const NODES: [&str; 3] = ["w-1", "w-2", "w-3"];

/// 503, 504 and network errors are tried again and end nothing.
#[test]
fn the_apiserver_goes_away_and_returns() -> TestResult {
    in_namespace("outage::the_apiserver_goes_away_and_returns", async || {
        let scene = Scene::begin(5, "workloads.yaml").await?;
        scene.settled("shop", 15 + 6).await?;
        watched(&scene, async || {
            let mut drain = vec!["drain"];
            drain.extend(NODES);
            let webhook = slow_evictions(&scene).await?;
            let had = Cell::new(0);
            let ran = tokio::select! {
                ran = scene.run(&drain) => ran?,
                ended = troubles(&scene, webhook, &had) => return ended,
            };
            println!("{}{}", ran.out, ran.err);
            assert_eq!((ran.code, had.get()), (Some(0), 3), "{ran:?}");
            for node in NODES {
                assert_eq!(scene.on_node("shop", node).await?.len(), 1, "the DaemonSet's on {node}");
                assert!(ran.out.contains(&format!("node/{node}: drained in ")), "{ran:?}");
            }
            // A wait is told after five seconds of looks. Which of these waits lasts so long depends on how far an
            // eviction was when the apiserver ended, and on what the next one answers while it begins.
            let waits = [
                "its eviction got no answer from the apiserver",
                "the apiserver could not answer its eviction",
            ];
            let told = waits.iter().any(|wait| ran.out.contains(&format!(": {wait}; asked again soon")));
            assert!(told && ran.err.contains(": cannot watch "), "it says so: {ran:?}");
            nothing_twice(&scene.requests()?);
            Ok(())
        })
        .await
    })
}

/// A webhook that the evictions are asked of and that never answers: after a second they go on without it. Meanwhile they
/// are on their way, and it is known that they are.
async fn slow_evictions(scene: &Scene) -> Result<TcpListener, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("the webhook's socket: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let webhook = format!(
        r#"{{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {{"name": "slow"}}, "webhooks": [{{"name": "slow.example.com", "failurePolicy": "Ignore",
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
        "clientConfig": {{"url": "https://{address}"}},
        "rules": [{{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["pods/eviction"]}}]}}]}}"#
    );
    scene.with_file("slow.json", &webhook, &["apply"]).await?;
    Ok(listener)
}

/// Killed while an eviction is on its way; later stopped for a while; later hung, so that requests time out.
async fn troubles(scene: &Scene, webhook: TcpListener, had: &Cell<u32>) -> TestResult {
    let apiserver = scene.cluster.apiserver(0);
    let (asked, mut on_its_way) = watch::channel(0_usize);
    let accepts = async {
        let mut open = Vec::new();
        while let Ok((connection, _)) = webhook.accept().await {
            open.push(connection);
            asked.send_replace(open.len());
        }
        Err(Failure::new("the webhook's socket ended"))
    };
    let troubles = async {
        let mut an_eviction = async || {
            on_its_way.mark_unchanged();
            let asked = tokio::time::timeout(Duration::from_mins(1), on_its_way.changed()).await;
            asked
                .map_err(|_| Failure::new("no eviction within 60 s"))?
                .map_err(|e| Failure::new(e.to_string()))
        };
        an_eviction().await?;
        apiserver.kill().await?;
        had.set(1);
        tokio::time::sleep(Duration::from_secs(3)).await;
        an_eviction().await?;
        apiserver.stop().await?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        apiserver.start().await?;
        had.set(2);
        an_eviction().await?;
        apiserver.pause().await?;
        tokio::time::sleep(Duration::from_secs(12)).await;
        apiserver.resume().await?;
        had.set(3);
        // It goes on to accept.
        std::future::pending::<TestResult>().await
    };
    tokio::select! { ended = troubles => ended, ended = accepts => ended }
}
