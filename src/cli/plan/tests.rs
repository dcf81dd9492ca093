//! What no file can make yet: canaries, zones, groups that wait for others, accepted findings, a plan that is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::Selector;
use evenkeel_core::plan::Wave;
use evenkeel_core::upgrade::{NodeGroup, Upgrade};
use expect_test::expect;
use serde_json::json;

use super::super::output::Color;
use super::document::UpgradePlan;
use super::text::{PlanStyle, text};
use super::{build, markdown, output};

#[test]
fn waves_that_wait_for_nothing_share_a_place() {
    let group = |name: &str, depends_on: &[&str]| NodeGroup {
        depends_on: depends_on.iter().map(|name| (*name).into()).collect(),
        ..NodeGroup::new(name, Selector::default(), "external")
    };
    let upgrade = Upgrade {
        groups: vec![
            group("web", &[]),
            group("db", &[]),
            group("last", &["web", "db"]),
            group("empty", &["last"]),
            group("end", &["empty"]),
        ],
        ..Upgrade::to("v1.37.1".parse().unwrap())
    };
    let wave = |group: usize, canary: bool, node: &str| Wave {
        group,
        canary,
        zone: None,
        at_once: 1,
        nodes: vec![Arc::from(node)],
    };
    let core = [
        wave(0, true, "w-1"),
        wave(0, false, "w-2"),
        wave(1, false, "d-1"),
        wave(2, false, "l-1"),
        wave(4, false, "e-1"),
    ];
    let runs = BTreeMap::from([("w-2".into(), "v1.36.4".parse().unwrap())]);
    let told: Vec<_> = build::waves(&upgrade, &core, &runs)
        .into_iter()
        .map(|wave| format!("{} {} {} {:?}", wave.order, wave.group, wave.nodes.join(","), wave.from))
        .collect();
    let in_order =
        ["1 web w-1 []", "1 db d-1 []", "2 web w-2 [\"v1.36.4\"]", "3 last l-1 []", "4 end e-1 []"];
    assert_eq!(told, in_order);
}

fn plan() -> UpgradePlan {
    let wave = |order: usize, group: &str, zone: Option<&str>, canary: bool, nodes: usize| {
        let nodes: Vec<_> = (1..=nodes).map(|n| format!("{group}-{}-{n}", zone.unwrap_or("x"))).collect();
        json!({"order": order, "group": group, "zone": zone, "canary": canary, "atOnce": 2, "from": ["v1.36.4"], "nodes": nodes})
    };
    let warns =
        |n: usize| json!({"id": format!("X{n}"), "weight": "warns", "what": format!("this is so ({n})")});
    let accepted = json!({
        "id": "U4/PodDisruptionBudget/shop/ledger", "weight": "warns", "what": "PDB shop/ledger lets none of its | pods go",
        "names": ["n-1"], "count": 1, "remedy": "scale to *2*",
        "accepted": {"until": "2026-12-01T00:00:00Z", "reason": "the owner moves it, OPS-4711", "insteadOf": "stops"},
    });
    let findings: Vec<_> = std::iter::once(accepted).chain((1..=24).map(warns)).collect();
    serde_json::from_value(json!({
        "hash": "3f9c0e1b7a42d5860b1e94c7f2a8d36e", "from": "v1.36.4", "to": "v1.37.1", "unit": "Node", "verdict": "Refuted", "summary": "do not",
        "approval": {"mode": "Automatic", "given": true},
        "size": {"servers": 1, "nodes": 9, "waves": 4},
        "groups": [{"name": "web"}, {"name": "db"}],
        "hops": [{"version": "v1.37.1", "pickedBy": "Target",
            "needs": [{"component": "kubelet", "least": "1.34"}],
            "steps": [{"components": ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"], "place": "cp-1", "from": "v1.36.4"}],
            "kubelets": {"waves": [
                wave(1, "web", None, true, 1), wave(2, "web", Some("a"), false, 7), wave(3, "web", Some(""), false, 1),
                wave(4, "db", None, false, 1),
            ]}}],
        "findings": findings,
        "refuted": ["kube-apiserver on cp-1 to v1.37.1 would leave kubelet on n-1 at 1.33, which must be 1.34 or newer"],
    }))
    .unwrap()
}

fn style(wide: bool, width: Option<usize>) -> PlanStyle<'static> {
    PlanStyle { wide, paint: output::paint(Color::Never), width, about: &[], older: None }
}

#[test]
fn the_table_leaves_out_what_it_counts() {
    expect![[r#"
        Plan      v1.36.4 -> v1.37.1   WRONG: do not
        Hash      3f9c0e1b7a42d5860b1e94c7f2a8d36e
        Approval  mode Automatic: it begins without an approval

        HOP 1 of 1: v1.37.1 (the target)
        - needs first: kubelets that it does not move: 1.34 or newer (somebody else moves it)
        ORDER   WHAT                                   FROM      COUNT   AT ONCE   NAMES
        1       kube-apiserver, controllers, kubelet   v1.36.4   1       1         cp-1
        2       kubelet, group web, canary             v1.36.4   1       2         web-x-1
        3       kubelet, group web, zone a             v1.36.4   7       2         web-a-1, web-a-2,
                                                                                   web-a-3, web-a-4, web-a-5
                                                                                   and 2 more
        4       kubelet, group web, no zone            v1.36.4   1       2         web--1
        5       kubelet, group db                      v1.36.4   1       2         db-x-1

        WRONG IN THIS PLAN
        - kube-apiserver on cp-1 to v1.37.1 would leave kubelet on n-1 at 1.33, which must be 1.34 or newer

        FINDINGS
        warns: PDB shop/ledger lets none of its | pods go [U4/PodDisruptionBudget/shop/ledger]
          which: n-1
          to do: scale to *2*
          accepted until 2026-12-01T00:00:00Z: the owner moves it, OPS-4711 (without that it stops)
        warns: this is so (1) [X1]
        warns: this is so (2) [X2]
        warns: this is so (3) [X3]
        warns: this is so (4) [X4]
        warns: this is so (5) [X5]
        warns: this is so (6) [X6]
        warns: this is so (7) [X7]
        warns: this is so (8) [X8]
        warns: this is so (9) [X9]
        warns: this is so (10) [X10]
        warns: this is so (11) [X11]
        warns: this is so (12) [X12]
        warns: this is so (13) [X13]
        warns: this is so (14) [X14]
        warns: this is so (15) [X15]
        warns: this is so (16) [X16]
        warns: this is so (17) [X17]
        warns: this is so (18) [X18]
        warns: this is so (19) [X19]
        - and 5 more (-o wide)
    "#]]
    .assert_eq(&text(&plan(), style(false, Some(100))));
    let wide = text(&plan(), style(true, None));
    assert!(wide.contains("X24") && wide.contains("web-a-7") && !wide.contains(" more"), "{wide}");
    assert!(wide.contains("kube-apiserver, kube-controller-manager, kube-scheduler, kubelet"), "{wide}");
}

#[test]
fn markdown_folds_what_only_warns() {
    expect![[r#"
        ## Upgrade plan v1.36.4 → v1.37.1: WRONG (`3f9c0e1b7a42d5860b1e94c7f2a8d36e`)

        do not

        - Approval: mode Automatic: it begins without an approval

        ### Hops

        | hop | to | needs first | control plane, one step at a time | kubelets |
        | ---: | --- | --- | --- | --- |
        | 1 | v1.37.1 (the target) | kubelets that it does not move: 1.34 or newer | 1 × kube-apiserver, controllers, kubelet from v1.36.4 | 10 nodes in 4 waves |

        ### Waves of nodes

        | hop | order | group | zone | nodes | at once | from | names |
        | ---: | ---: | --- | --- | ---: | ---: | --- | --- |
        | 1 | 1 | web (canary) | any | 1 | 2 | v1.36.4 | web-x-1 |
        | 1 | 2 | web | a | 7 | 2 | v1.36.4 | web-a-1, web-a-2, web-a-3, web-a-4, web-a-5 and 2 more |
        | 1 | 3 | web | - | 1 | 2 | v1.36.4 | web--1 |
        | 1 | 4 | db | any | 1 | 2 | v1.36.4 | db-x-1 |

        ### Wrong in this plan

        - kube-apiserver on cp-1 to v1.37.1 would leave kubelet on n-1 at 1.33, which must be 1.34 or newer

        ### Findings

        - **warns**: PDB shop/ledger lets none of its \| pods go (`U4/PodDisruptionBudget/shop/ledger`)  
          Which: n-1  
          To do: scale to \*2\*  
          accepted until 2026-12-01T00:00:00Z: the owner moves it, OPS-4711 (without that it stops)

        <details><summary>24 findings that only warn</summary>

        - **warns**: this is so (1) (`X1`)
        - **warns**: this is so (2) (`X2`)
        - **warns**: this is so (3) (`X3`)
        - **warns**: this is so (4) (`X4`)
        - **warns**: this is so (5) (`X5`)
        - **warns**: this is so (6) (`X6`)
        - **warns**: this is so (7) (`X7`)
        - **warns**: this is so (8) (`X8`)
        - **warns**: this is so (9) (`X9`)
        - **warns**: this is so (10) (`X10`)
        - **warns**: this is so (11) (`X11`)
        - **warns**: this is so (12) (`X12`)
        - **warns**: this is so (13) (`X13`)
        - **warns**: this is so (14) (`X14`)
        - **warns**: this is so (15) (`X15`)
        - **warns**: this is so (16) (`X16`)
        - **warns**: this is so (17) (`X17`)
        - **warns**: this is so (18) (`X18`)
        - **warns**: this is so (19) (`X19`)
        - **warns**: this is so (20) (`X20`)
        - **warns**: this is so (21) (`X21`)
        - **warns**: this is so (22) (`X22`)
        - **warns**: this is so (23) (`X23`)
        - **warns**: this is so (24) (`X24`)

        </details>

        <details><summary>Every step of the control plane (1)</summary>

        - hop 1, step 1: kube-apiserver, kube-controller-manager, kube-scheduler, kubelet on cp-1, from v1.36.4

        </details>

        <details><summary>Every node of each wave</summary>

        - hop 1, order 1, group web, canary: web-x-1
        - hop 1, order 2, group web, zone a: web-a-1, web-a-2, web-a-3, web-a-4, web-a-5, web-a-6, web-a-7
        - hop 1, order 3, group web, no zone: web--1
        - hop 1, order 4, group db: db-x-1

        </details>
    "#]].assert_eq(&markdown::markdown(&plan(), style(false, None)));
}
