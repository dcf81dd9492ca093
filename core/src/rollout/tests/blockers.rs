//! What the claim of a node that drains says keeps it, and when that is written.

use jiff::SignedDuration;

use super::cluster::Toy;
use crate::cluster::Attachment;

/// A node that drains, whose claim names a pod that a budget kept. That one may leave now, and takes its time; or it is
/// gone, and a volume stays `attached` to the node.
fn kept(attached: bool) -> Toy {
    let mut toy = Toy::new(1, 1);
    toy.upgrade.drain.timeout = SignedDuration::from_mins(20);
    toy.upgrade.drain.await_volumes = attached;
    let volume = Attachment { node: "n-1".into(), volume: "pv-1".into() };
    toy.cluster.surroundings_mut().attached = Some([volume].into());
    toy.absent = 1;
    toy.deploy("kept", 1, 1);
    toy.run_until(400, |toy| toy.claims.iter().any(|claim| !claim.blockers.is_empty()));
    toy.lingers = 600;
    toy.deploy("kept", 1, 0);
    if attached {
        toy.cluster.retain_pods(|pod| &*pod.name != "kept-0");
    }
    toy
}

fn records(toy: &Toy) -> usize {
    toy.log.iter().filter(|line| *line == "Record up.kubelet.n-1 Draining").count()
}

#[test]
fn a_claim_does_not_go_on_naming_what_keeps_its_node_no_more() {
    for (attached, said) in [(false, "1 pod is leaving"), (true, "volume pv-1")] {
        let mut toy = kept(attached);
        let before = records(&toy);
        (0..60).for_each(|_| toy.tick());
        let claim = toy.claims.iter().find(|claim| claim.is_of_kubelet()).unwrap();
        assert_eq!((claim.state.name(), claim.blockers.len()), ("Draining", 0), "{claim:?}");
        assert!(claim.message.contains(said), "{}", claim.message);
        assert_eq!(records(&toy), before + 1, "once: {:?}", toy.log);
    }
}
