//! Components of the control plane that are made anew elsewhere: what is missed then, and what is not.

use super::cluster::Toy;
use crate::cluster::{Component, Instance};
use crate::fixture::{instance, pod};
use crate::plan::Stage;
use crate::rollout::UpgradePhase;
use crate::version::{Observed, Unknown};

const NEW: &str = "v1.37.1";

/// The pod of a Deployment that runs a cloud-controller-manager with numbers of its own is on `node` now.
fn add(toy: &mut Toy, number: usize, node: &str) {
    let pod = pod("cloud", number, node);
    toy.cluster.add_instance(Instance {
        name: pod.name.clone(),
        version: Observed::Unknown(Unknown::OwnNumber("v1.8.1".into())),
        ..instance(Component::CloudControllerManager, node, NEW)
    });
    toy.cluster.set_pod(pod);
}

fn remove(toy: &mut Toy, name: &str) {
    let kept = toy.cluster.instances().iter().filter(|of| *of.name != *name).cloned().collect();
    toy.cluster.set_instances(kept);
    toy.cluster.retain_pods(|pod| *pod.name != *name);
}

#[test]
fn the_pod_of_a_deployment_that_is_made_anew_on_another_node_is_not_missed() {
    let mut toy = Toy::kubeadm(2, 3);
    add(&mut toy, 0, "cp-1");
    toy.run_until(600, |toy| toy.kubelets("Draining") == 1);
    // The new one is seen beside the old one for a while.
    add(&mut toy, 1, "cp-2");
    (0..3).for_each(|_| toy.tick());
    remove(&mut toy, "cloud-0");
    toy.tick();
    assert_eq!(toy.phase(), UpgradePhase::Working(Stage::Kubelets), "{:?}", toy.status().lines());
    // One that is nowhere is missed.
    remove(&mut toy, "cloud-1");
    toy.tick();
    let said = toy.status().lines().join("\n");
    assert!(said.contains("waits until cloud-controller-manager on cp-2 is seen again"), "{said}");
    add(&mut toy, 2, "cp-1");
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}

#[test]
fn a_server_without_a_node_that_another_one_took_the_place_of_is_not_missed() {
    let mut toy = Toy::new(3, 1);
    toy.run_until(600, |toy| toy.kubelets("Draining") == 1);
    toy.cluster.add_instance(instance(Component::KubeApiserver, "cp-3", NEW));
    (0..3).for_each(|_| toy.tick());
    remove(&mut toy, "cp-2");
    toy.run_to_the_end(900);
    assert_eq!(toy.phase(), UpgradePhase::Completed, "{:?}", toy.status());
}
