//! Groups that depend on others, canaries and zones.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;

use super::cluster::Toy;
use crate::cluster::Selector;
use crate::fixture::pod;
use crate::rollout::UpgradePhase;
use crate::upgrade::{Amount, NodeGroup, Zones};
use crate::version::Observed;

/// Six nodes in zones a, b and c, two in each, in pools `canary` (the first two) and `web`.
fn toy(groups: Vec<NodeGroup>) -> Toy {
    let mut toy = Toy::new(6, 6);
    toy.upgrade.groups = groups;
    for (number, zone) in ["a", "a", "b", "b", "c", "c"].iter().enumerate() {
        let pool = if number < 2 { "canary" } else { "web" };
        let labels: BTreeMap<String, String> = [
            ("pool".to_owned(), pool.to_owned()),
            ("topology.kubernetes.io/zone".to_owned(), (*zone).to_owned()),
        ]
        .into();
        let labels = Arc::new(labels);
        toy.cluster.change_node(&format!("n-{}", number + 1), |node| node.labels = labels);
    }
    toy
}

fn group(name: &str, pool: Option<&str>, at_once: usize) -> NodeGroup {
    let match_labels = pool.map(|pool| ("pool".to_owned(), pool.to_owned())).into_iter().collect();
    NodeGroup {
        max_unavailable: Amount::Count(at_once),
        ..NodeGroup::new(name, Selector { match_labels, ..Selector::default() }, "external")
    }
}

/// The nodes that were under way at the same time, each set once, in order.
fn together(toy: &mut Toy) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for _ in 0..3000 {
        toy.tick();
        let out: Vec<&str> = toy
            .claims
            .iter()
            .filter(|claim| claim.is_of_kubelet() && claim.state.in_flight())
            .map(|claim| &*claim.subject.node)
            .collect();
        let line = out.join(" ");
        if !line.is_empty() && all.last() != Some(&line) {
            all.push(line);
        }
        if toy.phase() == UpgradePhase::Completed {
            return all;
        }
    }
    panic!("{:?}: {}", toy.phase(), toy.status().message);
}

#[test]
fn a_group_waits_for_those_that_it_depends_on() {
    let web = NodeGroup { depends_on: vec!["canary".into()], ..group("web", Some("web"), 4) };
    let mut toy = toy(vec![web, group("canary", Some("canary"), 1)]);
    let all = together(&mut toy);
    let first_web = all.iter().position(|line| line.contains("n-3")).unwrap();
    assert_eq!(all[..first_web], ["n-1", "n-2"], "{all:#?}");
}

/// Whoever depends on a group depends on what that one depends on, whatever is left to do in it.
#[test]
fn a_group_waits_for_those_beyond_one_in_which_nothing_moves() {
    let after = |name: &str| vec![name.into()];
    for between in ["empty", "held", "at the target"] {
        let soak = SignedDuration::from_secs(300);
        let canary = NodeGroup { soak, ..group("canary", Some("canary"), 1) };
        let staging = NodeGroup { depends_on: after("canary"), ..group("staging", Some("staging"), 1) };
        let prod = NodeGroup { depends_on: after("staging"), ..group("prod", Some("web"), 4) };
        let mut toy = toy(vec![prod, staging, canary]);
        if between != "empty" {
            toy.cluster.change_node("n-3", |node| {
                node.labels = Arc::new([("pool".to_owned(), "staging".to_owned())].into());
                if between == "held" {
                    node.held = true;
                } else {
                    node.kubelet = Observed::Known("v1.37.1".parse().unwrap());
                }
            });
        }
        let (planned, members) = (toy.planned(), toy.upgrade.members(&toy.cluster));
        let mut waves = crate::plan::waves(planned.plan(), &toy.upgrade, &toy.cluster, &members);
        waves[0].rotate_left(1);
        let found = crate::plan::check_waves(planned.plan(), &waves, &toy.upgrade, &members);
        let early = "group prod begins before group canary, on which it depends, is done";
        assert!(found.iter().any(|wrong| wrong.to_string() == early), "{between}: {found:?}");

        let done = |toy: &Toy| (toy.kubelets("Upgraded"), toy.kubelets_in_flight());
        toy.run_until(600, |toy| done(toy) == (1, 0));
        let line = "group prod waits until group canary is done (n-2)";
        assert!(
            toy.status().lines().iter().any(|wait| wait == line),
            "{between}: {:#?}",
            toy.status().lines()
        );
        toy.run_until(600, |toy| done(toy) == (2, 0));
        let since = toy.seconds;
        toy.run_until(600, |toy| toy.kubelets_in_flight() > 0);
        assert!(toy.seconds - since >= 295, "{between}: {}", toy.seconds - since);
        let claimed: Vec<&str> =
            toy.log.iter().filter_map(|line| line.strip_prefix("Claim up.kubelet.")).collect();
        assert_eq!(claimed[..2], ["n-1", "n-2"], "{between}");
    }
}

#[test]
fn a_group_that_waits_says_for_whom() {
    let web = NodeGroup { depends_on: vec!["canary".into()], ..group("web", Some("web"), 4) };
    let mut toy = toy(vec![web, group("canary", Some("canary"), 1)]);
    toy.broken = Some("n-1".to_owned());
    toy.run_to_the_end(3000);
    assert_eq!(toy.phase(), UpgradePhase::NodesFailed);
    let waits = toy.status().lines();
    let line = "group web waits until group canary is done (n-1 and 1 more)";
    assert!(waits.iter().any(|wait| wait == line), "{waits:#?}");
    assert!(!toy.log.iter().any(|line| line.contains("kubelet.n-3")));
    // A node that a person holds keeps nobody waiting.
    toy.claims.retain(|claim| *claim.subject.node != *"n-1");
    toy.broken = None;
    toy.cluster.change_node("n-1", |node| {
        (node.held, node.unschedulable, node.cordoned_by) = (true, false, None);
    });
    toy.run_until(3000, |toy| toy.kubelets("Upgraded") == 5);
}

#[test]
fn canaries_go_before_the_others_of_their_group() {
    let all = NodeGroup { canary: 2, ..group("all", None, 6) };
    let all = together(&mut toy(vec![all]));
    assert_eq!(all[0], "n-1 n-2");
    let rest = all.iter().position(|line| line.contains("n-3")).unwrap();
    assert!(all[rest..].iter().all(|line| !line.contains("n-1") && !line.contains("n-2")), "{all:#?}");
    assert!(all.contains(&"n-3 n-4 n-5 n-6".to_owned()), "{all:#?}");
}

#[test]
fn nobody_follows_a_canary_that_failed() {
    let all = NodeGroup { canary: 1, ..group("all", None, 6) };
    let mut toy = toy(vec![all]);
    toy.broken = Some("n-1".to_owned());
    toy.run_to_the_end(3000);
    assert_eq!((toy.kubelets("Failed"), toy.kubelets("Upgraded")), (1, 0), "{:#?}", toy.log);
    assert_eq!(toy.phase(), UpgradePhase::NodesFailed);
    let line = "group all: the others wait until its canaries run v1.37.1";
    assert!(toy.status().lines().iter().any(|wait| wait == line), "{:#?}", toy.status().lines());
}

#[test]
fn zones_go_one_after_the_other() {
    let all = NodeGroup { zones: Zones::OneAtATime, ..group("all", None, 6) };
    let all = together(&mut toy(vec![all]));
    assert_eq!(all, ["n-1 n-2", "n-3 n-4", "n-5 n-6"]);
}

/// Else nothing could begin: it may be the new version that mends it.
#[test]
fn a_node_that_fills_its_group_because_it_is_away_goes_before_its_zone() {
    let mut toy = toy(vec![NodeGroup { zones: Zones::OneAtATime, ..group("all", None, 1) }]);
    let (now, since) = (toy.world().now, crate::fixture::at(-200_000));
    toy.cluster.change_node("n-3", |node| {
        (node.ready, node.heartbeat, node.not_ready_since) = (false, Some(now), Some(since));
    });
    let members = toy.upgrade.members(&toy.cluster);
    let waves = crate::plan::waves(toy.planned().plan(), &toy.upgrade, &toy.cluster, &members);
    let all: Vec<String> = together(&mut toy);
    assert_eq!(all, ["n-3", "n-1", "n-2", "n-4", "n-5", "n-6"]);
    let planned: Vec<&str> =
        waves.iter().flatten().flat_map(|wave| &wave.nodes).map(|name| &**name).collect();
    assert_eq!(planned, all);
}

#[test]
fn a_node_that_failed_keeps_the_next_zone_waiting_until_a_person_accepts_it() {
    let all = NodeGroup { zones: Zones::OneAtATime, ..group("all", None, 6) };
    let mut toy = toy(vec![all]);
    toy.broken = Some("n-1".to_owned());
    toy.run_to_the_end(3000);
    assert_eq!((toy.kubelets("Failed"), toy.kubelets("Upgraded")), (1, 1), "{:#?}", toy.log);
    assert_eq!(toy.phase(), UpgradePhase::NodesFailed);
    let line = "group all: the other zones wait until zone a is done (n-1)";
    assert!(toy.status().lines().iter().any(|wait| wait == line), "{:#?}", toy.status().lines());
    // Mended, it counts no more.
    toy.broken = None;
    toy.cluster.change_node("n-1", |node| node.kubelet = Observed::Known("v1.37.1".parse().unwrap()));
    toy.run_until(3000, |toy| toy.phase() == UpgradePhase::Completed);
}

/// The plan says the same of the nodes that are there.
#[test]
fn what_is_carried_out_is_what_the_waves_say() {
    let web = NodeGroup {
        depends_on: vec!["canary".into()],
        zones: Zones::OneAtATime,
        canary: 1,
        ..group("web", Some("web"), 4)
    };
    let mut toy = toy(vec![web, group("canary", Some("canary"), 1)]);
    // The order of zones is not that of the names.
    for (name, zone) in [("n-3", "c"), ("n-4", "b"), ("n-5", "b"), ("n-6", "c")] {
        toy.cluster.change_node(name, |node| {
            let zone = ("topology.kubernetes.io/zone".to_owned(), zone.to_owned());
            Arc::make_mut(&mut node.labels).extend([zone]);
        });
    }
    let planned = toy.planned();
    let members = toy.upgrade.members(&toy.cluster);
    let waves = crate::plan::waves(planned.plan(), &toy.upgrade, &toy.cluster, &members);
    assert!(crate::plan::check_waves(planned.plan(), &waves, &toy.upgrade, &members).is_empty());
    let told: Vec<String> = waves.concat().iter().map(|wave| wave.nodes.join(" ")).collect();
    assert_eq!(told, ["n-1 n-2", "n-4", "n-5", "n-3 n-6"]);
    let went = together(&mut toy);
    assert_eq!(went, ["n-1", "n-2", "n-4", "n-5", "n-3 n-6"], "one canary at a time, then wave by wave");

    // A node that somebody holds, and that runs the version, is as good as a canary.
    let all = NodeGroup { canary: 1, ..group("all", None, 6) };
    let mut toy = self::toy(vec![all]);
    toy.cluster.change_node("n-6", |node| {
        (node.kubelet, node.held) = (Observed::Known("v1.37.1".parse().unwrap()), true);
    });
    let members = toy.upgrade.members(&toy.cluster);
    let waves = crate::plan::waves(toy.planned().plan(), &toy.upgrade, &toy.cluster, &members);
    let told: Vec<String> = waves.concat().iter().map(|wave| wave.nodes.join(" ")).collect();
    assert_eq!(told, ["n-1 n-2 n-3 n-4 n-5"]);
    assert!(together(&mut toy).contains(&told[0]), "nobody waits for a canary");
}

/// The scheduler looks at half of so many nodes, one after the other as their names go, from anywhere.
#[test]
fn of_many_nodes_those_that_are_upgraded_lie_spread_over_all_names() {
    let nodes = 150;
    let mut toy = Toy::new(nodes, 1);
    let members = toy.upgrade.members(&toy.cluster);
    let waves = crate::plan::waves(toy.planned().plan(), &toy.upgrade, &toy.cluster, &members);
    let place = |name: &Arc<str>| toy.cluster.nodes().iter().position(|node| node.name == *name).unwrap();
    let order: Vec<usize> = waves.concat().iter().flat_map(|wave| &wave.nodes).map(place).collect();
    assert_eq!(order.len(), nodes);
    for upgraded in 4..nodes {
        let mut places = order[..upgraded].to_vec();
        places.sort_unstable();
        let again = places[0] + toy.cluster.nodes().len();
        let gaps = places.iter().zip(places[1..].iter().chain([&again])).map(|(from, to)| to - from);
        let widest = gaps.max().unwrap();
        assert!(
            widest <= 2 * nodes.div_ceil(upgraded) + 2,
            "{upgraded} upgraded, {widest} names without one"
        );
    }
    let told: Vec<Arc<str>> = waves.concat().iter().flat_map(|wave| wave.nodes.clone()).collect();
    toy.run_to_the_end(20_000);
    let cordoned = toy.log.iter().filter_map(|line| line.strip_prefix("Cordon "));
    assert!(cordoned.eq(told.iter().map(|name| &**name)), "the operator keeps to the plan");
}

/// A new kubelet that does not become ready is no better than none.
#[test]
fn nobody_follows_a_canary_that_failed_at_the_new_version() {
    let fails = |toy: &mut Toy| {
        toy.broken = Some("n-1".to_owned());
        toy.run_until(600, |toy| toy.kubelets("Upgrading") == 1);
        toy.cluster.change_node("n-1", |node| {
            (node.kubelet, node.ready) = (Observed::Known("v1.37.1".parse().unwrap()), false);
        });
        toy.run_to_the_end(3000);
        assert_eq!((toy.kubelets("Failed"), toy.kubelets("Upgraded")), (1, 0), "{:#?}", toy.log);
        assert_eq!(toy.phase(), UpgradePhase::NodesFailed);
        toy.status()
    };
    let all = NodeGroup { canary: 1, soak: SignedDuration::from_secs(300), ..group("all", None, 6) };
    let mut first = toy(vec![all]);
    let status = fails(&mut first);
    assert!(status.soaks.is_empty(), "nothing soaks: {:?}", status.soaks);
    let line = "group all: the others wait until its canaries run v1.37.1";
    assert!(status.lines().iter().any(|wait| wait == line), "{:#?}", status.lines());
    // Mended, it lets them go on.
    first.cluster.change_node("n-1", |node| node.ready = true);
    first.run_until(3000, |toy| toy.phase() == UpgradePhase::Completed);

    let web = NodeGroup { depends_on: vec!["canary".into()], ..group("web", Some("web"), 4) };
    let canary = NodeGroup { soak: SignedDuration::from_secs(300), ..group("canary", Some("canary"), 1) };
    let mut second = toy(vec![web, canary]);
    second.cluster.change_node("n-2", |node| node.kubelet = Observed::Known("v1.37.1".parse().unwrap()));
    let status = fails(&mut second);
    assert!(status.soaks.is_empty(), "nothing soaks: {:?}", status.soaks);
    let line = "group web waits until group canary is done (n-1)";
    assert!(status.lines().iter().any(|wait| wait == line), "{:#?}", status.lines());
}

/// The canaries are nodes that can be drained.
#[test]
fn a_node_that_cannot_be_drained_keeps_no_canary_place() {
    let all = NodeGroup { canary: 1, ..group("all", None, 6) };
    let mut toy = toy(vec![all]);
    for node in 2..=6 {
        toy.cluster.set_pod(pod("free", node, &format!("n-{node}")));
    }
    toy.deploy("frozen", 1, 1);
    toy.run_to_the_end(3000);
    assert_eq!((toy.kubelets("Upgraded"), toy.phase()), (5, UpgradePhase::NodesParked), "{:#?}", toy.log);
    let first = toy.log.iter().find(|line| line.starts_with("Claim up.kubelet")).unwrap();
    assert_eq!(first, "Claim up.kubelet.n-2", "one canary, before the others");
    let second = toy.log.iter().position(|line| line == "Claim up.kubelet.n-3").unwrap();
    assert!(toy.log[..second].contains(&"Uncordon n-2".to_owned()), "{:#?}", toy.log);
}

/// A node that is not ready any more proves nothing, and neither does the end of its claim.
#[test]
fn nobody_follows_a_node_at_the_new_version_that_is_not_ready() {
    let canary =
        |soak| NodeGroup { canary: 1, soak: SignedDuration::from_secs(soak), ..group("all", None, 6) };
    let web = NodeGroup { depends_on: vec!["canary".into()], ..group("web", Some("web"), 4) };
    let zones = NodeGroup { zones: Zones::OneAtATime, ..group("all", None, 6) };
    let first = group("canary", Some("canary"), 1);
    for (groups, line) in [
        (vec![canary(300)], "group all: the others wait until its canaries run v1.37.1; n-1 is not ready"),
        (vec![web, first], "group web waits until group canary is done (n-2); n-2 is not ready"),
        (vec![zones], "group all: the other zones wait until zone a is done (n-1); n-1 is not ready"),
    ] {
        let mut toy = toy(groups);
        let last = if line.contains("n-1") { "n-1" } else { "n-2" };
        let done = |toy: &Toy| {
            let on = |claim: &&crate::rollout::Claim| claim.is_of_kubelet() && *claim.subject.node == *last;
            let of = toy.claims.iter().find(on);
            of.is_some_and(|claim| claim.state.name() == "Upgraded") && toy.kubelets_in_flight() == 0
        };
        toy.run_until(900, done);
        let (went, now) = (toy.kubelets("Upgraded"), crate::fixture::at(toy.seconds));
        toy.cluster.change_node(last, |node| {
            (node.ready, node.heartbeat, node.not_ready_since) = (false, Some(now), Some(now));
        });
        for _ in 0..600 {
            toy.tick();
        }
        assert_eq!((toy.kubelets_in_flight(), toy.kubelets("Upgraded")), (0, went), "{:#?}", toy.log);
        let status = toy.status();
        assert!(status.lines().iter().any(|wait| wait == line), "{line}: {:#?}", status.lines());
        assert!(!status.phase.stalled(), "it may come back: {:?}", status.phase);
        toy.pass(16 * 60);
        let status = toy.status();
        assert_eq!(
            (status.phase, status.message.contains(line)),
            (UpgradePhase::NodesHeld, true),
            "{status:?}"
        );
        toy.cluster.change_node(last, |node| (node.ready, node.not_ready_since) = (true, None));
        toy.run_until(3000, |toy| toy.phase() == UpgradePhase::Completed);
    }
}

#[test]
fn whoever_deletes_the_claim_of_a_broken_canary_does_not_say_that_it_is_well() {
    let mut toy = toy(vec![NodeGroup { canary: 1, ..group("all", None, 6) }]);
    toy.broken = Some("n-1".to_owned());
    toy.run_until(600, |toy| toy.kubelets("Upgrading") == 1);
    let now = crate::fixture::at(toy.seconds);
    toy.cluster.change_node("n-1", |node| {
        (node.kubelet, node.ready) = (Observed::Known("v1.37.1".parse().unwrap()), false);
        (node.heartbeat, node.not_ready_since) = (Some(now), Some(now));
    });
    toy.run_until(600, |toy| toy.kubelets("Failed") == 1);
    for claim in toy.claims.iter_mut().filter(|claim| claim.is_of_kubelet()) {
        claim.ending = true;
    }
    toy.run_until(100, |toy| toy.claims.iter().all(|claim| !claim.is_of_kubelet()));
    for _ in 0..300 {
        toy.tick();
    }
    assert!(!toy.log.iter().any(|line| line.contains("kubelet.n-2")), "{:#?}", toy.log);
    // A person who holds it says that it is theirs.
    toy.cluster.change_node("n-1", |node| node.held = true);
    toy.run_until(600, |toy| toy.log.iter().any(|line| line == "Claim up.kubelet.n-2"));
    assert_eq!(
        toy.kubelets_in_flight(),
        1,
        "it proves nothing, so that another one goes first: {:#?}",
        toy.log
    );
}
