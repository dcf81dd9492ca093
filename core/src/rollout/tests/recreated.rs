//! Nodes that are deleted and made anew under the same name: each is another node.

use super::cluster::Toy;
use super::first_draining;
use crate::cluster::Node;
use crate::fixture::node;

#[test]
fn a_node_re_created_under_its_name_is_another_node() {
    let mut toy = Toy::new(2, 1);
    toy.deploy("slow", 2, 1);
    toy.lingers = 1000;
    let name = first_draining(&mut toy);
    let fresh = node(&name, "v1.36.4");
    toy.cluster.set_node(Node { uid: "another".into(), ..fresh });
    toy.tick();
    let of_old =
        |toy: &Toy| toy.claims.iter().any(|c| c.subject.node == name && *c.subject.node_uid != *"another");
    assert!(!of_old(&toy), "the claim on the old node is void");
}

#[test]
fn what_was_done_to_a_node_says_nothing_of_the_next_one_of_its_name() {
    let mut toy = Toy::new(2, 1);
    toy.run_until(600, |toy| toy.kubelets("Upgraded") == 1);
    let done = toy.claims.iter().find(|claim| claim.is_of_kubelet()).unwrap().subject.node.clone();
    let fresh = node(&done, "v1.36.4");
    toy.cluster.set_node(Node { uid: "another".into(), ..fresh });
    assert!(toy.status().parked.is_empty(), "it did not go back: {:?}", toy.status().parked);
}
