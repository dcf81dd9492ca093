//! The same attacks on the other kinds of upgrades: by Jobs, of a control plane that runs on hosts, of whole nodes of a
//! control plane as kubeadm moves them, of nodes that cannot be drained, and by executors that fail. To Jobs, hosts
//! and whole nodes there also happens what happens to machines, clocks and people's minds.
//!
//! A long campaign plays here one fault of each class at each request, and a part of the events; all answers and single
//! events are the usual upgrade's (`campaigns.rs`). What clocks, machines and people do comes at 40 moments.

use evenkeel_sim::faults::Call;
use serde_json::Value;

use super::super::campaign::is_long;
use super::attacks::{Attacked, Script, clocks, machines, people, spread, steps, to_jobs};
use super::ends::{ends, said};
use super::policies::end_as;
use super::random::plain;
use super::{campaign, campaign_by};

/// Of each attack a few. In a long campaign all that [`Attacked`] makes of an upgrade of another kind: one fault of each class
/// at each request, and at most 30 events of each resource.
fn everything(attacked: &Attacked) -> Vec<Script> {
    let mut scripts = spread(attacked.faults(), 4);
    scripts.extend(more(attacked));
    scripts
}

/// The same of everything but faults of single requests.
fn more(attacked: &Attacked) -> Vec<Script> {
    let mut scripts = spread(attacked.lasting(), 3);
    scripts.extend(spread(attacked.crashes(), 3));
    scripts.extend(spread(attacked.pauses(), 2));
    scripts.extend(spread(attacked.cuts(), 2));
    scripts.extend(spread(attacked.stale(), 3));
    scripts.extend(spread(attacked.events(), 3));
    scripts
}

fn meets_everything(kind: &str, begins: &str) {
    let scripts = everything(&Attacked::of(steps(begins)));
    campaign(&format!("upgrade: everything, by or of {kind}"), scripts);
}

const JOBS: &str = "at 0 jobs";
const HOSTS: &str = "at 0 hosts; at 0 accept";
const WHOLE: &str = "at 0 whole; at 0 jobs; at 0 first";

#[test]
fn jobs_meet_everything() {
    meets_everything("Jobs", JOBS);
}

#[test]
fn a_control_plane_of_hosts_meets_everything() {
    meets_everything("hosts", HOSTS);
}

#[test]
fn whole_nodes_meet_everything() {
    meets_everything("whole nodes", WHOLE);
}

/// The control plane and each group have executors of different names, and Jobs of different containers.
#[test]
fn executors_of_their_own_meet_everything() {
    for begins in ["at 0 own-executors", "at 0 jobs; at 0 everything; at 0 own-executors"] {
        let mut scripts = spread(Attacked::of(steps(begins)).crashes(), 5);
        scripts.extend(spread(Attacked::of(steps(begins)).stale(), 2));
        campaign("upgrade: executors of their own", scripts);
    }
}

/// A budget that allows nothing keeps one node, and a pod that comes back keeps another one. The pod that comes back has
/// another name each time. What is done until the second attempt at that node has ended is done again at each later one,
/// and what is read is what the usual upgrade reads.
#[test]
fn nodes_that_cannot_be_drained_meet_everything() {
    let attacked = Attacked::of(steps("at 0 drain 60; at 0 impossible; at 0 returning"));
    let second = attacked.parked(2);
    let attacked = attacked.until(second);
    let mut scripts = spread(attacked.faults_at(Call::is_write), 4);
    scripts.extend(more(&attacked));
    campaign_by("upgrade: everything, of special pods", scripts, plain);
}

/// Of each attack on an upgrade whose requests are as those of another kind a few. In a long campaign every crash, pause and
/// cut, and at most 30 events of each resource that tells of executors.
fn deaths(attacked: &Attacked) -> Vec<Script> {
    let told = ["nodes", "pods", "jobs.batch", "nodeupgrades.evenkeel.dev"];
    let mut scripts = spread(attacked.crashes(), 2);
    scripts.extend(spread(attacked.pauses(), 1));
    scripts.extend(spread(attacked.cuts(), 1));
    scripts.extend(spread(attacked.events_of(&told, 30, false), 2));
    scripts
}

/// Executors of one worker that fail, say what is not so, bring another version or never end.
const FAILING: [&str; 5] = [
    "at 0 jobs; at 0 deadline 60; at 0 executor kubelet/main-3 fail",
    "at 0 jobs; at 0 deadline 60; at 0 executor kubelet/main-3 lie",
    "at 0 jobs; at 0 deadline 60; at 0 executor kubelet/main-3 wrong v1.36.9",
    "at 0 deadline 60; at 0 executor kubelet/main-3 hang",
    "at 0 deadline 60; at 0 executor kubelet/main-3 wrong v1.36.9",
];

/// The same of one component of the control plane, and an image that never comes.
const FAILING_PLANE: [&str; 5] = [
    "at 0 jobs; at 0 deadline 60; at 0 executor kube-controller-manager/cp-2 fail",
    "at 0 jobs; at 0 deadline 60; at 0 executor kube-scheduler/cp-1 lie",
    "at 0 deadline 60; at 0 executor kube-apiserver/cp-2 hang",
    "at 0 jobs; at 0 whole; at 0 first; at 0 deadline 120; at 0 executor control-plane/cp-2 part 1 fail",
    "at 0 jobs; at 0 deadline 60; at 0 image missing",
];

/// A watch loses that a Job was made, or that it has ended: it is read once more before anything fails by its deadline.
#[test]
fn jobs_that_end_unseen_are_read_at_their_deadline() {
    let lost = |nth: usize| format!("at 0 jobs; at 0 deadline 60; told evenkeel-a jobs.batch {nth} drop");
    let scripts = (3..80).step_by(if is_long() { 1 } else { 12 }).map(|nth| (1, steps(&lost(nth))));
    campaign("upgrade: Jobs end unseen", scripts.collect());
}

/// A node that failed is avoided if it waited for others before, which a death of the leader may be the reason for.
fn whenever_it_failed(end: &Value) -> Value {
    let mut end = plain(end);
    let claims = end["claims"].as_object().cloned().unwrap_or_default();
    let failed = claims.iter().filter(|(_, state)| **state == "Failed");
    for node in failed.filter_map(|(claim, _)| claim.strip_prefix("up.kubelet.")) {
        end["nodes"][node]["avoided"] = Value::Null;
    }
    end
}

#[test]
fn executors_of_a_worker_that_fail_or_lie_meet_deaths() {
    for begins in FAILING {
        let scripts = deaths(&Attacked::of(steps(begins)));
        campaign_by(&format!("upgrade: a failing executor, {begins}"), scripts, whenever_it_failed);
    }
}

/// Everything stands still then, so that only why it does is compared.
#[test]
fn executors_of_the_control_plane_that_fail_or_lie_meet_deaths() {
    for begins in FAILING_PLANE {
        let scripts = deaths(&Attacked::of(steps(begins)));
        end_as(&format!("a failing executor, {begins}"), "ControlPlaneFailed", scripts);
    }
}

#[test]
fn whole_nodes_that_somebody_outside_moves_meet_deaths() {
    campaign("upgrade: whole nodes, moved from outside", deaths(&Attacked::of(steps("at 0 whole"))));
}

#[test]
fn jobs_that_go_on_meet_deaths() {
    let begins = "at 0 jobs; at 0 executor kubelet/* lingers 60; at 0 executor kube-scheduler/* lingers 60";
    campaign("upgrade: Jobs that go on", deaths(&Attacked::of(steps(begins))));
    // One that goes on for longer than it may failed, until it ends.
    let begins = "at 0 jobs; at 0 deadline 60; at 0 executor kubelet/main-3 lingers 150; \
                  at 0 executor kube-scheduler/cp-2 lingers 150";
    campaign("upgrade: Jobs that go on for too long", deaths(&Attacked::of(steps(begins))));
}

/// Kubelets of v1.34 may not stay below kube-apiservers of v1.38: they move after the first hop, and once more with the others.
#[test]
fn kubelets_that_are_too_old_for_the_last_hop_meet_deaths() {
    let begins = "at 0 target v1.38.1; at 0 kubelet main-1 v1.34.9; at 0 kubelet main-5 v1.34.9";
    let run = ends(begins);
    assert_eq!(said(&run), ("Completed", false, "9/9"));
    // Draining, Upgrading and Upgraded are recorded each time.
    let records = |node: &str| {
        let line = format!("patch nodeupgrades.evenkeel.dev/status up.kubelet.{node}");
        run.calls.iter().filter(|call| call.line() == line).count()
    };
    assert_eq!(["main-1", "main-5", "main-2", "canary-1"].map(records), [6, 6, 3, 3]);
    campaign("upgrade: kubelets of three minors", deaths(&Attacked::of(steps(begins))));
}

#[test]
fn controllers_that_come_late_to_their_work_meet_deaths() {
    let begins = "at 0 whole; at 0 everything; at 0 late-controllers 150; at 0 leases-given-up";
    campaign("upgrade: late controllers", deaths(&Attacked::of(steps(begins))));
}

/// So many moments of an upgrade in a long campaign, and else fewer.
fn moments() -> u64 {
    if is_long() { 40 } else { 6 }
}

fn clocks_jump(kind: &str, begins: &str) {
    let scripts = Attacked::of(steps(begins)).happens(moments(), 700, clocks);
    campaign(&format!("upgrade: clocks and blackouts, {kind}"), spread(scripts, 4));
}

fn machines_go_away(kind: &str, begins: &str, host: &str) {
    let scripts = Attacked::of(steps(begins)).happens(moments(), 300, |millis| machines(millis, host));
    campaign(&format!("upgrade: machines go away, {kind}"), spread(scripts, 4));
}

fn people_interfere(kind: &str, begins: &str, host: &str) {
    let jobs = begins.contains("jobs");
    let deeds = |millis: u64| {
        let jobs = if jobs { to_jobs(millis) } else { Vec::new() };
        [people(millis, host), jobs].concat()
    };
    let scripts = Attacked::of(steps(begins)).happens(moments(), 500, deeds);
    campaign(&format!("upgrade: people interfere, {kind}"), spread(scripts, 8));
}

#[test]
fn clocks_jump_while_jobs_work() {
    clocks_jump("Jobs", JOBS);
}

#[test]
fn clocks_jump_above_a_control_plane_of_hosts() {
    clocks_jump("hosts", HOSTS);
}

#[test]
fn machines_go_away_while_jobs_work() {
    machines_go_away("Jobs", JOBS, "cp-2");
}

#[test]
fn machines_go_away_under_a_control_plane_of_hosts() {
    machines_go_away("hosts", HOSTS, "host-2");
}

#[test]
fn people_interfere_with_jobs() {
    people_interfere("Jobs", JOBS, "cp-2");
}

#[test]
fn people_interfere_with_a_control_plane_of_hosts() {
    people_interfere("hosts", HOSTS, "host-2");
}

#[test]
fn clocks_jump_while_jobs_move_whole_nodes() {
    clocks_jump("whole nodes", WHOLE);
}

#[test]
fn machines_go_away_while_jobs_move_whole_nodes() {
    machines_go_away("whole nodes", WHOLE, "cp-2");
}

#[test]
fn people_interfere_with_whole_nodes() {
    people_interfere("whole nodes", WHOLE, "cp-2");
}
