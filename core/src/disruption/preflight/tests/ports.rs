//! Pods that take ports of their node.

use super::*;
use crate::cluster::Placement;

type Takes = (u16, &'static str, Option<&'static str>);

/// What is told of the ports of a pod on `n-1`, where `n-2` and `n-3` have others.
fn told(wanted: &[Takes], taken: [&[Takes]; 2], change: impl FnOnce(&mut Parts)) -> String {
    let take = |pod: &mut Pod, ports: &[Takes]| {
        let one = |of: &Takes| HostPort { address: of.2.map(Into::into), ..port(of.0, of.1) };
        let host_ports = ports.iter().map(one).collect();
        pod.special = Some(Arc::new(Traits { host_ports, ..Traits::default() }));
    };
    let causes = seen(|c| {
        for (pod, ports) in c.pods.iter_mut().zip([wanted, taken[0], taken[1]]) {
            take(pod, ports);
        }
        change(c);
    });
    let lines = causes.iter().map(|cause| format!("{}: {}", cause.code, cause.what));
    lines.collect::<Vec<_>>().join("; ")
}

#[test]
fn a_port_is_taken_where_the_scheduler_has_it_so() {
    const HTTP: Takes = (80, "TCP", None);
    const HTTPS: Takes = (443, "TCP", None);
    let everywhere = "B8: needs port 80 of its node, which is taken on every other";
    for (wanted, taken, expected) in [
        (&[HTTP][..], [&[HTTP][..], &[HTTP]], everywhere),
        (&[HTTP], [&[HTTP], &[]], ""),
        (&[HTTP], [&[HTTP], &[(80, "UDP", None)]], ""),
        (&[(80, "TCP", Some("192.0.2.1"))], [&[HTTP], &[(80, "TCP", Some("192.0.2.2"))]], ""),
        (&[(80, "TCP", Some("192.0.2.1"))], [&[HTTP], &[(80, "TCP", Some("192.0.2.1"))]], everywhere),
        (&[HTTPS, HTTP], [&[HTTP], &[HTTP]], everywhere),
        (
            &[HTTPS, HTTP],
            [&[HTTP], &[HTTPS]],
            "B8: needs ports 443, 80 of its node, and one of them is taken on every other",
        ),
        (&[], [&[HTTP], &[HTTP]], ""),
    ] {
        assert_eq!(told(wanted, taken, |_| {}), expected, "{wanted:?} {taken:?}");
    }
    let finished = |c: &mut Parts| c.pods[1..].iter_mut().for_each(|pod| pod.phase = Phase::Finished);
    assert_eq!(told(&[HTTP], [&[HTTP], &[HTTP]], finished), "", "a port of a pod that has finished is free");
    let only_two = |c: &mut Parts| {
        Arc::make_mut(&mut c.nodes[2]).labels = Arc::new([("pool".to_owned(), "a".to_owned())].into());
        let placement =
            Placement { labels: [("pool".to_owned(), "a".to_owned())].into(), ..Placement::default() };
        c.surroundings.placements = Some([(c.pods[0].uid.clone(), Arc::new(placement))].into());
    };
    assert_eq!(
        told(&[HTTP], [&[], &[HTTP]], only_two),
        "B8: needs port 80 of its node, which is taken on every other that it may go to"
    );
    let alone = |c: &mut Parts| c.nodes.truncate(1);
    assert!(!told(&[HTTP], [&[], &[]], alone).contains("B8"), "there is no other node to ask about");
}
