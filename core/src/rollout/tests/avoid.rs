//! Nodes that the scheduler is asked to avoid while others move.

use std::sync::Arc;

use super::super::*;
use super::cluster::Toy;
use crate::cluster::{Node, OUTDATED_TAINT};
use crate::fixture::node;
use crate::plan::is_empty;
use crate::version::Observed;

impl Toy {
    /// Replaces the taints of a node, and checks that only ours came or went.
    pub(super) fn taint(&mut self, name: &str, taints: &Taints) {
        let read = |json: &str| -> Vec<serde_json::Value> {
            if json.is_empty() { Vec::new() } else { serde_json::from_str(json).unwrap() }
        };
        let ours = |taint: &serde_json::Value| taint["key"] == OUTDATED_TAINT;
        self.cluster.change_node(name, |live| {
            let mut before = read(&live.taints);
            let after = taints.json().as_array().cloned().unwrap_or_default();
            before.retain(|taint| !ours(taint));
            let mut others = after.clone();
            others.retain(|taint| !ours(taint));
            assert_eq!(before, others, "the taints of others stay as they are");
            assert_eq!(taints.json().is_null(), after.is_empty(), "no taint at all is null");
            let value = after.iter().find(|taint| ours(taint)).map(|taint| taint["value"].as_str().unwrap());
            live.outdated_for = value.map(Into::into);
            live.taints = if after.is_empty() { "".into() } else { taints.json().to_string().into() };
            live.resource_version = format!("{}t", live.resource_version).into();
        });
    }

    /// How many nodes the scheduler avoids because of us.
    fn avoided(&self) -> usize {
        self.cluster.nodes().iter().filter(|node| node.outdated_for.is_some()).count()
    }

    /// Nodes with an empty one among them, whose name comes last, and pods on all others.
    fn with_a_spare(nodes: usize, pods: usize) -> Self {
        let mut toy = Self::new(nodes, 1);
        toy.deploy("cart", pods, 1);
        toy.cluster.set_node(node("spare", "v1.36.4"));
        toy
    }
}

#[test]
fn with_a_spare_node_every_pod_moves_once() {
    let mut toy = Toy::with_a_spare(5, 10);
    toy.run_to_the_end(2000);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
    assert_eq!(toy.evictions, 10);
    assert_eq!(toy.avoided(), 0, "nothing stays behind");
    let first = toy.log.iter().find(|line| line.starts_with("Cordon")).unwrap();
    assert_eq!(first, "Cordon spare", "what leaves the others finds a place there");
    let tainted = toy.log.iter().filter(|line| line.starts_with("Taint")).count();
    assert_eq!(tainted, 5, "the first to move needs none");
    let alone = toy.log.iter().filter(|line| line.starts_with("Untaint")).count();
    assert_eq!(alone, 0, "it goes together with the cordon, in one write");
}

#[test]
fn nodes_with_pods_wait_for_an_empty_one_and_not_for_ever() {
    // Two at once, and pods would have nowhere to go that they do not have to leave again.
    let mut toy = Toy::with_a_spare(5, 10);
    toy.upgrade.groups[0].max_unavailable = crate::upgrade::Amount::Count(2);
    toy.allow(2);
    toy.run_to_the_end(2000);
    assert_eq!((toy.phase(), toy.evictions), (UpgradePhase::Completed, 10));
    assert_eq!(toy.max_in_flight, 2, "then two at once");
    // The empty one never comes back.
    let mut toy = Toy::with_a_spare(5, 10);
    toy.upgrade.groups[0].max_unavailable = crate::upgrade::Amount::Count(2);
    toy.allow(2);
    toy.broken = Some("spare".to_owned());
    toy.run_until(200, |toy| toy.kubelets_in_flight() == 1);
    let begun = toy.seconds;
    toy.tick();
    let line = toy.status().lines().join("\n");
    assert!(line.contains("the others wait until spare, which is empty, is upgraded"), "{line}");
    toy.run_until(900, |toy| toy.kubelets_in_flight() == 2 || toy.kubelets("Upgraded") > 0);
    assert!(toy.seconds - begun > 60, "{}", toy.seconds - begun);
}

#[test]
fn a_control_plane_node_is_no_place_for_what_leaves_workers() {
    let mut toy = Toy::with_a_spare(3, 6);
    toy.cluster.set_node(Node { control_plane: true, ..node("a-plane", "v1.37.1") });
    toy.cluster.set_node(Node { control_plane: true, ..node("b-plane", "v1.36.4") });
    toy.upgrade.groups[0].max_unavailable = crate::upgrade::Amount::Count(2);
    toy.allow(2);
    toy.run_to_the_end(2000);
    let first = toy.log.iter().find(|line| line.starts_with("Claim up.kubelet")).unwrap();
    assert_eq!((first.as_str(), toy.evictions), ("Claim up.kubelet.spare", 6), "{}", toy.log_head(200));
}

#[test]
fn a_node_that_a_person_holds_is_as_good_as_upgraded() {
    let mut toy = Toy::with_a_spare(4, 4);
    toy.run_until(200, |toy| toy.avoided() == 4);
    toy.cluster.change_node("n-3", |node| node.held = true);
    toy.tick();
    assert!(toy.cluster.node("n-3").unwrap().outdated_for.is_none());
    assert_eq!(toy.avoided(), 3);
}

/// It is never taken back, so that it would keep the taint for ever.
#[test]
fn a_node_of_a_newer_minor_is_not_avoided() {
    for version in ["v1.37.0", "v1.38.0"] {
        let mut toy = Toy::with_a_spare(4, 4);
        toy.run_until(200, |toy| toy.avoided() == 4);
        toy.cluster.change_node("n-3", |node| node.kubelet = Observed::from_report(version));
        toy.tick();
        let avoided = toy.cluster.node("n-3").unwrap().outdated_for.is_some();
        assert_eq!(avoided, version == "v1.37.0", "{version}");
        (0..5).for_each(|_| toy.tick());
        assert_eq!(toy.avoided(), if avoided { 4 } else { 3 }, "{version}: {:?}", toy.log);
    }
}

#[test]
fn an_upgrade_that_ends_leaves_no_taint_behind() {
    let mut toy = Toy::with_a_spare(4, 4);
    toy.run_until(200, |toy| toy.avoided() == 4);
    toy.progress.ending = true;
    toy.run_to_the_end(200);
    assert_eq!(toy.avoided(), 0);
    let last = toy.log.last().unwrap();
    assert_eq!(last, "Unprotect", "not before the last taint is gone: {}", toy.log_head(80));
}

/// Her drain may last for days. The cordon is hers, and the taint is ours.
#[test]
fn a_node_that_a_person_drains_loses_the_taint_and_keeps_its_cordon() {
    for ending in [true, false] {
        let mut toy = Toy::with_a_spare(4, 4);
        toy.run_until(200, |toy| toy.avoided() == 4);
        let mark: Arc<str> = "drain:2026-01-01T00:00:00Z/ann@host".into();
        let others =
            toy.cluster.node("n-3").unwrap().taints.replace(']', r#",{"key":"a","effect":"NoExecute"}]"#);
        toy.cluster.change_node("n-3", |node| {
            (node.unschedulable, node.cordoned_by) = (true, Some(mark.clone()));
            (node.held, node.taints) = (!ending, others.into());
        });
        toy.progress.ending = ending;
        toy.run_to_the_end(400);
        let node = toy.cluster.node("n-3").unwrap();
        assert_eq!((node.unschedulable, node.cordoned_by.as_ref()), (true, Some(&mark)), "{:?}", toy.log);
        assert_eq!(&*node.taints, r#"[{"effect":"NoExecute","key":"a"}]"#, "{:?}", toy.log);
        assert_eq!(toy.avoided(), if ending { 0 } else { 3 }, "{:?}", toy.log);
        let ended = toy.log.last().is_some_and(|last| last == "Unprotect");
        assert_eq!(ended, ending, "{:?}", toy.log);
    }
}

#[test]
fn nothing_is_avoided_before_a_node_moves_or_after_a_person_said_stop() {
    let mut toy = Toy::with_a_spare(3, 3);
    toy.upgrade.suspended = true;
    for _ in 0..60 {
        toy.tick();
    }
    assert_eq!(toy.avoided(), 0);
    toy.upgrade.suspended = false;
    toy.run_until(200, |toy| toy.avoided() == 3);
    toy.upgrade.suspended = true;
    toy.run_to_the_end(200);
    assert_eq!(toy.avoided(), 3, "who said stop wants to go on later");
    assert!(is_empty(&toy.cluster, toy.cluster.node("n-1").unwrap()) || toy.evictions == 0);
}

#[test]
fn a_parked_node_is_avoided_also_where_no_other_moves() {
    let mut toy = Toy::new(1, 1);
    toy.deploy("frozen", 1, 1);
    toy.absent = 1;
    toy.run_until(400, |toy| toy.kubelets("Parked") == 1);
    toy.run_until(5, |toy| !toy.cluster.node("n-1").unwrap().unschedulable);
    toy.run_until(5, |toy| toy.avoided() == 1);
}

#[test]
fn the_taints_of_others_stay_and_ours_is_there_once() {
    let others = r#"[{"key":"dedicated","value":"db","effect":"NoSchedule"}]"#;
    let mut toy = Toy::with_a_spare(2, 2);
    toy.cluster.change_node("n-1", |node| node.taints = others.into());
    toy.run_until(200, |toy| toy.avoided() == 2);
    let tainted = toy.cluster.node("n-1").unwrap().clone();
    assert!(tainted.taints.contains("dedicated") && tainted.taints.contains(OUTDATED_TAINT));
    toy.run_to_the_end(600);
    let left = toy.cluster.node("n-1").unwrap().taints.to_string();
    assert_eq!(left, r#"[{"effect":"NoSchedule","key":"dedicated","value":"db"}]"#);
    // One of another upgrade, which is gone: nobody else would take it off.
    let alone = unavoided(&toy.cluster, &["uid-up".to_owned()]);
    assert_eq!(alone, []);
    toy.cluster.set_node(tainted);
    let alone = unavoided(&toy.cluster, &["uid-other".to_owned()]);
    let [Action::Taint { node, taints }] = &alone[..] else { panic!("{alone:?}") };
    assert_eq!((&*node.name, taints.json().to_string()), ("n-1", left));
    assert_eq!(unavoided(&toy.cluster, &["uid-up".to_owned()]), []);
}
