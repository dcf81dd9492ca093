//! Pods that fit on no other node, alone or together.

use super::*;

fn amounts(cpu: i64, gi: i64, pods: i64) -> Amounts {
    let of = [("cpu", cpu), ("memory", (gi << 30) * 1000), ("pods", pods * 1000)];
    of.into_iter().map(|(resource, amount)| (resource.into(), amount)).collect()
}

/// Nodes of 4 CPUs and 8 GiB in two zones, and a pod on each that requests `cpu` thousandths and `gi` GiB.
fn crowded(cpu: i64, gi: i64, change: impl FnOnce(&mut Parts, &mut Capacity)) -> Vec<String> {
    let causes = seen(|c| {
        let mut capacity = Capacity::default();
        for (number, node) in c.nodes.iter_mut().enumerate() {
            capacity.offers.insert(node.name.clone(), amounts(4000, 8, 110));
            let zone = if number < 2 { "a" } else { "b" };
            let labels = [("topology.kubernetes.io/zone".to_owned(), zone.to_owned())].into();
            Arc::make_mut(node).labels = Arc::new(labels);
        }
        for pod in &c.pods {
            capacity.requests.insert(pod.uid.clone(), amounts(cpu, gi, 0));
        }
        change(c, &mut capacity);
        c.surroundings.capacity = Some(capacity);
    });
    causes.iter().map(|cause| format!("{} {}: {}", cause.code, cause.object, cause.what)).collect()
}

#[test]
fn what_does_not_fit_elsewhere_is_told_with_the_amounts() {
    let claims = |c: &mut Parts, capacity: &mut Capacity, zones: &[&str]| {
        c.pods[0].special = Some(Arc::new(Traits { claims: vec!["data".into()], ..Traits::default() }));
        capacity.zones.insert(("shop".into(), "data".into()), in_zones(zones));
    };
    let none: [&str; 0] = [];
    assert_eq!(crowded(2000, 4, |_, _| {}), none, "two fit on a node");
    assert_eq!(
        crowded(2001, 4, |_, _| {}),
        [
            "B9 ReplicaSet shop/cart: requests 2001m of cpu, and no other schedulable node has more than 1999m left"
        ]
    );
    assert_eq!(
        crowded(1000, 5, |_, _| {}),
        [
            "B9 ReplicaSet shop/cart: requests 5Gi of memory, and no other schedulable node has more than 3Gi left"
        ]
    );
    let one_of_each = |c: &mut Parts, capacity: &mut Capacity| {
        capacity.offers.insert("n-2".into(), amounts(4000, 3, 110));
        capacity.offers.insert("n-3".into(), amounts(3000, 8, 110));
        c.pods.truncate(1);
    };
    assert_eq!(
        crowded(4000, 4, one_of_each),
        [
            "B9 ReplicaSet shop/cart: requests what no other schedulable node has left at once, though each resource is there"
        ]
    );
    let full = |c: &mut Parts, capacity: &mut Capacity| {
        c.pods.truncate(1);
        capacity.offers.values_mut().for_each(|offered| offered.set("pods".into(), 0));
    };
    assert_eq!(
        crowded(0, 0, full),
        ["B9 ReplicaSet shop/cart: requests 1 of pods, and no other schedulable node has more than 0 left"]
    );
    let device = |c: &mut Parts, capacity: &mut Capacity| {
        let gpu = || "nvidia.com/gpu".into();
        capacity.requests.get_mut(&c.pods[0].uid).unwrap().set(gpu(), 1000);
        capacity.offers.get_mut("n-1").unwrap().set(gpu(), 8000);
    };
    assert_eq!(
        crowded(100, 1, device),
        [
            "B9 ReplicaSet shop/cart: requests 1 of nvidia.com/gpu, and no other schedulable node has more than 0 left"
        ]
    );
    assert_eq!(
        crowded(2000, 4, |c, capacity| claims(c, capacity, &["a", "b"])),
        none,
        "two zones are no tie"
    );
    assert_eq!(crowded(2000, 4, |c, capacity| claims(c, capacity, &["a"])), none, "n-2 is of that zone");
    let by_driver = |c: &mut Parts, capacity: &mut Capacity| {
        for node in &mut c.nodes {
            let usual = ("topology.kubernetes.io/zone".to_owned(), "a".to_owned());
            let own = ("disk.example.com/zone".to_owned(), format!("zone-of-{}", node.name));
            Arc::make_mut(node).labels = Arc::new([usual, own].into());
        }
        claims(c, capacity, &["zone-of-n-2"]);
        capacity.zones.values_mut().for_each(|tie| tie.label = "disk.example.com/zone".into());
    };
    assert_eq!(crowded(2000, 4, by_driver), none, "n-2 is of that zone by the driver's own label");
    let unready = |c: &mut Parts, capacity: &mut Capacity| {
        Arc::make_mut(&mut c.nodes[1]).ready = false;
        claims(c, capacity, &["a"]);
    };
    assert_eq!(
        crowded(2000, 4, unready),
        [
            "B9 ReplicaSet shop/cart: requests 2 of cpu, and no other schedulable node of zone a has more than 0 left"
        ]
    );
}

#[test]
fn pods_that_fit_one_by_one_and_not_together_are_told_with_the_sums() {
    // Five small ones leave; one would fit anywhere.
    let five = |zones: usize| {
        move |c: &mut Parts, capacity: &mut Capacity| {
            for number in 11..=15 {
                let claims = if number < 11 + zones { vec!["data".into()] } else { Vec::new() };
                let special = Some(Arc::new(Traits { claims, ..Traits::default() }));
                let pod = Pod { special, ..pod("cart", number, "n-1") };
                capacity.requests.insert(pod.uid.clone(), amounts(700, 0, 0));
                c.pods.push(pod);
            }
            capacity.zones.insert(("shop".into(), "data".into()), in_zones(&["a"]));
        }
    };
    let none: [&str; 0] = [];
    assert_eq!(
        crowded(1700, 1, five(0)),
        [
            "B9 Node n-1: its 6 movable pods request 5200m of cpu, and 4600m is left on 2 other schedulable nodes"
        ]
    );
    assert_eq!(crowded(1000, 1, five(0)), none);
    assert_eq!(
        crowded(1000, 1, five(5)),
        [
            "B9 Node n-1: its 5 movable pods with volumes of zone a request 3500m of cpu, and 3 is left on 1 other schedulable node of zone a"
        ]
    );
}
