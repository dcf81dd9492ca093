//! Which steps a plan has, and in which order.

use super::*;

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
            warns S2: until the last of these nodes is done, the controllers of the first ones are newer than the kube-apiservers of the others, which the policy allows: each talks to that of its own node (cp-1, cp-2, cp-3): expect it for minutes: the report calls them Transitional, and nothing is violated
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
            warns S2: until the last of these nodes is done, the controllers of the first ones are newer than the kube-apiservers of the others, which the policy allows: each talks to that of its own node (cp-1, cp-2): expect it for minutes: the report calls them Transitional, and nothing is violated
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
            warns S2: until the last of these nodes is done, the controllers of the first ones are newer than the kube-apiservers of the others, which the policy allows: each talks to that of its own node (cp-1, cp-2): expect it for minutes: the report calls them Transitional, and nothing is violated
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
    for (mark, blocks) in [("drain:2027-01-01T00:00:00Z/ann@desk", true), ("up.kubelet.cp-1/1", false)] {
        k3s.set_node(Node { unschedulable: true, cordoned_by: Some(mark.into()), ..plane.clone() });
        assert_eq!(!blocked(&k3s, &upgrade).is_empty(), blocks, "{mark}");
    }
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
fn a_job_is_not_sent_to_a_host_that_is_no_node() {
    let job = Executor::Job { template: "{}".into(), deadline: jiff::SignedDuration::from_mins(10) };
    let mut upgrade = to("v1.37.1");
    let name = upgrade.control_plane.executor.clone();
    upgrade.executors.insert(name, job);
    let findings = |cluster: &Cluster| {
        told(cluster, &upgrade)
            .lines()
            .filter(|line| line.starts_with("blocks"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let mut control_plane = stacked(&["v1.36.4", "v1.36.4"], &["v1.36.4"]);
    assert_eq!(findings(&control_plane), "");
    control_plane.change_instances(|instance| instance.node = None);
    expect!["blocks E3/external: executor external makes Jobs, each of which runs on the Node that it upgrades, and no Node is visible for these hosts of the control plane (cp-1, cp-2): name executors of the kind external for the control plane, and move these hosts yourself"].assert_eq(&findings(&control_plane));
}
