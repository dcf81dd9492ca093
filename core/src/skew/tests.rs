//! The judgement by tables of versions, and what it says in words.

mod one_service;
mod properties;

use expect_test::{Expect, expect};

use super::policy::{Judgement, Policy, RuleSubject, Running, Servers};
use super::*;
use crate::cluster::{Cluster, Component, Reach};
use crate::fixture::{cluster, instance};
use crate::version::{Effective, Minor, Observed};

fn check(cluster: &Cluster, expected: &Expect) {
    use std::fmt::Write as _;
    let judged = assess(cluster, &Policy::default());
    let mut text = format!(
        "supported {:?}, behind {:?} of {:?}, {} violations, {} unknown\n",
        judged.supported, judged.behind, judged.limit, judged.violations, judged.unknown
    );
    for finding in &judged.findings {
        writeln!(
            text,
            "{:?} {}: {} ({})",
            finding.severity,
            finding.id,
            finding.message,
            sample_names(finding.count, &finding.samples)
        )
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
            AtLimit R2/kubelet/default/v1.33.1: 1 kubelet v1.33.1 in pool default: as old as kube-apiserver 1.36 allows, so that it cannot go further (n-2)
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
            Unsupported R2/kubelet/default/v1.33.9: 1 kubelet v1.33.9 in pool default: too old for kube-apiserver 1.37, which allows 1.34 or newer (n-2)
            AtLimit R2/kubelet/default/v1.34.1: 1 kubelet v1.34.1 in pool default: as old as kube-apiserver 1.37 allows, so that it cannot go further (n-3)
            Unsupported R2/kubelet/default/v1.37.0: 1 kubelet v1.37.0 in pool default: newer than the oldest kube-apiserver it can reach, 1.36 (n-1)
            Unsupported R5/kube-controller-manager/control-plane/v1.37.1: 1 kube-controller-manager v1.37.1 in pool control-plane: newer than the oldest kube-apiserver it can reach, 1.36 (cp-1)
            Unsupported R6/kube-scheduler/control-plane/v1.37.1: 1 kube-scheduler v1.37.1 in pool control-plane: newer than the oldest kube-apiserver it can reach, 1.36 (cp-1)
            next Some("1.38") False
            - kube-apiservers are at 1.36 and 1.37: finish that upgrade first
        "#]],
    );
}

#[test]
fn one_finding_of_two_kube_apiservers_counts_all_and_asks_for_what_suits_both() {
    let mut cluster = cluster(&["v1.36.4", "v1.37.1"], "v1.36.4", &[]);
    let mut instances: Vec<_> = cluster.of(Component::KubeApiserver).cloned().collect();
    for node in ["cp-1", "cp-2"] {
        let old = instance(Component::KubeControllerManager, node, "v1.34.1");
        instances.push(crate::cluster::Instance { reach: Reach::Local, ..old });
    }
    cluster.set_instances(instances);
    check(
        &cluster,
        &expect![[r#"
            supported False, behind None of None, 2 violations, 0 unknown
            Unsupported R5/kube-controller-manager/control-plane/v1.34.1: 2 kube-controller-manager v1.34.1 in pool control-plane: too old for kube-apiserver 1.37, which allows 1.36 or newer (cp-1, cp-2)
            next Some("1.38") False
            - kube-apiservers are at 1.36 and 1.37: finish that upgrade first
        "#]],
    );
}

#[test]
fn versions_span_from_what_is_least_far_to_what_is_farthest() {
    for (kubelets, expected) in [
        (&["v1.37.0", "v1.37.0-rc.1"][..], ["v1.37.0-rc.1", "v1.37.0"]),
        (&["v1.36.4+k3s1", "v1.36.4+k3s2", "v1.36.4+k3s1"], ["v1.36.4+k3s1", "v1.36.4+k3s2"]),
        (&["v1.36.4+k3s10", "v1.36.4+k3s9"], ["v1.36.4+k3s9", "v1.36.4+k3s10"]),
        (&["v1.36.4-gke.1", "v1.36.4-eks-2"], ["v1.36.4-eks-2", "v1.36.4-gke.1"]),
        (&["v1.35.1", "v1.36.0"], ["v1.35.1", "v1.36.0"]),
    ] {
        let judged = assess(&cluster(kubelets, "v1.36.4", kubelets), &Policy::default());
        for (oldest, newest) in [judged.kubelets.unwrap(), judged.servers.unwrap()] {
            assert_eq!([oldest.to_string(), newest.to_string()], expected, "{kubelets:?}");
        }
    }
}

#[test]
fn apiservers_two_minors_apart() {
    check(
        &cluster(&["v1.37.1", "v1.35.4"], "v1.35.4", &[]),
        &expect![[r#"
            supported False, behind None of None, 3 violations, 0 unknown
            Unsupported R1/kube-apiserver: kube-apiservers are 2 minors apart (1.35 and 1.37); one is allowed (cp-2)
            Unsupported R5/kube-controller-manager/control-plane/v1.35.4: 1 kube-controller-manager v1.35.4 in pool control-plane: too old for kube-apiserver 1.37, which allows 1.36 or newer (cp-1)
            Unsupported R6/kube-scheduler/control-plane/v1.35.4: 1 kube-scheduler v1.35.4 in pool control-plane: too old for kube-apiserver 1.37, which allows 1.36 or newer (cp-1)
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
            - 1 kubelet in pool default: version not known (n-1)
        "#]],
    );
}

#[test]
fn a_controller_one_behind_is_transitional_and_blocks_the_next_minor() {
    let cluster = cluster(&["v1.37.1"], "v1.36.4", &["v1.36.4"]);
    let standing = |component| {
        assess(&cluster, &Policy::default()).rows.iter().find(|r| r.component == component).unwrap().standing
    };
    assert_eq!(standing(Component::KubeScheduler), Standing::Transitional);
    assert_eq!(standing(Component::Kubelet), Standing::Supported);
    assert_eq!(assess(&cluster, &Policy::default()).next_minor.blockers.len(), 2);
}

fn emulating(mut cluster: Cluster, minor: u16) -> Cluster {
    cluster.change_instances(|server| {
        if server.component == Component::KubeApiserver {
            let binary = server.version.minor().unwrap();
            let emulation = Minor::new(1, minor);
            let floors = crate::version::Floors::of(binary);
            server.effective = crate::version::Effective::new(binary, emulation, None, floors);
        }
    });
    cluster
}

#[test]
fn an_emulating_apiserver_counts_as_what_it_emulates() {
    check(
        &emulating(cluster(&["v1.37.1"], "v1.36.4", &["v1.37.1", "v1.36.4", "v1.33.1"]), 36),
        &expect![[r#"
            supported False, behind Some(3) of Some(3), 1 violations, 0 unknown
            AtLimit R2/kubelet/default/v1.33.1: 1 kubelet v1.33.1 in pool default: as old as kube-apiserver 1.37 (emulating 1.36) allows, so that it cannot go further (n-3)
            Unsupported R2/kubelet/default/v1.37.1: 1 kubelet v1.37.1 in pool default: newer than what a kube-apiserver it can reach emulates, 1.36 (n-1)
            next Some("1.38") False
            - kube-apiservers are 1.37 and still emulate 1.36: complete that upgrade first
            - 1 kube-controller-manager v1.36.4 (cp-1) would be too old: must be 1.37 or newer first
            - 1 kube-scheduler v1.36.4 (cp-1) would be too old: must be 1.37 or newer first
            - 1 kubelet v1.37.1 (n-1) is newer than what a kube-apiserver emulates (1.36)
            - 1 kubelet v1.33.1 (n-3) would be too old: must be 1.35 or newer first
        "#]],
    );
}

#[test]
fn the_ceiling_of_kubelets_is_what_the_oldest_apiserver_behaves_as() {
    for (servers, emulated, expected) in [
        (&["v1.37.1"][..], None, Some(37)),
        (&["v1.37.1", "v1.36.4"], None, Some(36)),
        (&["v1.37.1"], Some(36), Some(36)),
        (&["v1.37.1", "v1.37.1"], Some(35), Some(35)),
        // One that does not answer may be older than all others.
        (&["v1.37.1", ""], None, None),
        (&[], None, None),
    ] {
        let seen = cluster(servers, "v1.36.4", &["v1.36.4"]);
        let seen = match emulated {
            Some(minor) => emulating(seen, minor),
            None => seen,
        };
        let expected = expected.map(|minor| Minor::new(1, minor));
        assert_eq!(kubelets_ceiling(&seen), expected, "{servers:?} {emulated:?}");
    }
}

#[test]
fn a_kubelet_that_is_too_old_is_told_the_oldest_that_would_do() {
    for (kubelet, server, least) in
        [(24, 27, 25), (24, 28, 25), (24, 29, 26), (24, 30, 27), (23, 26, 24), (22, 27, 25), (25, 29, 26)]
    {
        let policy = Policy::default();
        let servers = Servers::from(Effective::plain(Minor::new(1, server)));
        let judge = |minor| {
            policy.judge(RuleSubject::Component(Component::Kubelet), Minor::new(1, minor).into(), servers).1
        };
        let floor = Minor::new(1, least);
        assert_eq!(judge(kubelet), Judgement::TooOld { floor }, "1.{kubelet} under 1.{server}");
        assert!(matches!(judge(least), Judgement::Within { .. }), "1.{least} under 1.{server}");
        assert!(!matches!(judge(least - 1), Judgement::Within { .. }), "1.{least} is the oldest");
    }
}

#[test]
fn a_controller_of_the_binary_may_emulate_too_and_is_not_guessed_about() {
    let mut cluster = emulating(cluster(&["v1.37.1"], "v1.37.1", &["v1.36.4"]), 36);
    assert_eq!(assess(&cluster, &Policy::default()).supported, Verdict::Unknown);
    cluster.change_instances(|controller| {
        if controller.component.is_controller() {
            let binary = controller.version.minor().unwrap();
            let floors = crate::version::Floors::of(binary);
            controller.effective = Effective::new(binary, Minor::new(1, 36), None, floors);
        }
    });
    assert_eq!(assess(&cluster, &Policy::default()).supported, Verdict::True);
    cluster.change_instances(|server| {
        if server.component == Component::KubeApiserver {
            (server.version, server.effective) = (Observed::from_report("v1.36.4"), None);
        }
    });
    let judged = assess(&cluster, &Policy::default());
    assert_eq!(judged.violations, 2, "an older binary cannot serve a newer one, whatever it emulates");
}

/// With them an alert pages somebody.
#[test]
fn only_what_is_too_new_is_counted_as_ahead() {
    for (server, servers_emulate, controller, controllers_emulate, ahead) in [
        ("v1.36.4", None, "v1.36.4", None, Some(0)),
        ("v1.36.4", None, "v1.35.4", None, Some(0)),
        ("v1.36.4", None, "v1.37.1", None, Some(1)),
        ("v1.36.4", None, "v1.38.0", None, Some(2)),
        ("v1.37.1", Some(36), "v1.37.1", Some(36), Some(0)),
        // It may emulate 1.36 too, and does not say.
        ("v1.37.1", Some(36), "v1.37.1", None, None),
        ("v1.37.1", Some(36), "v1.37.1", Some(37), Some(1)),
        ("v1.37.1", Some(36), "v1.37.1", Some(35), Some(0)),
        // It emulates what is too old: its binary is not what is wrong.
        ("v1.37.1", Some(36), "v1.37.1", Some(34), Some(0)),
        ("v1.36.4", None, "v1.37.1", Some(36), Some(1)),
        ("v1.37.1", Some(36), "v1.38.0", Some(36), Some(1)),
    ] {
        let mut cluster = cluster(&[server], controller, &[]);
        if let Some(minor) = servers_emulate {
            cluster = emulating(cluster, minor);
        }
        cluster.change_instances(|instance| {
            if let (true, Some(minor)) = (instance.component.is_controller(), controllers_emulate) {
                let binary = instance.version.minor().unwrap();
                let floors = crate::version::Floors::of(binary);
                instance.effective = Effective::new(binary, Minor::new(1, minor), None, floors);
                assert!(instance.effective.is_some());
            }
        });
        let judged = assess(&cluster, &Policy::default());
        let row = judged.rows.iter().find(|row| row.component == Component::KubeScheduler).unwrap();
        let case = format!("{controller} {controllers_emulate:?} beside {server} {servers_emulate:?}");
        assert_eq!(row.ahead(), ahead, "{case}: {:?}", row.standing);
    }
    let of = |servers: &[&str], component| {
        let judged = assess(&cluster(servers, "v1.36.4", &["v1.37.1"]), &Policy::default());
        judged.rows.iter().filter(|row| row.component == component).map(Row::ahead).collect::<Vec<_>>()
    };
    assert_eq!(of(&["v1.36.4"], Component::Kubelet), [Some(1)]);
    assert_eq!(of(&["v1.37.1", "v1.36.4"], Component::Kubelet), [Some(1)], "it may meet the older one");
    assert_eq!(of(&["v1.37.1", "v1.36.4"], Component::KubeApiserver), [Some(0), Some(0)]);
}

#[test]
fn a_controller_that_reaches_only_its_own_apiserver_is_compared_with_that_one() {
    let mut cluster = cluster(&["v1.37.1", "v1.36.4"], "v1.37.1", &[]);
    assert_eq!(assess(&cluster, &Policy::default()).violations, 2, "behind a load balancer it may meet 1.36");
    cluster.change_instances(|instance| instance.reach = Reach::Local);
    let judged = assess(&cluster, &Policy::default());
    assert_eq!(judged.violations, 0, "both run on cp-1, as their 1.37 server does");
    let row = judged.rows.iter().find(|row| row.component == Component::KubeScheduler).unwrap();
    assert_eq!(row.standing, Standing::Transitional, "and cp-2 is behind");
    cluster.change_instances(|instance| {
        if instance.component.is_controller() {
            instance.node = Some("elsewhere".into());
        }
    });
    assert_eq!(
        assess(&cluster, &Policy::default()).violations,
        2,
        "where its own is not seen, it may be any"
    );
}

/// It is restarted, or cannot be reached for a moment.
#[test]
fn a_controller_whose_own_apiserver_is_silent_is_judged_by_the_others_where_they_suit_it() {
    for (controllers, standing, supported) in [
        ("v1.36.4", Standing::Supported, true),
        ("v1.35.9", Standing::Transitional, true),
        // Its own may be at 1.37 already, as under kubeadm, or at 1.34.
        ("v1.37.1", Standing::Unknown, false),
        ("v1.34.9", Standing::Unknown, false),
    ] {
        let mut cluster = cluster(&["stable", "v1.36.4"], controllers, &[]);
        cluster.change_instances(|instance| instance.reach = Reach::Local);
        let judged = assess(&cluster, &Policy::default());
        let row = judged.rows.iter().find(|row| row.component == Component::KubeScheduler).unwrap();
        assert_eq!((row.standing, judged.violations), (standing, 0), "{controllers}");
        assert_eq!(row.behind.is_some(), supported, "{controllers}");
    }
}

#[test]
fn kubelets_three_behind_the_target_stop_it_only_by_the_letter_of_the_prerequisites() {
    let cluster = cluster(&["v1.36.4"], "v1.36.4", &["v1.34.1"]);
    let blockers = |policy: Policy| assess(&cluster, &policy).next_minor.blockers;
    assert!(blockers(Policy::default()).is_empty());
    let lines = blockers(Policy::strict());
    assert_eq!(lines, ["1 kubelet v1.34.1 (n-1): the prerequisites ask for 1.35 or newer first"]);
}

#[test]
fn a_webhook_that_cannot_see_new_versions_and_fails_closed_blocks_the_next_minor_only() {
    let mut cluster = cluster(&["v1.36.4"], "v1.36.4", &[]);
    let webhook = crate::cluster::Webhook {
        configuration: "policies".into(),
        name: "pods.example.com".into(),
        exact: true,
        lists_versions: true,
        fails_closed: true,
    };
    let blocked = |webhook: &crate::cluster::Webhook, cluster: &mut Cluster| {
        cluster.set_webhooks(vec![webhook.clone()]);
        assess(cluster, &Policy::default()).next_minor.blockers
    };
    assert_eq!(
        blocked(&webhook, &mut cluster),
        [
            "webhook pods.example.com of policies fails closed and matches only the API versions it lists: set \
          matchPolicy to Equivalent (version skew policy, kube-apiserver upgrade, admission webhooks)"
        ]
    );
    for harmless in [
        crate::cluster::Webhook { exact: false, ..webhook.clone() },
        crate::cluster::Webhook { lists_versions: false, ..webhook.clone() },
        crate::cluster::Webhook { fails_closed: false, ..webhook.clone() },
    ] {
        assert!(blocked(&harmless, &mut cluster).is_empty(), "{harmless:?}");
    }
}

#[test]
fn headroom_is_how_far_the_apiservers_may_go_before_it_must_move() {
    let cluster = cluster(&["v1.36.4"], "v1.36.4", &["v1.36.4", "v1.34.1", "v1.33.1"]);
    let rows = assess(&cluster, &Policy::default()).rows;
    let headroom = |version: &str, component| {
        rows.iter().find(|r| r.component == component && r.version.to_string() == version).unwrap().headroom
    };
    assert_eq!(headroom("v1.36.4", Component::KubeApiserver), None);
    assert_eq!(headroom("v1.36.4", Component::KubeScheduler), Some(1));
    assert_eq!(headroom("v1.36.4", Component::Kubelet), Some(3));
    assert_eq!(headroom("v1.34.1", Component::Kubelet), Some(1));
    assert_eq!(headroom("v1.33.1", Component::Kubelet), Some(0));
}

#[test]
fn a_pair_that_the_apiservers_allow_is_never_broken_by_itself() {
    let policy = Policy::default();
    let within = |component, minor: u16, servers| {
        let judgement =
            policy.judge(RuleSubject::Component(component), Minor::new(1, minor).into(), servers).1;
        matches!(judgement, Judgement::Within { .. })
    };
    for (oldest, spread) in (15..45).flat_map(|oldest| [(oldest, 0), (oldest, 1)]) {
        let both = [oldest, oldest + spread].map(|minor| Effective::plain(Minor::new(1, minor)));
        let servers = Servers::of(both).unwrap();
        for (proxy, kubelet) in (10..46).flat_map(|proxy| (10..46).map(move |kubelet| (proxy, kubelet))) {
            if within(Component::KubeProxy, proxy, servers) && within(Component::Kubelet, kubelet, servers) {
                assert_eq!(policy.broken_by_pair(Minor::new(1, proxy), Minor::new(1, kubelet)), None);
            }
        }
    }
}

#[test]
fn without_a_known_apiserver_a_proxy_and_its_kubelet_are_still_compared() {
    let mut cluster = cluster(&["?"], "v1.36.4", &["v1.36.4"]);
    cluster.add_instance(instance(Component::KubeProxy, "kube-proxy@n-1", "v1.32.1"));
    let judged = assess(&cluster, &Policy::default());
    assert_eq!((judged.supported, judged.violations), (Verdict::False, 1));
    assert_eq!(judged.findings[0].rule.id, "R4");
}

#[test]
fn a_kubectl_is_judged_and_stands_in_nobodys_way() {
    for (version, supported, message) in [
        ("v1.35.1", Verdict::True, ""),
        ("v1.37.1", Verdict::True, ""),
        (
            "v1.38.0",
            Verdict::False,
            "kubectl v1.38.0: too new for kube-apiserver 1.36, which allows 1.37 or older",
        ),
        (
            "v1.34.9",
            Verdict::False,
            "kubectl v1.34.9: too old for kube-apiserver 1.36, which allows 1.35 or newer",
        ),
    ] {
        let mut cluster = cluster(&["v1.36.4"], "v1.36.4", &["v1.36.4"]);
        cluster.add_instance(instance(Component::Kubectl, "ci", version));
        let judged = assess(&cluster, &Policy::default());
        let said = judged.findings.first().map_or("", |finding| finding.message.as_str());
        assert_eq!((judged.supported, said), (supported, message));
        assert_eq!(judged.next_minor.allowed, Verdict::True, "{version}");
    }
}

mod time {
    use super::*;
    use crate::skew::lifecycle::{self, Catalogue};

    fn found(cluster: &Cluster, today: &str) -> String {
        let judged = assess(cluster, &Policy::default());
        let more = lifecycle::findings(&judged, &Catalogue::shipped().unwrap(), today.parse().unwrap());
        let lines: Vec<String> =
            more.iter().map(|f| format!("{:?} {}: {}\n", f.severity, f.id, f.message)).collect();
        assert_eq!(judged.clone().with(more).supported, judged.supported, "an end is no skew");
        lines.concat()
    }

    #[test]
    fn what_ended_ends_soon_or_has_a_later_patch() {
        expect![[r#"
            Warning EOL/1.32: 1.32 has had no upstream maintenance since 2026-02-28: 1 kubelet
            Warning EOL/1.33: 1.33 has had no upstream maintenance since 2026-06-28: 1 kubelet
            Warning EOL/1.34: upstream maintenance of 1.34 ends on 2026-10-27: 1 kubelet
            Warning O0/v1.35.8+k3s1: v1.35.8+k3s1 is behind v1.35.9, the latest patch on 2026-11-20: 1 kube-controller-manager, 1 kube-scheduler
        "#]].assert_eq(&found(
            &cluster(&["v1.35.9"], "v1.35.8+k3s1", &["v1.34.9-eks-1", "v1.33.102", "v1.32.1"]),
            "2026-10-01",
        ));
    }

    /// A cloud's maker may never release the patch that upstream did.
    #[test]
    fn a_cloud_controller_manager_is_told_its_end_and_no_patch() {
        let found_with = |version, today| {
            let mut cluster = cluster(&["v1.36.4"], "v1.36.4", &["v1.36.4"]);
            cluster.add_instance(instance(Component::CloudControllerManager, "aws", version));
            found(&cluster, today)
        };
        assert_eq!(found_with("v1.36.0", "2026-11-20"), "");
        assert!(found_with("v1.35.0", "2027-03-01").contains("1 cloud-controller-manager"));
    }

    #[test]
    fn what_the_data_does_not_know_is_not_judged() {
        assert_eq!(found(&cluster(&["v1.60.1"], "v1.60.0", &["kwok-v0.8.0"]), "2026-10-01"), "");
    }

    #[test]
    fn a_caller_may_bring_newer_data() {
        let text =
            r#"{"minors": [{"minor": "1.60", "endOfLife": "2035-01-01", "latestPatchSeen": "1.60.3"}]}"#;
        let life = Catalogue::read(text).unwrap().life(Minor::new(1, 60)).cloned().unwrap();
        assert_eq!(life.latest.to_string(), "v1.60.3");
        let error = Catalogue::read(&text.replace("1.60\"", "x\"")).unwrap_err();
        assert_eq!(error.to_string(), "the release data has `x` for a minor; write it like 1.37");
        assert!(Catalogue::read("[]").is_err());
    }
}
