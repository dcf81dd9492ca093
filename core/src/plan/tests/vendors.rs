//! What vendors do to versions: controllers with a pace of their own, patches that a cloud picks, builds of a distribution.

use super::*;

fn with_cloud(mut cluster: Cluster, version: &str) -> Cluster {
    cluster.add_instance(instance(Component::CloudControllerManager, "aws-ccm-1@cp-1", version));
    cluster
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
