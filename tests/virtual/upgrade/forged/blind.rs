//! Lost events: they excuse what the program could not know of one object, and nothing else.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::super::super::script::Step;
use super::super::run;
use super::{Stage, UP, UPGRADES, Wrong, names, said};

const NODES: &str = "/api/v1/nodes";

impl Stage {
    /// Takes `node` for a claim, and a person cordons it a while ago, which the operator was told or not.
    async fn cordoned_by_a_person(&self, node: &str) {
        let free = json!({"spec": {"unschedulable": null}});
        let cordon = json!({"spec": {"unschedulable": true}});
        self.take(node).await;
        for patch in [free, cordon] {
            self.person.merge(&format!("{NODES}/{node}"), &patch).await.unwrap();
        }
    }

    /// The operator takes the cordon off, as if it were its own.
    async fn uncordons(&self, node: &str) {
        let patch = json!({"metadata": {"annotations": {"evenkeel.dev/cordoned-by": null}},
            "spec": {"unschedulable": null}});
        self.forger.merge(&format!("{NODES}/{node}"), &patch).await.unwrap();
    }
}

/// What is said when the cordon of a person is taken off `node`, so long after an event of main-1 was lost.
fn after(seconds: u64, resource: &'static str, agent: &'static str, node: &'static str) -> Wrong {
    said(async |stage| {
        stage.plane_is_there().await;
        stage.watcher.lock().unwrap().lose(agent, resource, Some("main-1".to_owned()));
        stage.cordoned_by_a_person(node).await;
        sleep(Duration::from_secs(seconds)).await;
        stage.uncordons(node).await;
    })
}

#[test]
fn a_lost_event_excuses_nothing_of_another_object() {
    let words = |node: &str| format!("takes off a cordon of {node} that somebody else set");
    let excused = |wrong: &Wrong| !wrong.iter().any(|line| line.contains("that somebody else set"));
    assert!(excused(&after(60, "nodes", "evenkeel-a", "main-1")));
    // Another node, another kind, another replica, and after everything was listed anew.
    names(6, &words("main-3"), &after(60, "nodes", "evenkeel-a", "main-3"));
    names(6, &words("main-1"), &after(60, "pods", "evenkeel-a", "main-1"));
    names(6, &words("main-1"), &after(60, "nodes", "evenkeel-b", "main-1"));
    names(6, &words("main-1"), &after(310, "nodes", "evenkeel-a", "main-1"));
}

/// Who lists a kind after an event of it was lost knows what it did not hear of.
#[test]
fn a_list_ends_what_a_lost_event_excuses() {
    let listed = said(async |stage| {
        stage.plane_is_there().await;
        stage.watcher.lock().unwrap().lose("evenkeel-a", "nodes", Some("main-1".to_owned()));
        stage.cordoned_by_a_person("main-1").await;
        stage.forger.list(NODES).await;
        sleep(Duration::from_mins(1)).await;
        stage.uncordons("main-1").await;
    });
    names(6, "takes off a cordon of main-1 that somebody else set", &listed);
}

/// Another invariant, about something else than what was lost.
#[test]
fn a_lost_event_of_a_node_does_not_excuse_what_a_person_said() {
    let suspended = |resource: &'static str, object: &'static str| {
        said(async |stage| {
            stage.plane_is_there().await;
            stage.watcher.lock().unwrap().lose("evenkeel-a", resource, Some(object.to_owned()));
            let suspend = json!({"spec": {"suspend": true}});
            stage.person.merge(&format!("{UPGRADES}/{UP}"), &suspend).await.unwrap();
            sleep(Duration::from_mins(1)).await;
            let uid = stage.uid_of("main-1").await;
            stage.claim("kubelet", "main-1", &uid).await;
        })
    };
    assert_eq!(suspended("clusterupgrades.evenkeel.dev", UP), Wrong::new());
    names(13, "although up is suspended", &suspended("nodes", "main-1"));
    names(13, "although up is suspended", &suspended("clusterupgrades.evenkeel.dev", "second"));
}

/// What is lost is known by its name, and a kind as a whole only where a whole watch or list is.
#[test]
fn the_watcher_knows_what_a_fault_hides() {
    let hidden = |step: &str| {
        let step: Step = step.parse().unwrap();
        let run = run(1, &[step]);
        assert!(run.wrong.is_empty(), "{:#?}", run.wrong);
        run.unknown
    };
    for fault in ["drop", "swap"] {
        let lost = hidden(&format!("told evenkeel-a nodes 20 {fault}"));
        let [(resource, Some(node))] = lost.as_slice() else { panic!("{fault}: {lost:?}") };
        assert!(resource == "nodes" && node.contains('-') && !node.contains('/'), "{fault}: {lost:?}");
    }
    for fault in ["duplicate", "delay:4", "gone", "end", "reset", "garbage"] {
        assert_eq!(hidden(&format!("told evenkeel-a nodes 20 {fault}")), [], "{fault}");
    }
    // The request that is this one reads nothing, or a kind.
    let write = hidden("call evenkeel-a 60 1 hang-after");
    assert!(write.iter().all(|(_, object)| object.is_none()), "{write:?}");
}
