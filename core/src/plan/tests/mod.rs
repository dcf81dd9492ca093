//! Plans of small clusters, said in lines, and ten ways in which a plan can be wrong.

mod brute;
mod search;
mod waves;

use expect_test::{Expect, expect};
use jiff::Timestamp;

use super::*;
use crate::cluster::{Evidence, Instance, Node, Reach, Webhook};
use crate::fixture::{at, cluster, instance, node, releases};
use crate::skew::policy::Policy;
use crate::upgrade::{AcceptedRisk, Upgrade};

fn made(cluster: &Cluster, upgrade: &Upgrade) -> Plan {
    made_at(cluster, upgrade, at(0))
}

fn made_at(cluster: &Cluster, upgrade: &Upgrade, now: Timestamp) -> Plan {
    make(&Wish {
        cluster,
        upgrade,
        members: &upgrade.members(cluster),
        recorded: &[],
        policy: Policy::default(),
        catalogue: releases(),
        hidden: &[],
        now,
    })
}

fn checked(plan: Plan, cluster: &Cluster, upgrade: &Upgrade) -> Result<Checked<Plan>, Vec<Refutation>> {
    check(plan, cluster, &upgrade.members(cluster), &Policy::default())
}

fn to(version: &str) -> Upgrade {
    Upgrade::to(version.parse().unwrap())
}

fn by_node(version: &str) -> Upgrade {
    let mut upgrade = to(version);
    upgrade.control_plane.unit = Unit::Node;
    upgrade
}

/// The plan in lines, and what the second judge says.
fn told(cluster: &Cluster, upgrade: &Upgrade) -> String {
    let plan = made(cluster, upgrade);
    let mut lines = Vec::new();
    for hop in &plan.hops {
        lines.push(format!("hop {} ({:?})", hop.version, hop.picked));
        lines.extend(hop.needs.iter().map(|need| format!("  needs {need}")));
        for step in &hop.steps {
            let names: Vec<&str> = step.components.iter().map(|component| component.name()).collect();
            lines.push(format!("  {} on {} from {}", names.join(", "), step.place, step.from));
        }
        lines.push(match hop.kubelets {
            Pass::All => "  kubelets: all".to_owned(),
            Pass::Before(minor) => format!("  kubelets: those before {minor}"),
        });
    }
    lines.extend(
        plan.findings.iter().map(|finding| format!("{} {}: {finding}", finding.weight.name(), finding.id)),
    );
    match checked(plan, cluster, upgrade) {
        Ok(_) => lines.push("checked".to_owned()),
        Err(why) => lines.extend(why.iter().map(|why| format!("refuted: {why}"))),
    }
    lines.join("\n") + "\n"
}

#[track_caller]
fn plans(cluster: &Cluster, upgrade: &Upgrade, expected: &Expect) {
    expected.assert_eq(&told(cluster, upgrade));
}

/// A control plane of `servers`, with controllers beside each of them that talk to that one alone.
fn stacked(servers: &[&str], kubelets: &[&str]) -> Cluster {
    let mut all = cluster(&[], "v1.0.0", kubelets);
    let mut instances: Vec<Instance> = Vec::new();
    for (number, version) in servers.iter().enumerate() {
        for component in
            [Component::KubeApiserver, Component::KubeControllerManager, Component::KubeScheduler]
        {
            let name = format!("cp-{}", number + 1);
            instances.push(Instance { reach: Reach::Local, ..instance(component, &name, version) });
        }
    }
    all.set_instances(instances);
    all
}

#[test]
fn one_minor() {
    let cluster = cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &["v1.36.4", "v1.35.2"]);
    plans(
        &cluster,
        &to("v1.37.1"),
        &expect![[r#"
        hop v1.37.1 (Target)
          kube-apiserver on cp-1 from v1.36.4
          kube-apiserver on cp-2 from v1.36.4
          kube-controller-manager on cp-1 from v1.36.4
          kube-scheduler on cp-1 from v1.36.4
          kubelets: all
        checked
    "#]],
    );
}

#[test]
fn kubelets_skip_minors_where_the_policy_lets_them() {
    plans(
        &cluster(&["v1.35.1"], "v1.35.1", &["v1.35.1"]),
        &to("v1.37.1"),
        &expect![[r#"
        hop v1.36.9 (Catalogue)
          kube-apiserver on cp-1 from v1.35.1
          kube-controller-manager on cp-1 from v1.35.1
          kube-scheduler on cp-1 from v1.35.1
          kubelets: those before 1.34
        hop v1.37.1 (Target)
          kube-apiserver on cp-1 from v1.36.9
          kube-controller-manager on cp-1 from v1.36.9
          kube-scheduler on cp-1 from v1.36.9
          kubelets: all
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
    plans(
        &cluster(&["v1.35.1"], "v1.35.1", &["v1.33.0", "v1.35.1"]),
        &to("v1.39.1"),
        &expect![[r#"
        hop v1.36.9 (Catalogue)
          kube-apiserver on cp-1 from v1.35.1
          kube-controller-manager on cp-1 from v1.35.1
          kube-scheduler on cp-1 from v1.35.1
          kubelets: those before 1.34
        hop v1.37.9 (Catalogue)
          kube-apiserver on cp-1 from v1.36.9
          kube-controller-manager on cp-1 from v1.36.9
          kube-scheduler on cp-1 from v1.36.9
          kubelets: those before 1.35
        hop v1.38.9 (Catalogue)
          kube-apiserver on cp-1 from v1.37.9
          kube-controller-manager on cp-1 from v1.37.9
          kube-scheduler on cp-1 from v1.37.9
          kubelets: those before 1.36
        hop v1.39.1 (Target)
          kube-apiserver on cp-1 from v1.38.9
          kube-controller-manager on cp-1 from v1.38.9
          kube-scheduler on cp-1 from v1.38.9
          kubelets: all
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
}

#[test]
fn a_patch() {
    plans(
        &cluster(&["v1.37.1"], "v1.37.0", &["v1.37.1", "v1.36.0"]),
        &to("v1.37.1"),
        &expect![[r#"
        hop v1.37.1 (Target)
          kube-controller-manager on cp-1 from v1.37.0
          kube-scheduler on cp-1 from v1.37.0
          kubelets: all
        checked
    "#]],
    );
    plans(
        &cluster(&["v1.37.1"], "v1.37.1", &["v1.37.1"]),
        &to("v1.37.1"),
        &expect![[r#"
        checked
    "#]],
    );
}

#[test]
fn what_is_out_of_line_comes_first() {
    // In the middle of an upgrade.
    plans(
        &cluster(&["v1.37.1", "v1.36.4"], "v1.36.4", &["v1.36.4"]),
        &to("v1.37.1"),
        &expect![[r#"
        hop v1.37.1 (Target)
          kube-apiserver on cp-2 from v1.36.4
          kube-controller-manager on cp-1 from v1.36.4
          kube-scheduler on cp-1 from v1.36.4
          kubelets: all
        checked
    "#]],
    );
    // Controllers that stayed behind.
    plans(
        &cluster(&["v1.36.4"], "v1.35.9", &["v1.36.4"]),
        &to("v1.37.1"),
        &expect![[r#"
        hop v1.36.4 (Cluster)
          kube-controller-manager on cp-1 from v1.35.9
          kube-scheduler on cp-1 from v1.35.9
          kubelets: those before 1.34
        hop v1.37.1 (Target)
          kube-apiserver on cp-1 from v1.36.4
          kube-controller-manager on cp-1 from v1.36.4
          kube-scheduler on cp-1 from v1.36.4
          kubelets: all
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
    // Kubelets that are too old already.
    plans(
        &cluster(&["v1.36.4"], "v1.36.4", &["v1.31.0"]),
        &to("v1.37.1"),
        &expect![[r#"
        hop v1.36.4 (Cluster)
          kubelets: those before 1.34
        hop v1.37.1 (Target)
          kube-apiserver on cp-1 from v1.36.4
          kube-controller-manager on cp-1 from v1.36.4
          kube-scheduler on cp-1 from v1.36.4
          kubelets: all
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
    // kube-apiservers too far apart.
    plans(
        &cluster(&["v1.35.1", "v1.37.0"], "v1.35.1", &["v1.35.1"]),
        &to("v1.37.1"),
        &expect![[r#"
        hop v1.36.9 (Catalogue)
          kube-apiserver on cp-1 from v1.35.1
          kube-controller-manager on cp-1 from v1.35.1
          kube-scheduler on cp-1 from v1.35.1
          kubelets: those before 1.34
        hop v1.37.1 (Target)
          kube-apiserver on cp-1 from v1.36.9
          kube-apiserver on cp-2 from v1.37.0
          kube-controller-manager on cp-1 from v1.36.9
          kube-scheduler on cp-1 from v1.36.9
          kubelets: all
        checked
    "#]],
    );
}

#[test]
fn a_node_moves_as_a_whole_where_its_controllers_talk_to_their_own_server() {
    let mut own = stacked(&["v1.36.4", "v1.36.4", "v1.36.4"], &["v1.36.4"]);
    plans(
        &own,
        &by_node("v1.37.1"),
        &expect![[r#"
        hop v1.37.1 (Target)
          kube-apiserver, kube-controller-manager, kube-scheduler on cp-1 from v1.36.4
          kube-apiserver, kube-controller-manager, kube-scheduler on cp-2 from v1.36.4
          kube-apiserver, kube-controller-manager, kube-scheduler on cp-3 from v1.36.4
          kubelets: all
        checked
    "#]],
    );
    own.change_instances(|instance| instance.reach = Reach::Any);
    plans(
        &own,
        &by_node("v1.37.1"),
        &expect![[r#"
            hop v1.37.1 (Target)
              kube-apiserver, kube-controller-manager, kube-scheduler on cp-1 from v1.36.4
              kube-apiserver, kube-controller-manager, kube-scheduler on cp-2 from v1.36.4
              kube-apiserver, kube-controller-manager, kube-scheduler on cp-3 from v1.36.4
              kubelets: all
            blocks C3: controllers of these nodes may talk to any kube-apiserver, and would be newer than the oldest while the nodes go one by one (cp-1, cp-2, cp-3): point their kubeconfig at the kube-apiserver of their own node, as kubeadm does, or set controlPlane.unit to Component
            refuted: controllers of these nodes may talk to any kube-apiserver, and would be newer than the oldest while the nodes go one by one (cp-1, cp-2, cp-3): point their kubeconfig at the kube-apiserver of their own node, as kubeadm does, or set controlPlane.unit to Component
        "#]],
    );
    // Without a Node that is visible.
    let mut hidden = stacked(&["v1.36.4"], &["v1.36.4"]);
    hidden.change_instances(|instance| instance.node = None);
    plans(
        &hidden,
        &by_node("v1.37.1"),
        &expect![[r#"
            hop v1.37.1 (Target)
              kube-apiserver on cp-1 from v1.36.4
              kube-controller-manager on cp-1 from v1.36.4
              kube-scheduler on cp-1 from v1.36.4
              kubelets: all
            blocks C2: no Node is visible for these kube-apiservers, so that they cannot move with their node (cp-1): set controlPlane.unit to Component
            warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
            refuted: no Node is visible for these kube-apiservers, so that they cannot move with their node (cp-1): set controlPlane.unit to Component
        "#]],
    );
    // In the middle: the first node is done but for its scheduler.
    let mut half = stacked(&["v1.37.1", "v1.36.4"], &["v1.36.4"]);
    half.change_instances(|instance| {
        if instance.component == Component::KubeScheduler {
            instance.version = crate::version::Observed::from_report("v1.36.4");
        }
    });
    plans(
        &half,
        &by_node("v1.37.1"),
        &expect![[r#"
            hop v1.37.1 (Target)
              kube-scheduler on cp-1 from v1.36.4
              kube-apiserver, kube-controller-manager, kube-scheduler on cp-2 from v1.36.4
              kubelets: all
            checked
        "#]],
    );
}

#[test]
fn the_kubelet_of_one_process_moves_with_it() {
    let mut k3s = stacked(&["v1.36.4+k3s1", "v1.36.4+k3s1"], &["v1.36.4+k3s1"]);
    k3s.change_instances(|instance| {
        if instance.component != Component::KubeApiserver {
            instance.evidence = Evidence::SameProcess;
        }
    });
    for name in ["cp-1", "cp-2"] {
        k3s.set_node(Node { control_plane: true, ..node(name, "v1.36.4+k3s1") });
    }
    plans(
        &k3s,
        &by_node("v1.37.1+k3s1"),
        &expect![[r#"
            hop v1.37.1+k3s1 (Target)
              kube-apiserver, kube-controller-manager, kube-scheduler, kubelet on cp-1 from v1.36.4+k3s1
              kube-apiserver, kube-controller-manager, kube-scheduler, kubelet on cp-2 from v1.36.4+k3s1
              kubelets: all
            checked
        "#]],
    );
    plans(
        &k3s,
        &to("v1.37.1+k3s1"),
        &expect![[r#"
            hop v1.37.1+k3s1 (Target)
              kube-apiserver on cp-1 from v1.36.4+k3s1
              kube-apiserver on cp-2 from v1.36.4+k3s1
              kube-controller-manager on cp-1 from v1.36.4+k3s1
              kube-controller-manager on cp-2 from v1.36.4+k3s1
              kube-scheduler on cp-1 from v1.36.4+k3s1
              kube-scheduler on cp-2 from v1.36.4+k3s1
              kubelets: all
            warns C1: one service of the host runs kube-apiserver, controllers and kubelet of these nodes, and moves them together (cp-1, cp-2): set controlPlane.unit to Node, so that they are one step (evenkeel plan --unit node shows it)
            checked
        "#]],
    );
}

#[test]
fn a_kubelet_of_one_process_that_takes_no_part_keeps_its_control_plane_waiting() {
    let mut k3s = stacked(&["v1.36.4+k3s1"], &["v1.36.4+k3s1"]);
    k3s.change_instances(|instance| {
        if instance.component != Component::KubeApiserver {
            instance.evidence = Evidence::SameProcess;
        }
    });
    let plane = Node { control_plane: true, ..node("cp-1", "v1.36.4+k3s1") };
    k3s.set_node(Node { unschedulable: true, ..plane.clone() });
    let blocked = |cluster: &Cluster, upgrade: &Upgrade| {
        let plan = made(cluster, upgrade);
        plan.blockers().map(|finding| format!("{} {:?}", finding.id, finding.samples)).collect::<Vec<_>>()
    };
    let upgrade = by_node("v1.36.5+k3s1");
    assert_eq!(blocked(&k3s, &upgrade), [r#"C4 ["cp-1"]"#], "a person cordoned it");
    k3s.set_node(plane);
    assert!(blocked(&k3s, &upgrade).is_empty());
    let unselected = Upgrade { groups: Vec::new(), ..upgrade };
    assert_eq!(blocked(&k3s, &unselected), [r#"C4 ["cp-1"]"#], "no group selects it");
}

#[test]
fn what_others_move_is_needed_and_named() {
    let mut far = cluster(&["v1.35.1"], "v1.35.1", &["v1.35.1"]);
    far.add_instance(instance(Component::KubeProxy, "kube-proxy-1@n-1", "v1.35.1"));
    far.set_node(Node { held: true, ..node("n-2", "v1.34.1") });
    plans(
        &far,
        &to("v1.39.1"),
        &expect![[r#"
        hop v1.36.9 (Catalogue)
          kube-apiserver on cp-1 from v1.35.1
          kube-controller-manager on cp-1 from v1.35.1
          kube-scheduler on cp-1 from v1.35.1
          kubelets: those before 1.34
        hop v1.37.9 (Catalogue)
          kube-apiserver on cp-1 from v1.36.9
          kube-controller-manager on cp-1 from v1.36.9
          kube-scheduler on cp-1 from v1.36.9
          kubelets: those before 1.35
        hop v1.38.9 (Catalogue)
          needs kubelet at 1.35 or newer
          kube-apiserver on cp-1 from v1.37.9
          kube-controller-manager on cp-1 from v1.37.9
          kube-scheduler on cp-1 from v1.37.9
          kubelets: those before 1.36
        hop v1.39.1 (Target)
          needs kubelet at 1.36 or newer
          needs kube-proxy at 1.36 or newer
          kube-apiserver on cp-1 from v1.38.9
          kube-controller-manager on cp-1 from v1.38.9
          kube-scheduler on cp-1 from v1.38.9
          kubelets: all
        stops N3: nodes that a person holds are left alone (n-2): remove the annotation evenkeel.dev/hold when they may move
        stops R2: nodes that this plan does not move would be too old for kube-apiservers of 1.38: they must be 1.35 or newer (n-2): let the upgrade move them, or move them yourself before that hop
        stops R2: nodes that this plan does not move would be too old for kube-apiservers of 1.39: they must be 1.36 or newer (n-2): let the upgrade move them, or move them yourself before that hop
        stops R3: kube-proxies would be too old for kube-apiservers of 1.39: they must be 1.36 or newer (kube-proxy-1@n-1): move the DaemonSet kube-proxy before that hop; kubeadm does with the control plane
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
    // At once: the first hop needs it.
    let mut near = cluster(&["v1.36.4"], "v1.36.4", &["v1.36.4"]);
    near.set_node(Node { held: true, ..node("n-2", "v1.33.1") });
    plans(
        &near,
        &to("v1.37.1"),
        &expect![[r#"
            hop v1.37.1 (Target)
              needs kubelet at 1.34 or newer
              kube-apiserver on cp-1 from v1.36.4
              kube-controller-manager on cp-1 from v1.36.4
              kube-scheduler on cp-1 from v1.36.4
              kubelets: all
            blocks R2: nodes that this plan does not move would be too old for kube-apiservers of 1.37: they must be 1.34 or newer (n-2): let the upgrade move them, or move them yourself before that hop
            stops N3: nodes that a person holds are left alone (n-2): remove the annotation evenkeel.dev/hold when they may move
            warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
            refuted: nodes that this plan does not move would be too old for kube-apiservers of 1.37: they must be 1.34 or newer (n-2): let the upgrade move them, or move them yourself before that hop
        "#]],
    );
}

#[test]
fn what_cannot_be() {
    let some = cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &["v1.36.4"]);
    plans(
        &some,
        &to("v1.35.9"),
        &expect![[r#"
            blocks D1: v1.35.9 would be a downgrade: kube-apiserver cp-1 runs v1.36.4: choose a target that is not older
            refuted: v1.35.9 would be a downgrade: kube-apiserver cp-1 runs v1.36.4: choose a target that is not older
        "#]],
    );
    plans(
        &cluster(&[], "v1.36.4", &["v1.36.4"]),
        &to("v1.37.1"),
        &expect![[r#"
            blocks V1: no kube-apiserver's version is known: let Evenkeel reach the kube-apiservers; evenkeel report says why it does not
            refuted: no kube-apiserver's version is known: let Evenkeel reach the kube-apiservers; evenkeel report says why it does not
        "#]],
    );
    plans(
        &cluster(&["v1.36.4", "stable"], "v1.36.4", &[]),
        &to("v1.37.1"),
        &expect![[r#"
            hop v1.37.1 (Target)
              kube-apiserver on cp-1 from v1.36.4
              kube-controller-manager on cp-1 from v1.36.4
              kube-scheduler on cp-1 from v1.36.4
              kubelets: all
            blocks V1/kube-apiserver/cp-2: the version of kube-apiserver cp-2 is not known: evenkeel report says why it is not seen; on the command line it can be said
            refuted: the version of kube-apiserver cp-2 is not known: evenkeel report says why it is not seen; on the command line it can be said
        "#]],
    );
    plans(
        &cluster(&["v1.36.4"], "latest", &[]),
        &to("v1.37.1"),
        &expect![[r#"
            hop v1.37.1 (Target)
              kube-apiserver on cp-1 from v1.36.4
              kubelets: all
            blocks V1/kube-controller-manager/cp-1: the version of kube-controller-manager cp-1 is not known: evenkeel report says why it is not seen; on the command line it can be said
            blocks V1/kube-scheduler/cp-1: the version of kube-scheduler cp-1 is not known: evenkeel report says why it is not seen; on the command line it can be said
            warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
            refuted: the version of kube-controller-manager cp-1 is not known: evenkeel report says why it is not seen; on the command line it can be said
            refuted: the version of kube-scheduler cp-1 is not known: evenkeel report says why it is not seen; on the command line it can be said
        "#]],
    );
    plans(
        &cluster(&["v1.44.1"], "v1.44.1", &[]),
        &to("v1.47.1"),
        &expect![[r#"
            blocks V2: no release of 1.46 is known, which is on the way to v1.47.1: name it in spec.via (--via), such as v1.46.1
            warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
            refuted: no release of 1.46 is known, which is on the way to v1.47.1: name it in spec.via (--via), such as v1.46.1
        "#]],
    );
    // A person names the way.
    let mut named = to("v1.47.1");
    named.via = vec!["v1.45.2".parse().unwrap(), "v1.46.0".parse().unwrap()];
    plans(
        &cluster(&["v1.44.1"], "v1.44.1", &[]),
        &named,
        &expect![[r#"
        hop v1.45.2 (Person)
          kube-apiserver on cp-1 from v1.44.1
          kube-controller-manager on cp-1 from v1.44.1
          kube-scheduler on cp-1 from v1.44.1
          kubelets: those before 1.43
        hop v1.46.0 (Person)
          kube-apiserver on cp-1 from v1.45.2
          kube-controller-manager on cp-1 from v1.45.2
          kube-scheduler on cp-1 from v1.45.2
          kubelets: those before 1.44
        hop v1.47.1 (Target)
          kube-apiserver on cp-1 from v1.46.0
          kube-controller-manager on cp-1 from v1.46.0
          kube-scheduler on cp-1 from v1.46.0
          kubelets: all
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
}

#[test]
fn nodes_that_stay() {
    let mut all = cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &["v1.36.4"]);
    all.set_node(Node { held: true, ..node("held", "v1.36.4") });
    all.set_node(Node { unschedulable: true, ..node("cordoned", "v1.36.4") });
    all.set_node(Node { ready: false, heartbeat: Some(at(-7200)), ..node("silent", "v1.36.4") });
    all.set_node(node("newer", "v1.38.0"));
    all.set_node(node("unknown", "dev"));
    let labels = std::sync::Arc::new([("karpenter.sh/nodepool".to_owned(), "spot".to_owned())].into());
    all.set_node(Node { labels, ..node("made", "v1.36.4") });
    plans(
        &all,
        &to("v1.37.1"),
        &expect![[r#"
            hop v1.37.1 (Target)
              kube-apiserver on cp-1 from v1.36.4
              kube-apiserver on cp-2 from v1.36.4
              kube-controller-manager on cp-1 from v1.36.4
              kube-scheduler on cp-1 from v1.36.4
              kubelets: all
            stops N3: nodes that a person holds are left alone (held): remove the annotation evenkeel.dev/hold when they may move
            stops N4: nodes that somebody cordoned are left alone (cordoned): uncordon them when they may move
            stops N5: nodes whose kubelet has been silent for long cannot be upgraded (silent): look at the machines, or delete their Nodes
            warns N1: nodes whose kubelet does not say a version that can be read are left alone (unknown): restart the kubelet, or delete the Node if its machine is gone
            warns N6: nodes that run a newer minor than the target are left alone, because nothing is ever taken back (newer): choose a target of their minor
            checked
        "#]],
    );
    let mut none = to("v1.37.1");
    none.groups.clear();
    plans(
        &cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &["v1.36.4"]),
        &none,
        &expect![[r#"
        hop v1.37.1 (Target)
          kube-apiserver on cp-1 from v1.36.4
          kube-apiserver on cp-2 from v1.36.4
          kube-controller-manager on cp-1 from v1.36.4
          kube-scheduler on cp-1 from v1.36.4
          kubelets: all
        warns N2: nodes that no group selects stay at their version (n-1): add a group that selects them if they are to move
        checked
    "#]],
    );
}

#[test]
fn risks_that_a_person_takes() {
    let mut hooked = cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &["v1.33.0"]);
    hooked.set_node(Node { held: true, ..node("n-1", "v1.33.0") });
    hooked.set_webhooks(vec![Webhook {
        configuration: "old".into(),
        name: "a.example.com".into(),
        exact: true,
        lists_versions: true,
        fails_closed: true,
    }]);
    let mut upgrade = to("v1.37.1");
    let risk = |finding: &str, until: i64| AcceptedRisk {
        finding: finding.into(),
        until: at(until),
        reason: "tried on staging".into(),
    };
    upgrade.accepted = vec![risk("O5/old/a.example.com", 60), risk("R2", 60)];
    plans(
        &hooked,
        &upgrade,
        &expect![[r#"
            hop v1.37.1 (Target)
              needs kubelet at 1.34 or newer
              kube-apiserver on cp-1 from v1.36.4
              kube-apiserver on cp-2 from v1.36.4
              kube-controller-manager on cp-1 from v1.36.4
              kube-scheduler on cp-1 from v1.36.4
              kubelets: all
            blocks R2: nodes that this plan does not move would be too old for kube-apiservers of 1.37: they must be 1.34 or newer (n-1): let the upgrade move them, or move them yourself before that hop
            stops N3: nodes that a person holds are left alone (n-1): remove the annotation evenkeel.dev/hold when they may move
            warns A1/R2: finding R2 is accepted and cannot be: take it out of acceptedRisks; nothing may break the version skew policy
            warns O5/old/a.example.com: webhook a.example.com of old fails closed and matches only the API versions that it lists: set its matchPolicy to Equivalent
            refuted: nodes that this plan does not move would be too old for kube-apiservers of 1.37: they must be 1.34 or newer (n-1): let the upgrade move them, or move them yourself before that hop
        "#]],
    );
    // A patch brings no API versions.
    let patch = Upgrade { version: "v1.36.9".parse().unwrap(), ..upgrade.clone() };
    assert!(made(&hooked, &patch).findings.iter().all(|of| !of.id.starts_with("O5")));
    // Over several hops it is told once.
    let far = Upgrade { version: "v1.38.1".parse().unwrap(), ..upgrade.clone() };
    assert_eq!(made(&hooked, &far).findings.iter().filter(|of| of.id.starts_with("O5")).count(), 1);
    let late = made_at(&hooked, &upgrade, at(60));
    assert_eq!(late.blockers().count(), 2, "{:#?}", late.findings);
}

/// Ten ways in which `make` could be wrong, each with a cluster that shows it: the second judge finds every one.
#[test]
fn every_wrong_plan_is_found() {
    type Wrong = (&'static str, Cluster, Upgrade, fn(&mut Plan));
    let far = || cluster(&["v1.35.1", "v1.35.1"], "v1.35.1", &["v1.34.1", "v1.35.1"]);
    let old_proxy = || {
        let mut far = far();
        far.add_instance(instance(Component::KubeProxy, "kube-proxy-1@n-1", "v1.35.1"));
        far
    };
    let wrong: Vec<Wrong> = vec![
        ("a hop is left out", far(), to("v1.37.1"), |plan| drop(plan.hops.remove(0))),
        ("hops are swapped", far(), to("v1.37.1"), |plan| plan.hops.swap(0, 1)),
        ("controllers before servers", far(), to("v1.37.1"), |plan| plan.hops[0].steps.reverse()),
        ("a server is forgotten", far(), to("v1.37.1"), |plan| drop(plan.hops[1].steps.remove(1))),
        ("a controller is forgotten", far(), to("v1.37.1"), |plan| drop(plan.hops[0].steps.pop())),
        ("kubelets are left too long", far(), to("v1.39.1"), |plan| {
            for hop in &mut plan.hops[..3] {
                hop.kubelets = Pass::Before(crate::version::Minor::new(1, 0));
            }
        }),
        (
            "only those that are there now are moved",
            cluster(&["v1.35.1"], "v1.35.1", &["v1.35.1"]),
            to("v1.38.1"),
            |plan| {
                plan.hops[1].kubelets = Pass::Before(crate::version::Minor::new(1, 34));
            },
        ),
        ("the last kubelets are forgotten", far(), to("v1.37.1"), |plan| {
            plan.hops[1].kubelets = Pass::Before(crate::version::Minor::new(1, 35));
        }),
        ("a need is forgotten", old_proxy(), to("v1.39.1"), |plan| plan.hops[3].needs.clear()),
        ("nodes move as a whole behind a load balancer", far(), to("v1.36.1"), |plan| {
            let steps = &mut plan.hops[0].steps;
            let controllers: Vec<Step> = steps.drain(2..).collect();
            steps[0].components.extend(controllers.iter().flat_map(|step| step.components.clone()));
        }),
        ("a finding that blocks is passed over", cluster(&["v1.36.4"], "latest", &[]), to("v1.37.1"), |_| {}),
        ("a version goes back", far(), to("v1.37.1"), |plan| {
            plan.hops[1].version = "v1.34.0".parse().unwrap();
        }),
        (
            "kubelets that join late go beyond the servers",
            cluster(&["v1.36.4"], "v1.36.4", &[]),
            to("v1.37.1"),
            |plan| {
                let version = "v1.38.0".parse().unwrap();
                plan.hops.push(Hop { version, steps: Vec::new(), ..plan.hops[0].clone() });
            },
        ),
        ("what is not there is moved", far(), to("v1.36.1"), |plan| {
            plan.hops[0].steps[0].place = "cp-9".into();
        }),
        ("kubelets go before the controllers", far(), to("v1.37.1"), |plan| {
            let steps = plan.hops[0].steps.split_off(2);
            plan.hops[0].kubelets = Pass::All;
            plan.hops[1].steps.splice(0..0, steps);
        }),
    ];
    for (what, cluster, upgrade, spoil) in wrong {
        let mut plan = made(&cluster, &upgrade);
        if plan.blockers().next().is_none() {
            assert!(checked(plan.clone(), &cluster, &upgrade).is_ok(), "{what}: the plan itself is good");
        }
        spoil(&mut plan);
        assert!(checked(plan, &cluster, &upgrade).is_err(), "nobody finds that {what}");
    }
}
