//! What is said of pods and nodes where there may be a budget that was not seen.

use super::*;

/// A budget that was not seen may keep the pods of its own namespace, and one of no known namespace those of any.
#[test]
fn a_budget_that_was_not_seen_may_keep_a_pod() {
    let parts = Parts {
        nodes: vec![node("n-1", "v1.36.4").into(), node("n-2", "v1.36.4").into()],
        pods: vec![pod("cart", 1, "n-1")],
        ..Parts::default()
    };
    let cluster = parts.seal();
    let rules = Rules::default();
    let question =
        Question { cluster: &cluster, nodes: vec![], at_once: 1, rules: &rules, timeout: None, now: at(0) };
    let lines = |anywhere: Option<&str>, unread: &[(&str, &str)]| {
        let unseen = explain::UnseenBudgets {
            anywhere: anywhere.map(str::to_owned),
            unread: unread.iter().map(|(namespace, name)| ((*namespace).into(), (*name).into())).collect(),
        };
        let of_pod = explain::pod(&question, cluster.pods_on("n-1").next().unwrap(), &unseen);
        let nodes = cluster.nodes().iter().map(|node| explain::node(&question, node, &unseen).line);
        [vec![of_pod.line, of_pod.details.join(" ")], nodes.collect()].concat().join("\n")
    };
    expect_test::expect![[r#"
        may leave now, unless a PodDisruptionBudget that was not seen keeps it: PDB shop/ledger cannot be read (and 1 more)
        no PDB that was seen selects it
        nothing that was seen is in the way of draining it, and 1 pod would leave; a PodDisruptionBudget that was not seen may be in the way: PDB shop/ledger cannot be read (and 1 more)
        has no pod that would have to leave"#]].assert_eq(&lines(None, &[("shop", "ledger"), ("", "x"), ("other", "y")]));
    expect_test::expect![[r#"
        may leave now, unless a PodDisruptionBudget that was not seen keeps it: no budget is in the files
        no PDB that was seen selects it
        nothing that was seen is in the way of draining it, and 1 pod would leave; a PodDisruptionBudget that was not seen may be in the way: no budget is in the files
        has no pod that would have to leave"#]].assert_eq(&lines(Some("no budget is in the files"), &[]));
    assert_eq!(lines(None, &[("other", "y")]), lines(None, &[]));
}
