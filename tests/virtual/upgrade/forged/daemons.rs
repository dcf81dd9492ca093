//! Forgeries of a node that is called upgraded while a pod of its `DaemonSets` is not ready.

use std::time::Duration;

use tokio::time::sleep;

use super::super::people::agent;
use super::{TO, names, said};

#[test]
fn invariant_9_upgraded_while_the_pod_of_a_daemon_set_is_not_ready() {
    let upgraded = |ill: bool| {
        said(async |stage| {
            agent(&stage.cluster, &stage.person, &[]).await;
            stage.plane_is_there().await;
            stage.take("main-1").await;
            stage.state("kubelet", "main-1", "Upgrading", "").await;
            stage.cluster.restart_kubelet("main-1", TO);
            if ill {
                agent(&stage.cluster, &stage.person, &["ill", "main-1"]).await;
            }
            sleep(Duration::from_secs(40)).await;
            stage.state("kubelet", "main-1", "Upgraded", "").await;
        })
    };
    names(9, "up.kubelet.main-1 is Upgraded, and shop/agent-", &upgraded(true));
    assert!(!upgraded(false).iter().any(|line| line.contains("shop/agent-")));
}
