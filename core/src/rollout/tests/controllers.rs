//! What has to be back after a step of the control plane before anything more is taken away: the controllers' work, by
//! their leases.

use jiff::SignedDuration;

use super::super::*;
use super::cluster::Toy;
use crate::cluster::{Component, Leader, Node, Renewals};
use crate::drain::OnTimeout;
use crate::fixture::{at, node, pod};

/// Has kube-controller-manager of cp-2 renew its lease then, and looks at it.
pub(super) fn renews(toy: &mut Toy, at_second: i64) {
    holds(toy, "cp-2_a", at_second);
}

/// The same of `holder`; nobody holds the lease where that is empty.
fn holds(toy: &mut Toy, holder: &str, at_second: i64) {
    leads(toy, holder, None, at_second);
}

/// The same of a holder that took over then.
fn leads(toy: &mut Toy, holder: &str, took_over: Option<i64>, at_second: i64) {
    toy.cluster.set_leaders(vec![Leader {
        component: Component::KubeControllerManager,
        holder: holder.into(),
        node: Some("cp-2".into()),
        acquired: took_over.map(at),
        renewed: at(at_second),
    }]);
}

fn planes_are_upgraded(toy: &Toy) -> bool {
    let planes = toy.claims.iter().filter(|claim| claim.subject.is_of_plane());
    planes.filter(|claim| claim.state.name() == "Upgraded").count() == 2
}

/// So many looks, each of which shows a lease that was just renewed.
pub(super) fn renews_all_the_time(toy: &mut Toy, looks: usize) {
    for _ in 0..looks {
        let seconds = toy.seconds;
        renews(toy, seconds);
        toy.tick();
    }
}

/// A cluster just after the last step of its control plane, whose controllers were at work until then.
fn with_upgraded_planes() -> Toy {
    let mut toy = Toy::kubeadm(2, 1);
    while !planes_are_upgraded(&toy) {
        renews_all_the_time(&mut toy, 1);
    }
    toy
}

fn takes_up_a_node(toy: &Toy) -> bool {
    toy.claims.iter().any(Claim::is_of_kubelet)
}

#[test]
fn no_node_is_taken_up_before_the_controllers_renew_their_leases() {
    let mut toy = with_upgraded_planes();
    let last = toy.seconds - 1;
    for _ in 0..60 {
        renews(&mut toy, last);
        toy.tick();
    }
    assert!(!takes_up_a_node(&toy), "{:?}", toy.log);
    let status = toy.status();
    let line = "waits until kube-controller-manager works: cp-2_a was not seen to renew its lease since the control plane was \
                changed";
    assert_eq!((status.lines().first().map(String::as_str), status.phase.stalled()), (Some(line), false));
    // Another leader knows of no renewal either.
    toy.freshness.renewals = Renewals::default();
    assert_eq!(toy.status().lines().first().map(String::as_str), Some(line));
    renews_all_the_time(&mut toy, 10);
    assert_eq!(toy.kubelets_in_flight(), 1, "{:?}", toy.log);
}

#[test]
fn no_node_is_taken_up_because_a_watch_tells_late_of_a_renewal() {
    let mut toy = with_upgraded_planes();
    toy.leaders = Some(toy.cluster.leaders().to_vec());
    renews_all_the_time(&mut toy, 60);
    assert!(!takes_up_a_node(&toy), "{:?}", toy.log);
    toy.leaders = None;
    renews_all_the_time(&mut toy, 10);
    assert_eq!(toy.kubelets_in_flight(), 1, "{:?}", toy.log);
}

/// The leases were read before and after a renewal, by a clock that was an hour ahead and was set back then.
#[test]
fn no_node_is_taken_up_because_of_a_renewal_that_lies_ahead() {
    let mut toy = with_upgraded_planes();
    let last = toy.seconds - 1;
    renews(&mut toy, last - 1);
    toy.freshness.renewals.were_read(toy.cluster.leaders(), at(last + 3600));
    renews(&mut toy, last);
    toy.freshness.renewals.were_read(toy.cluster.leaders(), at(last + 3602));
    for _ in 0..60 {
        renews(&mut toy, last);
        toy.tick();
    }
    assert!(!takes_up_a_node(&toy), "{:?}", toy.log);
    renews_all_the_time(&mut toy, 10);
    assert_eq!(toy.kubelets_in_flight(), 1, "{:?}", toy.log);
}

#[test]
fn a_lease_that_is_given_up_long_after_the_step_calls_nobody_at_once() {
    let mut toy = with_upgraded_planes();
    renews_all_the_time(&mut toy, 10);
    toy.upgrade.suspended = true;
    toy.run_until(60, |toy| toy.kubelets_in_flight() == 0);
    toy.pass(3600);
    toy.upgrade.suspended = false;
    let gone = toy.seconds;
    let without = |toy: &mut Toy, seconds: i64| {
        toy.pass(seconds);
        holds(toy, "", gone);
        toy.tick();
    };
    (0..60).for_each(|_| without(&mut toy, 0));
    assert_eq!(toy.kubelets_in_flight(), 0, "{:?}", toy.log);
    assert!(!toy.phase().stalled(), "{:?}", toy.status());
    without(&mut toy, 15 * 60);
    let status = toy.status();
    assert_eq!(status.phase, UpgradePhase::ControlPlaneHeld, "{status:?}");
    let line =
        format!("kube-controller-manager was not seen at work since {}: nobody holds Lease ", at(gone));
    assert!(status.message.starts_with(&line), "{}", status.message);
}

#[test]
fn no_node_is_taken_up_while_nobody_holds_a_lease_that_was_given_up() {
    let mut toy = with_upgraded_planes();
    // It renews its lease no more, and then it ends and says so.
    for (holder, at_second) in [("cp-2_a", toy.seconds - 1), ("", toy.seconds + 1)] {
        for _ in 0..30 {
            holds(&mut toy, holder, at_second);
            toy.tick();
        }
    }
    assert!(!takes_up_a_node(&toy), "{:?}", toy.log);
    let line =
        "waits until kube-controller-manager works: nobody holds its lease, which its last holder gave up";
    assert_eq!(toy.status().lines().first().map(String::as_str), Some(line));
    for _ in 0..10 {
        let seconds = toy.seconds;
        holds(&mut toy, "cp-1_b", seconds);
        toy.tick();
    }
    assert_eq!(toy.kubelets_in_flight(), 1, "{:?}", toy.log);
}

/// The end of a step is stored in whole seconds, and a controller that renews its lease and then ends may do both within one.
#[test]
fn a_lease_that_was_renewed_in_the_second_of_the_step_says_nothing() {
    let mut toy = with_upgraded_planes();
    // The look of that second shows no renewal, and the next one the last.
    let last = toy.seconds;
    renews(&mut toy, last - 1);
    toy.tick();
    for _ in 0..60 {
        renews(&mut toy, last);
        toy.tick();
    }
    assert_eq!(toy.kubelets_in_flight(), 0, "{:?}", toy.log);
    renews_all_the_time(&mut toy, 10);
    assert_eq!(toy.kubelets_in_flight(), 1, "{:?}", toy.log);
}

/// The claim of its kubelet is done a moment after its static pods are back, and others could be taken up in between.
#[test]
fn no_node_is_taken_up_beside_a_control_plane_node_before_the_controllers_renew_their_leases() {
    let mut toy = Toy::new(2, 2);
    toy.cluster.set_node(Node { control_plane: true, ..node("cp-1", "v1.36.4") });
    toy.cluster.set_node(Node { held: true, ..node("n-2", "v1.36.4") });
    while toy.cluster.node("cp-1").unwrap().kubelet.to_string() != "v1.37.1" {
        renews_all_the_time(&mut toy, 1);
    }
    toy.cluster.set_node(node("n-2", "v1.36.4"));
    let (last, claims) = (toy.seconds, toy.claims.len());
    for _ in 0..90 {
        renews(&mut toy, last);
        toy.tick();
        assert_eq!(toy.claims.len(), claims, "{:?}", toy.log);
    }
    renews_all_the_time(&mut toy, 10);
    assert!(toy.claims.len() > claims, "{:?}", toy.log);
}

#[test]
fn a_lease_that_was_left_behind_long_ago_keeps_nothing_waiting() {
    let mut toy = Toy::kubeadm(2, 1);
    for _ in 0..900 {
        renews(&mut toy, -7200);
        toy.tick();
    }
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn controllers_that_stay_silent_call_for_a_person() {
    let mut toy = with_upgraded_planes();
    let last = toy.seconds - 1;
    let silent = |toy: &mut Toy, seconds: i64| {
        toy.pass(seconds);
        renews(toy, last);
        toy.tick();
    };
    (0..30).for_each(|_| silent(&mut toy, 0));
    assert!(!toy.phase().stalled());
    silent(&mut toy, 15 * 60);
    let status = toy.status();
    assert_eq!(status.phase, UpgradePhase::ControlPlaneHeld, "{status:?}");
    let line = "kube-controller-manager was not seen at work since the control plane was changed at ";
    assert!(status.message.starts_with(line), "{}", status.message);
    let todo = ": cp-2_a does not renew Lease kube-system/kube-controller-manager; bring it back, or delete the Lease if it \
                elects no leader any more";
    assert!(status.message.ends_with(todo), "{}", status.message);
    assert_eq!(status.waits[0].reason.ended_by(), EndedBy::Person);
    assert_eq!(status.waits.len(), 1, "it is said once: {:?}", status.lines());
    toy.is_told_by_the_next_leader();
    // Another operator that has not been told looks for a while before it says so, too.
    toy.leads_anew();
    toy.progress.lasting.clear();
    (0..30).for_each(|_| silent(&mut toy, 0));
    assert!(!toy.phase().stalled(), "{:?}", toy.status());
    assert!(toy.decided().again_at.is_some());
    silent(&mut toy, 5 * 60);
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneHeld);
    // The leases are read more rarely by then.
    renews_all_the_time(&mut toy, 25);
    assert_eq!(toy.kubelets_in_flight(), 1, "{:?}", toy.log);
    // A person who knows that nobody elects a leader deletes the lease.
    let mut toy = with_upgraded_planes();
    silent(&mut toy, 20 * 60);
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneHeld);
    toy.cluster.set_leaders(Vec::new());
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

/// In the first looks of the next leader every controller is silent, so that which of them was silent before is not the first.
#[test]
fn the_next_leader_goes_on_calling_for_whichever_controller_is_silent() {
    let mut toy = with_upgraded_planes();
    let last = toy.seconds - 1;
    let looks = |toy: &mut Toy| {
        let of = |component, renewed: i64| Leader {
            component,
            holder: "cp-2_a".into(),
            node: Some("cp-2".into()),
            acquired: None,
            renewed: at(renewed),
        };
        let (works, silent) = (Component::KubeControllerManager, Component::KubeScheduler);
        toy.cluster.set_leaders(vec![of(works, toy.seconds), of(silent, last)]);
        toy.tick();
    };
    for _ in 0..20 {
        looks(&mut toy);
        toy.pass(60);
    }
    looks(&mut toy);
    let status = toy.status();
    assert_eq!(status.phase, UpgradePhase::ControlPlaneHeld, "{status:?}");
    assert!(status.message.starts_with("kube-scheduler was not seen at work"), "{}", status.message);
    toy.is_told_by_the_next_leader();
}

/// The claims that were made first are gone, as those of an earlier hop are.
#[test]
fn a_lease_that_was_renewed_when_the_upgrade_began_was_not_left_behind_before() {
    let mut toy = Toy::kubeadm(2, 1);
    toy.run_until(60, |toy| toy.claims.len() == 1);
    toy.upgrade.suspended = true;
    toy.run_until(10, |toy| toy.claims.is_empty());
    let last = toy.seconds;
    toy.pass(2 * 3600);
    toy.upgrade.suspended = false;
    for _ in 0..200 {
        renews(&mut toy, last);
        toy.tick();
    }
    assert!(planes_are_upgraded(&toy), "{:?}", toy.log);
    assert!(!toy.claims.iter().any(Claim::is_of_kubelet), "{:?}", toy.log);
}

/// A worker of which one pod may never leave but by force, beside a control-plane node whose kubelet is just observed. The
/// controllers were at work until then.
fn beside_a_new_kubelet(on_timeout: OnTimeout, timeout: i64) -> Toy {
    let mut toy = Toy::new(1, 2);
    toy.absent = 1;
    toy.deploy("web", 1, 1);
    toy.cluster.set_node(Node { control_plane: true, ..node("cp-1", "v1.36.4") });
    toy.cluster.set_pod(pod("free", 1, "cp-1"));
    toy.upgrade.drain.timeout = SignedDuration::from_secs(timeout);
    toy.upgrade.drain.on_timeout = on_timeout;
    for _ in 0..200 {
        if toy.cluster.node("cp-1").unwrap().kubelet.to_string() == "v1.37.1" {
            break;
        }
        renews_all_the_time(&mut toy, 1);
    }
    assert_eq!(toy.kubelets("Draining"), 1, "{:?}", toy.log);
    toy
}

/// What is written of the worker.
fn written<'a>(toy: &'a Toy, what: &str) -> Vec<&'a String> {
    toy.log.iter().filter(|line| line.starts_with(what) && line.contains("n-1")).collect()
}

#[test]
fn a_node_that_drains_while_controllers_stay_silent_is_given_back_and_a_person_is_called() {
    let mut toy = beside_a_new_kubelet(OnTimeout::Park, 3600);
    let last = toy.seconds;
    for _ in 0..20 {
        toy.pass(60);
        renews(&mut toy, last);
        toy.tick();
    }
    assert_eq!((toy.kubelets("Draining"), toy.phase()), (1, UpgradePhase::ControlPlaneHeld), "{:?}", toy.log);
    for _ in 0..45 {
        toy.pass(60);
        renews(&mut toy, last);
        toy.tick();
    }
    let node = toy.cluster.node("n-1").unwrap();
    assert_eq!((toy.kubelets_in_flight(), toy.kubelets("Parked"), node.unschedulable), (0, 0, false));
    assert_eq!(toy.phase(), UpgradePhase::ControlPlaneHeld);
}

#[test]
fn a_drain_whose_time_ends_while_nobody_may_be_asked_is_neither_parked_nor_halted_nor_forced() {
    for on_timeout in [OnTimeout::Park, OnTimeout::Halt, OnTimeout::Force] {
        // Its time ends while the static pods come back, or later, while their controllers are silent.
        for (timeout, silent) in [(20, false), (45, true)] {
            let mut toy = beside_a_new_kubelet(on_timeout, timeout);
            let last = toy.seconds;
            while written(&toy, "Uncordon").is_empty() {
                if silent {
                    renews(&mut toy, last);
                    toy.tick();
                } else {
                    renews_all_the_time(&mut toy, 1);
                }
                assert!(toy.seconds - last < 100, "{on_timeout:?}: {:?}", toy.log);
            }
            // From the very next look on they are at work.
            renews_all_the_time(&mut toy, 3);
            assert_eq!((toy.deleted, toy.kubelets("Parked")), (0, 0), "{on_timeout:?}: {:?}", toy.log);
            assert_ne!(toy.phase(), UpgradePhase::NodesHalted, "{on_timeout:?}");
            renews_all_the_time(&mut toy, 90);
            assert_eq!(written(&toy, "Claim").len(), 2, "{on_timeout:?}: {:?}", toy.log);
        }
    }
}

/// Its time counts from when somebody may be asked again, as far as the API tells.
#[test]
fn a_drain_has_all_of_its_time_after_the_controllers_are_back() {
    for on_timeout in [OnTimeout::Park, OnTimeout::Force] {
        for takes_over in [false, true] {
            let mut toy = beside_a_new_kubelet(on_timeout, 60);
            let last = toy.seconds;
            while toy.seconds < last + 50 {
                renews(&mut toy, last);
                toy.tick();
            }
            let back = toy.seconds;
            let from = if takes_over { back } else { last + 30 };
            while toy.deleted == 0 && toy.kubelets("Parked") == 0 {
                let (seconds, holder) = (toy.seconds, if takes_over { "cp-1_b" } else { "cp-2_a" });
                leads(&mut toy, holder, takes_over.then_some(back), seconds);
                toy.tick();
                assert!(toy.seconds < last + 300, "{on_timeout:?}: {:?}", toy.log);
            }
            let took = toy.seconds - from;
            assert!((60..66).contains(&took), "{on_timeout:?} {takes_over}: {took} s, {:?}", toy.log);
            assert_eq!(written(&toy, "Claim").len(), 1, "{:?}", toy.log);
        }
    }
}

#[test]
fn nothing_is_said_of_budgets_while_nobody_counts_them() {
    let mut toy = Toy::new(2, 1);
    toy.deploy("web", 2, 2);
    toy.absent = 1;
    toy.run_until(600, |toy| toy.kubelets("Draining") == 1);
    toy.tick();
    let says = |toy: &Toy, word: &str| toy.status().lines().iter().any(|line| line.contains(word));
    assert!(says(&toy, "PDB shop/web"), "{:?}", toy.status().lines());
    let whole = toy.cluster.instances().to_vec();
    let without = whole.iter().filter(|of| of.component != Component::KubeControllerManager).cloned();
    toy.cluster.set_instances(without.collect());
    assert!(!says(&toy, "PDB shop/web"), "{:?}", toy.status().lines());
    assert!(says(&toy, "no pod is asked to leave until the whole control plane answers"));
    toy.cluster.set_instances(whole);
    assert!(says(&toy, "PDB shop/web"), "{:?}", toy.status().lines());
}

/// A node drains, and the budget of its pod allows nothing.
fn held_back() -> Toy {
    let mut toy = Toy::new(2, 1);
    toy.upgrade.drain.timeout = SignedDuration::from_secs(300);
    toy.deploy("web", 2, 2);
    toy.absent = 1;
    toy.run_until(600, |toy| toy.kubelets("Draining") == 1);
    toy
}

fn says_blocked(toy: &Toy) -> bool {
    toy.claims.iter().any(|claim| !claim.blockers.is_empty())
}

#[test]
fn what_holds_a_drain_back_is_written_when_it_lasts() {
    let mut toy = held_back();
    let since = toy.seconds;
    toy.run_until(60, says_blocked);
    assert!((14..18).contains(&(toy.seconds - since)), "{} s", toy.seconds - since);
}

#[test]
fn a_budget_that_lets_one_pod_go_after_the_other_holds_nothing_back() {
    let mut toy = held_back();
    for _ in 0..60 {
        let lately = at(toy.seconds - 3);
        toy.cluster.change_budget("web", |budget| budget.closed_since = Some(lately));
        toy.tick();
        assert!(!says_blocked(&toy), "{:?}", toy.claims);
    }
    let since = toy.seconds;
    toy.run_until(60, says_blocked);
    assert!((10..15).contains(&(toy.seconds - since)), "{} s", toy.seconds - since);
}
