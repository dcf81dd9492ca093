//! Zones of which too many nodes are not ready: none of theirs is taken up, and nothing at all where no node is ready.

use super::cluster::Toy;
use super::gates::{openings, scheduler_is_done};
use super::*;
use crate::plan::Stage;

fn in_zones(toy: &mut Toy, zones: usize) {
    for node in 1..=toy.cluster.nodes().len() {
        let zone = ["a", "b", "c"][node % zones].to_owned();
        let labels = [("topology.kubernetes.io/zone".to_owned(), zone)];
        toy.cluster.change_node(&format!("n-{node}"), |node| node.labels = Arc::new(labels.into()));
    }
}

fn not_ready(toy: &mut Toy, nodes: &[usize]) {
    let now = at(toy.seconds);
    for node in nodes {
        toy.cluster.change_node(&format!("n-{node}"), |node| {
            (node.ready, node.heartbeat) = (false, Some(now));
        });
    }
}

#[test]
fn no_node_of_a_disrupted_zone_is_opened() {
    let mut toy = Toy::new(10, 9);
    in_zones(&mut toy, 2);
    toy.run_until(600, scheduler_is_done);
    // Three of the five of zone a; an even number is in zone a.
    not_ready(&mut toy, &[2, 4, 6]);
    openings(&mut toy, 200);
    let of_a =
        |claim: &Claim| claim.is_of_kubelet() && claim.subject.node.ends_with(['2', '4', '6', '8', '0']);
    assert!(!toy.claims.iter().any(of_a), "{:?}", toy.log);
    assert_eq!(toy.kubelets("Upgraded"), 5, "the other zone went on");
    let status = toy.status();
    assert_eq!((status.phase, status.phase.stalled()), (UpgradePhase::ZoneDisrupted, false));
    let line = "zone a: 3 of 5 nodes are not ready, and none of it is taken up until more of them are";
    assert_eq!(status.message, line);
    toy.pass(16 * 60);
    assert_eq!(
        (toy.phase(), toy.phase().stalled()),
        (UpgradePhase::ZoneGone, true),
        "nobody hears of them any more"
    );
    toy.cluster.change_node("n-2", |node| node.ready = true);
    assert!(!openings(&mut toy, 100).is_empty(), "two of five are few");
}

#[test]
fn a_zone_that_is_gone_calls_nobody_while_a_node_elsewhere_may_go_on_by_itself() {
    let mut toy = Toy::new(10, 9);
    in_zones(&mut toy, 2);
    toy.lingers = 10_000;
    toy.run_until(600, scheduler_is_done);
    not_ready(&mut toy, &[2, 4, 6]);
    toy.pass(16 * 60);
    toy.deploy("slow", 1, 0);
    toy.run_until(900, |toy| toy.kubelets("Parked") == 1 && toy.kubelets("Upgraded") == 4);
    let status = toy.status();
    assert_eq!(status.phase, UpgradePhase::Working(Stage::Kubelets), "n-1 is tried again: {status:?}");
    let zone =
        "zone a: 3 of 5 nodes are not ready, and none of it is taken up until a person brings them back";
    assert!(status.lines().iter().any(|line| line == zone), "{status:?}");
    toy.cluster.retain_pods(|pod| !pod.name.starts_with("slow"));
    toy.run_until(900, |toy| toy.kubelets("Upgraded") == 5);
    assert_eq!((toy.phase(), toy.status().message.as_str()), (UpgradePhase::ZoneGone, zone));
}

#[test]
fn a_zone_that_loses_nodes_now_is_left_alone_long_before_half_of_them_are_lost() {
    let mut toy = Toy::new(13, 9);
    in_zones(&mut toy, 1);
    toy.run_until(600, scheduler_is_done);
    not_ready(&mut toy, &[2, 4, 6]);
    openings(&mut toy, 100);
    assert_eq!((toy.kubelets_in_flight(), toy.phase()), (0, UpgradePhase::ZoneDisrupted));
    // Machines that have been silent for long tell nothing of what goes on now.
    toy.pass(16 * 60);
    assert!(!openings(&mut toy, 100).is_empty(), "{:?}", toy.status());
}

#[test]
fn no_node_is_opened_while_none_of_any_zone_is_ready() {
    let mut toy = Toy::new(4, 4);
    in_zones(&mut toy, 2);
    toy.run_until(600, scheduler_is_done);
    not_ready(&mut toy, &[1, 2, 3, 4]);
    openings(&mut toy, 60);
    assert_eq!((toy.kubelets_in_flight(), toy.phase()), (0, UpgradePhase::ZoneDisrupted));
    assert_eq!(toy.status().message, "no node is ready (4 are not), and nothing is begun until some are");
    toy.cluster.change_node("n-2", |node| node.ready = true);
    assert!(!openings(&mut toy, 60).is_empty(), "one zone is whole again");
}

#[test]
fn no_step_of_the_control_plane_is_begun_while_no_node_is_ready() {
    // One that is claimed then is given back, and one that is not is not claimed.
    for claimed in [false, true] {
        let mut toy = Toy::new(4, 4);
        in_zones(&mut toy, 2);
        if claimed {
            toy.run_until(600, |toy| !toy.claims.is_empty());
        }
        not_ready(&mut toy, &[1, 2, 3, 4]);
        openings(&mut toy, 60);
        let line = "no node is ready (4 are not), and nothing is begun until some are";
        assert_eq!((toy.status().message.as_str(), toy.claims.len()), (line, 0), "{:?}", toy.log);
        toy.cluster.change_node("n-2", |node| node.ready = true);
        toy.run_until(600, scheduler_is_done);
        assert!(scheduler_is_done(&toy), "one zone is whole again: {:?}", toy.log);
    }
}

#[test]
fn nodes_that_we_hold_open_are_not_held_against_their_zone() {
    let mut toy = Toy::new(4, 4);
    toy.upgrade.groups[0].max_unavailable = Amount::Count(3);
    toy.run_until(600, |toy| toy.kubelets("Upgrading") == 3);
    let open: Vec<_> = toy.claims.iter().filter(|claim| claim.state.in_flight()).collect();
    let open: Vec<usize> = open.iter().map(|of| of.subject.node[2..].parse().unwrap()).collect();
    not_ready(&mut toy, &open);
    toy.upgrade.groups[0].max_unavailable = Amount::Count(4);
    assert_eq!(openings(&mut toy, 3).len(), 1);
}

/// Two nodes are few, but all that there is of the zone (`ComputeZoneState`: fully disrupted).
#[test]
fn no_node_of_a_small_zone_is_opened_while_none_of_it_is_ready() {
    let mut toy = Toy::new(6, 2);
    in_zones(&mut toy, 3);
    toy.run_until(600, scheduler_is_done);
    not_ready(&mut toy, &[3, 6]);
    openings(&mut toy, 200);
    let of_a = |claim: &Claim| claim.is_of_kubelet() && claim.subject.node.ends_with(['3', '6']);
    assert!(!toy.claims.iter().any(of_a), "{:?}", toy.log);
    let line = "zone a: 2 of 2 nodes are not ready, and none of it is taken up until more of them are";
    assert_eq!((toy.phase(), toy.status().message.as_str()), (UpgradePhase::ZoneDisrupted, line));
    toy.cluster.change_node("n-3", |node| node.ready = true);
    assert!(!openings(&mut toy, 100).is_empty(), "one is ready again");
}
