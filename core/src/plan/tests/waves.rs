//! Waves, and ways in which they can be wrong.

use std::sync::Arc;

use super::*;
use crate::cluster::Selector;
use crate::upgrade::{Amount, NodeGroup, Zones};

/// A group of two canaries, and two nodes in each of the zones a and b, whose order is not that of the nodes' names;
/// one node is held and one is cordoned.
fn setting() -> (Cluster, Upgrade) {
    let mut all = cluster(&["v1.36.4"], "v1.36.4", &[]);
    let pools = [("c-1", "canary", "a"), ("c-2", "canary", "a"), ("w-1", "web", "b"), ("w-2", "web", "a")];
    let more = [("w-3", "web", "a"), ("w-4", "web", "b"), ("held", "web", "a"), ("cordoned", "web", "b")];
    for (name, pool, zone) in pools.into_iter().chain(more) {
        let labels = [("pool", pool), ("topology.kubernetes.io/zone", zone)];
        let labels = Arc::new(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        all.set_node(Node {
            labels,
            held: name == "held",
            unschedulable: name == "cordoned",
            ..node(name, "v1.36.4")
        });
    }
    let group = |name: &str, pool: &str| {
        let match_labels = [("pool".to_owned(), pool.to_owned())].into();
        NodeGroup::new(name, Selector { match_labels, ..Selector::default() }, "external")
    };
    let web = NodeGroup {
        depends_on: vec!["canary".into()],
        zones: Zones::OneAtATime,
        canary: 1,
        max_unavailable: Amount::Percent(50),
        ..group("web", "web")
    };
    let groups = vec![web, group("canary", "canary")];
    (all, Upgrade { groups, ..to("v1.37.1") })
}

fn made_waves(cluster: &Cluster, upgrade: &Upgrade) -> (Plan, Vec<Vec<Wave>>) {
    let plan = made(cluster, upgrade);
    let waves = waves(&plan, upgrade, cluster, &upgrade.members(cluster));
    (plan, waves)
}

fn lines(waves: &[Vec<Wave>], upgrade: &Upgrade) -> String {
    let line = |wave: &Wave| {
        let group = &upgrade.groups[wave.group].name;
        format!(
            "{group} canary {} zone {:?}, {} of {}",
            wave.canary,
            wave.zone,
            wave.at_once,
            wave.nodes.join(" ")
        )
    };
    waves.concat().iter().map(line).collect::<Vec<String>>().join("\n")
}

/// The waves of `upgrade` of `cluster` are these, and the second judge finds nothing wrong with them.
#[track_caller]
fn goes(cluster: &Cluster, upgrade: &Upgrade, expected: &Expect) {
    let (plan, waves) = made_waves(cluster, upgrade);
    expected.assert_eq(&lines(&waves, upgrade));
    assert_eq!(check_waves(&plan, &waves, upgrade, &upgrade.members(cluster)), []);
}

#[test]
fn groups_canaries_and_zones_in_order() {
    let (cluster, mut upgrade) = setting();
    goes(
        &cluster,
        &upgrade,
        &expect![[r#"
            canary canary false zone None, 1 of c-1 c-2
            web canary true zone Some("a"), 3 of w-2
            web canary false zone Some("a"), 3 of w-3
            web canary false zone Some("b"), 3 of w-1 w-4"#]],
    );
    // The first zone has too few.
    upgrade.groups[0].canary = 3;
    goes(
        &cluster,
        &upgrade,
        &expect![[r#"
            canary canary false zone None, 1 of c-1 c-2
            web canary true zone Some("a"), 3 of w-2 w-3
            web canary true zone Some("b"), 3 of w-1
            web canary false zone Some("b"), 3 of w-4"#]],
    );
    upgrade.groups[0].zones = Zones::Any;
    goes(
        &cluster,
        &upgrade,
        &expect![[r#"
            canary canary false zone None, 1 of c-1 c-2
            web canary true zone None, 3 of w-1 w-2 w-3
            web canary false zone None, 3 of w-4"#]],
    );
}

/// They are in no wave, as those that another tool cordoned.
#[test]
fn nodes_that_a_person_drains_are_in_no_wave() {
    let (mut cluster, upgrade) = setting();
    let before = made_waves(&cluster, &upgrade);
    let drained = Node::clone(cluster.node("cordoned").unwrap());
    let mark = |mark: &str| Node { cordoned_by: Some(mark.into()), ..drained.clone() };
    cluster.set_node(mark("drain:2027-01-01T00:00:00Z/ann@desk"));
    let (plan, waves) = made_waves(&cluster, &upgrade);
    assert_eq!(waves, before.1);
    assert_eq!(check_waves(&plan, &waves, &upgrade, &upgrade.members(&cluster)), []);
    cluster.set_node(mark("up.kubelet.cordoned/1"));
    let (_, waves) = made_waves(&cluster, &upgrade);
    assert!(waves.concat().iter().any(|wave| wave.nodes.contains(&"cordoned".into())), "an upgrade moves it");
}

/// The rollout counts them alike.
#[test]
fn nodes_that_run_the_version_take_the_places_of_canaries() {
    let (cluster, mut upgrade) = setting();
    upgrade.groups[0].canary = 2;
    let at_version = |name: &str, change: fn(&mut Node)| {
        let mut cluster = cluster.clone();
        let mut node = Node::clone(cluster.node(name).unwrap());
        node.kubelet = crate::version::Observed::from_report("v1.37.1");
        change(&mut node);
        cluster.set_node(node);
        cluster
    };
    let canaries = |cluster: &Cluster, upgrade: &Upgrade| {
        let (plan, waves) = made_waves(cluster, upgrade);
        assert_eq!(check_waves(&plan, &waves, upgrade, &upgrade.members(cluster)), []);
        waves.concat().iter().filter(|wave| wave.canary).map(|wave| wave.nodes.len()).sum::<usize>()
    };
    assert_eq!(canaries(&cluster, &upgrade), 2);
    for name in ["held", "cordoned", "w-1"] {
        assert_eq!(canaries(&at_version(name, |_| {}), &upgrade), 1, "{name}");
    }
    // It proves nothing, and as soon as it is ready the others follow.
    assert_eq!(canaries(&at_version("w-1", |node| node.ready = false), &upgrade), 1);
    // What moves with a kube-apiserver moves before any canary.
    let mut k3s = cluster.clone();
    k3s.set_instances(["w-1"].map(|name| instance(Component::KubeApiserver, name, "v1.36.4+rke2r1")).into());
    let by_node = Upgrade { groups: upgrade.groups.clone(), ..by_node("v1.37.1+rke2r1") };
    assert_eq!(canaries(&k3s, &by_node), 1);
}

/// The setting, in which two nodes have been silent for days, and one for a minute.
fn with_silent() -> (Cluster, Upgrade) {
    let (mut cluster, upgrade) = setting();
    for (name, heartbeat) in [("c-2", -200_000), ("w-3", -200_000), ("w-4", -60)] {
        let silent = Node::clone(cluster.node(name).unwrap());
        cluster.set_node(Node { ready: false, heartbeat: Some(at(heartbeat)), ..silent });
    }
    (cluster, upgrade)
}

#[test]
fn nodes_that_have_long_been_silent_are_in_no_wave() {
    let (cluster, upgrade) = with_silent();
    goes(
        &cluster,
        &upgrade,
        &expect![[r#"
            canary canary false zone None, 1 of c-1
            web canary true zone Some("b"), 3 of w-4
            web canary false zone Some("a"), 3 of w-2
            web canary false zone Some("b"), 3 of w-1"#]],
    );
    let (plan, waves) = made_waves(&cluster, &upgrade);
    let found = |spoil: fn(&mut Vec<Wave>)| {
        let mut spoilt = waves.clone();
        spoil(&mut spoilt[0]);
        check_waves(&plan, &spoilt, &upgrade, &upgrade.members(&cluster))
    };
    assert!(!found(|waves| waves[0].nodes.push("c-2".into())).is_empty(), "nobody finds one in a wave");
    assert!(!found(|waves| drop(waves[1].nodes.remove(0))).is_empty(), "nobody finds one left out too soon");
    // Three are away, and as many may be: the one of them that moves goes before the zones.
    assert!(!found(|waves| waves.swap(1, 2)).is_empty(), "nobody finds a ready one before it");
}

#[test]
fn every_wrong_wave_is_found() {
    type Wrong = (&'static str, fn(&mut Vec<Wave>));
    let (cluster, upgrade) = setting();
    let (plan, waves) = made_waves(&cluster, &upgrade);
    let wrong: [Wrong; 12] = [
        ("more at once than may be unavailable", |waves| waves[1].at_once += 9),
        ("none at once", |waves| waves[0].at_once = 0),
        ("a group before the one that it depends on", |waves| waves.swap(0, 1)),
        ("canaries after the others", |waves| waves.swap(1, 2)),
        ("more canaries than there are to be", |waves| {
            let more = waves[2].nodes.clone();
            waves[1].nodes.extend(more);
            waves.remove(2);
        }),
        ("fewer canaries than there are to be", |waves| waves[1].canary = false),
        ("a node that is forgotten", |waves| drop(waves[0].nodes.pop())),
        ("a node that moves twice", |waves| {
            let again = waves[0].nodes[0].clone();
            waves[0].nodes.push(again);
        }),
        ("a node of another zone", |waves| {
            let other = waves[3].nodes.remove(0);
            waves[2].nodes.push(other);
        }),
        ("zones in another order", |waves| waves.swap(2, 3)),
        ("a canary of a later zone", |waves| {
            let (later, zone) = (waves[3].nodes.remove(0), waves[3].zone.clone());
            let first = std::mem::replace(&mut waves[1].nodes, vec![later]);
            waves[2].nodes.extend(first);
            waves[1].zone = zone;
        }),
        ("a node of another group", |waves| {
            let other = waves[0].nodes.remove(0);
            waves[2].nodes.push(other);
        }),
    ];
    for (what, spoil) in wrong {
        let mut spoilt = waves.clone();
        spoil(&mut spoilt[0]);
        let found = check_waves(&plan, &spoilt, &upgrade, &upgrade.members(&cluster));
        assert!(!found.is_empty(), "nobody finds {what}");
    }
}
