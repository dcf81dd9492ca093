//! What vendors do to versions: controllers with a pace of their own, patches that a cloud picks, builds of a
//! distribution.

use super::*;

/// What a plan says of the minors on the way, and what stands in the way, each by its id.
fn in_short(cluster: &Cluster, upgrade: &Upgrade) -> (Vec<String>, Vec<String>) {
    let plan = made(cluster, upgrade);
    let hops = plan.hops.iter().map(|hop| hop.version.to_string()).collect();
    let told = |finding: &PlanFinding| format!("{} {}", finding.weight.name(), finding.id);
    let findings = plan.findings.iter().map(told).collect();
    (hops, findings)
}

fn with_cloud(mut cluster: Cluster, version: &str) -> Cluster {
    cluster.add_instance(instance(Component::CloudControllerManager, "aws-ccm-1@cp-1", version));
    cluster
}

/// Kube-apiservers that are on no Node, as a cloud runs them, and nothing else of the control plane.
fn managed(server: &str, kubelets: &[&str]) -> Cluster {
    let mut cluster = cluster(&[server], server, kubelets);
    cluster.change_instances(|instance| instance.node = None);
    let servers = cluster.of(Component::KubeApiserver).cloned().collect::<Vec<_>>();
    cluster.set_instances(servers);
    cluster
}

fn with_job(mut upgrade: Upgrade) -> Upgrade {
    let job = Executor::Job { template: "{}".into(), deadline: jiff::SignedDuration::from_mins(10) };
    upgrade.executors.insert("job".into(), job);
    for group in &mut upgrade.groups {
        group.executor = "job".into();
    }
    upgrade
}

#[test]
fn the_minor_of_a_cloud_controller_manager_says_all() {
    let there = || with_cloud(cluster(&["v1.36.4"], "v1.36.4", &["v1.36.4"]), "v1.36.0");
    plans(
        &there(),
        &to("v1.36.4"),
        &expect![[r#"
        checked
    "#]],
    );
    plans(
        &there(),
        &to("v1.37.1"),
        &expect![[r#"
        hop v1.37.1 (Target)
          kube-apiserver on cp-1 from v1.36.4
          kube-controller-manager on cp-1 from v1.36.4
          kube-scheduler on cp-1 from v1.36.4
          cloud-controller-manager on cp-1 from v1.36.0
          kubelets: all
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
}

#[test]
fn what_moves_a_node_moves_no_cloud_controller_manager() {
    let there = || with_cloud(stacked(&["v1.36.4", "v1.36.4"], &["v1.36.4"]), "v1.36.0");
    plans(
        &there(),
        &by_node("v1.36.4"),
        &expect![[r#"
        checked
    "#]],
    );
    plans(
        &there(),
        &by_node("v1.37.1"),
        &expect![[r#"
            hop v1.37.1 (Target)
              kube-apiserver, kube-controller-manager, kube-scheduler on cp-1 from v1.36.4
              kube-apiserver, kube-controller-manager, kube-scheduler on cp-2 from v1.36.4
              kubelets: all
            warns C5: cloud-controller-managers are left alone: what moves the control plane of a node does not move them (aws-ccm-1@cp-1): move them to a release for 1.37 once every kube-apiserver runs 1.37
            warns S2: until the last of these nodes is done, the controllers of the first ones are newer than the kube-apiservers of the others, which the policy allows: each talks to that of its own node (cp-1, cp-2): expect it for minutes: the report calls them Transitional, and nothing is violated
            checked
        "#]],
    );
    let mut far = by_node("v1.38.1");
    far.via = vec!["v1.37.2".parse().unwrap()];
    plans(
        &there(),
        &far,
        &expect![[r#"
            hop v1.37.2 (Person)
              kube-apiserver, kube-controller-manager, kube-scheduler on cp-1 from v1.36.4
              kube-apiserver, kube-controller-manager, kube-scheduler on cp-2 from v1.36.4
              kubelets: those before 1.35
            hop v1.38.1 (Target)
              needs cloud-controller-manager at 1.37 or newer
              kube-apiserver, kube-controller-manager, kube-scheduler on cp-1 from v1.37.2
              kube-apiserver, kube-controller-manager, kube-scheduler on cp-2 from v1.37.2
              kubelets: all
            stops R7: cloud-controller-managers would be too old for kube-apiservers of 1.38: they must be 1.37 or newer (aws-ccm-1@cp-1): move them before that hop, as their makers say
            warns C5: cloud-controller-managers are left alone: what moves the control plane of a node does not move them (aws-ccm-1@cp-1): move them to a release for 1.38 once every kube-apiserver runs 1.38
            warns S2: until the last of these nodes is done, the controllers of the first ones are newer than the kube-apiservers of the others, which the policy allows: each talks to that of its own node (cp-1, cp-2): expect it for minutes: the report calls them Transitional, and nothing is violated
            checked
        "#]],
    );
}

#[test]
fn a_target_may_be_any_release_of_its_minor() {
    let one = managed("v1.34.4-eks-1", &["v1.34.0-eks-1", "v1.34.2-eks-1"]);
    plans(
        &one,
        &to("v1.34"),
        &expect![[r#"
        checked
    "#]],
    );
    let mut older = managed("v1.34.4-eks-1", &["v1.34.0-eks-1", "v1.33.9-eks-1"]);
    plans(
        &older,
        &to("v1.34"),
        &expect![[r#"
        hop v1.34 (Target)
          kubelets: all
        checked
    "#]],
    );
    plans(
        &older,
        &to("v1.35"),
        &expect![[r#"
        hop v1.35 (Target)
          kube-apiserver on cp-1 from v1.34.4-eks-1
          kubelets: all
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
    plans(
        &older,
        &to("v1.33"),
        &expect![[r#"
        blocks D1: v1.33 would be a downgrade: kube-apiserver cp-1 runs v1.34.4-eks-1: choose a target that is not older
        refuted: v1.33 would be a downgrade: kube-apiserver cp-1 runs v1.34.4-eks-1: choose a target that is not older
    "#]],
    );
    plans(
        &older,
        &to("v1.34.0"),
        &expect![[r#"
        blocks D1: v1.34.0 would be a downgrade: kube-apiserver cp-1 runs v1.34.4-eks-1: choose a target that is not older, or v1.34, which any release of it reaches
        refuted: v1.34.0 would be a downgrade: kube-apiserver cp-1 runs v1.34.4-eks-1: choose a target that is not older, or v1.34, which any release of it reaches
    "#]],
    );
    older.set_node(node("n-2", "v1.34.3-eks-1"));
    plans(
        &older,
        &to("v1.34.4"),
        &expect![[r#"
        hop v1.34.4 (Target)
          kubelets: all
        warns V5/all: the newest kubelet of group all runs v1.34.3-eks-1: where images of nodes have no v1.34.4, nodes that are replaced never reach it, fail, and stay cordoned: choose v1.34 as the target, which any release of it reaches, if you need no more
        checked
    "#]],
    );
}

#[test]
fn a_job_installs_a_whole_version() {
    let older = managed("v1.34.4-eks-1", &["v1.33.9-eks-1"]);
    let (hops, findings) = in_short(&older, &with_job(to("v1.34")));
    assert_eq!((hops, findings), (vec!["v1.34".to_owned()], vec!["blocks E4/job".to_owned()]));
    let (_, findings) = in_short(&older, &with_job(to("v1.34.4")));
    assert_eq!(findings, [""; 0]);
    // Who moves nothing needs no version.
    let (_, findings) = in_short(&managed("v1.34.4-eks-1", &["v1.34.0"]), &with_job(to("v1.34")));
    assert_eq!(findings, [""; 0]);
}

#[test]
fn a_cloud_picks_the_releases_on_the_way() {
    let cloud = managed("v1.35.4-eks-1", &["v1.35.4-eks-1"]);
    plans(
        &cloud,
        &to("v1.37.1"),
        &expect![[r#"
        hop v1.36 (Anyone)
          kube-apiserver on cp-1 from v1.35.4-eks-1
          kubelets: those before 1.34
        hop v1.37.1 (Target)
          kube-apiserver on cp-1 from v1.36
          kubelets: all
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
    assert_eq!(in_short(&cloud, &to("v1.37")).0, ["v1.36", "v1.37"]);
    let mut named = to("v1.37.1");
    named.via = vec!["v1.36.4".parse().unwrap()];
    assert_eq!(in_short(&cloud, &named).0, ["v1.36.4", "v1.37.1"]);
    // Its own hosts are Nodes, and are only not matched with it.
    let mut seen = managed("v1.35.4", &["v1.35.4"]);
    seen.set_node(Node { control_plane: true, ..node("cp-1", "v1.35.4") });
    assert_eq!(in_short(&seen, &to("v1.37.1")).0, ["v1.36.9", "v1.37.1"]);
}

#[test]
fn a_hop_to_no_build_of_the_distribution_is_blocked() {
    let rke2 = || stacked(&["v1.35.4+rke2r1"], &["v1.35.4+rke2r1"]);
    let upgrade = || Upgrade { via: Vec::new(), ..to("v1.37.1+rke2r1") };
    let blockers = |cluster: &Cluster, upgrade: &Upgrade| {
        made(cluster, upgrade)
            .blockers()
            .map(|finding| format!("{}: {finding}", finding.id))
            .collect::<Vec<_>>()
            .join("\n")
    };
    expect!["V2: kube-apiservers run v1.35.4+rke2r1, and v1.36.9, the newest release of 1.36 that is known, names no build of it: name it in spec.via (--via), such as v1.36.9+rke2r1"].assert_eq(&blockers(&rke2(), &upgrade()));
    let mut named = upgrade();
    named.via = vec!["v1.36.4+rke2r1".parse().unwrap()];
    assert_eq!(blockers(&rke2(), &named), "");
    named.via = vec!["v1.36".parse().unwrap()];
    assert_eq!(blockers(&rke2(), &named), "");
    // An earlier look recorded it, and no person named it.
    let recorded = ["v1.36.9".parse().unwrap()];
    let (cluster, upgrade) = (rke2(), upgrade());
    let plan = make(&PlanInput {
        cluster: &cluster,
        upgrade: &upgrade,
        members: &upgrade.members(&cluster),
        recorded: &recorded,
        policy: Policy::default(),
        catalogue: releases(),
        hidden: &[],
        absent_executors: &[],
        now: at(0),
    });
    assert_eq!(plan.blockers().map(|finding| finding.id.to_string()).collect::<Vec<_>>(), ["V2"]);
    let other = stacked(&["v1.35.4+29c95f3"], &["v1.35.4+29c95f3"]);
    expect!["V2: kube-apiservers run v1.35.4+29c95f3, and v1.36.9, the newest release of 1.36 that is known, names no build of it: name it in spec.via (--via)"].assert_eq(&blockers(&other, &to("v1.37.1")));
    assert_eq!(blockers(&stacked(&["v1.35.4-rc.1"], &["v1.35.4"]), &to("v1.37.1")), "");
}

#[test]
fn a_kube_proxy_of_rke2_moves_with_its_node() {
    let cluster = rke2("v1.36.4+rke2r1", "v1.33.8+rke2r1", "v1.33.8+rke2r1");
    let upgrade = by_node("v1.37.1+rke2r1");
    plans(
        &cluster,
        &upgrade,
        &expect![[r#"
        hop v1.36.4+rke2r1 (Cluster)
          kubelets: those before 1.34
        hop v1.37.1+rke2r1 (Target)
          kube-apiserver, kube-controller-manager, kube-scheduler, kubelet on cp-1 from v1.36.4+rke2r1
          kubelets: all
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
    let mut far = rke2("v1.33.8+rke2r1", "v1.33.8+rke2r1", "v1.33.8+rke2r1");
    let way = ["v1.34.4+rke2r1", "v1.35.4+rke2r1", "v1.36.4+rke2r1"];
    let named = Upgrade { via: way.map(|version| version.parse().unwrap()).into(), ..upgrade };
    plans(
        &far,
        &named,
        &expect![[r#"
        hop v1.34.4+rke2r1 (Person)
          kube-apiserver, kube-controller-manager, kube-scheduler, kubelet on cp-1 from v1.33.8+rke2r1
          kubelets: those before 1.32
        hop v1.35.4+rke2r1 (Person)
          kube-apiserver, kube-controller-manager, kube-scheduler, kubelet on cp-1 from v1.34.4+rke2r1
          kubelets: those before 1.33
        hop v1.36.4+rke2r1 (Person)
          kube-apiserver, kube-controller-manager, kube-scheduler, kubelet on cp-1 from v1.35.4+rke2r1
          kubelets: those before 1.34
        hop v1.37.1+rke2r1 (Target)
          kube-apiserver, kube-controller-manager, kube-scheduler, kubelet on cp-1 from v1.36.4+rke2r1
          kubelets: all
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
    // Whoever moves a node that takes no part moves both.
    far.set_node(Node { held: true, ..node("n-1", "v1.33.8+rke2r1") });
    let told = told(&far, &named);
    let needs: Vec<&str> = told.lines().filter(|line| line.starts_with("  needs")).collect();
    assert_eq!((needs, told.lines().last()), (vec!["  needs kubelet at 1.34 or newer"], Some("checked")));
}

#[test]
fn a_kube_proxy_of_rke2_that_no_node_takes_along_is_needed() {
    // The static pod did not follow its kubelet, which has nothing to do for long.
    let lags = rke2("v1.35.4+rke2r1", "v1.35.4+rke2r1", "v1.33.8+rke2r1");
    let way = vec!["v1.36.4+rke2r1".parse().unwrap()];
    plans(
        &lags,
        &Upgrade { via: way, ..by_node("v1.37.1+rke2r1") },
        &expect![[r#"
        hop v1.36.4+rke2r1 (Person)
          kube-apiserver, kube-controller-manager, kube-scheduler, kubelet on cp-1 from v1.35.4+rke2r1
          kubelets: those before 1.34
        hop v1.37.1+rke2r1 (Target)
          needs kube-proxy at 1.34 or newer
          kube-apiserver, kube-controller-manager, kube-scheduler, kubelet on cp-1 from v1.36.4+rke2r1
          kubelets: all
        stops R3: kube-proxies would be too old for kube-apiservers of 1.37: they must be 1.34 or newer (kube-proxy-n-1@n-1): move the DaemonSet kube-proxy before that hop; kubeadm does with the control plane
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
    // Its Node does not tell a version, so that nobody knows when it moves.
    let mut unknown = rke2("v1.36.4+rke2r1", "v1.36.4+rke2r1", "v1.33.8+rke2r1");
    unknown.set_node(node("n-1", "latest"));
    let needed = in_short(&unknown, &by_node("v1.37.1+rke2r1")).1;
    assert!(needed.contains(&"blocks R3".to_owned()), "{needed:?}");
}
