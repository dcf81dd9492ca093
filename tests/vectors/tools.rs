//! Cases about what other programs refuse, each under the rule set that carries that program's name.

use evenkeel_core::skew::tools::{
    KUBEADM, KUBEADM_UNTIL_1_28, Unstable, Worker, cluster_api_holds, kubeadm_takes_kubelet, kubeadm_upgrade,
    openshift, openshift_upgradeable,
};
use evenkeel_core::version::{KubeVersion, Minor};
use serde_json::{Value, json};

use crate::{Case, Outcome};

fn version(text: &str) -> Option<KubeVersion> {
    text.parse().ok()
}

/// Under `kubeadm`, or `kubeadm-1.28` for the cases of the time before.
pub fn preflight(case: &Case) -> Outcome {
    let asked = |key| case.text(key).and_then(version);
    let (Some(cluster), Some(kubeadm), Some(target)) = (asked("cluster"), asked("kubeadm"), asked("target"))
    else {
        return Outcome::Fail("unreadable versions".to_owned());
    };
    let kubelets: Vec<KubeVersion> = case.texts("kubelets").into_iter().filter_map(version).collect();
    let unstable = match (case.flag("allowExperimental"), case.flag("allowRC")) {
        (true, _) => Unstable::All,
        (false, true) => Unstable::Candidates,
        (false, false) => Unstable::Refused,
    };
    let policy = if case.source.contains("n-3 era") { &KUBEADM } else { &KUBEADM_UNTIL_1_28 };
    let refusals = kubeadm_upgrade(policy, [&cluster, &kubeadm, &target], &kubelets, unstable);
    let skippable = refusals.iter().filter(|refusal| refusal.skippable).count();
    let mandatory = refusals.len() - skippable;
    let result = match (mandatory, skippable) {
        (0, 0) => "ok",
        (0, _) => "skippable_error",
        _ => "mandatory_error",
    };
    let got = json!({"result": result, "mandatory": mandatory, "skippable": skippable});
    Outcome::of(&got, &case.expected)
}

pub fn node_admission(case: &Case) -> Outcome {
    let result = |result: &str| Outcome::of(&json!({"result": result}), &case.expected);
    if let Some(kubelet) = case.text("kubelet") {
        let floor = case.text("minKubelet").and_then(version);
        let Some((kubelet, floor)) = version(kubelet).zip(floor) else { return result("error") };
        let server = case.text("controlPlane").and_then(version);
        return result(if kubeadm_takes_kubelet(&kubelet, server.as_ref(), &floor) { "ok" } else { "error" });
    }
    // Cluster API reads what a person wrote, and a fourth number is refused.
    let person = |key| case.text(key).map(KubeVersion::from_person).transpose();
    let (Ok(control_plane), Ok(worker)) = (person("controlPlane"), person("worker")) else {
        return result("error");
    };
    if worker.as_ref().is_some_and(|worker| worker.suffix().starts_with('.')) {
        return result("error");
    }
    let pending = case.text("topology").is_some_and(|topology| Some(topology) != case.text("controlPlane"));
    let at_step = case.text("upgradeStep").is_some_and(|step| Some(step) == case.text("controlPlane"));
    let status = case.inputs.get("controlPlaneStatus");
    let moving = status.is_some_and(|status| status.as_str() != case.text("controlPlane"));
    let worker = Worker {
        version: worker,
        control_plane,
        control_plane_moves: moving || pending && !at_step,
        kubeadm: case.text("bootstrap") == Some("kubeadm"),
        managed: case.flag("managedTopology") || case.text("topology").is_some(),
        skip: case.texts("skip").into_iter().map(str::to_owned).collect(),
    };
    result(if cluster_api_holds(&worker).is_some() { "hold" } else { "pass" })
}

pub fn vendor(case: &Case) -> Outcome {
    let minor = |text: &str| version(text).map(|version| version.minor());
    let Some(ours) = case.text("openshift").and_then(minor) else {
        return Outcome::NotOurs("only OpenShift's rules are known by name");
    };
    if case.expects("minKubeletSkew") {
        let behind = openshift(ours).kubelets_behind(Minor::new(1, 30)).map(|behind| -i32::from(behind));
        return Outcome::of(&json!({"minKubeletSkew": behind}), &case.expected);
    }
    let Some(server) = case.text("apiserver").and_then(minor) else {
        return Outcome::Fail("unreadable versions".to_owned());
    };
    let list = case.inputs.get("kubelets").and_then(Value::as_array);
    let kubelets: Vec<Option<Minor>> =
        list.into_iter().flatten().map(|kubelet| kubelet.as_str().and_then(minor)).collect();
    let (upgradeable, reason) = openshift_upgradeable(ours, server, &kubelets);
    Outcome::of(&json!({"upgradeable": upgradeable, "reason": reason}), &case.expected)
}
