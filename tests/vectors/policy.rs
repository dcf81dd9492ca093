//! Cases about the version skew policy itself: each becomes a small cluster, or a pair, and is judged.

use std::sync::Arc;

use evenkeel_core::cluster::{Cluster, Component, Evidence, Instance, Node, Parts, Reach};
use evenkeel_core::skew::policy::{Judgement, Policy, RuleSubject, Running, Servers, may_update_in_place};
use evenkeel_core::skew::{assess, blockers_of_minor};
use evenkeel_core::version::{Effective, Floors, KubeVersion, Minor, Observed};
use serde_json::{Value, json};

use crate::{Case, Outcome};

fn minor(text: &str) -> Option<Minor> {
    Some(text.parse::<KubeVersion>().ok()?.minor())
}

pub fn instance(component: Component, number: usize, version: &str) -> Instance {
    Instance {
        component,
        name: format!("{component}-{number}").into(),
        node: Some("n-0".into()),
        version: Observed::from_report(version),
        evidence: Evidence::Image,
        effective: None,
        reach: Reach::Any,
        incarnation: "1".into(),
        ready: true,
        probed: None,
    }
}

pub fn node(number: usize, version: &str) -> Node {
    Node {
        name: format!("n-{number}").into(),
        uid: "1".into(),
        resource_version: "1".into(),
        pool: "default".into(),
        labels: Arc::default(),
        kubelet: Observed::from_report(version),
        evidence: Evidence::Kubelet,
        ready: true,
        heartbeat: None,
        not_ready_since: None,
        unschedulable: false,
        cordoned_by: None,
        held: false,
        control_plane: false,
        etcd: false,
        taints: "".into(),
        outdated_for: None,
    }
}

/// What a case names, as a cluster; `None` if it names something that is not understood here. What has a target
/// (`kcmTarget`) is judged as if it were there.
fn cluster(case: &Case) -> Option<Cluster> {
    let mut parts = Parts::default();
    for (key, value) in case.inputs.as_object()? {
        let texts: Vec<&str> = match value {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            Value::String(text) => vec![text],
            Value::Bool(_) if key == "reachesAnyApiserver" || key == "drained" => vec![],
            _ => return None,
        };
        if case.inputs.get(format!("{key}Target")).is_some() {
            continue;
        }
        let component = match key.strip_suffix("Target").unwrap_or(key) {
            "apiservers" => Component::KubeApiserver,
            "kcm" => Component::KubeControllerManager,
            "scheduler" => Component::KubeScheduler,
            "ccm" => Component::CloudControllerManager,
            "kubeProxy" => Component::KubeProxy,
            "kubelet" | "kubelets" | "kubeletSameNode" => {
                parts
                    .nodes
                    .extend(texts.iter().enumerate().map(|(number, version)| node(number, version).into()));
                continue;
            }
            "version" => Component::from_name(case.text("component")?)?,
            "component" | "target" | "reachesAnyApiserver" | "drained" => continue,
            _ => return None,
        };
        let instances = texts.iter().enumerate().map(|(n, version)| instance(component, n, version));
        parts.instances.extend(instances);
    }
    // A component that reaches one apiserver only reaches that of its own node; cases do not place theirs.
    (case.inputs.get("reachesAnyApiserver") != Some(&Value::Bool(false))).then(|| parts.seal())
}

const KUBECTL: RuleSubject = RuleSubject::Component(Component::Kubectl);

fn kubectl(version: Minor, servers: Servers) -> bool {
    let (_, judgement) = Policy::default().judge(KUBECTL, version.into(), servers);
    matches!(judgement, Judgement::Within { .. })
}

fn servers(texts: &[&str]) -> Option<Servers> {
    Servers::of(texts.iter().filter_map(|text| minor(text)).map(Effective::plain))
}

fn verdict(allowed: bool) -> &'static str {
    if allowed { "ok" } else { "violation" }
}

pub fn example(case: &Case) -> Outcome {
    let result = |allowed| Outcome::of(&json!({"result": verdict(allowed)}), &case.expected);
    let (policy, strict) = (Policy::default(), Policy::strict());
    let text_minor = |key| case.text(key).and_then(minor);
    if case.text("component") == Some("kubectl") {
        let Some((version, servers)) = text_minor("version").zip(servers(&case.texts("apiservers"))) else {
            return Outcome::Fail("unreadable versions".to_owned());
        };
        return result(kubectl(version, servers));
    }
    if let (Some(from), Some(to)) = (text_minor("kubelet"), text_minor("kubeletTarget")) {
        let drained = case.flag("drained") || may_update_in_place(from, to);
        if !drained || case.inputs.get("apiservers").is_none() {
            return result(drained);
        }
    }
    let Some(cluster) = cluster(case) else { return Outcome::Fail("inputs not understood".to_owned()) };
    let Some(target) = text_minor("target") else { return result(assess(&cluster, &policy).violations == 0) };
    let allowed = |policy| blockers_of_minor(&cluster, policy, target).is_empty();
    if case.expects("strictText") {
        let rule = if allowed(&policy) { "ok_by_skew_rule" } else { "violation" };
        return Outcome::of(
            &json!({"result": rule, "strictText": verdict(allowed(&strict))}),
            &case.expected,
        );
    }
    result(allowed(&policy))
}

/// kubectl's own warning is rule R8; what Cluster API adopts is a pair of apiservers that rule R1 allows.
pub fn pair(case: &Case) -> Outcome {
    let text_minor = |key| case.text(key).and_then(minor);
    if let Some((client, server)) = text_minor("client").zip(text_minor("apiserver")) {
        let supported = kubectl(client, Servers::from(Effective::plain(server)));
        return Outcome::of(&json!({"warning": !supported}), &case.expected);
    }
    let Some((a, b)) = text_minor("a").zip(text_minor("b")) else {
        return Outcome::Fail("unreadable versions".to_owned());
    };
    let supported = Policy::default().broken_by_spread(a, b).is_none();
    Outcome::of(&json!({"supported": supported}), &case.expected)
}

/// What an apiserver that emulates allows others: every minor is asked, and those that may are listed.
pub fn effective(case: &Case) -> Outcome {
    let field = |name| case.inputs.get("apiserver")?.get(name)?.as_str().and_then(minor);
    let server = field("binary")
        .zip(field("emulation"))
        .and_then(|(binary, emulation)| Effective::new(binary, emulation, field("minCompat"), Floors::NONE));
    let Some(server) = server else { return Outcome::Fail("not valid together".to_owned()) };
    let allowed = |subject| -> Vec<String> {
        // A controller is asked about as one that emulates nothing; so are the others, which cannot.
        let within = |minor: &Minor| {
            let running = Running { binary: *minor, emulation: Some(*minor) };
            let judgement = Policy::default().judge(subject, running, Servers::from(server)).1;
            matches!(judgement, Judgement::Within { .. })
        };
        (0..100).map(|number| Minor::new(1, number)).filter(within).map(|minor| minor.to_string()).collect()
    };
    let mut got = json!({
        "kcmAllowed": allowed(RuleSubject::Component(Component::KubeControllerManager)),
        "kubeletAllowed": allowed(RuleSubject::Component(Component::Kubelet)),
        "kubectlAllowed": allowed(KUBECTL),
    });
    if let Some(got) = got.as_object_mut() {
        got.retain(|key, _| case.expects(key));
    }
    Outcome::of(&got, &case.expected)
}
