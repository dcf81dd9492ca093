//! Cases that ask what a drain decides as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::cluster::{Cluster, Node, Parts, Pod};
use evenkeel_core::disruption::{CordonMark, Memory, Rules};
use evenkeel_core::drain::{
    DrainAction, DrainDecision, DrainPolicy, DrainRequest, DrainWorld, NodeDrain, NodeState, OnTimeout,
    RefusedPatches, SETTLE, decide,
};
use jiff::SignedDuration;
use serde_json::json;

use super::values::{NODE, ago, budget, leaving, now, owner, pod};
use crate::{Case, Outcome};

/// A drain of the node of that name at `now`, `seconds` after it began if it did, on this cluster.
fn drained(
    cluster: &Cluster,
    begun: Option<i64>,
    change: impl FnOnce(&mut DrainRequest),
) -> DrainDecision<'_> {
    let mut request = DrainRequest {
        nodes: vec![NODE.into()],
        concurrency: 1,
        policy: DrainPolicy {
            rules: Rules { evict_finished: true, ..Rules::default() },
            timeout: None,
            on_timeout: OnTimeout::Park,
            settle: SETTLE,
            await_volumes: false,
        },
        give_back: false,
        mark: CordonMark::of_drain(now(), "a"),
        stopped: None,
    };
    change(&mut request);
    let states = begun.map(|seconds| {
        let since = ago(seconds);
        (Arc::from(NODE), NodeState::Draining(NodeDrain::new(since, since)))
    });
    let world = DrainWorld {
        cluster,
        memory: &Memory::default(),
        states: &states.into_iter().collect(),
        uids: &BTreeMap::new(),
        confirmed: &BTreeMap::new(),
        reread: &BTreeMap::from([(NODE.into(), now())]),
        refused: &RefusedPatches::default(),
        now: now(),
    };
    decide(&request, world)
}

fn node(unschedulable: bool) -> Node {
    Node {
        name: NODE.into(),
        uid: "uid".into(),
        resource_version: "1".into(),
        pool: "default".into(),
        labels: Arc::default(),
        kubelet: evenkeel_core::version::Observed::from_report("v1.37.1"),
        evidence: evenkeel_core::cluster::Evidence::Kubelet,
        ready: true,
        heartbeat: None,
        not_ready_since: None,
        unschedulable,
        cordoned_by: None,
        held: false,
        control_plane: false,
        etcd: false,
        taints: "".into(),
        outdated_for: None,
    }
}

/// A drain cordons when that is needed; `uncordon` is for what a drain of ours marked.
pub(super) fn cordon(case: &Case) -> Outcome {
    let before = case.flag("unschedulable_before") || case.flag("current");
    let nodes = if case.text("args").is_some_and(|args| args.contains("missing")) {
        vec![]
    } else {
        vec![node(before).into()]
    };
    let cluster = Parts { nodes, ..Parts::default() }.seal();
    if case.text("command") == Some("uncordon") || case.id == "upd-3" {
        return Outcome::NotOurs("uncordon is for nodes that a drain of ours cordoned");
    }
    let decision = drained(&cluster, None, |_| {});
    let patched = decision.actions.iter().any(|action| matches!(action, DrainAction::Cordon(_)));
    if case.expects("update_required") {
        return Outcome::of(&json!({"update_required": patched}), &case.expected);
    }
    let failed = decision.states.values().any(|state| matches!(state, NodeState::Failed { .. }));
    let got = json!({
        "unschedulable_after": before || patched, "command_fails": failed, "patch_sent": patched,
    });
    Outcome::of(&got, &case.expected)
}

/// What happens when the time of a drain is over, and when it is over too soon.
pub(super) fn timed(case: &Case) -> Outcome {
    let left = || Pod { owner: Some(owner("apps/v1", "ReplicaSet", "x")), ..pod("p") };
    let parts = |pods: Vec<Pod>| Parts {
        nodes: vec![node(true).into()],
        pods,
        budgets: vec![budget(0, 2, 2)],
        ..Parts::default()
    };
    let blocked = parts(vec![left()]).seal();
    let in_time = SignedDuration::from_secs(3);
    let right = match case.id.as_str() {
        "wait-3-timeout" => {
            let leaving = parts(vec![Pod { special: Some(leaving(ago(0))), ..left() }]).seal();
            let decision = drained(&leaving, Some(4), |request| request.policy.timeout = Some(in_time));
            decision.states.values().all(
                |state| matches!(state, NodeState::Failed { why } if why.to_string().contains("within 3 s")),
            )
        }
        "karp-tgp" => {
            let decision = drained(&blocked, Some(4), |request| {
                (request.policy.timeout, request.policy.on_timeout) = (Some(in_time), OnTimeout::Force);
            });
            matches!(decision.actions.as_slice(), [DrainAction::Delete(_)])
        }
        "karp-tgp-tier" => {
            let traits = evenkeel_core::cluster::Traits { critical: true, ..Default::default() };
            let critical =
                Pod { special: Some(Arc::new(traits)), name: "q".into(), uid: "q".into(), ..left() };
            let both = parts(vec![critical, left()]).seal();
            let decision = drained(&both, Some(4), |request| {
                (request.policy.timeout, request.policy.on_timeout) = (Some(in_time), OnTimeout::Force);
                request.policy.rules.critical_last = true;
            });
            decision.actions.iter().filter(|action| matches!(action, DrainAction::Delete(_))).count() == 2
        }
        "karp-mindrain" => {
            let empty = Parts { nodes: vec![node(true).into()], ..Parts::default() }.seal();
            let confirms = |seconds| !drained(&empty, Some(seconds), |_| {}).actions.is_empty();
            !confirms(4) && confirms(5)
        }
        _ => return Outcome::Fail("not understood".to_owned()),
    };
    if right { Outcome::Pass } else { Outcome::Fail("otherwise".to_owned()) }
}
