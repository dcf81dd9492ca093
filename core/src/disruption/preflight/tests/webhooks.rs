//! Webhooks that are asked about new pods and run on nodes that are drained.

use super::*;

#[test]
fn a_webhook_keeps_an_endpoint_if_it_is_on_more_nodes_than_go_together() {
    let told = |endpoints: &[&str], at_once| {
        let webhook = PodWebhook {
            name: "w".into(),
            evictions: false,
            creation: true,
            service: None,
            endpoints: Some(endpoints.iter().map(|node| (*node).into()).collect()),
        };
        let mut parts = Parts {
            nodes: (1..=3).map(|number| node(&format!("n-{number}"), "v1.36.4").into()).collect(),
            ..Parts::default()
        };
        parts.surroundings.pod_webhooks = Some(vec![webhook]);
        let cluster = parts.seal();
        let nodes = cluster.nodes().iter().map(AsRef::as_ref).take(2).collect();
        let rules = Rules::default();
        let question =
            Question { cluster: &cluster, nodes, at_once, rules: &rules, timeout: None, now: at(0) };
        causes(&question).iter().map(|cause| cause.what.clone()).collect::<Vec<_>>().join("; ")
    };
    let only = |nodes: &str| {
        format!(
            "is asked about every pod that is created, fails closed, and has ready endpoints on {nodes} only, which would \
             be drained: its own replacement could not be created"
        )
    };
    assert_eq!(told(&["n-1", "n-2"], 1), "");
    assert_eq!(told(&["n-1", "n-2"], 2), only("2 nodes"));
    assert_eq!(told(&["n-1", "n-1"], 1), only("1 node"), "an endpoint of each IP family");
    assert_eq!(told(&["n-3"], 1), "", "that node stays");
    assert_eq!(
        told(&[], 1),
        "is asked about every pod that is created, fails closed, and has no ready endpoint: no pod can be created"
    );
}
