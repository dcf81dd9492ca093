//! Tables of the built-in kinds: their columns, and a row of each. Rows of pods and of workloads are made elsewhere.
//!
//! What the fields mean to a controller never belongs here.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell::{count, items, labels, number, or, text};
use super::column::Column;
use super::{age, pod, workload};

/// The columns of each kind. `#` is an integer, `?` a boolean, `@` a date; `+` is for wide output alone.
const COLUMNS: &[(&str, &str)] = &[
    ("Pod", "Name,Ready,Status,Restarts,Age,+IP,+Node,+Nominated Node,+Readiness Gates"),
    (
        "Node",
        "Name,Status,Roles,Age,Version,+Internal-IP,+External-IP,+OS-Image,+Kernel-Version,+Container-Runtime",
    ),
    ("Namespace", "Name,Status,Age"),
    ("ConfigMap", "Name,Data,Age"),
    ("Secret", "Name,Type,Data,Age"),
    ("Service", "Name,Type,Cluster-IP,External-IP,Port(s),Age,+Selector"),
    ("ServiceAccount", "Name,Age"),
    ("Event", "Last Seen,Type,Reason,Object,+Subobject,+Source,Message,+First Seen,+Count,+Name"),
    (
        "PersistentVolume",
        "Name,Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,VolumeAttributesClass,Reason,Age,+VolumeMode",
    ),
    (
        "PersistentVolumeClaim",
        "Name,Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,+VolumeMode",
    ),
    ("Deployment", "Name,Ready,Up-to-date,Available,Age,+Containers,+Images,+Selector"),
    ("ReplicaSet", "Name,#Desired,#Current,#Ready,Age,+Containers,+Images,+Selector"),
    ("ReplicationController", "Name,#Desired,#Current,#Ready,Age,+Containers,+Images,+Selector"),
    ("ResourceQuota", "Name,Request,Limit,Age"),
    ("HorizontalPodAutoscaler", "Name,Reference,Targets,MinPods,MaxPods,Replicas,Age"),
    ("StatefulSet", "Name,Ready,Age,+Containers,+Images"),
    (
        "DaemonSet",
        "Name,#Desired,#Current,#Ready,#Up-to-date,#Available,Node Selector,Age,+Containers,+Images,+Selector",
    ),
    ("PodTemplate", "Name,Containers,Images,Pod Labels"),
    ("ControllerRevision", "Name,Controller,Revision,Age"),
    ("Job", "Name,Status,Completions,Duration,Age,+Containers,+Images,+Selector"),
    ("PodDisruptionBudget", "Name,Min Available,Max Unavailable,#Allowed Disruptions,Age"),
    ("Lease", "Name,Holder,Age"),
    ("EndpointSlice", "Name,AddressType,Ports,Endpoints,Age"),
    ("PriorityClass", "Name,#Value,?Global-Default,Age,PreemptionPolicy"),
    ("StorageClass", "Name,Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age"),
    ("VolumeAttachment", "Name,Attacher,PV,Node,?Attached,Age"),
    ("ValidatingWebhookConfiguration", "Name,#Webhooks,Age"),
    ("MutatingWebhookConfiguration", "Name,#Webhooks,Age"),
    ("CustomResourceDefinition", "Name,@Created At"),
];

pub(super) fn columns(kind: &str) -> Vec<Column> {
    let text = COLUMNS.iter().find(|(name, _)| *name == kind).map_or("Name,Age", |(_, text)| text);
    text.split(',')
        .map(|name| {
            let (name, priority) = name.strip_prefix('+').map_or((name, 0), |name| (name, 1));
            let (name, of) = match name.split_at_checked(1) {
                Some(("#", name)) => (name, "integer"),
                Some(("?", name)) => (name, "boolean"),
                Some(("@", name)) => (name, "date"),
                _ => (name, "string"),
            };
            let mut column = Column::new(name, of, priority);
            if name == "Attacher" {
                column.format = "name";
            }
            column
        })
        .collect()
}

pub(super) fn cells(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = || object["metadata"]["name"].clone();
    let age = || Value::from(age::since(text(object, "/metadata/creationTimestamp"), now));
    let at = |path: &str| Value::from(text(object, path));
    let size = |path: &str| Value::from(object.pointer(path).map_or(0, length));
    match kind {
        "Pod" => pod::cells(object, now),
        "Node" => node(object, age()),
        "Namespace" => vec![name(), at("/status/phase"), age()],
        "ConfigMap" => vec![name(), (length(&object["data"]) + length(&object["binaryData"])).into(), age()],
        "Secret" => vec![name(), at("/type"), size("/data"), age()],
        "Service" => service(object, age()),
        "Event" => event(object, now),
        "PersistentVolume" => volume(object, age()),
        "PersistentVolumeClaim" => claim(object, age()),
        "Deployment" => workload::deployment(object, age()),
        "ReplicaSet" => workload::replica_set(object, age()),
        "ReplicationController" => workload::replication_controller(object, age()),
        "ResourceQuota" => quota(object, age()),
        "HorizontalPodAutoscaler" => workload::autoscaler(object, age()),
        "StatefulSet" => workload::stateful_set(object, age()),
        "DaemonSet" => workload::daemon_set(object, age()),
        "PodTemplate" => workload::template(object),
        "ControllerRevision" => workload::revision(object, age()),
        "Job" => workload::job(object, now, age()),
        "PodDisruptionBudget" => budget(object, age()),
        "Lease" => vec![name(), at("/spec/holderIdentity"), age()],
        "EndpointSlice" => endpoints(object, age()),
        "PriorityClass" => {
            let default = Value::from(object["globalDefault"] == true);
            vec![name(), number(object, "/value"), default, age(), at("/preemptionPolicy")]
        }
        "StorageClass" => {
            let policy = or(text(object, "/reclaimPolicy"), "Delete").into();
            let binding = or(text(object, "/volumeBindingMode"), "Immediate").into();
            let grows = Value::from(object["allowVolumeExpansion"] == true);
            vec![name(), at("/provisioner"), policy, binding, grows, age()]
        }
        "VolumeAttachment" => {
            let attached = Value::from(object["status"]["attached"] == true);
            let volume = at("/spec/source/persistentVolumeName");
            vec![name(), at("/spec/attacher"), volume, at("/spec/nodeName"), attached, age()]
        }
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            vec![name(), size("/webhooks"), age()]
        }
        "CustomResourceDefinition" => vec![name(), at("/metadata/creationTimestamp")],
        _ => vec![name(), age()],
    }
}

fn length(value: &Value) -> usize {
    value.as_object().map(serde_json::Map::len).or_else(|| value.as_array().map(Vec::len)).unwrap_or(0)
}

/// The first three, and how many more there are.
fn some(all: impl Iterator<Item = String>) -> Value {
    const MOST: usize = 3;
    let all: Vec<String> = all.collect();
    let first = all.get(..MOST.min(all.len())).unwrap_or_default().join(",");
    if all.len() > MOST {
        return format!("{first} + {} more...", all.len() - MOST).into();
    }
    or(&first, "<unset>").into()
}

/// How much of a quota is used: of its requests and objects, and of its limits.
fn quota(quota: &Value, age: Value) -> Vec<Value> {
    let status = &quota["status"];
    let mut parts = [Vec::new(), Vec::new()];
    let [requests, limits] = &mut parts;
    for (resource, hard) in status["hard"].as_object().into_iter().flatten() {
        let used = status["used"][resource].as_str().unwrap_or("0");
        let part = format!("{resource}: {used}/{}", hard.as_str().unwrap_or("0"));
        if resource.starts_with("limits.") { limits.push(part) } else { requests.push(part) }
    }
    let [requests, limits] = parts.map(|parts| Value::from(parts.join(", ")));
    vec![quota["metadata"]["name"].clone(), requests, limits, age]
}

fn budget(budget: &Value, age: Value) -> Vec<Value> {
    let bound = |field: &str| match &budget["spec"][field] {
        Value::Null => Value::from("N/A"),
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    };
    vec![
        budget["metadata"]["name"].clone(),
        bound("minAvailable"),
        bound("maxUnavailable"),
        number(budget, "/status/disruptionsAllowed"),
        age,
    ]
}

fn endpoints(slice: &Value, age: Value) -> Vec<Value> {
    let port = |port: &Value| match (port["port"].as_i64(), port["name"].as_str()) {
        (Some(port), _) => port.to_string(),
        (None, name) => name.unwrap_or("*").to_owned(),
    };
    let ports = some(items(slice, "/ports").map(port));
    let addresses = items(slice, "/endpoints").flat_map(|endpoint| items(endpoint, "/addresses"));
    let addresses = some(addresses.map(|address| address.as_str().unwrap_or_default().to_owned()));
    vec![slice["metadata"]["name"].clone(), text(slice, "/addressType").into(), ports, addresses, age]
}

fn node(node: &Value, age: Value) -> Vec<Value> {
    let ready = items(node, "/status/conditions").rfind(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|ready| ready["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles = BTreeSet::new();
    for (key, value) in node["metadata"]["labels"].as_object().into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            roles.insert(role);
        } else if key == "kubernetes.io/role" {
            roles.insert(value.as_str().unwrap_or_default());
        }
    }
    roles.remove("");
    let roles: Vec<&str> = roles.into_iter().collect();
    let address = |kind: &str| {
        let found = items(node, "/status/addresses").find(|address| address["type"] == kind);
        Value::from(found.map_or("<none>", |found| text(found, "/address")))
    };
    let info = |field: &str| or(text(node, &format!("/status/nodeInfo/{field}")), "<unknown>").to_owned();
    let mut kernel = info("kernelVersion");
    let architecture = text(node, "/status/nodeInfo/architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        node["metadata"]["name"].clone(),
        status.into(),
        or(&roles.join(","), "<none>").into(),
        age,
        text(node, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage").into(),
        kernel.into(),
        info("containerRuntimeVersion").into(),
    ]
}

fn service(service: &Value, age: Value) -> Vec<Value> {
    let spec = &service["spec"];
    let mut outside: Vec<&str> = items(spec, "/externalIPs").filter_map(Value::as_str).collect();
    let outside = match text(spec, "/type") {
        "ClusterIP" | "NodePort" => or(&outside.join(","), "<none>").to_owned(),
        "LoadBalancer" => {
            let points = items(service, "/status/loadBalancer/ingress");
            let points: BTreeSet<&str> =
                points.map(|point| or(text(point, "/ip"), text(point, "/hostname"))).collect();
            let mut all: Vec<&str> = points.into_iter().filter(|point| !point.is_empty()).collect();
            all.append(&mut outside);
            or(&all.join(","), "<pending>").to_owned()
        }
        "ExternalName" => text(spec, "/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    };
    let ports: Vec<String> = items(spec, "/ports")
        .map(|port| match count(port, "/nodePort") {
            0 => format!("{}/{}", count(port, "/port"), text(port, "/protocol")),
            node => format!("{}:{node}/{}", count(port, "/port"), text(port, "/protocol")),
        })
        .collect();
    vec![
        service["metadata"]["name"].clone(),
        text(spec, "/type").into(),
        or(text(spec, "/clusterIPs/0"), "<none>").into(),
        outside.into(),
        or(&ports.join(","), "<none>").into(),
        age,
        labels(&spec["selector"]),
    ]
}

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let either = |a: &str, b: &str| age::since(or(text(event, a), text(event, b)), now);
    let first = either("/firstTimestamp", "/eventTime");
    let mut last = if text(event, "/lastTimestamp").is_empty() {
        first.clone()
    } else {
        age::since(text(event, "/lastTimestamp"), now)
    };
    let mut times = count(event, "/count").max(1);
    if !event["series"].is_null() {
        last = age::since(text(event, "/series/lastObservedTime"), now);
        times = count(event, "/series/count");
    }
    let about = &event["involvedObject"];
    let mut object = text(about, "/kind").to_lowercase();
    if !text(about, "/name").is_empty() {
        object = format!("{object}/{}", text(about, "/name"));
    }
    let component = or(text(event, "/source/component"), text(event, "/reportingComponent"));
    let host = or(text(event, "/source/host"), text(event, "/reportingInstance"));
    let source = if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") };
    vec![
        last.into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        object.into(),
        text(about, "/fieldPath").into(),
        source.into(),
        text(event, "/message").trim().into(),
        first.into(),
        times.into(),
        event["metadata"]["name"].clone(),
    ]
}

fn modes(modes: &Value) -> Value {
    let has = |mode: &str| modes.as_array().is_some_and(|modes| modes.contains(&json!(mode)));
    let all = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let all: Vec<&str> = all.into_iter().filter(|(mode, _)| has(mode)).map(|(_, short)| short).collect();
    all.join(",").into()
}

fn phase(object: &Value) -> Value {
    let leaving = object["metadata"].get("deletionTimestamp").is_some();
    if leaving { "Terminating".into() } else { text(object, "/status/phase").into() }
}

fn volume(volume: &Value, age: Value) -> Vec<Value> {
    let spec = &volume["spec"];
    let claim = match &spec["claimRef"] {
        Value::Null => String::new(),
        claim => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")),
    };
    vec![
        volume["metadata"]["name"].clone(),
        or(text(spec, "/capacity/storage"), "0").into(),
        modes(&spec["accessModes"]),
        text(spec, "/persistentVolumeReclaimPolicy").into(),
        phase(volume),
        claim.into(),
        text(spec, "/storageClassName").into(),
        or(text(spec, "/volumeAttributesClassName"), "<unset>").into(),
        text(volume, "/status/reason").into(),
        age,
        or(text(spec, "/volumeMode"), "<unset>").into(),
    ]
}

fn claim(claim: &Value, age: Value) -> Vec<Value> {
    let spec = &claim["spec"];
    let bound = !text(spec, "/volumeName").is_empty();
    let capacity = if bound { or(text(claim, "/status/capacity/storage"), "0") } else { "" };
    vec![
        claim["metadata"]["name"].clone(),
        phase(claim),
        text(spec, "/volumeName").into(),
        capacity.into(),
        if bound { modes(&claim["status"]["accessModes"]) } else { "".into() },
        text(spec, "/storageClassName").into(),
        or(text(spec, "/volumeAttributesClassName"), "<unset>").into(),
        age,
        or(text(spec, "/volumeMode"), "<unset>").into(),
    ]
}
