//! Upgrades where a vendor picks versions: of a cloud-controller-manager, and of the patches of a cloud.

use super::cluster::Toy;
use crate::cluster::{Component, Instance, Reach};
use crate::fixture::{cluster, instance};
use crate::rollout::UpgradePhase;
use crate::version::KubeVersion;

/// The cloud-controller-manager of a distribution lags by a patch.
fn late_cloud(component: Component, asked: &KubeVersion) -> KubeVersion {
    match component {
        Component::CloudControllerManager => format!("v{}.0", asked.minor()).parse().unwrap(),
        _ => asked.clone(),
    }
}

/// A cloud picks the patch: another one for kubelets than for kube-apiservers.
fn of_cloud(component: Component, asked: &KubeVersion) -> KubeVersion {
    let patch = if component == Component::Kubelet { 1 } else { 3 };
    format!("v{}.{patch}", asked.minor()).parse().unwrap()
}

fn add_clouds(toy: &mut Toy, reach: Reach) {
    for name in ["cp-1", "cp-2"] {
        toy.cluster.add_instance(Instance {
            reach,
            incarnation: format!("ccm-{name}").into(),
            ..instance(Component::CloudControllerManager, name, "v1.36.4")
        });
    }
}

#[test]
fn a_cloud_controller_manager_that_lags_by_a_patch_holds_nothing_up() {
    let mut toy = Toy::kubeadm(2, 1);
    add_clouds(&mut toy, Reach::Local);
    toy.comes_as = late_cloud;
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
    assert!(toy.plane("cp-1").unwrap().subject.components.contains(&Component::CloudControllerManager));
    // Nor is it moved where everything else is there.
    let mut alone = Toy::new(1, 1);
    *alone.cluster = cluster(&["v1.37.1", "v1.37.1"], "v1.37.1", &["v1.37.1"]);
    alone.cluster.add_instance(instance(Component::CloudControllerManager, "ccm@cp-1", "v1.37.0"));
    alone.run_to_the_end(100);
    assert_eq!((alone.phase(), alone.claims.len()), (UpgradePhase::Completed, 0), "{:?}", alone.status());
}

#[test]
fn a_cloud_controller_manager_that_others_deploy_is_left_to_them() {
    let mut toy = Toy::kubeadm(2, 1);
    add_clouds(&mut toy, Reach::Any);
    toy.run_to_the_end(600);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
    let clouds = toy.cluster.instances().iter().filter(|i| i.component == Component::CloudControllerManager);
    assert!(clouds.clone().count() == 2 && clouds.clone().all(|i| i.version.to_string() == "v1.36.4"));
}

#[test]
fn any_release_of_a_minor_will_do_where_no_other_is_named() {
    let mut toy = Toy::new(3, 1);
    *toy.cluster = cluster(&["v1.35.2", "v1.35.2"], "v1.35.2", &["v1.35.1", "v1.33.0", "v1.35.1"]);
    toy.upgrade.version = "v1.37".parse().unwrap();
    toy.comes_as = of_cloud;
    toy.run_to_the_end(3000);
    let status = toy.status();
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{status:?}");
    assert_eq!(status.way.iter().map(ToString::to_string).collect::<Vec<_>>(), ["v1.36"]);
    assert!(toy.cluster.nodes().iter().all(|node| node.kubelet.to_string() == "v1.37.1"));
    // What comes later at another patch of the minor is there too.
    toy.cluster.set_node(crate::fixture::node("n-9", "v1.37.0"));
    toy.run_to_the_end(200);
    let claimed = toy.claims.iter().any(|claim| *claim.subject.node == *"n-9");
    assert_eq!((toy.phase(), claimed), (UpgradePhase::Completed, false), "{:?}", toy.status());
}
