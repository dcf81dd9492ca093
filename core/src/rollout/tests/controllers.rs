//! What has to be back after a step of the control plane before anything more is taken away: the controllers' work, by their
//! leases, the member of etcd, and the executor's Job.

use jiff::SignedDuration;

use super::super::*;
use super::cluster::Toy;
use crate::cluster::{Component, ControlPlane, EtcdMember, Leader};
use crate::fixture::at;
use crate::plan::Stage;
use crate::upgrade::Executor;

/// Puts what is seen of the control plane into the toy, and looks at it.
fn see(toy: &mut Toy, etcd: &[(&str, bool)], renewed: Option<i64>) {
    let member = |(node, ready): &(&str, bool)| EtcdMember {
        node: (*node).into(),
        name: format!("etcd-{node}").into(),
        ready: *ready,
    };
    let leader = |renewed: i64| Leader {
        component: Component::KubeControllerManager,
        holder: "cp-2_a".into(),
        node: Some("cp-2".into()),
        acquired: None,
        renewed: at(renewed),
    };
    toy.cluster.set_control_plane(ControlPlane {
        etcd: etcd.iter().map(member).collect(),
        leaders: renewed.map(leader).into_iter().collect(),
    });
    let now = at(toy.seconds);
    toy.freshness.renewals.see(toy.cluster.leaders(), now);
}

fn planes_are_upgraded(toy: &Toy) -> bool {
    let planes = toy.claims.iter().filter(|claim| claim.subject.is_of_plane());
    planes.filter(|claim| claim.state.name() == "Upgraded").count() == 2
}

#[test]
fn no_node_is_taken_up_before_the_controllers_renew_their_leases() {
    let mut toy = Toy::kubeadm(2, 1);
    while !planes_are_upgraded(&toy) {
        let seconds = toy.seconds;
        see(&mut toy, &[], Some(seconds));
        toy.tick();
    }
    let last = toy.seconds - 1;
    for _ in 0..60 {
        see(&mut toy, &[], Some(last));
        toy.tick();
    }
    assert_eq!(toy.kubelets("Claimed") + toy.kubelets("Draining"), 0, "{:?}", toy.log);
    let status = toy.status();
    let line = "waits until kube-controller-manager works: cp-2_a has not renewed its lease since the control plane was changed";
    assert_eq!((status.lines().first().map(String::as_str), status.phase.stalled()), (Some(line), false));
    for _ in 0..10 {
        let seconds = toy.seconds;
        see(&mut toy, &[], Some(seconds));
        toy.tick();
    }
    assert_eq!(toy.kubelets_in_flight(), 1, "{:?}", toy.log);
}

#[test]
fn a_lease_that_was_left_behind_long_ago_keeps_nothing_waiting() {
    let mut toy = Toy::kubeadm(2, 1);
    for _ in 0..900 {
        see(&mut toy, &[], Some(-7200));
        toy.tick();
    }
    assert_eq!(toy.phase(), Phase::Completed, "{:?}", toy.status());
}

#[test]
fn the_next_node_waits_until_the_member_of_etcd_is_back() {
    let mut toy = Toy::kubeadm(2, 1);
    see(&mut toy, &[("cp-1", true), ("cp-2", true)], None);
    toy.run_until(60, |toy| !toy.jobs.made.is_empty());
    for away in [&[("cp-2", true)][..], &[("cp-1", false), ("cp-2", true)]] {
        see(&mut toy, away, None);
        for _ in 0..25 {
            toy.tick();
        }
        assert_eq!(toy.claims.len(), 1, "{:?}", toy.log);
    }
    let status = toy.status();
    assert!(
        status.lines().iter().any(|line| line.contains("its member of etcd is not back")),
        "{:?}",
        status.lines()
    );
    see(&mut toy, &[("cp-1", true), ("cp-2", true)], None);
    toy.run_until(60, |toy| toy.claims.len() == 2);
}

#[test]
fn a_node_is_not_given_back_while_its_job_runs() {
    let mut toy = Toy::new(2, 1);
    toy.goes_on = true;
    toy.upgrade.groups[0].executor = "job".into();
    let deadline = SignedDuration::from_mins(5);
    toy.upgrade.executors.insert("job".into(), Executor::Job { template: "{}".into(), deadline });
    toy.run_until(600, |toy| toy.cluster.node("n-1").unwrap().kubelet.to_string() == "v1.37.1");
    for _ in 0..60 {
        toy.tick();
    }
    assert!(toy.cluster.node("n-1").unwrap().unschedulable, "{:?}", toy.log);
    assert_eq!(toy.status().lines(), ["n-1: observed at v1.37.1; its Job still runs"]);
    for state in toy.jobs.made.values_mut() {
        *state = JobState::Complete;
    }
    toy.run_until(5, |toy| toy.kubelets("Upgraded") == 1);
    // One that says nothing for all of its time is not waited for any longer.
    toy.run_until(900, |toy| toy.kubelets("Upgraded") == 2);
}

#[test]
fn a_static_pod_that_is_away_with_its_kubelet_takes_no_stage_back() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| toy.kubelets("Upgrading") == 1);
    let whole = toy.cluster.instances().to_vec();
    let without = whole.iter().filter(|of| of.component != Component::KubeScheduler).cloned().collect();
    toy.cluster.set_instances(without);
    // Its lease is held on.
    let line = "kube-scheduler is led by cp-1_x, which cannot be seen from here".to_owned();
    toy.hidden.push((Component::KubeScheduler, line));
    toy.tick();
    let status = toy.status();
    assert_eq!(status.phase, Phase::Working(Stage::Kubelets));
    let asks = |line: &&String| line.contains("controlPlane.hidden");
    assert_eq!(status.lines().iter().find(asks), None, "nobody has to answer for what was seen a moment ago");
    for _ in 0..20 {
        toy.tick();
    }
    assert_eq!(toy.kubelets("Upgraded"), 1, "no other node is taken up meanwhile");
    assert_eq!(toy.kubelets_in_flight(), 0, "{:?}", toy.log);
    toy.hidden.clear();
    toy.cluster.set_instances(whole);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), Phase::Completed);
}
