//! Every small cluster, and the best way to the target that there is: a plan exists where a way exists, and it moves
//! kubelets as rarely.

use std::collections::VecDeque;

use super::*;

/// Two kube-apiservers, a controller that may talk to both, and two kubelets, as minors above 1.30.
type Small = [u8; 5];
const TARGET: u8 = 5;

fn allowed(state: Small) -> bool {
    let [a, b, controller, kubelets @ ..] = state;
    let (oldest, newest) = (a.min(b), a.max(b));
    let older = |minor: u8, by: u8| minor <= oldest && minor + by >= newest;
    newest - oldest <= 1 && older(controller, 1) && kubelets.iter().all(|kubelet| older(*kubelet, 3))
}

fn index(state: Small) -> usize {
    state.iter().fold(0, |index, minor| index * 6 + usize::from(*minor))
}

fn state(mut index: usize) -> Small {
    let mut state = [0; 5];
    for minor in state.iter_mut().rev() {
        *minor = u8::try_from(index % 6).unwrap();
        index /= 6;
    }
    state
}

/// For each state, how many moves of kubelets lead to the target at least; `None` where no way leads there. Found
/// backwards from the target, over states that the policy allows.
fn ways() -> Vec<Option<u32>> {
    let mut least = vec![None; 6usize.pow(5)];
    let mut queue = VecDeque::from([([TARGET; 5], 0)]);
    while let Some((to, moves)) = queue.pop_front() {
        if least[index(to)].is_some_and(|known| known <= moves) {
            continue;
        }
        least[index(to)] = Some(moves);
        for at in 0..to.len() {
            for from in 0..to[at] {
                let mut before = to;
                before[at] = from;
                // A kube-apiserver never goes over a minor.
                if !allowed(before) || at < 2 && from + 1 < to[at] {
                    continue;
                }
                if at < 3 { queue.push_front((before, moves)) } else { queue.push_back((before, moves + 1)) }
            }
        }
    }
    least
}

#[test]
fn a_plan_exists_where_a_way_exists_and_moves_kubelets_as_rarely() {
    let ways = ways();
    let upgrade = to(&format!("v1.{}.5", 30 + TARGET));
    let mut found = 0;
    for (index, least) in ways.iter().enumerate() {
        let start = state(index);
        if !allowed(start) {
            continue;
        }
        let version = |minor: u8| format!("v1.{}.5", 30 + minor);
        let [a, b, controller, k, l] = start.map(version);
        let mut cluster = cluster(&[&a, &b], &controller, &[&k, &l]);
        let one = cluster.instances().iter().filter(|i| i.component != Component::KubeScheduler);
        cluster.set_instances(one.cloned().collect());
        let plan = made(&cluster, &upgrade);
        let planned = checked(plan.clone(), &cluster, &upgrade);
        assert_eq!(planned.is_ok(), least.is_some(), "{start:?}: {planned:#?}");
        let Some(least) = least else { continue };
        found += 1;
        let mut moves = 0;
        for kubelet in cluster.nodes() {
            let mut runs = kubelet.kubelet.known().unwrap().clone();
            for hop in &plan.hops {
                if hop.kubelets.moves(&runs, &hop.version) {
                    runs = hop.version.clone();
                    moves += 1;
                }
            }
        }
        assert_eq!(moves, *least, "{start:?}: {}", told(&cluster, &upgrade));
        // No hop goes to a minor where the control plane is already, but to bring something into line.
        let oldest = start[..2].iter().min().unwrap();
        let hops = usize::from(TARGET - oldest);
        let first = version(*oldest);
        let aligned = plan
            .hops
            .iter()
            .filter(|hop| hop.picked == Picked::Cluster && hop.version.to_string() == first)
            .count();
        let last = usize::from(hops == 0 && start != [TARGET; 5]);
        assert!(aligned <= 1 && plan.hops.len() == hops + aligned + last, "{}", told(&cluster, &upgrade));
    }
    assert!(found > 150, "{found}");
}
