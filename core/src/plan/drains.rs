//! What keeps the nodes that a plan moves from being drained, and all findings of a plan together.
//!
//! Here belongs the way from the preflight's causes to a plan's findings, and what a person should know of acceptances
//! once every finding is known. Which pod or budget is in the way, and why, is said by
//! [`crate::disruption::preflight`] alone. The invariants: exactly the nodes that are in some wave are asked about; and
//! an acceptance is called useless only where every finding was looked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::accept::{accept, sort};
use super::finding::{PlanFinding, Weight};
use super::finding_id::FindingCode;
use super::forecast_input::ForecastInput;
use super::node_pools::made_by_others;
use super::waves::Wave;
use crate::cluster::Node;
use crate::disruption::preflight::{Cause, Code, Outlook, Question, causes};
use crate::drain::{DrainOptions, OnTimeout};
use crate::text::harmless;
use crate::version::Minor;

/// Everything that a person has to know of a plan, in order: its own findings, who makes its nodes, what keeps them from
/// being drained, and which acceptances no finding is about.
pub fn foresee(input: &ForecastInput<'_>) -> Vec<PlanFinding> {
    let ForecastInput { plan, waves, upgrade, cluster, .. } = *input;
    let mut findings = plan.findings.clone();
    findings.extend(made_by_others(waves, cluster));
    findings.extend(drain_findings(input));
    // Where nothing can begin, nobody looked at what would come later.
    if !plan.hops.is_empty() {
        let about_nothing: Vec<PlanFinding> = upgrade
            .accepted
            .iter()
            .filter(|risk| !findings.iter().any(|finding| finding.id.is(&risk.finding)))
            .map(|risk| {
                let id = harmless(&risk.finding);
                let what = format!("acceptedRisks accepts {id}, which no finding is about");
                PlanFinding::new(FindingCode::Acceptance.of(id), Weight::Warns, what).remedy(
                    "compare it with the ids of the other findings; one whose finding is settled may stay",
                )
            })
            .collect();
        findings.extend(about_nothing);
    }
    sort(&mut findings);
    findings
}

/// What keeps the nodes that a plan moves from being drained, in order, with what a person accepted of it.
///
/// What no waiting changes stops the plan at those nodes; what may end by itself is a warning; what only costs something
/// is left out, because `evenkeel preflight` tells it. The id of a finding is [`Cause::id`], and its hop is the first
/// in which one of its nodes moves.
pub fn drain_findings(input: &ForecastInput<'_>) -> Vec<PlanFinding> {
    let ForecastInput { waves, upgrade, cluster, rules, now, .. } = *input;
    let moves = input.emptied();
    let nodes: Vec<&Node> = moves.keys().filter_map(|name| cluster.node(name)).collect();
    let timeout = Some(upgrade.drain.timeout);
    let at_once = waves.iter().map(|waves| together(waves)).max().unwrap_or(0);
    let question = Question { cluster, nodes, at_once, rules, timeout, now };
    let mut findings: Vec<PlanFinding> =
        causes(&question).into_iter().filter_map(|cause| finding(cause, &moves, &upgrade.drain)).collect();
    accept(&mut findings, &upgrade.accepted, now);
    findings
}

/// The finding that `cause` is; `moves` says in which hop each node first moves.
fn finding(
    mut cause: Cause,
    moves: &BTreeMap<&Arc<str>, Minor>,
    options: &DrainOptions,
) -> Option<PlanFinding> {
    // A deletion asks neither budgets nor the webhooks of evictions.
    let forced = options.on_timeout == OnTimeout::Force
        && (cause.code.is_of_budget() || cause.code == Code::EvictionWebhook);
    let weight = match cause.outlook {
        Outlook::Never if !forced => Weight::Stops,
        Outlook::Never | Outlook::NotNow => Weight::Warns,
        Outlook::Caution => return None,
    };
    let hop = cause.nodes.iter().filter_map(|node| moves.get(node)).min().copied();
    cause.harmless();
    let mut what = format!("{}: {}", cause.object, cause.what);
    if forced {
        let seconds = options.timeout.as_secs();
        what =
            format!("{what}; what is left of its pods is deleted {seconds} s after the node's drain began");
    }
    let finding = PlanFinding::new(FindingCode::Drain(cause.code).of(cause.object.path()), weight, what)
        .remedy(&*cause.remedy)
        .acceptable();
    Some(PlanFinding { hop, ..finding.about(&cause.nodes) })
}

/// How many nodes of one hop may be under way at the same time, at most.
fn together(waves: &[Wave]) -> usize {
    let mut groups: BTreeMap<usize, usize> = BTreeMap::new();
    for wave in waves {
        let most = groups.entry(wave.group).or_default();
        *most = (*most).max(wave.at_once.min(wave.nodes.len()));
    }
    groups.values().sum()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::super::hops::Plan;
    use super::*;
    use crate::cluster::{
        Budget, Cluster, Demand, Owner, Parts, PodWebhook, Quantity, Selector, Surroundings, Workload,
    };
    use crate::disruption::Rules;
    use crate::fixture::{at, budget, node, pod};
    use crate::plan::{Hop, Pass, Picked, waves};
    use crate::upgrade::Upgrade;
    use crate::upgrade::{AcceptedRisk, Amount, NodeGroup, Unit};

    /// Nodes `n-1` to `n-3` at v1.36.4, and `cart` on each of them with a budget that wants `needed` of its three pods.
    fn parts(needed: i32) -> Parts {
        let cart = Workload {
            this: pod("cart", 0, "").owner.unwrap(),
            namespace: "shop".into(),
            replicas: Some(3),
            owner: None,
            ignores_disruption: false,
        };
        Parts {
            nodes: (1..=3).map(|number| node(&format!("n-{number}"), "v1.36.4").into()).collect(),
            pods: (1..=3).map(|number| pod("cart", number, &format!("n-{number}"))).collect(),
            budgets: vec![Budget {
                demand: Demand::MinAvailable(Quantity::Count(needed)),
                ..budget("cart", 3 - needed, 3, needed)
            }],
            surroundings: Surroundings {
                workloads: Some([cart].into_iter().collect()),
                ..Surroundings::default()
            },
            ..Parts::default()
        }
    }

    fn accepts(finding: &str, until: i64) -> AcceptedRisk {
        AcceptedRisk { finding: finding.into(), until: at(until), reason: "OPS-1".into() }
    }

    /// A plan that moves every kubelet to the target of `upgrade`, with one finding that nobody may accept.
    fn plan(upgrade: &Upgrade) -> Plan {
        let to = upgrade.version.clone();
        let hop = Hop {
            version: to.clone(),
            picked: Picked::Target,
            needs: Vec::new(),
            steps: Vec::new(),
            kubelets: Pass::All,
        };
        let mut findings =
            vec![PlanFinding::new(FindingCode::OnlyServer, Weight::Warns, "the API is away for a while")];
        accept(&mut findings, &upgrade.accepted, at(0));
        Plan {
            from: None,
            to,
            unit: Unit::Component,
            hops: vec![hop],
            silent: std::collections::BTreeSet::new(),
            findings,
        }
    }

    fn told(plan: &Plan, cluster: &Cluster, upgrade: &Upgrade, rules: &Rules) -> String {
        let members = upgrade.members(cluster);
        let waves = waves(plan, upgrade, cluster, &members);
        let line = |finding: PlanFinding| {
            let accepted = finding.accepted.as_ref().map(|a| format!(" [accepted: {}]", a.reason));
            let hop = finding.hop.map(|hop| format!(" at {hop}")).unwrap_or_default();
            format!(
                "{} {}{hop}: {finding}{}\n",
                finding.weight.name(),
                finding.id,
                accepted.unwrap_or_default()
            )
        };
        let input = ForecastInput { plan, waves: &waves, upgrade, cluster, rules, now: at(0) };
        foresee(&input).into_iter().map(line).collect()
    }

    fn see(parts: Parts, change: impl FnOnce(&mut Upgrade), expected: &Expect) {
        let mut upgrade = Upgrade::to("v1.37.1".parse().unwrap());
        change(&mut upgrade);
        expected.assert_eq(&told(&plan(&upgrade), &parts.seal(), &upgrade, &Rules::default()));
    }

    #[test]
    fn a_budget_that_never_allows_anything_stops_the_plan() {
        see(
            parts(3),
            |_| {},
            &expect![[r#"
                stops U3/PodDisruptionBudget/shop/cart at 1.37: PDB shop/cart: minAvailable 3 of 3 replicas (n-1, n-2, n-3): set maxUnavailable 1, or scale to 4
                warns S1: the API is away for a while
            "#]],
        );
        let others = |upgrade: &mut Upgrade| upgrade.groups.clear();
        see(
            parts(3),
            others,
            &expect![[r#"
                warns S1: the API is away for a while
            "#]],
        );
    }

    #[test]
    fn only_nodes_of_waves_are_asked_about() {
        let mut parts = parts(3);
        let mut second = node("n-2", "v1.37.1");
        second.labels = Arc::new([("pool".to_owned(), "done".to_owned())].into());
        parts.nodes[1] = second.into();
        parts.pods.retain(|pod| &*pod.node == "n-2");
        let wants_one = Demand::MinAvailable(Quantity::Count(1));
        parts.budgets = vec![Budget { demand: wants_one, ..budget("cart", 0, 1, 1) }];
        see(
            parts,
            |_| {},
            &expect![[r#"
                warns S1: the API is away for a while
            "#]],
        );
    }

    #[test]
    fn what_may_end_by_itself_warns_and_what_only_costs_is_left_out() {
        let mut parts = parts(2);
        parts.budgets[0].disruptions_allowed = 0;
        parts.budgets[0].current_healthy = 2;
        parts.pods[0].empty_dir = true;
        see(
            parts,
            |_| {},
            &expect![[r#"
                warns S1: the API is away for a while
                warns U11/PodDisruptionBudget/shop/cart at 1.37: PDB shop/cart: 2 of 3 healthy, 2 needed (n-1, n-2, n-3): wait for its pods to be healthy
            "#]],
        );
    }

    #[test]
    fn acceptances_of_drains_work_and_useless_ones_are_told_once() {
        let accept = |upgrade: &mut Upgrade| {
            upgrade.accepted = vec![
                accepts("U3/PodDisruptionBudget/shop/cart", 60),
                accepts("U3/PodDisruptionBudget/shop/card", 60),
                accepts("S1", 60),
            ];
        };
        see(
            parts(3),
            accept,
            &expect![[r#"
                warns A1/S1: finding S1 is accepted and cannot be: take it out of acceptedRisks; nothing may break the version skew policy
                warns A1/U3/PodDisruptionBudget/shop/card: acceptedRisks accepts U3/PodDisruptionBudget/shop/card, which no finding is about: compare it with the ids of the other findings; one whose finding is settled may stay
                warns S1: the API is away for a while
                warns U3/PodDisruptionBudget/shop/cart at 1.37: PDB shop/cart: minAvailable 3 of 3 replicas (n-1, n-2, n-3): set maxUnavailable 1, or scale to 4 [accepted: OPS-1]
            "#]],
        );
        let ended = |upgrade: &mut Upgrade| {
            upgrade.accepted = vec![accepts("U3/PodDisruptionBudget/shop/cart", 0)];
        };
        see(
            parts(3),
            ended,
            &expect![[r#"
                stops U3/PodDisruptionBudget/shop/cart at 1.37: PDB shop/cart: minAvailable 3 of 3 replicas (n-1, n-2, n-3): set maxUnavailable 1, or scale to 4
                warns A1/U3/PodDisruptionBudget/shop/cart: the acceptance of U3/PodDisruptionBudget/shop/cart ended on 2027-01-15T08:00:00Z: accept it again, or change what it is about
                warns S1: the API is away for a while
            "#]],
        );
    }

    #[test]
    fn what_was_never_looked_for_is_not_called_useless() {
        let mut upgrade = Upgrade::to("v1.37.1".parse().unwrap());
        upgrade.accepted = vec![accepts("U3/PodDisruptionBudget/shop/cart", 60)];
        let blocked = Plan { hops: Vec::new(), ..plan(&upgrade) };
        expect![[r#"
            warns S1: the API is away for a while
        "#]]
        .assert_eq(&told(&blocked, &parts(3).seal(), &upgrade, &Rules::default()));
    }

    #[test]
    fn a_webhook_on_more_nodes_than_go_together_keeps_one() {
        let webhook = |nodes: &[&str]| PodWebhook {
            name: "guard/pods".into(),
            evictions: false,
            creation: true,
            service: None,
            endpoints: Some(nodes.iter().map(|node| Arc::from(*node)).collect()),
        };
        let with = |nodes: &[&str]| {
            let mut parts = parts(2);
            parts.surroundings.pod_webhooks = Some(vec![webhook(nodes)]);
            parts
        };
        see(
            with(&["n-1", "n-2"]),
            |_| {},
            &expect![[r#"
                warns S1: the API is away for a while
            "#]],
        );
        see(
            with(&["n-1", "n-1"]),
            |_| {},
            &expect![[r#"
                warns B14/Webhook//guard/pods: Webhook guard/pods: is asked about every pod that is created, fails closed, and has ready endpoints on 1 node only, which would be drained: its own replacement could not be created: run it on other nodes too, or let it fail open
                warns S1: the API is away for a while
            "#]],
        );
        let two_at_once = |upgrade: &mut Upgrade| upgrade.groups[0].max_unavailable = Amount::Count(2);
        see(
            with(&["n-1", "n-2"]),
            two_at_once,
            &expect![[r#"
            warns B14/Webhook//guard/pods: Webhook guard/pods: is asked about every pod that is created, fails closed, and has ready endpoints on 2 nodes only, which would be drained: its own replacement could not be created: run it on other nodes too, or let it fail open
            warns S1: the API is away for a while
        "#]],
        );
        let two_groups = |upgrade: &mut Upgrade| {
            let first = Selector {
                match_labels: [("kubernetes.io/hostname".to_owned(), "n-1".to_owned())].into(),
                match_expressions: Vec::new(),
            };
            upgrade.groups.insert(0, NodeGroup::new("first", first, "external"));
        };
        let mut parts = with(&["n-1", "n-2"]);
        let mut first = node("n-1", "v1.36.4");
        first.labels = Arc::new([("kubernetes.io/hostname".to_owned(), "n-1".to_owned())].into());
        parts.nodes[0] = first.into();
        see(
            parts,
            two_groups,
            &expect![[r#"
                warns B14/Webhook//guard/pods: Webhook guard/pods: is asked about every pod that is created, fails closed, and has ready endpoints on 2 nodes only, which would be drained: its own replacement could not be created: run it on other nodes too, or let it fail open
                warns S1: the API is away for a while
            "#]],
        );
    }

    #[test]
    fn names_from_files_do_not_act_on_a_terminal() {
        let mut parts = parts(2);
        parts.pods[0].owner = None;
        parts.pods[0].name = "a\u{1b}[2J".into();
        see(
            parts,
            |_| {},
            &expect![[r#"
                stops B1/Pod/shop/a?[2J at 1.37: Pod shop/a?[2J: has no controller that would bring it back (n-1): move it by hand, or allow it with --force
                warns S1: the API is away for a while
            "#]],
        );
    }

    #[test]
    fn pods_of_one_controller_are_one_finding() {
        let mut parts = parts(2);
        for pod in &mut parts.pods {
            pod.owner = Some(Arc::new(Owner {
                api_version: "apps/v1".into(),
                kind: "DaemonSet".into(),
                name: "logs".into(),
                uid: "uid-logs".into(),
            }));
        }
        parts.budgets.clear();
        let rules = Rules { refuse_daemon_sets: true, ..Rules::default() };
        let upgrade = Upgrade::to("v1.37.1".parse().unwrap());
        expect![[r#"
            stops B1/DaemonSet/shop/logs at 1.37: DaemonSet shop/logs: is managed by a DaemonSet (n-1, n-2, n-3): leave it with --ignore-daemonsets
            warns S1: the API is away for a while
        "#]].assert_eq(&told(&plan(&upgrade), &parts.seal(), &upgrade, &rules));
    }
}
