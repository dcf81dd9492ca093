//! What keeps new work from being opened: windows, freezes, soaks, failures and gates. What is in flight settles.

use jiff::SignedDuration;
use jiff::civil::time;
use jiff::tz::TimeZone;

use super::cluster::Toy;
use super::controllers::{renews, renews_all_the_time};
use super::*;
use crate::fixture::{at, releases};
use crate::plan::Stage;
use crate::upgrade::calendar::{Calendar, Freeze, Window};
use crate::upgrade::{FailurePolicy, Gate, GateObject, NodeGroup, Soaked};

/// It is 2027-01-15 08:00 UTC when a toy begins.
const BEGINS: i64 = 8 * 60;

pub(super) fn window(start: i64, minutes: i64) -> Window {
    let start = BEGINS + start;
    let start = time(i8::try_from(start / 60).unwrap(), i8::try_from(start % 60).unwrap(), 0, 0);
    let length = SignedDuration::from_mins(minutes);
    Window { name: "w".into(), zone: TimeZone::UTC, days: Vec::new(), start, length }
}

fn freeze(from: i64, until: i64) -> Freeze {
    Freeze { name: "fair".into(), zone: TimeZone::UTC, from: at(from), until: at(until) }
}

/// Goes on for `seconds`, and returns at which of them something new was opened: a claim, or a parked node again.
pub(super) fn openings(toy: &mut Toy, seconds: i64) -> Vec<i64> {
    let mut all = Vec::new();
    for _ in 0..seconds {
        let before = toy.log.len();
        toy.tick();
        let opens = |line: &String| line.starts_with("Claim ") || line.ends_with(" Claimed");
        all.extend(toy.log[before..].iter().filter(|line| opens(line)).map(|_| toy.seconds));
    }
    all
}

pub(super) fn scheduler_is_done(toy: &Toy) -> bool {
    let is_it = |claim: &Claim| claim.subject.component == Component::KubeScheduler;
    toy.claims.iter().any(|claim| is_it(claim) && claim.state.name() == "Upgraded")
}

#[test]
fn nothing_is_opened_outside_of_a_window() {
    let mut toy = Toy::new(6, 2);
    // Ten minutes from now, for half an hour; and once more an hour later.
    toy.upgrade.calendar.windows = vec![window(10, 30), window(100, 60)];
    assert_eq!(openings(&mut toy, 598), Vec::<i64>::new());
    let decision = toy.decided();
    assert_eq!(decision.status.phase, UpgradePhase::WaitingForWindow);
    assert_eq!(decision.status.message, "no window is open; opens Fri 2027-01-15 08:10 UTC");
    assert_eq!(decision.status.lines(), ["no window is open; opens Fri 2027-01-15 08:10 UTC"]);
    assert_eq!(decision.again_at, Some(at(600)));
    assert!(!decision.status.phase.stalled());
    let opened = openings(&mut toy, 2400);
    assert!(opened.first() == Some(&600) && opened.len() == 4 + 6, "{opened:?}");
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn no_node_is_begun_that_does_not_fit_into_what_is_left_of_the_window() {
    // A guess is nine minutes: the window closes before.
    let mut toy = Toy::new(6, 1);
    toy.upgrade.calendar.windows = vec![window(0, 9), window(200, 60)];
    let opened = openings(&mut toy, 700);
    assert!(toy.kubelets_in_flight() + toy.kubelets("Upgraded") == 0 && opened.len() == 4, "{opened:?}");
    let told = toy.status().message;
    assert_eq!(told, "no window is open; opens Fri 2027-01-15 11:20 UTC");
    let mut toy = Toy::new(6, 1);
    toy.upgrade.calendar.windows = vec![window(0, 9), window(200, 60)];
    toy.run_until(600, scheduler_is_done);
    openings(&mut toy, 30);
    assert_eq!(toy.phase(), UpgradePhase::WaitingForWindow);
    let told = toy.status().message;
    assert_eq!(
        told,
        "a node takes about 9 min, and the window closes Fri 2027-01-15 08:09 UTC; opens Fri 2027-01-15 11:20 UTC"
    );
    // As soon as a few are done, what they took counts.
    let mut toy = Toy::new(6, 1);
    toy.upgrade.calendar.windows = vec![window(0, 30), window(200, 60)];
    toy.run_until(600, |toy| toy.kubelets("Upgraded") == 3);
    let took = toy.seconds;
    toy.pass(30 * 60 - took - 30);
    let opened = openings(&mut toy, 120);
    assert!(!opened.is_empty() && opened.iter().all(|second| *second <= 30 * 60 - 10), "{opened:?}");
}

#[test]
fn a_window_that_nothing_fits_into_is_said_to_be_too_short() {
    let mut toy = Toy::new(2, 1);
    toy.upgrade.calendar.windows = vec![window(0, 3)];
    let opened = openings(&mut toy, 200);
    assert!(opened.is_empty(), "{opened:?}");
    let status = toy.status();
    assert_eq!((status.phase, status.phase.stalled()), (UpgradePhase::NoWindowFits, true));
    assert_eq!(
        status.message,
        "no window in sight is long enough for a kube-apiserver (4 min): lengthen one"
    );
}

#[test]
fn what_is_in_flight_when_a_freeze_begins_settles_and_nothing_new_is_opened() {
    let mut toy = Toy::new(6, 2);
    toy.deploy("web", 6, 4);
    toy.run_until(600, |toy| toy.kubelets("Draining") == 2);
    toy.upgrade.calendar.freezes = vec![freeze(toy.seconds, 5000)];
    toy.tick();
    assert!(toy.phase() == UpgradePhase::Working(Stage::Kubelets), "what is in flight keeps its stage");
    assert_eq!(openings(&mut toy, 300), Vec::<i64>::new());
    assert_eq!((toy.kubelets("Upgraded"), toy.kubelets_in_flight()), (2, 0));
    let decision = toy.decided();
    assert_eq!(decision.status.phase, UpgradePhase::Frozen);
    assert_eq!(decision.status.message, "frozen by fair; opens Fri 2027-01-15 09:24 UTC");
    assert_eq!(decision.again_at, Some(at(5000)));
    toy.pass(4999 - toy.seconds);
    assert_eq!(openings(&mut toy, 600).first(), Some(&5000));
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

#[test]
fn kubelets_wait_while_the_control_plane_soaks_and_anew_when_it_was_not_whole() {
    let mut toy = Toy::new(2, 1);
    toy.upgrade.control_plane.soak = SignedDuration::from_secs(600);
    toy.run_until(600, scheduler_is_done);
    let done = toy.seconds;
    assert_eq!(openings(&mut toy, 300), Vec::<i64>::new());
    assert_eq!(toy.phase(), UpgradePhase::Soaking);
    let line = toy.status().message;
    assert!(
        line.starts_with("kubelets wait while the control plane soaks, until Fri 2027-01-15 08:1"),
        "{line}"
    );
    assert_eq!(toy.decided().again_at, Some(at(done + 1 + 600)));
    let ready = |toy: &mut Toy, ready: bool| {
        toy.cluster.change_instances(|one| {
            if *one.name == *"cp-2" {
                one.ready = ready;
            }
        });
    };
    ready(&mut toy, false);
    toy.tick();
    assert!(toy.status().soaks.is_empty());
    ready(&mut toy, true);
    toy.tick();
    let again = toy.seconds;
    assert_eq!(openings(&mut toy, 599), Vec::<i64>::new());
    assert_eq!(openings(&mut toy, 1), [again + 600]);
    // A soak that is over stays over.
    ready(&mut toy, false);
    toy.tick();
    ready(&mut toy, true);
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

/// A claim says when its controller was replaced; without it, what counts is since when every controller is seen to be done.
#[test]
fn kubelets_wait_for_a_controller_whose_claim_was_deleted() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, scheduler_is_done);
    toy.claims.retain(|claim| claim.subject.component != Component::KubeScheduler);
    let seen = toy.seconds;
    assert_eq!(openings(&mut toy, 14), Vec::<i64>::new());
    let line = toy.status().message;
    assert!(line.starts_with("kubelets wait while the controllers take up their work"), "{line}");
    assert_eq!(openings(&mut toy, 3).first(), Some(&(seen + 16)));
    // What was seen is stored, and nobody waits for it again.
    let soaks = toy.status().soaks;
    assert!(matches!(&soaks[..], [soak] if soak.what == Soaked::Controllers), "{soaks:?}");
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
}

/// A node was claimed just before that.
#[test]
fn a_claimed_node_waits_for_a_controller_whose_claim_was_deleted() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| toy.kubelets("Claimed") == 1);
    toy.claims.retain(|claim| claim.subject.component != Component::KubeScheduler);
    let seen = toy.seconds;
    toy.run_until(600, |toy| toy.kubelets("Draining") == 1);
    assert!(toy.seconds > seen + 15, "cordoned after {} s: {:?}", toy.seconds - seen, toy.log);
}

/// Nothing says any more when the controllers were replaced, so that what they renewed before says nothing.
#[test]
fn no_pod_leaves_before_a_controller_whose_claim_was_deleted_renews_its_lease() {
    let mut toy = Toy::new(2, 1);
    toy.deploy("web", 6, 2);
    let evictions = |toy: &Toy| toy.log.iter().filter(|line| line.starts_with("Evict ")).count();
    while evictions(&toy) == 0 {
        renews_all_the_time(&mut toy, 1);
    }
    toy.claims.retain(|claim| claim.subject.component != Component::KubeControllerManager);
    let (before, last) = (evictions(&toy), toy.seconds);
    for _ in 0..60 {
        renews(&mut toy, last);
        toy.tick();
    }
    assert_eq!(evictions(&toy), before, "{:?}", toy.log);
    renews_all_the_time(&mut toy, 60);
    assert!(evictions(&toy) > before, "{:?}", toy.log);
}

/// Two groups of two and four nodes, the second after the first.
fn two_groups() -> Toy {
    let mut toy = Toy::new(6, 1);
    for node in 1..=6 {
        let pool = if node <= 2 { "first" } else { "second" };
        let labels = [("pool".to_owned(), pool.to_owned())];
        toy.cluster.change_node(&format!("n-{node}"), |node| node.labels = Arc::new(labels.into()));
    }
    let of = |name: &str| NodeGroup {
        selector: crate::cluster::Selector {
            match_labels: [("pool".to_owned(), name.to_owned())].into(),
            ..crate::cluster::Selector::default()
        },
        ..NodeGroup::new(name, crate::cluster::Selector::default(), "external")
    };
    toy.upgrade.groups = vec![of("first"), NodeGroup { depends_on: vec!["first".into()], ..of("second") }];
    toy
}

#[test]
fn groups_wait_while_the_group_before_them_soaks() {
    let mut toy = two_groups();
    toy.upgrade.groups[0].soak = SignedDuration::from_secs(900);
    toy.run_until(900, |toy| toy.kubelets("Upgraded") == 2);
    let done = toy.seconds;
    let opened = openings(&mut toy, 899);
    assert_eq!((opened, toy.phase()), (Vec::new(), UpgradePhase::Soaking));
    assert_eq!(toy.status().message.split(',').next(), Some("the groups after first wait while it soaks"));
    // What soaks is stored: the claims it was seen by may be gone.
    toy.claims.retain(|claim| !claim.is_of_kubelet());
    assert!(openings(&mut toy, 60).first().is_some_and(|second| (done + 900..=done + 902).contains(second)));
}

#[test]
fn the_others_of_a_group_wait_while_its_canaries_soak() {
    let mut toy = Toy::new(4, 2);
    (toy.upgrade.groups[0].canary, toy.upgrade.groups[0].soak) = (1, SignedDuration::from_secs(900));
    toy.run_until(900, |toy| toy.kubelets("Upgraded") == 1);
    let done = toy.seconds;
    assert_eq!((openings(&mut toy, 899), toy.phase()), (Vec::new(), UpgradePhase::Soaking));
    let line = toy.status().message;
    assert!(line.starts_with("the others of group all wait while its canaries soak"), "{line}");
    let opened = openings(&mut toy, 60);
    assert!(opened.first().is_some_and(|second| (done + 900..=done + 902).contains(second)), "{opened:?}");
    toy.run_to_the_end(300);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "nobody waits for the group");
}

#[test]
fn a_canary_that_goes_back_has_to_soak_anew() {
    let mut toy = Toy::new(4, 2);
    (toy.upgrade.groups[0].canary, toy.upgrade.groups[0].soak) = (1, SignedDuration::from_secs(900));
    toy.run_until(900, |toy| toy.kubelets("Upgraded") == 1);
    openings(&mut toy, 500);
    assert_eq!(toy.status().soaks.len(), 1);
    let back = crate::version::Observed::from_report("v1.36.4");
    toy.cluster.change_node("n-1", |node| node.kubelet = back);
    toy.tick();
    assert!(toy.status().soaks.is_empty());
}

#[test]
fn from_as_many_failed_nodes_on_as_may_be_nothing_new_is_opened() {
    let mut toy = Toy::new(20, 2);
    toy.upgrade.failures = FailurePolicy { max_failed: Some(Amount::Count(1)), max_parked: None };
    toy.broken = Some("n-2".to_owned());
    toy.run_until(900, |toy| toy.kubelets("Failed") == 1);
    assert_eq!(openings(&mut toy, 300), Vec::<i64>::new());
    let status = toy.status();
    assert_eq!((status.phase, status.phase.stalled()), (UpgradePhase::FailurePolicy, true));
    assert_eq!(
        status.message,
        "1 of 20 nodes failed, n-2 first, and from 1 on nothing new is begun: mend them and delete their NodeUpgrades \
         and uncordon them, or raise failurePolicy.maxFailed"
    );
    toy.upgrade.failures.max_failed = Some(Amount::Percent(34));
    toy.run_to_the_end(900);
    assert_eq!((toy.phase(), toy.kubelets("Upgraded")), (UpgradePhase::NodesFailed, 19));
}

#[test]
fn from_as_many_parked_nodes_on_as_may_be_no_other_is_opened_and_none_is_tried_again() {
    let mut toy = Toy::new(3, 1);
    toy.upgrade.failures = FailurePolicy { max_failed: None, max_parked: Some(Amount::Count(1)) };
    toy.deploy("slow", 1, 0);
    toy.lingers = 1000;
    toy.run_until(900, |toy| toy.kubelets("Parked") == 1);
    let before = toy.log.iter().filter(|line| line.starts_with("Claim ")).count();
    openings(&mut toy, 1);
    assert_eq!(before, toy.log.iter().filter(|line| line.starts_with("Claim ")).count());
    assert_eq!(openings(&mut toy, 300), Vec::<i64>::new());
    assert_eq!(toy.phase(), UpgradePhase::FailurePolicy);
}

/// A node that is tried for the second time is parked again when a person suspends the upgrade.
#[test]
fn a_node_that_was_given_back_while_its_drain_had_time_is_no_parked_one() {
    let mut toy = Toy::new(3, 1);
    toy.deploy("slow", 1, 0);
    toy.lingers = 10_000;
    let drains_again = |toy: &Toy| {
        let again = |claim: &Claim| claim.attempt == 2 && matches!(claim.state, ClaimState::Draining { .. });
        toy.claims.iter().any(again)
    };
    toy.run_until(9000, drains_again);
    toy.upgrade.suspended = true;
    toy.run_until(60, |toy| toy.kubelets("Parked") == 1);
    toy.upgrade.failures.max_parked = Some(Amount::Count(1));
    toy.upgrade.suspended = false;
    toy.run_until(60, drains_again);
    assert!(drains_again(&toy), "{:?}", toy.status());
}

#[test]
fn calendars_are_asked_for_by_the_control_plane_too() {
    let mut toy = Toy::new(1, 1);
    toy.upgrade.calendar = Calendar { windows: Vec::new(), freezes: vec![freeze(0, 100)] };
    assert_eq!(openings(&mut toy, 99), Vec::<i64>::new());
    assert_eq!(toy.phase(), UpgradePhase::Frozen);
    assert_eq!(openings(&mut toy, 1), [100]);
}

#[test]
fn how_long_it_takes_is_told_by_what_its_own_nodes_took() {
    let mut toy = Toy::new(12, 2);
    toy.run_until(600, scheduler_is_done);
    let foretold = |toy: &Toy| {
        let world = toy.world();
        let planned = planned(&toy.upgrade, &toy.progress, world, releases());
        let forecast = forecast(planned.plan(), &toy.upgrade, &toy.progress.soaks, world);
        assert_eq!(forecast.waves.len(), forecast.timing.hops.len());
        (
            forecast.waves.iter().flatten().map(|wave| wave.nodes.len()).sum::<usize>(),
            forecast.timing.estimate,
        )
    };
    // Nothing is known of nodes yet: six rounds of four minutes and what their pods need.
    let (nodes, guessed) = foretold(&toy);
    assert_eq!(nodes, 12);
    assert!(guessed.p50.as_mins() >= 24, "{guessed}");
    toy.run_until(600, |toy| toy.kubelets("Upgraded") == 4);
    let (nodes, measured) = foretold(&toy);
    assert!((7..=8).contains(&nodes), "{nodes}");
    let begun = toy.seconds;
    toy.run_until(3600, |toy| toy.kubelets("Upgraded") == 12);
    let took = toy.seconds - begun;
    let p90 = measured.p90.as_secs();
    assert!(measured.p50.as_secs() <= took * 2 && took <= p90 * 2, "{measured}, and it took {took} s");
}

/// A toy with one gate.
fn gated() -> Toy {
    let mut toy = Toy::new(6, 2);
    toy.upgrade.gates = vec![gate("slo", "checkout")];
    toy
}

fn gate(name: &str, object: &str) -> Gate {
    let object = GateObject {
        api_version: "example.com/v1".into(),
        kind: "ServiceLevel".into(),
        namespace: "shop".into(),
        name: object.into(),
    };
    Gate { name: name.into(), object, condition: "Healthy".into(), status: "True".into() }
}

fn is(status: &str) -> GateFound {
    GateFound::Conditions(vec![("Healthy".into(), status.into())])
}

#[test]
fn nothing_new_is_opened_while_a_gate_is_closed() {
    let mut toy = gated();
    for (found, line) in [
        (GateFound::NoObject, "there is no ServiceLevel shop/checkout"),
        (GateFound::Failed("no answer".into()), "ServiceLevel shop/checkout cannot be read: no answer"),
        (GateFound::Conditions(Vec::new()), "ServiceLevel shop/checkout has no condition Healthy"),
        (is("Unknown"), "condition Healthy of ServiceLevel shop/checkout is Unknown, and must be True"),
    ] {
        toy.gate = found;
        let before = toy.gate_reads;
        assert_eq!(openings(&mut toy, 60), Vec::<i64>::new(), "{line}");
        let decision = toy.decided();
        assert_eq!(decision.status.phase, UpgradePhase::GateClosed, "{line}");
        assert_eq!(decision.status.message, format!("gate slo is closed (read every 15 s): {line}"));
        assert!(decision.again_at.is_some_and(|next| next <= at(toy.seconds + 15)));
        assert!((3..=5).contains(&(toy.gate_reads - before)), "{}", toy.gate_reads);
    }
    toy.gate = is("True");
    toy.run_until(60, |toy| !toy.claims.is_empty());
    toy.run_until(600, |toy| toy.kubelets("Upgrading") == 2);
    // It closes while two are in flight.
    toy.gate = is("False");
    toy.pass(16);
    assert_eq!(openings(&mut toy, 120), Vec::<i64>::new());
    assert_eq!(
        (toy.kubelets("Upgraded"), toy.kubelets_in_flight(), toy.phase()),
        (2, 0, UpgradePhase::GateClosed)
    );
    toy.gate = is("True");
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed);
    let reads = toy.gate_reads;
    openings(&mut toy, 100);
    assert_eq!(toy.gate_reads, reads, "nothing is to be opened any more");
}

#[test]
fn a_gate_that_only_a_person_can_open_is_told_as_that_from_its_second_read_on() {
    let mut toy = gated();
    for (found, line) in [
        (
            GateFound::NoKind,
            "the cluster does not serve kind ServiceLevel of example.com/v1; install the kind or correct its name, or \
             take the gate out of spec.gates",
        ),
        (
            GateFound::Forbidden("no rule".into()),
            "ServiceLevel shop/checkout may not be read; allow it as config/gates/reader.yaml does, or take the gate \
             out of spec.gates: no rule",
        ),
        (
            GateFound::Refused("it is in a namespace".into()),
            "ServiceLevel shop/checkout cannot be read; correct spec.gates, or take the gate out of spec.gates: it is \
             in a namespace",
        ),
    ] {
        // What was forbidden once may be of a server that starts.
        toy.gate = found.clone();
        toy.run_until(20, |toy| toy.gates.0.values().any(|read| read.found == found));
        assert_eq!((toy.phase(), toy.phase().stalled()), (UpgradePhase::GateClosed, false), "{line}");
        toy.run_until(20, |toy| toy.phase() != UpgradePhase::GateClosed);
        let status = toy.status();
        assert_eq!((status.phase, status.phase.stalled()), (UpgradePhase::GateUnreadable, true), "{line}");
        let line = format!("gate slo is closed (read every 15 s): {line}");
        assert_eq!((&status.message, status.waits[0].reason.ended_by()), (&line, EndedBy::Person));
        for _ in 0..40 {
            toy.tick();
            assert_eq!(
                toy.phase(),
                UpgradePhase::GateUnreadable,
                "it does not flicker when it is read again"
            );
        }
        // A server that is away says nothing of what it allows.
        toy.gate = GateFound::Failed("no answer".into());
        toy.run_until(20, |toy| toy.phase() == UpgradePhase::GateClosed);
    }
    toy.gate = is("True");
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "it goes on by itself once it may be read");
}

#[test]
fn of_two_gates_the_one_that_only_a_person_can_open_is_told() {
    let mut toy = gated();
    toy.upgrade.gates.insert(0, gate("first", "cart"));
    toy.gate = GateFound::Forbidden("no rule".into());
    toy.run_until(40, |toy| toy.phase() == UpgradePhase::GateUnreadable);
    let first = toy.upgrade.gates[0].object.clone();
    toy.gates.was_read(first, GateFound::NoObject, at(toy.seconds));
    let status = toy.status();
    assert_eq!(status.phase, UpgradePhase::GateUnreadable);
    assert!(status.message.starts_with("gate slo is closed"), "{}", status.message);
}
