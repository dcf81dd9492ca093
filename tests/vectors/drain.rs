//! Cases about drains: kubectl's filters, the eviction handler, the disruption controller, Cluster API and Karpenter.
//!
//! A case that only says what a server or another client does inside is not ours; each says why.

mod decided;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::{
    Budget, Cluster, Demand, Owner, Parts, Phase, Pod, Quantity, Scale, Selector, Surroundings,
    UnhealthyPolicy, Workload,
};
use evenkeel_core::disruption::answer::{AfterAnswer, Answer, Raw, read};
use evenkeel_core::disruption::arithmetic::{Unsynced, compute, disrupted};
use evenkeel_core::disruption::{Budgets, Class, Handling, Memory, Rules, class, handling, warnings};
use evenkeel_core::drain::{PodWait, ask_pods};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{Case, Outcome};
use decided::{cordon, timed};
use values::{NODE, ago, budget, described, leaving, now, number, owner, phase, pod, with_daemon_set};

pub fn case(case: &Case) -> Outcome {
    let id = case.id.as_str();
    match id.split('-').next().unwrap_or_default() {
        "drain" => kubectl(case),
        "wait" | "skipdel" => waiting(case),
        "ns" => namespace_terminating(case),
        "ev" | "ig" | "pre" | "int" => handler(case),
        "pdb" => controller(case),
        "capi" => cluster_api(case),
        "karp" => karpenter(case),
        "cordon" | "upd" => cordon(case),
        "dryrun" => {
            Outcome::NotOurs("a dry run has no loop that could wait; it is tried on a real control plane")
        }
        "evsupport" | "doe" => Outcome::NotOurs(
            "every supported server has policy/v1 evictions, and pods are never deleted instead",
        ),
        "filter" => Outcome::NotOurs("kubectl's library lets its caller add filters"),
        "cordonhelper" | "patch" | "nilctx" | "nilclient" => {
            Outcome::NotOurs("an error of kubectl's Go library")
        }
        "dry" | "st" => Outcome::NotOurs("what the eviction handler stores"),
        "disruptiontarget" => Outcome::NotOurs("a condition that the disruption controller keeps"),
        _ => Outcome::Fail("not understood".to_owned()),
    }
}

fn kubectl(case: &Case) -> Outcome {
    let Some(list) = case.inputs.get("pods").and_then(Value::as_array) else {
        return Outcome::NotOurs("the pods of a node are watched by its name, not listed in pages");
    };
    let flags = case.texts("flags");
    let rules = Rules {
        evict_bare: flags.contains(&"--force"),
        refuse_empty_dir: !flags.iter().any(|flag| flag.starts_with("--delete-emptydir-data")),
        refuse_daemon_sets: !flags.contains(&"--ignore-daemonsets"),
        evict_finished: true,
        ..Rules::default()
    };
    let pods: Vec<Pod> = list.iter().map(described).collect();
    let cluster = Parts { pods, surroundings: with_daemon_set(), ..Parts::default() }.seal();
    let mut budgets = Budgets::new(&cluster, BTreeMap::new(), now());
    let emptying = ask_pods(&cluster, NODE, &rules, &Memory::default(), &mut budgets, now());
    let fails = emptying.left.iter().any(|left| matches!(left.wait, PodWait::Refused(_)));
    // kubectl touches no pod of a node of which it refuses one.
    let asked = if fails { 0 } else { emptying.permits.len() };
    let warned = cluster.pods().flat_map(|pod| {
        warnings(pod, class(pod, &rules, cluster.surroundings(), now()), cluster.surroundings())
    });
    if case.expects("stderr_contains") && warned.count() == 0 {
        return Outcome::Fail("no warning".to_owned());
    }
    let calls = |count: usize| if count == 1 { json!("1 (exactly once)") } else { json!(count) };
    let got = json!({
        "command_fails": fails, "pod_evicted_or_deleted": asked > 0, "evict_calls": calls(asked),
    });
    let expected = |key: &str| case.expected.get(key).cloned().unwrap_or_default();
    let wanted = json!({
        "command_fails": expected("command_fails"),
        "pod_evicted_or_deleted": expected("pod_evicted_or_deleted"),
        "evict_calls": expected("evict_calls"),
    });
    // That kubectl cordons a node which it then refuses to drain is not followed: such a node is left alone.
    Outcome::of(&got, &wanted)
}

fn waiting(case: &Case) -> Outcome {
    let of = |age: i64, skip: i64| {
        let rules = Rules { skip_deleting_after: Some(SignedDuration::from_secs(skip)), ..Rules::default() };
        let pod = Pod { special: Some(leaving(ago(age))), ..pod("old") };
        handling(&pod, class(&pod, &rules, &Surroundings::default(), now()), &rules)
    };
    match case.id.as_str() {
        "wait-5-skip-deleted" => {
            let pending = usize::from(of(100, 10) != Handling::Leave);
            Outcome::of(&json!({"pending": pending, "error": null}), &case.expected)
        }
        "skipdel-100" => Outcome::of(&json!({"delete": of(100, 20) != Handling::Leave}), &case.expected),
        "wait-3-timeout" => timed(case),
        "wait-4-context-cancelled" => Outcome::NotOurs("an error of kubectl's Go library"),
        "wait-6-client-error" => {
            Outcome::NotOurs("pods are watched; an error of the watch is not the end of the drain")
        }
        _ => Outcome::Fail("not understood".to_owned()),
    }
}

fn answered(code: u16, causes: Vec<&str>, retry_after: u32, message: &str) -> Answer {
    read(&Raw { code, causes, retry_after, message })
}

fn namespace_terminating(_: &Case) -> Outcome {
    let answer = answered(403, vec!["NamespaceTerminating"], 0, "");
    let looks_again = matches!(answer.next(), AfterAnswer::Again(..) | AfterAnswer::Show(..));
    let pod =
        Pod { special: Some(leaving(ago(0))), owner: Some(owner("apps/v1", "ReplicaSet", "x")), ..pod("p") };
    let rules = Rules::default();
    let waits =
        handling(&pod, class(&pod, &rules, &Surroundings::default(), now()), &rules) == Handling::Await;
    if looks_again && waits { Outcome::Pass } else { Outcome::Fail(format!("{answer:?}, waits {waits}")) }
}

/// The eviction handler: what it does, [`Budgets::take`] foresees; what it says, [`read`] understands.
fn handler(case: &Case) -> Outcome {
    let meaning = |answer: Answer, expected: &str| {
        if answer.label() == expected { Outcome::Pass } else { Outcome::Fail(format!("{answer:?}")) }
    };
    match case.id.as_str() {
        "ev-t7" => {
            return meaning(
                answered(400, vec![], 0, "name in URL does not match name in Eviction object"),
                "invalid",
            );
        }
        "ig-t2b" => return meaning(answered(429, vec!["DisruptionBudget"], 10, ""), "stale_pdb"),
        "ig-t4" | "ig-t5" => return meaning(answered(409, vec![], 0, ""), "conflict"),
        "ig-t10" => return meaning(answered(400, vec![], 0, "no"), "invalid"),
        "pre-missing" => return meaning(answered(404, vec![], 0, ""), "not_found"),
        "pre-uid-ok" | "pre-rv-ok" => return Outcome::NotOurs("how the handler keeps to preconditions"),
        "int-concurrent" => return Outcome::NotOurs("how the server settles races between evictions"),
        "int-cond-running-dryrun" => return Outcome::NotOurs("what the eviction handler stores"),
        id if id.starts_with("int-version") => {
            return Outcome::NotOurs("bodies that we do not send; ours is policy/v1, typed");
        }
        _ => {}
    }
    let pdb = case.inputs.get("pdb").cloned().unwrap_or_default();
    // What a case does not say is that nothing is allowed, and nothing healthy.
    let count = |key| number(&pdb, key).unwrap_or(0);
    let base = match case.id.as_str() {
        "int-unhealthy-ifhealthy-ready" => budget(1, 1, 0),
        _ => budget(count("allowed"), count("current"), count("desired")),
    };
    let selector = (pdb.get("match") != Some(&Value::Bool(false))).then(Selector::default);
    let phase = match case.text("phase").unwrap_or("Running") {
        // The last of the phases it goes through.
        text if text.contains("-> Running") => Phase::Running,
        text => phase(Some(text)),
    };
    let pod = Pod { phase, ready: case.flag("ready"), ..pod("p") };
    let expected = case.expected.get("result").and_then(Value::as_str).unwrap_or_default();
    let policies = match case.texts("policies").as_slice() {
        [] => vec!["unset"],
        list => list.to_vec(),
    };
    for policy in policies {
        let unhealthy_policy = match policy {
            "AlwaysAllow" => UnhealthyPolicy::AlwaysAllow,
            _ => UnhealthyPolicy::IfHealthyBudget,
        };
        let budgets = vec![Budget { selector: selector.clone(), unhealthy_policy, ..base.clone() }];
        let cluster = Parts { budgets, ..Parts::default() }.seal();
        let taken = Budgets::new(&cluster, BTreeMap::new(), now()).take(&pod);
        let right = match &taken {
            Err(_) => expected.starts_with("429"),
            Ok(permit) if expected.contains("without decrementing") || phase != Phase::Running => {
                permit.charge().is_none()
            }
            Ok(_) => ["deleted", "evicted", "first eviction request succeeds"]
                .iter()
                .any(|word| expected.contains(word)),
        };
        if !right {
            return Outcome::Fail(format!("{policy}: got {taken:?}, expected {expected}"));
        }
    }
    Outcome::Pass
}

fn demand(inputs: &Value) -> Option<Demand> {
    let quantity = |key: &str| match inputs.get(key)? {
        Value::Number(number) => Some(Quantity::Count(number.as_i64()?.try_into().ok()?)),
        Value::String(text) => text.strip_suffix('%')?.parse().ok().map(Quantity::Percent),
        _ => None,
    };
    quantity("maxUnavailable")
        .map(Demand::MaxUnavailable)
        .or_else(|| quantity("minAvailable").map(Demand::MinAvailable))
}

/// The disruption controller's arithmetic, and how it finds controllers.
fn controller(case: &Case) -> Outcome {
    if let Some(outcome) = finders(case) {
        return outcome;
    }
    let Some(demand) = demand(&case.inputs)
        .or_else(|| number(&case.inputs, "minAvailable").map(|n| Demand::MinAvailable(Quantity::Count(n))))
    else {
        return Outcome::Fail("no demand understood".to_owned());
    };
    let count = |key: &str| number(&case.inputs, key);
    let scales = [
        ("replicaSet_replicas", "apps/v1", "ReplicaSet"),
        ("rc_replicas", "v1", "ReplicationController"),
        ("deployment_replicas", "apps/v1", "Deployment"),
        ("custom_resource_scale", "x.io/v1", "Thing"),
    ];
    let workloads: Vec<Workload> = scales
        .into_iter()
        .filter_map(|(key, api_version, kind)| {
            Some(Workload {
                this: owner(api_version, kind, "x"),
                namespace: "default".into(),
                replicas: Some(count(key)?),
                owner: None,
                ignores_disruption: false,
            })
        })
        .collect();
    let bare = count("bare_ready_pods");
    let pods = bare.or_else(|| count("ready_pods")).or_else(|| count("pods")).unwrap_or(0);
    let mut pods: Vec<Pod> = (0..pods)
        .zip(workloads.iter().map(|workload| Some(&workload.this)).cycle().chain(std::iter::repeat(None)))
        .map(|(number, owner)| Pod { owner: owner.cloned(), ..pod(&format!("p{number}")) })
        .collect();
    if workloads.is_empty() {
        let api_kind = case.text("controller").map(|_| owner("batch/v1", "Job", "x"));
        let all = usize::try_from(bare.or_else(|| count("pods")).unwrap_or(0)).unwrap();
        pods = (0..all).map(|number| Pod { owner: api_kind.clone(), ..pod(&format!("p{number}")) }).collect();
    }
    let mut budget = Budget { demand, ..budget(0, 0, 0) };
    if let Some(names) = case.inputs.get("disruptedPods").and_then(Value::as_object) {
        pods = case
            .texts("pods")
            .iter()
            .map(|text| {
                let name = text.split(' ').next().unwrap_or_default();
                Pod { special: text.contains("deleting").then(|| leaving(ago(0))), ..pod(name) }
            })
            .collect();
        let since = |text: &str| match text {
            "3 min ago" => ago(180),
            "1 min ago" => ago(60),
            _ => ago(0),
        };
        budget.disrupted = names
            .iter()
            .map(|(name, since_)| (name.as_str().into(), since(since_.as_str().unwrap_or_default())))
            .collect();
    }
    let surroundings =
        Surroundings { workloads: Some(workloads.into_iter().collect()), ..Surroundings::default() };
    let pods: Vec<&Pod> = pods.iter().collect();
    let got = match compute(&budget, &pods, &surroundings, now()) {
        Ok(numbers) => json!({
            "disruptionsAllowed": numbers.allowed,
            "currentHealthy": numbers.healthy,
            "desiredHealthy": numbers.desired,
            "expectedPods": numbers.expected,
            "disruptedPods_after": disrupted(&budget, &pods, now()).keys().map(ToString::to_string).collect::<Vec<_>>(),
            "event": if pods.iter().any(|pod| pod.owner.is_none()) { "UnmanagedPods" } else { "" },
        }),
        Err(Unsynced::Unknown) => return Outcome::Fail("a controller that was not read".to_owned()),
        // The controller then leaves everything but this as it was.
        Err(_) => json!({"disruptionsAllowed": 0, "event": "CalculateExpectedPodCountFailed"}),
    };
    for (key, expected) in case.expected.as_object().into_iter().flatten().filter(|(key, _)| *key != "note") {
        if got.get(key) != Some(expected) {
            return Outcome::Fail(format!("{key}: got {got}, expected {expected}"));
        }
    }
    Outcome::Pass
}

fn finders(case: &Case) -> Option<Outcome> {
    let workload = |this: &Arc<Owner>, replicas| Workload {
        this: this.clone(),
        namespace: "default".into(),
        replicas,
        owner: None,
        ignores_disruption: false,
    };
    if case.expects("error") {
        let thing = owner("x.io/v1", "Thing", "x");
        let read = match case.text("discovery").unwrap_or_default() {
            // A kind without a scale is seen as such once one of it was read.
            text if text.contains("has no /scale") => vec![workload(&thing, None)],
            text if text.contains("wrong kind") => {
                return Some(Outcome::NotOurs("discovery is not read; the message of SyncFailed is"));
            }
            _ => Vec::new(),
        };
        let surroundings =
            Surroundings { workloads: Some(read.into_iter().collect()), ..Surroundings::default() };
        let error = surroundings.scale(&"default".into(), &thing) == Scale::None;
        return Some(Outcome::of(&json!({"error": error}), &case.expected));
    }
    if !case.expects("scale") {
        return None;
    }
    let read =
        [("apps/v1", "ReplicaSet", 10), ("v1", "ReplicationController", 12), ("apps/v1", "StatefulSet", 14)];
    let workloads =
        read.map(|(api_version, kind, replicas)| workload(&owner(api_version, kind, "x"), Some(replicas)));
    let surroundings =
        Surroundings { workloads: Some(workloads.into_iter().collect()), ..Surroundings::default() };
    let wanted = match case.text("controllerRef").unwrap_or_default() {
        "apps ReplicaSet" => owner("apps/v1", "ReplicaSet", "x"),
        "ReplicaSet in group invalid" => owner("invalid/v1", "ReplicaSet", "x"),
        "core RC" => owner("v1", "ReplicationController", "x"),
        "RC in group apps" => owner("apps/v1", "ReplicationController", "x"),
        "apps StatefulSet" => owner("apps/v1", "StatefulSet", "x"),
        // The StatefulSet's name and UID, said to be a ReplicaSet.
        _ => {
            let set = owner("apps/v1", "StatefulSet", "x");
            Arc::new(Owner { kind: "ReplicaSet".into(), ..(*set).clone() })
        }
    };
    let scale = match surroundings.scale(&"default".into(), &wanted) {
        Scale::Of(_, replicas) => json!(replicas),
        _ => Value::Null,
    };
    Some(Outcome::of(&json!({"scale": scale}), &case.expected))
}

fn cluster_api(case: &Case) -> Outcome {
    let Some(value) = case.inputs.get("pod").filter(|value| value.is_object()) else {
        return Outcome::NotOurs("MachineDrainRules");
    };
    if value.get("rule").is_some() {
        return Outcome::NotOurs("MachineDrainRules");
    }
    let skip = value.get("skip_timeout_s").and_then(Value::as_i64).map(SignedDuration::from_secs);
    let rules = Rules {
        evict_bare: true,
        evict_finished: true,
        cluster_api_labels: true,
        skip_deleting_after: skip,
        ..Rules::default()
    };
    let pod = described(value);
    let surroundings = with_daemon_set();
    let class = class(&pod, &rules, &surroundings, now());
    let warned = !warnings(&pod, class, &surroundings).is_empty();
    let (behavior, reason) = match handling(&pod, class, &rules) {
        Handling::Leave => ("Skip", "Skip"),
        Handling::Await if class == Class::WaitCompleted => ("WaitCompleted", "WaitCompleted"),
        Handling::Evict if warned => ("Drain", "Warning"),
        Handling::Evict | Handling::Await => ("Drain", "Okay"),
        Handling::Refuse(_) => ("error", "Error"),
    };
    // The words of the message are ours.
    let expected = json!({"behavior": case.expected["behavior"], "reason": case.expected["reason"]});
    Outcome::of(&json!({"behavior": behavior, "reason": reason}), &expected)
}

fn karpenter(case: &Case) -> Outcome {
    let rules = Rules { critical_last: true, ..Rules::default() };
    let waits = |pods: Vec<Pod>, budget: Vec<Budget>| {
        let cluster = Parts { pods, budgets: budget, ..Parts::default() }.seal();
        let mut budgets = Budgets::new(&cluster, BTreeMap::new(), now());
        let emptying = ask_pods(&cluster, NODE, &rules, &Memory::default(), &mut budgets, now());
        (emptying.permits.len(), emptying.left.into_iter().map(|left| left.wait).collect::<Vec<_>>())
    };
    let owned = || Pod { owner: Some(owner("apps/v1", "ReplicaSet", "x")), ..pod("p") };
    let critical = || {
        let traits = evenkeel_core::cluster::Traits { critical: true, ..Default::default() };
        Pod { special: Some(Arc::new(traits)), ..Pod { name: "q".into(), ..owned() } }
    };
    let held = |wait: &PodWait| matches!(wait, PodWait::Budget(_));
    let right = match case.id.as_str() {
        "karp-terminal" => waits(vec![Pod { phase: Phase::Finished, ..pod("p") }], vec![]).1.is_empty(),
        "karp-pdb" => waits(vec![owned()], vec![budget(0, 2, 2)]).1.iter().all(held),
        "karp-order" => waits(vec![owned(), critical()], vec![]).1 == [PodWait::Asked, PodWait::Turn],
        "karp-static" => waits(vec![Pod { mirror: true, ..pod("p") }], vec![]).1.is_empty(),
        "karp-wait" => {
            waits(vec![Pod { special: Some(leaving(ago(0))), ..owned() }], vec![]).1 == [PodWait::Leaving]
        }
        "karp-two-pdbs" => {
            let another = Budget { name: "other".into(), ..budget(1, 3, 2) };
            waits(vec![owned()], vec![budget(1, 3, 2), another]).1.iter().all(held)
        }
        // A permit is for a UID: what was remembered of the old pod says nothing about the new one.
        "karp-new-uid" => {
            let cluster = Cluster::default();
            let permit = Budgets::new(&cluster, BTreeMap::new(), now()).take(&owned());
            permit.is_ok_and(|permit| **permit.uid() == *"uid-p")
        }
        "karp-404" => answered(404, vec![], 0, "").next() == AfterAnswer::Watch,
        // The watch says which it was; a pod of another UID was never asked.
        "karp-409" => matches!(answered(409, vec![], 0, "").next(), AfterAnswer::Again(..)),
        "karp-stuck" => {
            return Outcome::NotOurs(
                "a stuck pod is named, and left only with --skip-wait-for-delete-timeout",
            );
        }
        "karp-tolerates-disruption-taint" => {
            return Outcome::NotOurs(
                "a taint of Karpenter's; pods that tolerate a cordon are warned of and evicted once",
            );
        }
        "karp-no-instance" | "karp-no-instance-ready" | "karp-va-undrainable" => {
            return Outcome::NotOurs("deletion of machines");
        }
        "karp-tgp" | "karp-tgp-tier" | "karp-mindrain" => {
            return timed(case);
        }
        _ => return Outcome::Fail("not understood".to_owned()),
    };
    if right { Outcome::Pass } else { Outcome::Fail("otherwise".to_owned()) }
}
