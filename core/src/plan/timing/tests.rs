//! Times of small plans in lines, and what holds for plans by chance.

mod by_chance;

use std::sync::Arc;

use expect_test::{Expect, expect};
use jiff::tz::TimeZone;

use super::*;
use crate::cluster::Component;
use crate::cluster::{Budget, Demand, Node, Parts, Pod, Quantity, Selector};
use crate::disruption::Rules;
use crate::disruption::preflight::duration_text;
use crate::fixture::{at, budget, instance, node, pod};
use crate::plan::{Hop, Pass, Picked, Plan, Step, Took, waves};
use crate::upgrade::calendar::Freeze;
use crate::upgrade::{Amount, ControlPlane, NodeGroup, Soaked, Unit, Upgrade, Zones};
use crate::version::{KubeVersion, Observed};

fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

fn took(p50: i64, p90: i64) -> Took {
    Took { p50: seconds(p50), p90: seconds(p90) }
}

/// A group of the nodes whose label `pool` is `name`.
fn group(name: &str, max_unavailable: usize) -> NodeGroup {
    let selector = Selector {
        match_labels: [("pool".to_owned(), name.to_owned())].into(),
        match_expressions: Vec::new(),
    };
    NodeGroup {
        max_unavailable: Amount::Count(max_unavailable),
        ..NodeGroup::new(name, selector, "external")
    }
}

/// Node `<pool>-<number>` at v1.36.4.
fn of_pool(pool: &str, number: usize) -> Node {
    let labels = Arc::new([("pool".to_owned(), pool.to_owned())].into());
    Node { labels, ..node(&format!("{pool}-{number:03}"), "v1.36.4") }
}

/// `cart` pods, one on each of `nodes` in turn, and a budget that lets `at_once` of them go.
fn guarded(parts: &mut Parts, app: &str, pods: usize, at_once: usize, nodes: &[&str]) {
    let desired = i32::try_from(pods.saturating_sub(at_once)).unwrap();
    let healthy = i32::try_from(pods).unwrap();
    let demand = Demand::MinAvailable(Quantity::Count(desired));
    parts.budgets.push(Budget { demand, ..budget(app, healthy - desired, healthy, desired) });
    let turns = nodes.iter().cycle().take(pods).enumerate();
    parts.pods.extend(turns.map(|(number, node)| pod(app, number, node)));
}

fn step(component: Component, place: &str) -> Step {
    Step { components: vec![component], place: place.into(), from: version("v1.36.4") }
}

fn version(text: &str) -> KubeVersion {
    text.parse().unwrap()
}

fn hop(text: &str, steps: Vec<Step>, kubelets: Pass) -> Hop {
    Hop { version: version(text), picked: Picked::Target, needs: Vec::new(), steps, kubelets }
}

/// A plan of one hop that moves every kubelet after three kube-apiservers and six controllers.
fn whole() -> Plan {
    let mut steps = Vec::new();
    for component in [Component::KubeApiserver, Component::KubeControllerManager, Component::KubeScheduler] {
        steps.extend(["cp-1", "cp-2", "cp-3"].map(|place| step(component, place)));
    }
    plan(vec![hop("v1.37.1", steps, Pass::All)])
}

fn plan(hops: Vec<Hop>) -> Plan {
    let (from, to) = (Some(version("v1.36.4")), version("v1.37.1"));
    Plan {
        from,
        to,
        unit: Unit::Component,
        hops,
        silent: std::collections::BTreeSet::new(),
        findings: Vec::new(),
    }
}

fn upgrade(groups: Vec<NodeGroup>) -> Upgrade {
    Upgrade { groups, ..Upgrade::to(version("v1.37.1")) }
}

fn timed(plan: &Plan, upgrade: &Upgrade, parts: Parts, durations: &Durations) -> PlanTiming {
    timed_in(plan, upgrade, parts, durations, &[])
}

/// The same while `soaks` are under way.
fn timed_in(
    plan: &Plan,
    upgrade: &Upgrade,
    parts: Parts,
    durations: &Durations,
    soaks: &[Soak],
) -> PlanTiming {
    let cluster = parts.seal();
    let waves = waves(plan, upgrade, &cluster, &upgrade.members(&cluster));
    let rules = Rules::default();
    let input = ForecastInput { plan, waves: &waves, upgrade, cluster: &cluster, rules: &rules, now: at(0) };
    timing(&input, durations, soaks)
}

fn see(plan: &Plan, upgrade: &Upgrade, parts: Parts, expected: &Expect) {
    let timing = timed(plan, upgrade, parts, &Durations::default());
    let mut lines: Vec<String> =
        timing.bounds.iter().map(|bound| format!("{} {} | {bound}", bound.hop, bound.subject)).collect();
    lines.extend(
        timing
            .hops
            .iter()
            .map(|hop| format!("{} at least {}, {}", hop.hop, duration_text(hop.least), hop.estimate)),
    );
    lines.push(format!("at least {}, {}", duration_text(timing.least), timing.estimate));
    expected.assert_eq(&lines.join("\n"));
}

/// Three control-plane nodes, two canaries and 400 workers, with `cart` on 40 of them.
fn large() -> Parts {
    let mut parts = Parts::default();
    let control_plane = |number| Node { control_plane: true, ..of_pool("cp", number) };
    parts.nodes.extend((1..=3).map(control_plane).map(Arc::new));
    parts.nodes.extend((1..=2).map(|number| of_pool("canary", number)).map(Arc::new));
    parts.nodes.extend((1..=400).map(|number| of_pool("workers", number)).map(Arc::new));
    let names: Vec<String> = (1..=40).map(|number| format!("workers-{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    guarded(&mut parts, "cart", 40, 1, &names);
    guarded(&mut parts, "web", 40, 4, &names);
    parts.instances.push(instance(Component::KubeApiserver, "cp-1", "v1.36.4"));
    parts
}

#[test]
fn what_sets_the_time_of_a_large_cluster() {
    let canary = group("canary", 1);
    let workers = NodeGroup { depends_on: vec!["canary".into()], ..group("workers", 2) };
    let groups = vec![group("cp", 1), canary, workers.clone()];
    see(
        &whole(),
        &upgrade(groups.clone()),
        large(),
        &expect![[r#"
        1.37 groups canary, workers | groups canary, workers go one after the other: 13 h 28 min
        1.37 group workers | group workers moves 2 of 400 nodes at a time: 13 h 20 min
        1.37 budget shop/cart | budget shop/cart lets one of 40 pods go at a time: 43 min
        1.37 budget shop/web | budget shop/web lets 4 of 40 pods go at a time: 13 min
        1.37 group cp | group cp moves one of 3 nodes at a time: 12 min
        1.37 group canary | group canary moves one of 2 nodes at a time: 8 min
        1.37 kube-apiservers | 3 kube-apiservers, one at a time: 6 min
        1.37 controllers | 6 controllers, one at a time: 6 min
        1.37 at least 13 h 40 min, P50 14 h, P90 14 h 57 min
        at least 13 h 40 min, P50 14 h, P90 14 h 57 min"#]],
    );
    let faster = NodeGroup { max_unavailable: Amount::Percent(50), ..workers };
    let groups = [&groups[..2], &[faster]].concat();
    see(
        &whole(),
        &upgrade(groups),
        large(),
        &expect![[r#"
        1.37 budget shop/cart | budget shop/cart lets one of 40 pods go at a time: 43 min
        1.37 groups canary, workers | groups canary, workers go one after the other: 16 min
        1.37 budget shop/web | budget shop/web lets 4 of 40 pods go at a time: 13 min
        1.37 group cp | group cp moves one of 3 nodes at a time: 12 min
        1.37 group canary | group canary moves one of 2 nodes at a time: 8 min
        1.37 group workers | group workers moves 200 of 400 nodes at a time: 8 min
        1.37 kube-apiservers | 3 kube-apiservers, one at a time: 6 min
        1.37 controllers | 6 controllers, one at a time: 6 min
        1.37 at least 55 min, P50 56 min, P90 1 h 2 min
        at least 55 min, P50 56 min, P90 1 h 2 min"#]],
    );
}

#[test]
fn words_for_few_and_for_several_waves() {
    let parts = |count: usize| {
        let nodes = (1..=count).map(|number| of_pool("w", number));
        let zoned = |node: Node| {
            let zone = format!("z{}", node.name.len() + usize::from(&*node.name > "w-003"));
            let mut labels = (*node.labels).clone();
            labels.insert("topology.kubernetes.io/zone".to_owned(), zone);
            Arc::new(Node { labels: Arc::new(labels), ..node })
        };
        Parts { nodes: nodes.map(zoned).collect(), ..Parts::default() }
    };
    let alone = plan(vec![hop("v1.37.1", vec![step(Component::KubeApiserver, "cp-1")], Pass::All)]);
    see(
        &alone,
        &upgrade(vec![group("w", 3)]),
        parts(1),
        &expect![[r#"
        1.37 group w | group w moves 1 node: 4 min
        1.37 kube-apiservers | 1 kube-apiserver: 2 min
        1.37 at least 6 min, P50 6 min, P90 10 min
        at least 6 min, P50 6 min, P90 10 min"#]],
    );
    see(
        &alone,
        &upgrade(vec![group("w", 3)]),
        parts(3),
        &expect![[r#"
        1.37 group w | group w moves 3 nodes at once: 4 min
        1.37 kube-apiservers | 1 kube-apiserver: 2 min
        1.37 at least 6 min, P50 6 min, P90 10 min
        at least 6 min, P50 6 min, P90 10 min"#]],
    );
    see(
        &alone,
        &upgrade(vec![group("w", 1)]),
        parts(3),
        &expect![[r#"
        1.37 group w | group w moves one of 3 nodes at a time: 12 min
        1.37 kube-apiservers | 1 kube-apiserver: 2 min
        1.37 at least 14 min, P50 14 min, P90 21 min
        at least 14 min, P50 14 min, P90 21 min"#]],
    );
    let zones = NodeGroup { zones: Zones::OneAtATime, canary: 1, ..group("w", 2) };
    see(
        &alone,
        &upgrade(vec![zones]),
        parts(6),
        &expect![[r#"
        1.37 group w | group w moves 6 nodes in 3 waves, 2 at a time: 16 min
        1.37 kube-apiservers | 1 kube-apiserver: 2 min
        1.37 at least 18 min, P50 18 min, P90 26 min
        at least 18 min, P50 18 min, P90 26 min"#]],
    );
}

/// The canary is of the first zone, so that no other round has an odd node.
#[test]
fn no_bound_is_above_what_zones_and_canaries_take() {
    let zoned = |number: usize| {
        let mut own = of_pool("w", number);
        let zone = ("topology.kubernetes.io/zone".to_owned(), if number < 3 { "b" } else { "a" }.to_owned());
        Arc::make_mut(&mut own.labels).extend([zone]);
        Arc::new(own)
    };
    let parts = Parts { nodes: (1..=5).map(zoned).collect(), ..Parts::default() };
    let zones = NodeGroup { zones: Zones::OneAtATime, canary: 1, ..group("w", 2) };
    see(
        &plan(vec![hop("v1.37.1", Vec::new(), Pass::All)]),
        &upgrade(vec![zones]),
        parts,
        &expect![[r#"
        1.37 group w | group w moves 5 nodes in 3 waves, 2 at a time: 12 min
        1.37 at least 12 min, P50 12 min, P90 19 min
        at least 12 min, P50 12 min, P90 19 min"#]],
    );
}

#[test]
fn control_plane_nodes_go_one_at_a_time_whatever_their_groups_allow() {
    let control_plane = |number| Arc::new(Node { control_plane: true, ..of_pool("cp", number) });
    let parts = Parts { nodes: (1..=3).map(control_plane).collect(), ..Parts::default() };
    let only_nodes = plan(vec![hop("v1.37.1", Vec::new(), Pass::All)]);
    see(
        &only_nodes,
        &upgrade(vec![group("cp", 3)]),
        parts,
        &expect![[r#"
        1.37 control-plane nodes | 3 control-plane nodes go one at a time: 12 min
        1.37 group cp | group cp moves 3 nodes at once: 4 min
        1.37 at least 12 min, P50 13 min, P90 20 min
        at least 12 min, P50 13 min, P90 20 min"#]],
    );
}

#[test]
fn one_step_of_a_node_is_one_step() {
    let components =
        vec![Component::KubeApiserver, Component::KubeControllerManager, Component::KubeScheduler];
    let of_node =
        |place: &str| Step { components: components.clone(), ..step(Component::KubeApiserver, place) };
    let mut steps: Vec<Step> = ["cp-1", "cp-2"].map(of_node).into();
    steps.push(Step { components: vec![Component::KubeApiserver, Component::Kubelet], ..of_node("cp-3") });
    steps.push(step(Component::CloudControllerManager, "ccm"));
    let by_node = Plan { unit: Unit::Node, ..plan(vec![hop("v1.37.1", steps, Pass::All)]) };
    see(
        &by_node,
        &upgrade(Vec::new()),
        Parts::default(),
        &expect![[r#"
        1.37 control-plane nodes | 3 control-plane nodes, one at a time: 8 min
        1.37 controllers | 1 controller: 60 s
        1.37 at least 9 min, P50 9 min, P90 14 min
        at least 9 min, P50 9 min, P90 14 min"#]],
    );
}

#[test]
fn each_hop_has_its_own_bounds() {
    let mut parts = Parts::default();
    parts.nodes.extend((1..=4).map(|number| of_pool("w", number)).map(Arc::new));
    guarded(&mut parts, "cart", 8, 1, &["w-001", "w-002", "w-003", "w-004"]);
    let twice = plan(vec![
        hop("v1.37.1", vec![step(Component::KubeApiserver, "cp-1")], Pass::All),
        hop("v1.38.0", vec![step(Component::KubeApiserver, "cp-1")], Pass::All),
    ]);
    see(
        &twice,
        &upgrade(vec![group("w", 2)]),
        parts.clone(),
        &expect![[r#"
        1.37 budget shop/cart | budget shop/cart lets one of 8 pods go at a time: 11 min
        1.38 budget shop/cart | budget shop/cart lets one of 8 pods go at a time: 11 min
        1.37 group w | group w moves 2 of 4 nodes at a time: 8 min
        1.38 group w | group w moves 2 of 4 nodes at a time: 8 min
        1.37 kube-apiservers | 1 kube-apiserver: 2 min
        1.38 kube-apiservers | 1 kube-apiserver: 2 min
        1.37 at least 13 min, P50 14 min, P90 20 min
        1.38 at least 13 min, P50 14 min, P90 20 min
        at least 26 min, P50 28 min, P90 36 min"#]],
    );
    // Where a node stays, pods may wait there for the end of the second hop.
    parts.nodes.push(Arc::new(of_pool("stays", 1)));
    see(
        &twice,
        &upgrade(vec![group("w", 2)]),
        parts,
        &expect![[r#"
        1.37 budget shop/cart | budget shop/cart lets one of 8 pods go at a time: 11 min
        1.37 group w | group w moves 2 of 4 nodes at a time: 8 min
        1.38 group w | group w moves 2 of 4 nodes at a time: 8 min
        1.37 kube-apiservers | 1 kube-apiserver: 2 min
        1.38 kube-apiservers | 1 kube-apiserver: 2 min
        1.37 at least 13 min, P50 14 min, P90 20 min
        1.38 at least 10 min, P50 14 min, P90 20 min
        at least 23 min, P50 28 min, P90 36 min"#]],
    );
}

#[test]
fn budgets_that_set_no_time() {
    let mut parts = Parts::default();
    parts.nodes.extend((1..=2).map(|number| of_pool("w", number)).map(Arc::new));
    guarded(&mut parts, "never", 4, 0, &["w-001", "w-002"]);
    guarded(&mut parts, "all", 4, 4, &["w-001", "w-002"]);
    guarded(&mut parts, "unready", 4, 1, &["w-001", "w-002"]);
    // Three of its four pods may leave a healthy budget without being counted.
    let budget = parts.budgets.last_mut().unwrap();
    (budget.current_healthy, budget.desired_healthy) = (1, 1);
    parts.pods.iter_mut().rev().take(3).for_each(|pod| pod.ready = false);
    let only_nodes = plan(vec![hop("v1.37.1", Vec::new(), Pass::All)]);
    see(
        &only_nodes,
        &upgrade(vec![group("w", 2)]),
        parts,
        &expect![[r#"
        1.37 group w | group w moves 2 nodes at once: 4 min
        1.37 at least 4 min, P50 5 min, P90 9 min
        at least 4 min, P50 5 min, P90 9 min"#]],
    );
}

#[test]
fn names_from_files_do_not_act_on_a_terminal() {
    let mut parts = Parts::default();
    parts.nodes.push(Arc::new(of_pool("w", 1)));
    guarded(&mut parts, "a\u{1b}[2J", 2, 1, &["w-001"]);
    let only_nodes = plan(vec![hop("v1.37.1", Vec::new(), Pass::All)]);
    let timing = timed(&only_nodes, &upgrade(vec![group("w", 2)]), parts, &Durations::default());
    let of_budget = timing.bounds.iter().find(|bound| bound.subject.starts_with("budget")).unwrap();
    expect!["budget shop/a?[2J lets one of 2 pods go at a time: 5 min"].assert_eq(&of_budget.to_string());
}

#[test]
fn nothing_takes_no_time() {
    let timing = timed(&plan(Vec::new()), &upgrade(Vec::new()), large(), &Durations::default());
    let none = Estimate { p50: SignedDuration::ZERO, p90: SignedDuration::ZERO };
    assert_eq!(
        timing,
        PlanTiming {
            bounds: Vec::new(),
            hops: Vec::new(),
            least: SignedDuration::ZERO,
            estimate: none,
            until_done: Some(SignedDuration::ZERO)
        }
    );
}

#[test]
fn percentiles_are_samples() {
    let of = |samples: &[i64]| Took::of(&mut samples.iter().copied().map(seconds).collect::<Vec<_>>());
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[7]), Some(took(7, 7)));
    assert_eq!(of(&[9, 1]), Some(took(1, 9)));
    assert_eq!(of(&[5, 3, 1, 2, 4]), Some(took(3, 5)));
    assert_eq!(of(&[10, 9, 8, 7, 6, 5, 4, 3, 2, 1]), Some(took(5, 9)));
    assert_eq!(of(&(1..=100).collect::<Vec<_>>()), Some(took(50, 90)));
}

#[test]
fn a_sum_spreads_by_the_root_of_its_length() {
    let one = Length::of(took(240, 480));
    assert_eq!(one.estimate(), Estimate { p50: seconds(240), p90: seconds(480) });
    let hundred = (0..100).fold(Length::default(), |sum, _| sum.then(one)).estimate();
    assert_eq!(hundred.p50, seconds(24_000));
    // Ten times the spread of one, not a hundred times.
    assert!((hundred.p90.as_secs_f64() - 26_400.0).abs() < 0.01, "{hundred:?}");
    let certain = Length::certain(seconds(9)).then(Length::certain(seconds(1))).estimate();
    assert_eq!(certain, Estimate { p50: seconds(10), p90: seconds(10) });
}

#[test]
fn no_time_is_too_long_for_the_arithmetic() {
    let forever = Took { p50: SignedDuration::MAX, p90: SignedDuration::MAX };
    let strange = Durations {
        server: forever,
        controller: Took { p50: SignedDuration::MIN, p90: SignedDuration::MAX },
        node: forever,
        replacement: SignedDuration::MAX,
        after_controllers: SignedDuration::MAX,
        after_control_plane_node: SignedDuration::MAX,
    };
    let timing = timed(&whole(), &upgrade(vec![group("workers", 2), group("cp", 1)]), large(), &strange);
    assert_eq!(timing.least, SignedDuration::MAX);
    assert_eq!(timing.estimate, Estimate { p50: SignedDuration::MAX, p90: SignedDuration::MAX });
}

#[test]
fn what_the_calendar_shuts_comes_on_top() {
    let took = |frozen: Option<(i64, i64)>| {
        let mut upgrade = upgrade(vec![group("workers", 2), group("cp", 1)]);
        let freeze = |(from, until)| Freeze {
            name: "f".into(),
            zone: TimeZone::UTC,
            from: at(from),
            until: at(until),
        };
        upgrade.calendar.freezes = frozen.map(freeze).into_iter().collect();
        let timing = timed(&whole(), &upgrade, large(), &Durations::default());
        (timing.until_done.unwrap() - timing.estimate.p50).as_secs()
    };
    assert_eq!(took(None), 0);
    assert_eq!(took(Some((1_000_000, 2_000_000))), 0, "it is done by then");
    // No node fits before it.
    assert_eq!(took(Some((60, 3600))), 3600);
    // The last node before it ends on average seven minutes before: of nine that it may take, half of the four that it does.
    assert_eq!(took(Some((3600, 7200))), 3600 + 420);
}

#[test]
fn soaks_pass_by_the_clock() {
    let mut parts = Parts::default();
    parts.nodes.push(Arc::new(of_pool("first", 1)));
    parts.nodes.extend((1..=3).map(|number| of_pool("rest", number)).map(Arc::new));
    let first = NodeGroup { soak: seconds(1800), ..group("first", 1) };
    let rest =
        NodeGroup { soak: seconds(1200), canary: 1, depends_on: vec!["first".into()], ..group("rest", 3) };
    let wanted = Upgrade {
        control_plane: ControlPlane { soak: seconds(600), ..upgrade(Vec::new()).control_plane },
        ..upgrade(vec![first, rest])
    };
    let soak = |what: Soaked, done: i64| Soak { what, version: version("v1.37.1"), done: at(done) };
    let whole = |parts: &Parts, steps: Vec<Step>, soaks: &[Soak], freezes: &[(i64, i64)]| {
        let mut upgrade = wanted.clone();
        let freeze = |(from, until): &(i64, i64)| Freeze {
            name: "f".into(),
            zone: TimeZone::UTC,
            from: at(*from),
            until: at(*until),
        };
        upgrade.calendar.freezes = freezes.iter().map(freeze).collect();
        let plan = plan(vec![hop("v1.37.1", steps, Pass::All)]);
        let timing = timed_in(&plan, &upgrade, parts.clone(), &Durations::default(), soaks);
        (timing.estimate.p50.as_secs() / 60, timing.until_done.unwrap().as_secs())
    };
    // Three times a node, a soak after the first group, and one after the canary; none after the last nodes.
    assert_eq!(whole(&parts, Vec::new(), &[], &[]), (12, 720 + 1800 + 1200));
    let server = || vec![step(Component::KubeApiserver, "cp-1")];
    assert_eq!(whole(&parts, server(), &[], &[]), (14, 120 + 600 + 720 + 1800 + 1200));
    let plane = soak(Soaked::ControlPlane, -500);
    assert_eq!(whole(&parts, Vec::new(), std::slice::from_ref(&plane), &[]), (12, 100 + 720 + 1800 + 1200));
    assert_eq!(whole(&parts, server(), &[plane], &[]), (14, 600 + 120 + 720 + 1800 + 1200), "it begins anew");
    // A freeze while it soaks costs nothing, but for what of it is left then.
    assert_eq!(whole(&parts, Vec::new(), &[], &[(300, 2000)]), (12, 720 + 1800 + 1200));
    assert_eq!(whole(&parts, Vec::new(), &[], &[(300, 2140)]), (12, 720 + 1800 + 1200 + 100));
    // The first group is done, and then the canary too.
    let at_target =
        |node: &Arc<Node>| Arc::new(Node { kubelet: Observed::from_report("v1.37.1"), ..(**node).clone() });
    parts.nodes[0] = at_target(&parts.nodes[0]);
    let of_first = soak(Soaked::Group("first".into()), -1000);
    assert_eq!(whole(&parts, Vec::new(), std::slice::from_ref(&of_first), &[]), (8, 800 + 480 + 1200));
    parts.nodes[1] = at_target(&parts.nodes[1]);
    let of_canary = soak(Soaked::Canaries("rest".into()), -100);
    assert_eq!(whole(&parts, Vec::new(), &[of_first, of_canary], &[]), (4, 1100 + 240));
}
