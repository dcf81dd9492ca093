//! What is kept of objects as real servers send them, and of objects that lack almost everything.

use std::collections::BTreeMap;

use evenkeel_core::cluster::{Attachment, Parts, Surroundings, UnhealthyPolicy};
use evenkeel_core::disruption::{Budgets, Memory, Rules};
use evenkeel_core::drain::{DrainPolicy, DrainStep, DrainView, NodeDrain, OnTimeout, SETTLE};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::fold::{Fold, Watched};
use super::super::interner::{Detail, Interner};
use super::*;

fn keep<K: Watched>(object: Value) -> K::Kept {
    serde_json::from_value::<K>(object).unwrap().keep(&mut Interner::default())
}

#[test]
fn objects_that_lack_everything_are_read_and_permit_nothing() {
    let empty = || json!({"metadata": {"name": "x"}});
    let node = keep::<Node>(empty());
    assert!(!node.node.ready && node.node.kubelet.known().is_none());
    assert_eq!(node.node.pool.as_ref(), "default");
    let budget = keep::<PodDisruptionBudget>(empty());
    assert_eq!((budget.disruptions_allowed, budget.selector.clone()), (0, None));
    assert!(!keep::<Pod>(empty()).pod.ready);
    assert!(
        keep::<EndpointSlice>(json!({"metadata": {}, "endpoints": null, "ports": null})).addresses.is_empty()
    );
    assert!(keep::<Job>(empty()).complete.is_none());
}

#[test]
fn a_node_with_everything() {
    let object = json!({
        "metadata": {
            "name": "n1", "uid": "u1", "resourceVersion": "7",
            "labels": {"karpenter.sh/nodepool": "spot", "node-role.kubernetes.io/control-plane": ""},
            "annotations": {"evenkeel.dev/cordoned-by": "up/1", "evenkeel.dev/hold": "", "other": "x"},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": 7, "f:spec": {"f:taints": {}}}}],
        },
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-20T11:59:15Z"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4"},
        },
    });
    let wire: Node = serde_json::from_value(object.clone()).unwrap();
    assert!(wire.metadata.managed_fields.is_none());
    assert_eq!(wire.metadata.annotations.as_ref().map(BTreeMap::len), Some(2));
    let seen = keep::<Node>(object.clone());
    let node = &seen.node;
    assert_eq!((node.pool.as_ref(), node.kubelet.to_string().as_str()), ("spot", "v1.36.4"));
    assert_eq!(node.cordoned_by.as_deref(), Some("up/1"));
    assert!(node.ready && node.held && node.unschedulable && node.control_plane && node.heartbeat.is_some());

    assert!(!node.etcd && node.not_ready_since.is_none());
    let mut other = object.clone();
    other["metadata"]["labels"] = json!({"node-role.kubernetes.io/etcd": "true"});
    other["status"]["conditions"] =
        json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-20T11:40:00Z"}]);
    let other = keep::<Node>(other);
    assert!(other.node.etcd && !other.node.control_plane, "a member of etcd and nothing else");
    assert_eq!(other.node.not_ready_since, "2026-11-20T11:40:00Z".parse().ok());

    let changed = |pointer: &str, value: Value| {
        let mut object = object.clone();
        *object.pointer_mut(pointer).unwrap() = value;
        Node::wakes(&seen, &keep::<Node>(object))
    };
    assert!(!changed("/status/conditions/0/lastHeartbeatTime", json!("2026-11-20T12:04:15Z")), "a heartbeat");
    assert!(!changed("/metadata/resourceVersion", json!("8")));
    assert!(changed("/status/nodeInfo/kubeletVersion", json!("v1.37.1")));
    assert!(changed("/status/conditions/0/status", json!("Unknown")));

    let cordoned_by = |manager: &str| {
        let mut object = object.clone();
        let fields = json!({"f:spec": {".": {}, "f:unschedulable": {}}});
        object["metadata"]["managedFields"] =
            json!([{"manager": "kubelet"}, {"manager": manager, "operation": "Update", "fieldsV1": fields}]);
        keep::<Node>(object).node.cordoned_by.clone()
    };
    assert_eq!(cordoned_by("evenkeel-upgrade").as_deref(), Some("up/1"));
    assert_eq!(cordoned_by("kubectl-cordon"), None, "somebody took our cordon away, and cordoned it again");
}

#[test]
fn a_control_plane_node_without_a_pool_is_its_own_pool() {
    let node = keep::<Node>(json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}));
    assert_eq!(node.node.pool.as_ref(), "control-plane");
}

#[test]
fn a_pod_with_everything() {
    let owner = |kind: &str, controller: bool| json!({"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u", "controller": controller});
    let seen = keep::<Pod>(json!({
        "metadata": {
            "name": "web-1", "namespace": "shop", "uid": "u1", "deletionTimestamp": "2026-11-20T12:00:30Z",
            "labels": {"evenkeel.dev/node-upgrade": "prod-137-n1"},
            "ownerReferences": [owner("Other", false), owner("ReplicaSet", true)],
        },
        "spec": {"nodeName": "n1", "volumes": [{"name": "a", "configMap": {}}, {"name": "b", "emptyDir": {}}]},
        "status": {"phase": "Failed", "conditions": [{"type": "Ready", "status": "False"}]},
    }));
    let pod = &seen.pod;
    assert_eq!(pod.owner.as_ref().map(|owner| owner.kind.as_ref()), Some("ReplicaSet"));
    assert_eq!(pod.phase, evenkeel_core::cluster::Phase::Finished);
    assert!(pod.deleting().is_some() && pod.empty_dir && !pod.mirror && !pod.ready);
    assert_eq!(pod.traits().executor_of.as_deref(), Some("prod-137-n1"));
    assert_eq!(seen.runs, None, "components run in kube-system only");
}

/// A kubeadm that refuses says so in many lines, the reason last; what others run may say what it likes.
#[test]
fn what_an_executor_said_at_its_end_is_one_line_of_it() {
    let said = |labels: serde_json::Value, ended: &[(i64, &str)]| {
        let state = |(code, message): &(i64, &str)| json!({"name": "c", "state": {"terminated": {"exitCode": code, "message": message}}});
        let seen = keep::<Pod>(json!({
            "metadata": {"name": "up-1", "namespace": "evenkeel-executors", "labels": labels},
            "status": {"containerStatuses": ended.iter().map(state).collect::<Vec<_>>()},
        }));
        seen.pod.traits().last_words.as_ref().map(ToString::to_string)
    };
    let ours = || json!({"evenkeel.dev/node-upgrade": "uid"});
    let refusal = "[upgrade] checks\n\n  \u{1b}[31merror: cgroup v1\n";
    assert_eq!(said(ours(), &[(1, refusal)]).as_deref(), Some("[upgrade] checks / ?[31merror: cgroup v1"));
    assert_eq!(said(ours(), &[(0, "all is well"), (1, " \n")]), None);
    assert_eq!(said(json!({}), &[(1, "somebody else's")]), None);
    let long = said(ours(), &[(1, &"ä".repeat(4000))]).unwrap();
    assert_eq!((long.chars().count(), long.starts_with('…')), (401, true));
    let many = said(ours(), &[(1, &format!("{}\nReading package lists\nE: not found", "x".repeat(380)))]);
    assert_eq!(many.as_deref(), Some("… / Reading package lists / E: not found"));
}

#[test]
fn how_long_a_pod_needed_is_told_by_one_that_has_been_ready_since() {
    let pod = |ready: &str, at: &str, restarts: u32| {
        let seen = keep::<Pod>(json!({
            "metadata": {"name": "web-1", "namespace": "shop"},
            "status": {"startTime": "2026-11-20T12:00:00Z", "containerStatuses": [{"name": "c", "restartCount": restarts}],
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": at}]},
        }));
        seen.pod.ready_after
    };
    assert_eq!(pod("True", "2026-11-20T12:00:12Z", 0), Some(12));
    assert_eq!(pod("True", "2026-11-20T12:00:12Z", 1), None, "it was ready earlier");
    assert_eq!(pod("True", "2026-11-20T12:10:00Z", 0), Some(600));
    assert_eq!(pod("True", "2026-11-20T12:10:01Z", 0), None, "it is ready again");
    assert_eq!(pod("False", "2026-11-20T12:00:12Z", 0), None);
    assert_eq!(pod("True", "2026-11-21T12:00:12Z", 0), None, "a day is no time to begin");
    assert_eq!(pod("True", "yesterday", 0), None);
}

#[test]
fn a_budget_whose_numbers_are_stale_says_so() {
    let budget = keep::<PodDisruptionBudget>(json!({
        "metadata": {"name": "b", "namespace": "shop", "generation": 3},
        "spec": {"selector": {"matchLabels": {"app": "cart"}}, "unhealthyPodEvictionPolicy": "Sometimes"},
        "status": {
            "observedGeneration": 2, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2,
            "conditions": [{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "why"}],
        },
    }));
    assert_eq!((budget.generation, budget.observed_generation, budget.disruptions_allowed), (3, 2, 1));
    assert_eq!(budget.sync_failed.as_deref(), Some("why"));
    assert_eq!(budget.unhealthy_policy, UnhealthyPolicy::Unrecognised);
    assert!(budget.selector.is_some());
}

/// Go reads `null` as its zero time, so the pod counts as disrupted since long ago.
#[test]
fn a_disruption_without_a_time_was_long_ago() {
    let budget = keep::<PodDisruptionBudget>(json!({
        "metadata": {"name": "b", "namespace": "shop"},
        "status": {"disruptionsAllowed": 1, "disruptedPods": {"a": null, "b": "2026-11-01T10:00:00Z"}},
    }));
    assert_eq!(budget.disrupted.len(), 2);
    assert_eq!(budget.disrupted["a"], jiff::Timestamp::MIN);
    assert_eq!(budget.disruptions_allowed, 1, "and the budget is read");
}

#[test]
fn endpoints_are_dialable_addresses() {
    let slice = keep::<EndpointSlice>(json!({
        "metadata": {"resourceVersion": "4"},
        "endpoints": [{"addresses": ["192.0.2.1"]}, {"addresses": ["2001:db8::1"]}],
        "ports": [{"name": "konnectivity", "port": 8132}, {"name": "https", "port": 6443}],
    }));
    let addresses: Vec<_> = slice.addresses.iter().map(AsRef::as_ref).collect();
    assert_eq!(addresses, ["192.0.2.1:6443", "[2001:db8::1]:6443"]);
}

#[test]
fn a_job_that_failed() {
    let job = keep::<Job>(json!({
        "metadata": {"name": "j", "namespace": "evenkeel", "uid": "u", "labels": {"a": "b"}},
        "status": {"failed": 2, "conditions": [
            {"type": "Complete", "status": "False"}, {"type": "Failed", "status": "True", "message": "BackoffLimit"}]},
    }));
    assert_eq!(
        (job.failed.as_deref(), job.complete.as_deref(), job.failed_pods),
        (Some("BackoffLimit"), None, 2)
    );
}

/// 5,000 nodes in twenty pools and three zones have 60 label sets, not 5,000.
#[test]
fn the_nodes_of_a_pool_share_their_labels_in_a_report() {
    let node = |name: &str| -> Node {
        let labels = json!({"kubernetes.io/hostname": format!("{name}.local"), "pool": "general"});
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
    };
    for (detail, shared) in [(Detail::Report, true), (Detail::Decisions, false)] {
        let mut fold = Fold::<Node>::new(detail);
        fold.list_begins();
        fold.listed(node("a"));
        fold.listed(node("b"));
        fold.list_ends("1");
        let nodes: Vec<_> = fold.values().cloned().collect();
        assert_eq!(std::sync::Arc::ptr_eq(&nodes[0].node.labels, &nodes[1].node.labels), shared);
        assert!(nodes[0].is_host("a.local") && nodes[0].is_host("a") && !nodes[0].is_host("b.local"));
        assert_eq!(nodes[0].node.pool.as_ref(), "general");
    }
}

#[test]
fn an_apiservers_address_is_an_ip() {
    let slice = |address: &str| {
        let ports = json!([{"name": "https", "port": 6443}]);
        let object = json!({"metadata": {}, "endpoints": [{"addresses": [address]}], "ports": ports});
        serde_json::from_value::<EndpointSlice>(object).map(|slice| slice.keep(&mut Interner::default()))
    };
    assert_eq!(slice("2001:db8::1").unwrap().addresses[0].as_ref(), "[2001:db8::1]:6443");
    assert!(slice(&"x".repeat(1000)).is_err(), "it would be a row of the report");
}

#[test]
fn devices_that_a_pod_claims() {
    let of = |claims: Value| {
        let pod = keep::<Pod>(json!({"metadata": {"name": "x"}, "spec": {"resourceClaims": claims}}));
        pod.pod.traits().device_claims
    };
    assert!(of(json!([{"name": "gpu", "resourceClaimTemplateName": "gpu"}])));
    assert!(!of(json!([])) && !of(Value::Null));
}

/// A claim of that name is made for the pod alone and goes with it, so that it ties no other pod to a node.
#[test]
fn the_volume_that_a_pod_which_stays_made_for_itself_is_not_waited_for() {
    let now: Timestamp = "2026-11-25T12:00:00Z".parse().unwrap();
    let detaching = |owner: &str, volumes: Value| {
        let owner =
            json!([{"kind": owner, "name": "logs", "uid": "u", "controller": true, "apiVersion": "apps/v1"}]);
        let pod = json!({
            "metadata": {"name": "logs-x", "namespace": "shop", "uid": "p", "ownerReferences": owner},
            "spec": {"nodeName": "n-1", "volumes": volumes},
            "status": {"phase": "Running"},
        });
        let node = json!({"metadata": {"name": "n-1", "uid": "n"}, "spec": {"unschedulable": true}});
        let claims = [("pv-1".into(), ("shop".into(), "logs-x-buffer".into()))].into();
        let attached = [Attachment { node: "n-1".into(), volume: "pv-1".into() }].into();
        let cluster = Parts {
            nodes: vec![keep::<Node>(node).node.clone()],
            pods: vec![keep::<Pod>(pod).pod.as_ref().clone()],
            surroundings: Surroundings {
                claims: Some(claims),
                attached: Some(attached),
                ..Surroundings::default()
            },
            ..Parts::default()
        }
        .seal();
        let policy = DrainPolicy {
            rules: Rules::default(),
            timeout: None,
            on_timeout: OnTimeout::Park,
            settle: SETTLE,
            await_volumes: true,
        };
        let memory = Memory::default();
        let seen = DrainView {
            cluster: &cluster,
            memory: &memory,
            policy: &policy,
            stopped: false,
            reread: None,
            now,
        };
        let budgets = Budgets::new(&cluster, BTreeMap::new(), now);
        let node = cluster.node("n-1").unwrap();
        match NodeDrain::new(now, now).step(node, seen, &budgets).0 {
            DrainStep::Detaching(volumes) => Some(volumes),
            DrainStep::Settling => None,
            other => panic!("{other:?}"),
        }
    };
    let ephemeral = |name: &str| json!([{"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
    assert_eq!(detaching("DaemonSet", ephemeral("buffer")), None);
    let other = Some("volume pv-1 (shop/logs-x-buffer) still attached to it".to_owned());
    assert_eq!(detaching("DaemonSet", ephemeral("cache")), other, "another one");
    let named = json!([{"name": "buffer", "persistentVolumeClaim": {"claimName": "logs-x-buffer"}}]);
    assert_eq!(detaching("DaemonSet", named), None);
}
