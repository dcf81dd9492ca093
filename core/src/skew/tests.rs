use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{cluster, instance};

fn check(cluster: &Cluster, expected: &Expect) {
    use std::fmt::Write as _;
    let judged = assess(cluster);
    let mut text = format!(
        "supported {:?}, behind {:?} of {:?}, {} violations, {} unknown\n",
        judged.supported, judged.behind, judged.limit, judged.violations, judged.unknown
    );
    for finding in &judged.findings {
        writeln!(text, "{}: {} ({})", finding.id, finding.message, names(finding.count, &finding.samples))
            .unwrap();
    }
    let next = &judged.next_minor;
    writeln!(text, "next {:?} {:?}", next.minor.map(|m| m.to_string()), next.allowed).unwrap();
    for blocker in &next.blockers {
        writeln!(text, "- {blocker}").unwrap();
    }
    expected.assert_eq(&text);
}

#[test]
fn an_even_cluster() {
    check(
        &cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &["v1.36.4", "v1.34.9-eks-1"]),
        &expect![[r#"
            supported True, behind Some(2) of Some(3), 0 violations, 0 unknown
            next Some("1.37") True
        "#]],
    );
}

#[test]
fn a_kubelet_at_the_limit_blocks_the_next_minor_only() {
    check(
        &cluster(&["v1.36.4"], "v1.36.4", &["v1.36.4", "v1.33.1"]),
        &expect![[r#"
            supported True, behind Some(3) of Some(3), 0 violations, 0 unknown
            next Some("1.37") False
            - 1 kubelet v1.33.1 (n-2) would be too old: must be 1.34 or newer first
        "#]],
    );
}

#[test]
fn mixed_apiservers_narrow_what_is_allowed() {
    check(
        &cluster(&["v1.37.1", "v1.36.4"], "v1.37.1", &["v1.37.0", "v1.33.9", "v1.34.1"]),
        &expect![[r#"
            supported False, behind Some(4) of Some(3), 4 violations, 0 unknown
            R2/kubelet/default/v1.33.9: 1 kubelet v1.33.9 in pool default: too old for kube-apiserver 1.37, which allows 1.34 or newer (n-2)
            R2/kubelet/default/v1.37.0: 1 kubelet v1.37.0 in pool default: newer than the oldest kube-apiserver it can reach, 1.36 (n-1)
            R5/kube-controller-manager/control-plane/v1.37.1: 1 kube-controller-manager v1.37.1 in pool control-plane: newer than the oldest kube-apiserver it can reach, 1.36 (cp-1)
            R6/kube-scheduler/control-plane/v1.37.1: 1 kube-scheduler v1.37.1 in pool control-plane: newer than the oldest kube-apiserver it can reach, 1.36 (cp-1)
            next Some("1.38") False
            - kube-apiservers are at 1.36 and 1.37: finish that upgrade first
        "#]],
    );
}

#[test]
fn apiservers_two_minors_apart() {
    check(
        &cluster(&["v1.37.1", "v1.35.4"], "v1.35.4", &[]),
        &expect![[r#"
            supported False, behind None of None, 3 violations, 0 unknown
            R1/kube-apiserver: kube-apiservers are 2 minors apart (1.35 and 1.37); one is allowed (cp-2)
            R5/kube-controller-manager/control-plane/v1.35.4: 1 kube-controller-manager v1.35.4 in pool control-plane: too old for kube-apiserver 1.37, which allows 1.36 or newer (cp-1)
            R6/kube-scheduler/control-plane/v1.35.4: 1 kube-scheduler v1.35.4 in pool control-plane: too old for kube-apiserver 1.37, which allows 1.36 or newer (cp-1)
            next Some("1.38") False
            - kube-apiservers are at 1.35 and 1.37: finish that upgrade first
        "#]],
    );
}

#[test]
fn unknown_is_not_a_violation_and_not_a_pass() {
    check(
        &cluster(&["v1.36.4", "v0.0.0-master+$Format:%H$"], "v1.36.4", &["", "v1.36.4"]),
        &expect![[r#"
            supported Unknown, behind Some(0) of Some(3), 0 violations, 2 unknown
            next Some("1.37") Unknown
            - a kube-apiserver does not say its version
        "#]],
    );
}

#[test]
fn a_controller_one_behind_is_transitional_and_blocks_the_next_minor() {
    let cluster = cluster(&["v1.37.1"], "v1.36.4", &["v1.36.4"]);
    let standing =
        |component| assess(&cluster).rows.iter().find(|r| r.component == component).unwrap().standing;
    assert_eq!(standing(Component::KubeScheduler), Standing::Transitional);
    assert_eq!(standing(Component::Kubelet), Standing::Supported);
    assert_eq!(blockers_of_minor(&cluster, Minor::new(1, 38)).len(), 2);
}

#[test]
fn minors_must_not_be_skipped() {
    let cluster = cluster(&["v1.35.4"], "v1.35.4", &["v1.35.4"]);
    let lines = blockers_of_minor(&cluster, Minor::new(1, 37));
    assert!(lines[0].contains("more than one minor away"), "{lines:?}");
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn any_cluster() -> impl Strategy<Value = Cluster> {
        let versions = || prop::collection::vec((20u16..40).prop_map(|m| format!("v1.{m}.1")), 1..4);
        (versions(), 20u16..40, versions()).prop_map(|(servers, controllers, kubelets)| {
            cluster(
                &servers.iter().map(String::as_str).collect::<Vec<_>>(),
                &format!("v1.{controllers}.1"),
                &kubelets.iter().map(String::as_str).collect::<Vec<_>>(),
            )
        })
    }

    proptest! {
        #[test]
        fn adding_a_component_never_removes_a_violation(cluster in any_cluster(), minor in 20u16..40) {
            let before = assess(&cluster).violations;
            for component in Component::ALL {
                let mut more = cluster.clone();
                if component == Component::Kubelet {
                    more.nodes.push(crate::fixture::node("n-9", &format!("v1.{minor}.1")));
                } else {
                    more.instances.push(instance(component, "cp-9", &format!("v1.{minor}.1")));
                }
                let after = assess(&more.sorted()).violations;
                // A further apiserver may move the oldest minor, which the spread counts by.
                prop_assert!(after >= before || component == Component::KubeApiserver && after > 0);
            }
        }

        #[test]
        fn the_order_of_what_is_seen_changes_nothing(cluster in any_cluster()) {
            let mut other = cluster.clone();
            other.nodes.reverse();
            other.instances.reverse();
            prop_assert_eq!(assess(&cluster), assess(&other.sorted()));
        }
    }
}
