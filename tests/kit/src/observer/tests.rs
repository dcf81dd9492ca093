//! What is judged of events that no cluster sent.

use std::error::Error;

use evenkeel_devcluster::{Role, V1_36, V1_37};
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::watched::{Component, Part};

type Tested = Result<(), Box<dyn Error>>;

fn at(second: i64) -> Timestamp {
    let ten = "2026-11-21T10:00:00Z".parse::<Timestamp>().unwrap_or_default();
    ten + SignedDuration::from_secs(second)
}

/// An observer and what reads forged events for it, each at a second of its own.
struct Forged(Observer);

impl Forged {
    fn new() -> Self {
        Self(Observer::with_limits(&[("general", 1)]))
    }

    fn sees(&self, second: i64, event: Seeing) -> Vec<Question> {
        self.0.sees(event, at(second), at(0))
    }

    fn violations(&self) -> Vec<String> {
        self.0.seen().violations
    }
}

fn claim(version: u64, uid: &str, component: &str, node: &str, state: &str, since: i64) -> DynamicObject {
    let value = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeUpgrade",
        "metadata": {
            "name": format!("to.{component}.{node}"), "uid": uid, "resourceVersion": version.to_string(),
            "creationTimestamp": at(since).to_string(),
        },
        "spec": {"component": component, "nodeName": node, "toVersion": "v1.37.1"},
        "status": {"state": state, "attempt": 1, "since": at(since).to_string()},
    });
    serde_json::from_value(value).unwrap_or_else(|error| unreachable!("{error}"))
}

fn job(version: u64, claim: &str, ended: Option<(&str, i64)>) -> Result<Job, serde_json::Error> {
    let conditions = ended.map(|(how, second)| {
        json!([{"type": how, "status": "True", "lastTransitionTime": at(second).to_string()}])
    });
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("job-{claim}"), "uid": format!("job-{claim}"), "resourceVersion": version.to_string(),
            "labels": {"evenkeel.dev/node-upgrade": claim},
        },
        "status": {"active": 1, "conditions": conditions.unwrap_or_default()},
    }))
}

fn node(
    version: u64,
    name: &str,
    control_plane: bool,
    mark: Option<&str>,
) -> Result<Node, serde_json::Error> {
    let label = if control_plane { "node-role.kubernetes.io/control-plane" } else { "worker" };
    let annotations = mark.map(|mark| json!({ MARK: mark }));
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "resourceVersion": version.to_string(), "labels": {label: ""},
            "annotations": annotations,
        },
        "spec": {"unschedulable": mark.is_some()},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {
                "kubeletVersion": "v1.37.1", "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
                "systemUUID": "",
            },
        },
    }))
}

fn budget(waits: &Value) -> Result<PodDisruptionBudget, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "ledger"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "ledger"}}},
        "status": {"desiredHealthy": 1, "currentHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1,
            "disruptedPods": waits},
    }))
}

fn live(claim: DynamicObject) -> Seeing {
    Seeing::Claim(Event::Apply(claim))
}

fn listed(claim: DynamicObject) -> Seeing {
    Seeing::Claim(Event::InitApply(claim))
}

#[test]
fn a_budget_that_is_listed_after_its_pods_is_seen_to_be_whole() -> Tested {
    let forged = Forged::new();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "ledger-0", "labels": {"app": "ledger"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))?;
    for event in [Event::Init, Event::InitApply(pod), Event::InitDone] {
        forged.sees(1, Seeing::Pod(event));
    }
    for event in [Event::Init, Event::InitApply(budget(&Value::Null)?), Event::InitDone] {
        forged.sees(2, Seeing::Budget(event));
    }
    assert!(forged.0.seen().is_whole("shop/ledger"));
    assert_eq!(forged.violations(), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_budget_that_waits_long_for_an_eviction_is_seen_by_the_time_of_the_event() -> Tested {
    let waited = |seconds| -> Result<_, serde_json::Error> {
        let forged = Forged::new();
        let since = at(0).to_string();
        let before = budget(&json!({"ledger-0": since, "ledger-1": since}))?;
        forged.sees(1, Seeing::Budget(Event::Apply(before)));
        forged.sees(seconds, Seeing::Budget(Event::Apply(budget(&json!({"ledger-1": since}))?)));
        Ok(forged.0.seen().waits)
    };
    assert_eq!(waited(10)?, []);
    let line = "PDB ledger waited 119 s for the eviction of ledger-0".to_owned();
    assert_eq!(waited(119)?, [Noted { at: at(119), line }]);
    Ok(())
}

#[test]
fn what_is_first_read_in_a_list_as_upgraded_is_judged_if_it_was_said_meanwhile() {
    let upgraded = |uid, since| claim(9, uid, "kube-apiserver", "cp-1", "Upgraded", since);
    let forged = Forged::new();
    // Before anybody watched; after the API was away; and what was told already.
    assert_eq!(forged.sees(1, listed(upgraded("a", -5))), []);
    let asked = forged.sees(60, listed(upgraded("b", 42)));
    assert!(
        matches!(&asked[..], [Question::Upgraded { claim, said, .. }] if claim == "b" && *said == at(42)),
        "{asked:?}"
    );
    assert_eq!(forged.sees(90, listed(upgraded("b", 42))), []);
    assert_eq!(forged.sees(91, live(upgraded("b", 42))), []);
    // Called upgraded once more, after another attempt.
    assert_eq!(forged.sees(200, live(upgraded("b", 199))).len(), 1);
}

#[tokio::test]
async fn no_event_waits_for_an_answer_and_no_answer_is_cut_off() -> Result<(), Failure> {
    let forged = Forged::new();
    let upgraded = |uid| live(claim(9, uid, "kubelet", "worker-1", "Upgraded", 1));
    let events = futures::stream::iter([upgraded("a"), upgraded("b")]).chain(futures::stream::pending());
    let (asked, answered) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let ask = async |question: Question, at: Timestamp| {
        if let (Question::Upgraded { claim, .. }, Ok(mut asked)) = (question, asked.lock()) {
            asked.push((claim, at));
        }
        tokio::time::sleep(ARRIVES_WITHIN + Duration::from_millis(500)).await;
        if let Ok(mut answered) = answered.lock() {
            answered.push(at);
        }
    };
    // Whatever is watched ends at once, as an upgrade does that says "Completed".
    forged.0.follow(events, std::future::ready(Ok(())), ask).await?;
    let asked = asked.lock().map(|asked| asked.clone()).unwrap_or_default();
    let [(a, first), (b, second)] = &asked[..] else { unreachable!("{asked:?}") };
    assert_eq!((a.as_str(), b.as_str()), ("a", "b"));
    assert!(second.duration_since(*first) < SignedDuration::from_millis(500), "{asked:?}");
    assert_eq!(answered.lock().map(|answered| answered.len()).unwrap_or_default(), 2);
    Ok(())
}

#[test]
fn each_completed_is_judged_once_by_when_it_was_said() -> Tested {
    let forged = Forged::new();
    let upgrade = |status: &str, since: i64| {
        serde_json::from_value::<DynamicObject>(json!({
            "metadata": {"name": "to", "uid": "u"},
            "status": {"conditions": [{"type": "Ready", "status": status, "reason": "Completed",
                "lastTransitionTime": at(since).to_string()}]},
        }))
        .map(|upgrade| Seeing::Upgrade(Event::Apply(upgrade)))
    };
    assert_eq!(forged.sees(1, upgrade("Unknown", 1)?), []);
    assert_eq!(forged.sees(8, upgrade("True", 5)?), [Question::Completed { said: at(5) }]);
    assert_eq!(forged.sees(9, upgrade("True", 5)?), []);
    assert_eq!(forged.sees(30, upgrade("True", 29)?), [Question::Completed { said: at(29) }]);
    Ok(())
}

#[test]
fn a_part_that_became_ready_after_its_node_was_called_upgraded_is_seen() {
    let part = |ready_since, behind: Option<&str>| Part {
        name: "etcd-cp-1".to_owned(),
        ready_since,
        behind: behind.map(str::to_owned),
    };
    let lacks = |part| done::lacking(&[part], at(10));
    assert_eq!(lacks(part(Some(at(3)), None)), Vec::<String>::new());
    assert_eq!(lacks(part(Some(at(11)), None)), Vec::<String>::new(), "times are whole seconds");
    assert_eq!(lacks(part(Some(at(31)), None)), ["etcd-cp-1 became ready 21 s later"]);
    assert_eq!(lacks(part(None, None)), ["etcd-cp-1 is not ready"]);
    assert_eq!(lacks(part(Some(at(3)), Some("v1.36.4"))), ["etcd-cp-1 runs v1.36.4"]);
}

#[test]
fn the_next_control_plane_node_waits_for_the_job_of_the_first() -> Tested {
    let forged = |ended: Option<(&str, u64)>| -> Result<_, serde_json::Error> {
        let forged = Forged::new();
        forged.sees(1, live(claim(10, "a", "kube-apiserver", "cp-1", "Upgrading", 1)));
        forged.sees(2, Seeing::Job(Event::Apply(job(11, "a", None)?)));
        forged.sees(50, live(claim(30, "b", "kube-apiserver", "cp-2", "", 50)));
        forged.sees(51, live(claim(31, "b", "kube-apiserver", "cp-2", "Upgrading", 51)));
        // It ended before, and its watch tells later.
        if let Some((how, version)) = ended {
            forged.sees(52, Seeing::Job(Event::Apply(job(version, "a", Some((how, 49)))?)));
        }
        Ok(forged.violations())
    };
    assert_eq!(forged(Some(("Complete", 29)))?, Vec::<String>::new());
    assert_eq!(forged(Some(("Failed", 29)))?, Vec::<String>::new());
    let ran = ["was claimed", "was given to its executor"]
        .map(|what| format!("to.kube-apiserver.cp-2 {what} while Job job-a of to.kube-apiserver.cp-1 ran"));
    assert_eq!(forged(None)?, ran);
    assert_eq!(forged(Some(("Complete", 40)))?, ran);
    Ok(())
}

#[test]
fn a_job_whose_end_is_first_read_in_a_list_ended_when_it_says() -> Tested {
    let forged = |listed_first: bool| -> Result<_, serde_json::Error> {
        let forged = Forged::new();
        forged.sees(1, live(claim(10, "a", "kube-apiserver", "cp-1", "Upgrading", 1)));
        forged.sees(2, Seeing::Job(Event::Apply(job(11, "a", None)?)));
        let ended = job(40, "a", Some(("Complete", 49)))?;
        let ended = if listed_first { Event::InitApply(ended) } else { Event::Apply(ended) };
        forged.sees(52, Seeing::Job(ended));
        forged.sees(53, listed(claim(30, "b", "kube-apiserver", "cp-2", "Upgrading", 50)));
        Ok(forged.violations())
    };
    assert_eq!(forged(true)?, Vec::<String>::new());
    assert_ne!(forged(false)?, Vec::<String>::new());
    Ok(())
}

#[test]
fn upgraded_and_given_back_wait_for_the_own_job() -> Tested {
    let forged = Forged::new();
    forged.sees(1, Seeing::Node(Event::Apply(node(5, "worker-1", false, Some("to.kubelet.worker-1/a"))?)));
    forged.sees(2, Seeing::Job(Event::Apply(job(11, "a", None)?)));
    forged.sees(3, live(claim(12, "a", "kubelet", "worker-1", "Upgraded", 3)));
    forged.sees(4, Seeing::Node(Event::Apply(node(13, "worker-1", false, None)?)));
    forged.sees(5, Seeing::Job(Event::Apply(job(14, "a", Some(("Complete", 5)))?)));
    let of = "while Job job-a of to.kubelet.worker-1 ran";
    assert_eq!(
        forged.violations(),
        [
            format!("to.kubelet.worker-1 was called upgraded {of}"),
            format!("worker-1 was given back by to.kubelet.worker-1 {of}"),
        ]
    );
    Ok(())
}

#[test]
fn workers_do_not_move_beside_the_control_plane_where_it_goes_first() -> Tested {
    let violations = |first: bool| -> Result<_, serde_json::Error> {
        let observer = Observer::with_limits(&[]);
        let forged = Forged(if first { observer.control_plane_first() } else { observer });
        forged.sees(1, Seeing::Node(Event::InitApply(node(1, "cp-1", true, None)?)));
        forged.sees(1, Seeing::Node(Event::InitApply(node(2, "worker-1", false, None)?)));
        forged.sees(2, live(claim(10, "a", "kubelet", "cp-1", "", 2)));
        forged.sees(3, Seeing::Job(Event::Apply(job(11, "a", None)?)));
        forged.sees(4, live(claim(12, "b", "kubelet", "worker-1", "", 4)));
        Ok(forged.violations())
    };
    assert_eq!(violations(false)?, Vec::<String>::new());
    assert_eq!(violations(true)?, ["to.kubelet.worker-1 was claimed while Job job-a of to.kubelet.cp-1 ran"]);
    Ok(())
}

#[test]
fn only_what_restarts_with_the_kubelet_is_excused_for_being_away() {
    let away = |name: &str, role, node: &str, last| Component {
        name: format!("{name}-{node}"),
        role,
        node: node.to_owned(),
        release: Err("it is away".to_owned()),
        last,
    };
    let may = |component| questions::kubelet_may(&[component], "cp-1", "v1.37.1");
    let server = |node, last| away("kube-apiserver", Role::Apiserver, node, last);
    assert_eq!(may(server("cp-1", Some(V1_37))), Vec::<String>::new());
    assert_eq!(may(away("kube-scheduler", Role::Scheduler, "cp-2", Some(V1_37))), Vec::<String>::new());
    assert_eq!(
        may(server("cp-1", Some(V1_36))),
        ["kubelet on cp-1 is v1.37.1 while kube-apiserver-cp-1 is v1.36.4"]
    );
    let gone = "moved while kube-apiserver-cp-2 was gone: it is away";
    assert_eq!(may(server("cp-2", Some(V1_37))), [format!("kubelet on cp-1 {gone}")]);
    assert_eq!(may(server("cp-1", None)).len(), 1);
    let controller = |last| {
        let server = server("cp-1", last);
        questions::controller_may(&[server], "kube-scheduler", V1_37)
    };
    assert_eq!(controller(Some(V1_37)), Vec::<String>::new());
    assert_eq!(controller(Some(V1_36)), ["kube-scheduler is v1.37.1 while kube-apiserver-cp-1 is not"]);
}
