//! Requests that a fault holds back: the fault excuses the one request that comes late, and nothing else that the program
//! does.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::super::super::script;
use super::super::watcher::faults::fair;
use super::{Stage, UP, UPGRADES, Wrong, names, said};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

impl Stage {
    /// The first request of the operator meets `fault`.
    fn meets(&self, fault: &str) {
        let script = [format!("call evenkeel-a 0 1 {fault}").parse().unwrap()];
        fair(&mut self.watcher.lock().unwrap(), &script);
        script::arm(&self.cluster, &script);
    }

    /// In five seconds another replica leads.
    async fn is_replaced(&self) {
        sleep(Duration::from_secs(5)).await;
        let lease = json!({"metadata": {"name": "evenkeel"}, "spec": {"holderIdentity": "b_1"}});
        self.person.create(LEASES, &lease).await;
    }
}

#[test]
fn invariant_10_a_leader_that_goes_on_writing_after_it_wakes() {
    let wakes = |fault: &'static str, goes_on: bool| {
        said(async |stage| {
            stage.meets(fault);
            tokio::join!(stage.claim("kube-apiserver", "cp-1", ""), stage.is_replaced());
            if goes_on {
                stage.state("kube-apiserver", "cp-1", "Upgrading", "").await;
            }
        })
    };
    for fault in ["pause:12", "late:12", "delay:12"] {
        assert_eq!(wakes(fault, false), Wrong::new(), "{fault}: nothing keeps back what is sent already");
        let words = "writes nodeupgrades.evenkeel.dev up.kube-apiserver.cp-1 while b_1 leads";
        names(10, words, &wakes(fault, true));
    }
}

#[test]
fn a_request_that_comes_late_excuses_no_other() {
    for fault in ["late:30", "delay:30"] {
        let wrong = said(async |stage| {
            stage.plane_is_there().await;
            let (late, other) = (stage.uid_of("main-3").await, stage.uid_of("main-1").await);
            stage.meets(fault);
            let on_time = async {
                let suspend = json!({"spec": {"suspend": true}});
                stage.person.merge(&format!("{UPGRADES}/{UP}"), &suspend).await.unwrap();
                sleep(Duration::from_secs(10)).await;
                stage.claim("kubelet", "main-1", &other).await;
            };
            tokio::join!(stage.claim("kubelet", "main-3", &late), on_time);
        });
        names(13, "claims main-1 although up is suspended", &wrong);
        assert!(!wrong.iter().any(|line| line.contains("claims main-3 although")), "{fault}: {wrong:#?}");
    }
}

/// Whoever was stopped does not know yet what happened meanwhile, and soon does.
#[test]
fn a_program_that_was_stopped_is_excused_for_a_moment() {
    let claims_after = |seconds: u64| {
        said(async |stage| {
            stage.plane_is_there().await;
            let (first, second) = (stage.uid_of("main-3").await, stage.uid_of("main-1").await);
            stage.meets("pause:9");
            let suspends = async {
                let suspend = json!({"spec": {"suspend": true}});
                stage.person.merge(&format!("{UPGRADES}/{UP}"), &suspend).await.unwrap();
            };
            tokio::join!(stage.claim("kubelet", "main-3", &first), suspends);
            sleep(Duration::from_secs(seconds)).await;
            stage.claim("kubelet", "main-1", &second).await;
        })
    };
    assert_eq!(claims_after(1), Wrong::new());
    names(13, "claims main-1 although up is suspended", &claims_after(10));
}
