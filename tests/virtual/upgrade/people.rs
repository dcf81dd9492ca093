//! What people and machines do to a cluster while it is upgraded.

use std::time::Duration;

use evenkeel_sim::{Cluster, NodeGroup};
use serde_json::{Value, json};

use super::super::deeds;
use super::super::kube_api::{Kube, condition};
use super::base::{CHANGERS, CLAIMS, EXECUTORS, FROM, IMAGE, Setting, TO, UPGRADES};
use super::executor;
use super::watcher::host;

const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

/// Does `deed`; what is not of an upgrade is done as to any cluster.
pub async fn happens(cluster: &Cluster, kube: &Kube, setting: &Setting, deed: &str) {
    let words: Vec<&str> = deed.split(' ').collect();
    let up = |name: &str| format!("{UPGRADES}/{name}");
    match words.as_slice() {
        ["upgrade", name] => _ = kube.create(UPGRADES, &setting.upgrade(name, TO)).await,
        // As somebody who applies what is in git.
        ["upgrade", name, version] => {
            let object = setting.upgrade(name, version);
            if kube.merge(&up(name), &json!({"spec": object["spec"]})).await.is_err() {
                // A server may refuse it; that is an answer, too.
                let _ = kube.send("POST", UPGRADES, "application/json", &object).await;
            }
        }
        ["invalid", name] => {
            let mut object = setting.upgrade(name, TO);
            object["spec"]["version"] = "v1.37.x".into();
            let _ = kube.send("POST", UPGRADES, "application/json", &object).await;
            // A server takes this one, and nothing can be made of it.
            object["spec"]["version"] = "v1.99999.1".into();
            let _ = kube.send("POST", UPGRADES, "application/json", &object).await;
        }
        ["install", name] => _ = kube.create(CHANGERS, &setting.changer(name)).await,
        ["uninstall", name] => _ = kube.delete(&format!("{CHANGERS}/{name}")).await,
        ["suspend", name] => _ = kube.merge(&up(name), &json!({"spec": {"suspend": true}})).await,
        ["resume", name] => _ = kube.merge(&up(name), &json!({"spec": {"suspend": false}})).await,
        ["delete-jobs"] => {
            let jobs = format!("/apis/batch/v1/namespaces/{EXECUTORS}/jobs");
            for job in kube.list(&jobs).await {
                let name = job["metadata"]["name"].as_str().unwrap_or_default();
                _ = kube.delete(&format!("{jobs}/{name}?propagationPolicy=Background")).await;
            }
        }
        ["kubelet", node, version] => executor::kubelet(cluster, node, version).await,
        ["claim-version", node, version] => _ = cluster.claim_version(node, version),
        ["component", node, component, version] => cluster.replace_component(node, component, version),
        ["take", node, component] => _ = cluster.take_component(node, component),
        ["start", node, component] => _ = cluster.run_component(node, component, true),
        ["rejoin", name] => rejoin(cluster, kube, name).await,
        ["zone", zone, "silent"] => {
            zone_nodes(kube, zone).await.iter().for_each(|node| cluster.kubelets().stop(node));
        }
        ["zone", zone, "again"] => {
            for node in zone_nodes(kube, zone).await {
                let version = version_of(kube, &node).await;
                cluster.start_kubelet(&node, &version);
            }
        }
        ["silent", node] => cluster.kubelets().stop(node),
        ["again", node] => _ = cluster.start_kubelet(node, &version_of(kube, node).await),
        ["image", "missing"] => cluster.kubelets().set_missing(IMAGE, true),
        ["image", "there"] => cluster.kubelets().set_missing(IMAGE, false),
        ["hold", node] => annotate(kube, node, json!("")).await,
        ["unhold", node] => annotate(kube, node, Value::Null).await,
        ["freeze-now", name, seconds] => freeze(cluster, kube, &up(name), seconds).await,
        ["gate", what] => gate(kube, what).await,
        ["returning"] => returning(kube).await,
        ["impossible"] => impossible(kube).await,
        ["batch"] => batch(kube).await,
        ["finish", app] => finish(kube, app).await,
        ["attach", node] => attach(kube, node).await,
        ["detached", node] => _ = kube.delete(&format!("{ATTACHMENTS}/csi-{node}")).await,
        ["spec", name, spec] => {
            let spec: Value = spec.parse().unwrap();
            _ = kube.merge(&up(name), &json!({"spec": spec})).await;
        }
        ["bad-claim", component, node] => bad_claim(kube, component, node).await,
        ["slow-scheduler"] => slow_scheduler(cluster, kube).await,
        ["cut", agent, seconds] => {
            let time = Duration::from_secs(seconds.parse().unwrap());
            cluster.faults().blackout_of(&[agent, &format!("{agent}-lease")], time);
        }
        ["blackout", seconds] => {
            let ours = ["evenkeel-a", "evenkeel-b", "evenkeel-a-lease", "evenkeel-b-lease"];
            cluster.faults().blackout_of(&ours, Duration::from_secs(seconds.parse().unwrap()));
        }
        words => asked(cluster, kube, setting, words).await,
    }
}

/// What is asked of the server besides a deletion: `foreground` deletes first what the object owns, as Argo CD's prune does.
fn asked_to(how: &[&str]) -> &'static str {
    if how.contains(&"foreground") { "?propagationPolicy=Foreground" } else { "" }
}

/// Deletes the claim of `component` on `node`, which may be named by its address, and asks the server for `more` then.
async fn delete_claim(cluster: &Cluster, kube: &Kube, component: &str, node: &str, more: &str) {
    let all = kube.list(CLAIMS).await;
    let is = |claim: &&Value| {
        let place = claim["spec"]["nodeName"].as_str().unwrap_or_default();
        claim["spec"]["component"] == component && host(cluster.control_plane(), place) == node
    };
    if let Some(name) = all.iter().find(is).and_then(|claim| claim["metadata"]["name"].as_str()) {
        _ = kube.delete(&format!("{CLAIMS}/{name}{more}")).await;
    }
}

/// Does what `words` say of executors, deletions, approvals, gates that open later, controllers, webhooks and pods that would be
/// lost, or what is done to any cluster.
async fn asked(cluster: &Cluster, kube: &Kube, setting: &Setting, words: &[&str]) {
    match words {
        ["change-executor", name, seconds] => {
            let kind = if setting.jobs { "job" } else { "external" };
            let seconds: i64 = seconds.parse().unwrap();
            let spec = json!({"spec": {kind: {"deadlineSeconds": seconds}}});
            _ = kube.merge(&format!("{CHANGERS}/{name}"), &spec).await;
        }
        ["approves", name, seconds] => {
            approves(kube, &format!("{UPGRADES}/{name}"), seconds.parse().unwrap());
        }
        ["delete-upgrade", name, how @ ..] => {
            _ = kube.delete(&format!("{UPGRADES}/{name}{}", asked_to(how))).await;
        }
        ["delete-claim", component, node, how @ ..] => {
            delete_claim(cluster, kube, component, node, asked_to(how)).await;
        }
        ["gate", what, "after", seconds] => {
            let (kube, what, time) = (kube.clone(), (*what).to_owned(), seconds.parse().unwrap());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(time)).await;
                gate(&kube, &what).await;
            });
        }
        ["late-controllers", seconds] => {
            cluster.control_plane().set_late(Duration::from_secs(seconds.parse().unwrap()));
        }
        ["leases-given-up"] => cluster.control_plane().set_gives_up(),
        ["bare", node] => bare(kube, node).await,
        ["cache", node] => cache(kube, node).await,
        ["agent", what @ ..] => agent(cluster, kube, what).await,
        ["webhook"] => webhook(kube).await,
        ["webhook", "gone"] => _ = kube.delete(&format!("{WEBHOOKS}/guard")).await,
        _ => deeds::happens(cluster, kube, &words.join(" ")).await,
    }
}

/// So long after the upgrade at `path` first asks for it, a person approves the plan that it shows; and so again whenever
/// it asks for another approval.
fn approves(kube: &Kube, path: &str, seconds: u64) {
    let (kube, path) = (kube.clone(), path.to_owned());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let object = kube.get(&path).await.unwrap_or_default();
            let asks = condition(&object, "Ready").is_some_and(|of| of["reason"] == "AwaitingApproval");
            let hash = object["status"]["plan"]["hash"].clone();
            if asks && hash.is_string() && object["spec"]["approval"]["planHash"] != hash {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                _ = kube.merge(&path, &json!({"spec": {"approval": {"planHash": hash}}})).await;
            }
        }
    });
}

/// A person freezes the upgrade at `path` from now on, for so many seconds.
async fn freeze(cluster: &Cluster, kube: &Kube, path: &str, seconds: &str) {
    let time = |seconds: i64| {
        let at = cluster.now() + jiff::SignedDuration::from_secs(seconds);
        at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    };
    let freeze = json!([{"name": "fair", "from": time(0), "until": time(seconds.parse().unwrap())}]);
    _ = kube.merge(path, &json!({"spec": {"freezes": freeze}})).await;
}

/// Where the object of the gate is.
const GATES: &str = "/apis/example.com/v1/namespaces/shop/servicelevels";

/// The kind of the gate's object.
async fn gate_kind(kube: &Kube) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let names = json!({"plural": "servicelevels", "singular": "servicelevel", "kind": "ServiceLevel"});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "servicelevels.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}});
    kube.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
}

/// The kind of the gate's object comes, the object goes, or it has this status.
async fn gate(kube: &Kube, what: &str) {
    let status = match what {
        "kind" => return gate_kind(kube).await,
        "gone" => {
            _ = kube.delete(&format!("{GATES}/checkout")).await;
            return;
        }
        status => status,
    };
    let status = json!({"conditions": [{"type": "Healthy", "status": status}]});
    if kube.merge(&format!("{GATES}/checkout"), &json!({"status": status})).await.is_err() {
        let object = json!({"apiVersion": "example.com/v1", "kind": "ServiceLevel",
            "metadata": {"name": "checkout"}, "status": status});
        kube.create(GATES, &object).await;
    }
}

async fn annotate(kube: &Kube, node: &str, value: Value) {
    let patch = json!({"metadata": {"annotations": {"evenkeel.dev/hold": value}}});
    _ = kube.merge(&format!("/api/v1/nodes/{node}"), &patch).await;
}

/// The node comes back under its name as another one, with the kubelet that it had at first.
async fn rejoin(cluster: &Cluster, kube: &Kube, name: &str) {
    let (pool, zone) = match name.rsplit_once('-') {
        Some((pool, at)) => (pool, ["c", "a", "b"][at.parse::<usize>().unwrap_or(0) % 3]),
        None => (name, "a"),
    };
    let room = json!({"cpu": "8", "memory": "32Gi", "pods": "110"});
    let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": zone, "pool": pool}}, "status": {"capacity": room, "allocatable": room,
        "nodeInfo": {"kubeletVersion": FROM}}});
    let _ = kube.send("POST", "/api/v1/nodes", "application/json", &node).await;
    cluster.start_kubelet(name, FROM);
}

async fn zone_nodes(kube: &Kube, zone: &str) -> Vec<String> {
    let nodes = kube.list("/api/v1/nodes").await.into_iter();
    let here = nodes.filter(|node| node["metadata"]["labels"]["topology.kubernetes.io/zone"] == zone);
    here.filter_map(|node| Some(node["metadata"]["name"].as_str()?.to_owned())).collect()
}

async fn version_of(kube: &Kube, node: &str) -> String {
    let node = kube.get(&format!("/api/v1/nodes/{node}")).await.unwrap_or_default();
    node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default().to_owned()
}

/// A pod that comes back to its node, however often it is evicted.
async fn returning(kube: &Kube) {
    let tolerates = json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]);
    let more = json!({"spec": {"template": {"spec": {"tolerations": tolerates,
        "nodeSelector": {"kubernetes.io/hostname": "main-5"}}}}});
    kube.workload("deployments", "returning", 1, &more).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
}

/// A pod that can run on one node only, and that its budget never lets go.
pub async fn impossible(kube: &Kube) {
    let here =
        json!({"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "main-6"}}}}});
    kube.workload("deployments", "frozen", 1, &here).await;
    kube.budget("frozen", Some(json!({"maxUnavailable": 0}))).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
}

/// A pod that can run on one node only, and that somebody would rather see end by itself.
async fn batch(kube: &Kube) {
    let here =
        json!({"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "main-5"}}}}});
    kube.workload("deployments", "batch", 1, &here).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
}

/// A pod of `node` that nothing would make again.
pub async fn bare(kube: &Kube, node: &str) {
    let pod = json!({"metadata": {"name": format!("alone-{node}"), "labels": {"app": "alone"}}, "spec": {"nodeName": node,
        "terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": "registry.example/c:1"}]}});
    kube.create("/api/v1/namespaces/shop/pods", &pod).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
}

/// A pod that can run on `node` only, and whose data an eviction destroys.
pub async fn cache(kube: &Kube, node: &str) {
    let spec = json!({"nodeSelector": {"kubernetes.io/hostname": node},
        "volumes": [{"name": "cache", "emptyDir": {}}]});
    let name = format!("cache-{node}");
    kube.workload("deployments", &name, 1, &json!({"spec": {"template": {"spec": spec}}})).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
}

/// A `DaemonSet` with an image of its own comes, or its pod of a node is made anew and cannot begin, or all can again.
pub async fn agent(cluster: &Cluster, kube: &Kube, what: &[&str]) {
    // A node keeps the images that it has.
    const NEXT: &str = "registry.example/agent:2";
    let containers = |image: &str| json!({"containers": [{"name": "c", "image": image}]});
    let pods = "/api/v1/namespaces/shop/pods";
    match what {
        ["ill", node] => {
            cluster.kubelets().set_missing(NEXT, true);
            let path = "/apis/apps/v1/namespaces/shop/daemonsets/agent";
            let next = json!({"spec": {"template": {"spec": containers(NEXT)}}});
            kube.merge(path, &next).await.unwrap();
            let all = kube.list(pods).await;
            let is = |pod: &&Value| {
                pod["metadata"]["labels"]["app"] == "agent" && pod["spec"]["nodeName"] == *node
            };
            let name = all.iter().find(is).and_then(|pod| pod["metadata"]["name"].as_str()).unwrap();
            kube.delete(&format!("{pods}/{name}")).await.unwrap();
        }
        ["well"] => cluster.kubelets().set_missing(NEXT, false),
        _ => {
            let spec = containers("registry.example/agent:1");
            let more = json!({"spec": {"replicas": null, "updateStrategy": {"type": "OnDelete"},
                "template": {"spec": spec}}});
            kube.workload("daemonsets", "agent", 0, &more).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }
}

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// A webhook that fails closed and sees only requests of the API versions that it lists.
pub async fn webhook(kube: &Kube) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guard"}, "webhooks": [{"name": "guard.example.com", "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail", "matchPolicy": "Exact", "sideEffects": "None", "rules": [rule],
        "clientConfig": {"url": "https://guard.example.com/"}}]});
    kube.create(WEBHOOKS, &object).await;
}

/// A volume is attached to `node`, for a pod that no longer exists.
pub async fn attach(kube: &Kube, node: &str) {
    let volume = json!({"metadata": {"name": format!("csi-{node}")}, "spec": {
        "attacher": "csi.example.com", "nodeName": node, "source": {"persistentVolumeName": format!("pv-{node}")}}});
    kube.create(ATTACHMENTS, &volume).await;
}

/// The pods of `app` end well.
async fn finish(kube: &Kube, app: &str) {
    let pods = "/api/v1/namespaces/shop/pods";
    for pod in kube.list(pods).await {
        if pod["metadata"]["labels"]["app"] == app && pod["spec"]["nodeName"].is_string() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let status = json!({"status": {"phase": "Succeeded"}});
            _ = kube.merge(&format!("{pods}/{name}/status"), &status).await;
        }
    }
}

/// A claim that nobody can read, because no version of the operator has such a state.
async fn bad_claim(kube: &Kube, component: &str, node: &str) {
    let name = format!("up.{component}.{node}");
    let claim = json!({"apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeUpgrade",
        "metadata": {"name": name, "finalizers": ["evenkeel.dev/settle"]},
        "spec": {"upgradeName": "up", "component": component, "nodeName": node, "nodeUID": "", "fromVersion": FROM,
        "toVersion": TO, "executor": "machines"}});
    kube.create(CLAIMS, &claim).await;
    let status = json!({"status": {"state": "Begun"}});
    _ = kube.merge(&format!("{CLAIMS}/{name}/status"), &status).await.unwrap();
}

/// There is an empty node, and a scheduler of its own for one pod: it learns of the node's cordon two seconds late, and has
/// just put the pod there.
async fn slow_scheduler(cluster: &Cluster, kube: &Kube) {
    cluster.add_nodes(&NodeGroup::new("empty", 1).kubelet(FROM).zones(["a"]).label("pool", "main"));
    let more = json!({"spec": {"template": {"spec": {"schedulerName": "slow"}}}});
    kube.workload("deployments", "late", 1, &more).await;
    let kube = kube.clone();
    tokio::spawn(async move {
        let is_free = |node: &Value| node["spec"]["unschedulable"] != true;
        while kube.get("/api/v1/nodes/empty-1").await.is_none_or(|node| is_free(&node)) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut place = Some("empty-1".to_owned());
        loop {
            bind(&kube, place.as_deref()).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            let free = kube.list("/api/v1/nodes").await.into_iter().find(is_free);
            place = free.and_then(|node| Some(node["metadata"]["name"].as_str()?.to_owned()));
        }
    });
}

/// The pod of the slow scheduler that has no node yet runs on `place`.
async fn bind(kube: &Kube, place: Option<&str>) {
    let pods = "/api/v1/namespaces/shop/pods";
    let waits = |pod: &&Value| pod["spec"]["schedulerName"] == "slow" && pod["spec"]["nodeName"].is_null();
    let all = kube.list(pods).await;
    let name = all.iter().find(waits).and_then(|pod| pod["metadata"]["name"].as_str());
    let (Some(name), Some(place)) = (name, place) else { return };
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": place}});
    kube.create(&format!("{pods}/{name}/binding"), &binding).await;
}
