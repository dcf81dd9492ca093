//! What cannot be, what stays, and what a person takes upon them.

use super::*;
use crate::cluster::Selector;
use crate::upgrade::NodeGroup;

#[test]
fn what_cannot_be() {
    let some = cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &["v1.36.4"]);
    plans(
        &some,
        &to("v1.35.9"),
        &expect![[r#"
            blocks D1: v1.35.9 would be a downgrade: kube-apiserver cp-1 runs v1.36.4: choose a target that is not older
            refuted: v1.35.9 would be a downgrade: kube-apiserver cp-1 runs v1.36.4: choose a target that is not older
        "#]],
    );
    plans(
        &cluster(&[], "v1.36.4", &["v1.36.4"]),
        &to("v1.37.1"),
        &expect![[r#"
            blocks V1: no kube-apiserver's version is known: evenkeel report says why it is not seen; evenkeel plan takes it with --apiserver-version
            refuted: no kube-apiserver's version is known: evenkeel report says why it is not seen; evenkeel plan takes it with --apiserver-version
        "#]],
    );
    plans(
        &cluster(&["v1.36.4", "stable"], "v1.36.4", &[]),
        &to("v1.37.1"),
        &expect![[r#"
            hop v1.37.1 (Target)
              kube-apiserver on cp-1 from v1.36.4
              kube-controller-manager on cp-1 from v1.36.4
              kube-scheduler on cp-1 from v1.36.4
              kubelets: all
            blocks V1/kube-apiserver/cp-2: the version of kube-apiserver cp-2 is not known: evenkeel report says why it is not seen; evenkeel plan takes it with --apiserver-version
            refuted: the version of kube-apiserver cp-2 is not known: evenkeel report says why it is not seen; evenkeel plan takes it with --apiserver-version
        "#]],
    );
    plans(
        &cluster(&["v1.36.4"], "latest", &[]),
        &to("v1.37.1"),
        &expect![[r#"
            hop v1.37.1 (Target)
              kube-apiserver on cp-1 from v1.36.4
              kubelets: all
            blocks V1/kube-controller-manager/cp-1: the version of kube-controller-manager cp-1 is not known: evenkeel report says why it is not seen; evenkeel plan takes it with --component
            blocks V1/kube-scheduler/cp-1: the version of kube-scheduler cp-1 is not known: evenkeel report says why it is not seen; evenkeel plan takes it with --component
            warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
            refuted: the version of kube-controller-manager cp-1 is not known: evenkeel report says why it is not seen; evenkeel plan takes it with --component
            refuted: the version of kube-scheduler cp-1 is not known: evenkeel report says why it is not seen; evenkeel plan takes it with --component
        "#]],
    );
    plans(
        &cluster(&["v1.44.1"], "v1.44.1", &[]),
        &to("v1.47.1"),
        &expect![[r#"
            blocks V2: no release of 1.46 is known, which is on the way to v1.47.1: name it in spec.via (--via), such as v1.46.1
            warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
            refuted: no release of 1.46 is known, which is on the way to v1.47.1: name it in spec.via (--via), such as v1.46.1
        "#]],
    );
    // A person names the way.
    let mut named = to("v1.47.1");
    named.via = vec!["v1.45.2".parse().unwrap(), "v1.46.0".parse().unwrap()];
    plans(
        &cluster(&["v1.44.1"], "v1.44.1", &[]),
        &named,
        &expect![[r#"
        hop v1.45.2 (Person)
          kube-apiserver on cp-1 from v1.44.1
          kube-controller-manager on cp-1 from v1.44.1
          kube-scheduler on cp-1 from v1.44.1
          kubelets: those before 1.43
        hop v1.46.0 (Person)
          kube-apiserver on cp-1 from v1.45.2
          kube-controller-manager on cp-1 from v1.45.2
          kube-scheduler on cp-1 from v1.45.2
          kubelets: those before 1.44
        hop v1.47.1 (Target)
          kube-apiserver on cp-1 from v1.46.0
          kube-controller-manager on cp-1 from v1.46.0
          kube-scheduler on cp-1 from v1.46.0
          kubelets: all
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
}

/// A mistyped target is told at once, however far it is.
#[test]
fn a_target_that_is_too_far_ahead() {
    let some = cluster(&["v1.37.1", "v1.36.4"], "v1.36.4", &["v1.36.4"]);
    for target in ["v1.53.1", "v1.60", "v1.370.1", "v1.65535", "v2.0.0"] {
        let plan = made(&some, &to(target));
        let ids: Vec<String> = plan.blockers().map(|finding| finding.id.to_string()).collect();
        assert_eq!((plan.hops.len(), ids), (0, vec!["V6".to_owned()]), "{target}");
    }
    let mut named = to("v1.52.1");
    named.via = (37..52).map(|minor| format!("v1.{minor}.1").parse().unwrap()).collect();
    assert_eq!(made(&some, &named).hops.len(), 16, "the last one that is not too far");
    plans(
        &some,
        &to("v1.60"),
        &expect![[r#"
            blocks V6: v1.60 is 24 minors ahead of the oldest kube-apiserver, and an upgrade goes over at most 16: correct the target if it is mistyped, or go to 1.52 or an older minor first
            refuted: v1.60 is 24 minors ahead of the oldest kube-apiserver, and an upgrade goes over at most 16: correct the target if it is mistyped, or go to 1.52 or an older minor first
        "#]],
    );
}

/// No minor comes after this one.
#[test]
fn the_last_minor_that_can_be_written_ends_a_plan() {
    let last = cluster(&["v1.65535.0"], "v1.65535.0", &[]);
    assert_eq!(made(&last, &to("v1.65535.1")).hops.len(), 1);
}

/// `spec.via` is nowhere else than on the way: most likely a digit is wrong.
#[test]
fn a_version_on_the_way_that_lies_beyond_it() {
    let some = cluster(&["v1.35.1"], "v1.35.1", &["v1.35.1"]);
    let blockers = |cluster: &Cluster, via: &[&str]| {
        let via = via.iter().map(|version| version.parse().unwrap()).collect();
        let plan = made(cluster, &Upgrade { via, ..to("v1.37.1") });
        plan.blockers().map(|finding| format!("{}: {finding}", finding.id)).collect::<Vec<_>>()
    };
    let line = |late: &str| {
        format!(
            "V7: spec.via names {late}, which is not on the way to v1.37.1: name versions of minors before 1.37 alone, and \
             correct it if it is mistyped"
        )
    };
    assert_eq!(blockers(&some, &["v1.36.2"]), [""; 0]);
    assert_eq!(blockers(&some, &["v1.40.0"]), [line("v1.40.0")]);
    assert_eq!(blockers(&some, &["v1.36.2", "v1.73.2"]), [line("v1.73.2")]);
    assert_eq!(blockers(&some, &["v1.37.0"]), [line("v1.37.0")]);
    // The cluster has passed it, as in an upgrade that is under way.
    assert_eq!(blockers(&some, &["v1.34.1", "v1.35.0", "v1.36.2"]), [""; 0]);
    // Where nothing is left to do, nothing is in its way.
    assert_eq!(blockers(&cluster(&["v1.37.1"], "v1.37.1", &["v1.37.1"]), &["v1.40.0"]), [""; 0]);
}

/// A drain marks its nodes, and they are as little the upgrade's to move as those that another tool cordoned.
#[test]
fn a_node_that_a_person_drains_is_one_that_a_person_cordoned() {
    let marked = |servers: &[&str], kubelet: &str, mark: Option<&str>| {
        let mut all = cluster(servers, servers[0], &["v1.36.4"]);
        all.set_node(Node {
            unschedulable: true,
            cordoned_by: mark.map(Into::into),
            ..node("away", kubelet)
        });
        all
    };
    for (servers, kubelet, target) in [
        (&["v1.36.4", "v1.36.4"], "v1.36.4", "v1.37.1"),
        (&["v1.36.4", "v1.36.4"], "v1.33.1", "v1.37.1"),
        (&["v1.35.4", "v1.36.4"], "v1.33.1", "v1.37.1"),
    ] {
        let said = |mark| told(&marked(servers, kubelet, mark), &to(target));
        let (theirs, ours) = (said(None), said(Some("up.kubelet.away/1")));
        assert!(theirs.contains("N4") && !ours.contains("N4"), "{theirs}\n{ours}");
        for mark in ["drain:2027-01-01T00:00:00Z/ann@desk", "of neither form"] {
            assert_eq!(said(Some(mark)), theirs, "{mark}");
        }
    }
    // The second judge knows as well that it stays, when a plan says that all move and needs nothing of others.
    let may = |mark| {
        let (cluster, upgrade) = (marked(&["v1.36.4", "v1.36.4"], "v1.34.1", mark), to("v1.38.1"));
        let mut plan = made(&cluster, &upgrade);
        plan.findings.clear();
        for hop in &mut plan.hops {
            (hop.needs, hop.kubelets) = (Vec::new(), Pass::All);
        }
        checked(plan, &cluster, &upgrade).is_ok()
    };
    assert!(may(Some("up.kubelet.away/1")));
    assert!(!may(None) && !may(Some("drain:2027-01-01T00:00:00Z/ann@desk")));
}

#[test]
fn nodes_that_stay() {
    let mut all = cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &["v1.36.4"]);
    all.set_node(Node { held: true, ..node("held", "v1.36.4") });
    all.set_node(Node { unschedulable: true, ..node("cordoned", "v1.36.4") });
    all.set_node(Node { ready: false, heartbeat: Some(at(-7200)), ..node("silent", "v1.36.4") });
    all.set_node(node("newer", "v1.38.0"));
    all.set_node(node("unknown", "dev"));
    let labels = std::sync::Arc::new([("karpenter.sh/nodepool".to_owned(), "spot".to_owned())].into());
    all.set_node(Node { labels, ..node("made", "v1.36.4") });
    plans(
        &all,
        &to("v1.37.1"),
        &expect![[r#"
            hop v1.37.1 (Target)
              kube-apiserver on cp-1 from v1.36.4
              kube-apiserver on cp-2 from v1.36.4
              kube-controller-manager on cp-1 from v1.36.4
              kube-scheduler on cp-1 from v1.36.4
              kubelets: all
            stops N3: nodes that a person holds are left alone (held): remove the annotation evenkeel.dev/hold when they may move
            stops N4: nodes that somebody cordoned are left alone (cordoned): uncordon them when they may move
            stops N5: nodes whose kubelet has been silent for long cannot be upgraded (silent): look at the machines, or delete their Nodes
            warns N1: nodes whose kubelet does not say a version that can be read are left alone (unknown): restart the kubelet, or delete the Node if its machine is gone
            warns N6: nodes that run a newer minor than the target are left alone, because nothing is ever taken back (newer): choose a target of their minor
            checked
        "#]],
    );
    let mut none = to("v1.37.1");
    none.groups.clear();
    plans(
        &cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &["v1.36.4"]),
        &none,
        &expect![[r#"
        hop v1.37.1 (Target)
          kube-apiserver on cp-1 from v1.36.4
          kube-apiserver on cp-2 from v1.36.4
          kube-controller-manager on cp-1 from v1.36.4
          kube-scheduler on cp-1 from v1.36.4
          kubelets: all
        warns N2: nodes that no group selects stay at their version (n-1): add a group that selects them if they are to move
        checked
    "#]],
    );
}

/// Who mistypes a selector has no canary.
#[test]
fn a_group_without_nodes_is_told() {
    let mut upgrade = to("v1.37.1");
    let group = |name: &str, selector| NodeGroup::new(name, selector, "ex");
    let typo = Selector { match_labels: [("pool".into(), "canray".into())].into(), ..Selector::default() };
    upgrade.groups = vec![group("canary", typo), group("workers", Selector::default())];
    upgrade.groups[1].depends_on = vec!["canary".into()];
    plans(
        &cluster(&["v1.36.4"], "v1.36.4", &["v1.36.4"]),
        &upgrade,
        &expect![[r#"
        hop v1.37.1 (Target)
          kube-apiserver on cp-1 from v1.36.4
          kube-controller-manager on cp-1 from v1.36.4
          kube-scheduler on cp-1 from v1.36.4
          kubelets: all
        warns N8/canary: group canary has no nodes, and group workers begins without it: correct its selector, or list it before the groups that take its nodes, if it is to have some
        warns S1: the API is away while its only kube-apiserver is replaced: expect minutes without it; running pods go on, nothing is scheduled or replaced
        checked
    "#]],
    );
}

#[test]
fn risks_that_a_person_takes() {
    let mut hooked = cluster(&["v1.36.4", "v1.36.4"], "v1.36.4", &["v1.33.0"]);
    hooked.set_node(Node { held: true, ..node("n-1", "v1.33.0") });
    hooked.set_webhooks(vec![Webhook {
        configuration: "old".into(),
        name: "a.example.com".into(),
        exact: true,
        lists_versions: true,
        fails_closed: true,
    }]);
    let mut upgrade = to("v1.37.1");
    let risk = |finding: &str, until: i64| AcceptedRisk {
        finding: finding.into(),
        until: at(until),
        reason: "tried on staging".into(),
    };
    upgrade.accepted = vec![risk("O5/old/a.example.com", 60), risk("R2", 60)];
    plans(
        &hooked,
        &upgrade,
        &expect![[r#"
            hop v1.37.1 (Target)
              needs kubelet at 1.34 or newer
              kube-apiserver on cp-1 from v1.36.4
              kube-apiserver on cp-2 from v1.36.4
              kube-controller-manager on cp-1 from v1.36.4
              kube-scheduler on cp-1 from v1.36.4
              kubelets: all
            blocks R2: nodes that this plan does not move would be too old for kube-apiservers of 1.37: they must be 1.34 or newer (n-1): let the upgrade move them, or move them yourself before that hop
            stops N3: nodes that a person holds are left alone (n-1): remove the annotation evenkeel.dev/hold when they may move
            warns A1/R2: finding R2 is accepted and cannot be: take it out of acceptedRisks; nothing may break the version skew policy
            warns O5/old/a.example.com: webhook a.example.com of old fails closed and matches only the API versions that it lists: set its matchPolicy to Equivalent
            refuted: nodes that this plan does not move would be too old for kube-apiservers of 1.37: they must be 1.34 or newer (n-1): let the upgrade move them, or move them yourself before that hop
        "#]],
    );
    // A patch brings no API versions.
    let patch = Upgrade { version: "v1.36.9".parse().unwrap(), ..upgrade.clone() };
    assert!(made(&hooked, &patch).findings.iter().all(|of| of.id.code != FindingCode::Webhook));
    // Over several hops it is told once.
    let far = Upgrade { version: "v1.38.1".parse().unwrap(), ..upgrade.clone() };
    assert_eq!(
        made(&hooked, &far).findings.iter().filter(|of| of.id.code == FindingCode::Webhook).count(),
        1
    );
    let late = made_at(&hooked, &upgrade, at(60));
    assert_eq!(late.blockers().count(), 2, "{:#?}", late.findings);
}
