//! Tables: what each platform shows, and which instances that means.

use evenkeel_core::cluster::Parts;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::fold::Watched;
use super::super::interner::Interner;
use super::super::lean::{Lease, Node, Pod};
use super::*;

const NOW: &str = "2026-11-20T12:00:00Z";

fn keep<K: Watched>(object: Value) -> K::Kept {
    serde_json::from_value::<K>(object).unwrap().keep(&mut Interner::default())
}

fn node(name: &str, ip: &str) -> Arc<NodeSeen> {
    keep::<Node>(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": format!("{name}.host")}},
        "status": {"addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": ip}]},
    }))
}

/// A pod of kube-system that is Ready.
fn pod(name: &str, node: &str, component: &str, image: &str) -> PodSeen {
    keep::<Pod>(json!({
        "metadata": {"name": name, "namespace": "kube-system", "uid": format!("uid-{name}"),
                     "labels": {"component": component}, "annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"nodeName": node, "containers": [{"name": component, "image": image}]},
        "status": {"phase": "Running", "hostIP": format!("host-of-{node}"),
                   "conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

fn lease(hostname: &str, renewed: &str) -> LeaseSeen {
    keep::<Lease>(json!({
        "metadata": {"name": format!("apiserver-{hostname}"), "labels": {
            "kubernetes.io/hostname": hostname, "apiserver.kubernetes.io/identity": "kube-apiserver"}},
        "spec": {"holderIdentity": format!("holder-{hostname}"), "renewTime": renewed},
    }))
}

fn endpoint(address: &str, version: Option<&str>) -> Endpoint {
    Endpoint {
        address: address.into(),
        version: version.map_or(Observed::Unknown(Unknown::Unreachable), Observed::from_report),
        effective: None,
        build: version.unwrap_or_default().into(),
        reachable: version.is_some(),
        ready: version.is_some(),
        asked: true,
        error: None,
        since: Instant::now(),
        confirmed: None,
    }
}

/// `name@node version incarnation`, with `!` where it is not ready.
fn check(
    nodes: &[Arc<NodeSeen>],
    pods: &[PodSeen],
    leases: &[LeaseSeen],
    endpoints: &[Endpoint],
    expected: &[&str],
) {
    let nodes: Vec<_> = nodes.iter().map(AsRef::as_ref).collect();
    let (pods, leases): (Vec<_>, Vec<_>) = (pods.iter().collect(), leases.iter().collect());
    let now = NOW.parse().unwrap();
    let seen = Sources { nodes: &nodes, pods: &pods, leases: &leases, endpoints, asked: true, now };
    let cluster = Parts { instances: instances(&seen), ..Parts::default() }.seal();
    let shown: Vec<_> = cluster
        .instances()
        .iter()
        .map(|found| {
            let node = found.node.as_deref().unwrap_or("?");
            let ready = if found.ready { "" } else { "!" };
            format!("{}@{node} {} {}{ready}", found.name, found.version, found.incarnation)
        })
        .collect();
    assert_eq!(shown, expected);
}

const FRESH: &str = "2026-11-20T11:59:15.000000Z";
const STALE: &str = "2026-11-20T11:58:45.000000Z";
const SERVER: &str = "registry.k8s.io/kube-apiserver:v1.36.4";

#[test]
fn kubeadm_with_one_apiserver_restarting() {
    check(
        &[node("cp-1", "192.0.2.1"), node("cp-2", "192.0.2.2")],
        &[
            pod("kube-apiserver-cp-1", "cp-1", "kube-apiserver", SERVER),
            pod("kube-apiserver-cp-2", "cp-2", "kube-apiserver", SERVER),
        ],
        &[lease("cp-1", FRESH), lease("cp-2", STALE)],
        &[endpoint("192.0.2.1:6443", Some("v1.36.4"))],
        &[
            "192.0.2.1:6443@cp-1 v1.36.4 build=v1.36.4 lease=holder-cp-1 pod=uid-kube-apiserver-cp-1/0",
            "kube-apiserver-cp-2@cp-2 unknown lease=holder-cp-2 pod=uid-kube-apiserver-cp-2/0!",
        ],
    );
}

#[test]
fn a_pod_that_is_bound_to_no_node_runs_nothing_yet() {
    let cloud = |name: &str, node: &str| pod(name, node, "cloud-controller-manager", "cloud:v1.36.0");
    let (old, new) = (cloud("cloud-1", "cp-1"), cloud("cloud-2", ""));
    check(&[node("cp-1", "192.0.2.1")], &[old, new], &[], &[], &["cloud-1@cp-1 v1.36.0 pod=uid-cloud-1/0"]);
}

#[test]
fn k3s_shows_leases_only() {
    let nodes = [node("s1", "192.0.2.1"), node("s2", "2001:db8::2"), node("agent", "192.0.2.9")];
    let leases = [lease("s1.host", FRESH), lease("s2", FRESH)];
    let one = endpoint("192.0.2.1:6443", Some("v1.36.4+k3s1"));
    let both = [one.clone(), endpoint("[2001:db8::2]:6443", None)];
    check(
        &nodes,
        &[],
        &leases,
        &both,
        &[
            "192.0.2.1:6443@s1 v1.36.4+k3s1 build=v1.36.4+k3s1 lease=holder-s1.host",
            "[2001:db8::2]:6443@s2 unknown lease=holder-s2!",
        ],
    );
    check(
        &nodes,
        &[],
        &leases,
        &[one],
        &[
            "192.0.2.1:6443@s1 v1.36.4+k3s1 build=v1.36.4+k3s1 lease=holder-s1.host",
            "apiserver-s2@s2 unknown lease=holder-s2!",
        ],
    );
}

#[test]
fn a_k3s_server_tells_of_its_whole_control_plane() {
    let of = |name: &str, version: &str, server: bool| {
        let role = if server { json!({"node-role.kubernetes.io/control-plane": "true"}) } else { json!({}) };
        keep::<Node>(json!({"metadata": {"name": name, "labels": role}, "status": {
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
            "nodeInfo": {"kubeletVersion": version}}}))
    };
    let nodes = [of("s1", "v1.36.4+k3s1", true), of("agent", "v1.35.1+k3s1", false)];
    let all = "s1@s1 v1.36.4+k3s1 build=v1.36.4+k3s1!";
    check(&nodes, &[], &[], &[], &[all, all, all]);
    // What is seen by itself is believed, and its marks are those of the process.
    let asked = endpoint("192.0.2.1:6443", Some("v1.36.9+k3s1"));
    let (server, more) =
        ("192.0.2.1:6443@s1 v1.36.9+k3s1 build=v1.36.9+k3s1", "s1@s1 v1.36.4+k3s1 build=v1.36.9+k3s1!");
    check(&nodes[..1], &[], &[], &[asked], &[server, more, more]);
    // Elsewhere each component is upgraded by itself, and a kubelet tells nothing of it.
    check(&[of("cp", "v1.36.4", true), of("rke", "v1.36.4+rke2r1", true)], &[], &[], &[], &[]);
}

/// Its lease stays for an hour: while its host is there, so does it.
#[test]
fn a_dead_apiserver_is_not_dropped() {
    let nodes = [node("s1", "192.0.2.1"), node("s2", "192.0.2.2")];
    let leases = [lease("s1", FRESH), lease("s2", STALE), lease("gone", STALE)];
    check(
        &nodes,
        &[],
        &leases,
        &[endpoint("192.0.2.1:6443", Some("v1.36.4"))],
        &[
            "192.0.2.1:6443@s1 v1.36.4 build=v1.36.4 lease=holder-s1",
            "apiserver-s2@s2 unknown lease=holder-s2!",
        ],
    );
}

#[test]
fn a_managed_control_plane_is_not_counted_twice() {
    check(
        &[node("worker", "192.0.2.9")],
        &[],
        &[lease("ip-10-0-0-1", FRESH), lease("ip-10-0-0-2", FRESH)],
        &[
            endpoint("198.51.100.1:443", Some("v1.36.4-eks-1")),
            endpoint("198.51.100.2:443", Some("v1.36.4-eks-1")),
        ],
        &[
            "198.51.100.1:443@? v1.36.4-eks-1 build=v1.36.4-eks-1",
            "198.51.100.2:443@? v1.36.4-eks-1 build=v1.36.4-eks-1",
        ],
    );
}

#[test]
fn an_apiserver_that_advertises_another_address_is_not_counted_twice() {
    check(
        &[node("s1", "192.0.2.1")],
        &[],
        &[lease("s1", FRESH)],
        &[endpoint("198.51.100.1:6443", Some("v1.36.4"))],
        &["198.51.100.1:6443@? v1.36.4 build=v1.36.4"],
    );
}

#[test]
fn leases_of_no_node_count_only_where_nothing_else_does() {
    let leases = [lease("controller", FRESH)];
    check(&[], &[], &leases, &[], &["apiserver-controller@? unknown lease=holder-controller!"]);
    let mapped = [endpoint("192.0.2.1:6443", Some("v1.36.4"))];
    check(&[node("n", "192.0.2.1")], &[], &leases, &mapped, &["192.0.2.1:6443@n v1.36.4 build=v1.36.4"]);
}

/// Since 1.36 an identity lease names the address of its kube-apiserver.
fn lease_of(hostname: &str, address: &str, holder: &str, renewed: &str) -> LeaseSeen {
    LeaseSeen { address: address.parse().ok(), holder: holder.into(), ..lease(hostname, renewed) }
}

#[test]
fn apiservers_that_are_processes_of_hosts_are_told_by_their_leases() {
    let (one, two) =
        (endpoint("192.0.2.1:6443", Some("v1.36.4")), endpoint("192.0.2.2:6443", Some("v1.36.4")));
    let leases = [
        lease_of("host-1", "192.0.2.1:6443", "one_a", FRESH),
        lease_of("host-2", "192.0.2.2:6443", "two_a", FRESH),
    ];
    let workers = [node("worker", "192.0.2.9")];
    check(
        &workers,
        &[],
        &leases,
        &[one.clone(), two],
        &[
            "192.0.2.1:6443@? v1.36.4 build=v1.36.4 lease=one_a",
            "192.0.2.2:6443@? v1.36.4 build=v1.36.4 lease=two_a",
        ],
    );
    // One that has just ended is still there, under its own name.
    check(
        &workers,
        &[],
        &leases,
        std::slice::from_ref(&one),
        &["192.0.2.1:6443@? v1.36.4 build=v1.36.4 lease=one_a", "192.0.2.2:6443@? unknown lease=two_a!"],
    );
    // Of an endpoint nothing is known but itself: the lease may be its own.
    let unnamed = [lease("host-1", FRESH), lease_of("host-2", "192.0.2.2:6443", "two_a", FRESH)];
    check(&workers, &[], &unnamed, &[one], &["192.0.2.1:6443@? v1.36.4 build=v1.36.4"]);
}

#[test]
fn a_lease_that_names_another_address_than_the_nodes_leads_to_the_node() {
    check(
        &[node("s1", "192.0.2.1")],
        &[],
        &[lease_of("s1", "198.51.100.1:6443", "one_a", FRESH)],
        &[endpoint("198.51.100.1:6443", Some("v1.36.4"))],
        &["198.51.100.1:6443@s1 v1.36.4 build=v1.36.4 lease=one_a"],
    );
}

/// Whatever is visible of it: a Node and a lease, a lease alone, or nothing but its endpoint.
#[test]
fn an_upgraded_apiserver_is_seen_to_be_another_process() {
    let (before, after) = (Some("v1.36.4"), Some("v1.37.1"));
    let address = "192.0.2.1:6443";
    let (own, others) = (vec![node("s1", "192.0.2.1")], vec![node("worker", "192.0.2.9")]);
    for (nodes, leases, next, replaced) in [
        (&own, vec![lease_of("s1", "", "one_b", FRESH)], after, true),
        // The lease is the last to change.
        (&own, vec![lease_of("s1", "", "one_a", FRESH)], after, true),
        (&own, vec![], after, true),
        (&others, vec![], after, true),
        (&others, vec![lease_of("host", address, "one_b", FRESH)], after, true),
        // A restart in the same version shows in the lease alone.
        (&own, vec![lease_of("s1", "", "one_b", FRESH)], before, true),
        (&others, vec![lease_of("host", address, "one_b", FRESH)], before, true),
        // It does not answer for a moment, or cannot renew its lease.
        (&own, vec![lease_of("s1", "", "one_a", STALE)], None, false),
        (&own, vec![], before, false),
        (&others, vec![], None, false),
    ] {
        let server = |leases: &[LeaseSeen], version: Option<&str>| {
            let nodes: Vec<_> = nodes.iter().map(AsRef::as_ref).collect();
            let (leases, endpoints) = (leases.iter().collect::<Vec<_>>(), [endpoint(address, version)]);
            let now = NOW.parse().unwrap();
            let seen = Sources {
                nodes: &nodes,
                pods: &[],
                leases: &leases,
                endpoints: &endpoints,
                asked: true,
                now,
            };
            instances(&seen).remove(0)
        };
        let first = if std::ptr::eq(nodes, &raw const own) {
            lease_of("s1", "", "one_a", FRESH)
        } else {
            lease_of("host", address, "one_a", FRESH)
        };
        let first = if leases.is_empty() { vec![] } else { vec![first] };
        let first = server(&first, before);
        let told = format!("{} then {}", first.incarnation, server(&leases, next).incarnation);
        assert_eq!(server(&leases, next).replaced_since(&first.incarnation), replaced, "{told}");
    }
}

#[test]
fn a_container_tells_its_run_and_a_copy_in_the_api_does_not() {
    let mark = |component: &str, uid: &str, status: Value| {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "kube-system", "uid": uid, "labels": {"component": component}},
            "spec": {"nodeName": "n", "containers": [{"name": "main", "image": format!("{component}:v1.36.4")}]},
            "status": {"containerStatuses": [status]},
        });
        let (mark, value) = keep::<Pod>(pod).runs.unwrap().mark;
        incarnation([(mark, value.as_ref())]).to_string()
    };
    let runs = json!({"name": "main", "restartCount": 1, "containerID": format!("containerd://{}", "ab".repeat(32))});
    assert_eq!(mark("kube-scheduler", "u1", runs.clone()), "container=abababababab");
    assert_eq!(mark("kube-scheduler", "u2", runs.clone()), "container=abababababab");
    assert_eq!(mark("kube-scheduler", "u1", json!({"name": "main", "restartCount": 1})), "pod=u1/1");
    assert_eq!(mark("kube-proxy", "u1", runs), "pod=u1/1", "there are too many to keep what nobody asks");
}

/// Images that hold every component say nothing; the command does, or the container's name.
#[test]
fn one_image_for_all_components() {
    let run = |name: &str, image: &str, command: Value| {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "kube-system", "labels": {}},
            "spec": {"nodeName": "n", "containers": [{"name": name, "image": image, "command": command}]},
        });
        keep::<Pod>(pod).runs.map(|runs| format!("{} {}", runs.component, runs.version))
    };
    for (name, image, command, expected) in [
        (
            "x",
            "hyperkube:v1.16.3",
            json!(["/hyperkube", "kube-apiserver", "-v=2"]),
            Some("kube-apiserver v1.16.3"),
        ),
        ("x", "hyperkube-amd64:v1.16.3", json!(["/hyperkube", "kube-proxy"]), Some("kube-proxy v1.16.3")),
        ("kube-scheduler", "hyperkube:v1.16.3", Value::Null, Some("kube-scheduler v1.16.3")),
        (
            "kube-proxy",
            "rancher/hardened-kubernetes:v1.21.3-rke2r1-build20210721",
            json!(["kube-proxy"]),
            Some("kube-proxy v1.21.3+rke2r1"),
        ),
        ("x", "hyperkube:v1.16.3", json!(["/hyperkube", "kubelet"]), None),
        ("x", "hyperkube:v1.16.3", json!(["sleep", "kube-proxy-cleanup"]), None),
        ("kube-proxy", "hyperkube@sha256:0123", Value::Null, Some("kube-proxy unknown")),
    ] {
        let told = format!("{image} {command}");
        assert_eq!(run(name, image, command).as_deref(), expected, "{told}");
    }
}

#[test]
fn pods_are_recognised_by_label_or_image() {
    let run = |labels: Value, image: &str, running: &str| {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "kube-system", "labels": labels},
            "spec": {"nodeName": "n", "containers": [{"name": "main", "image": image}]},
            "status": {"containerStatuses": [{"name": "main", "image": running, "restartCount": 2}]},
        });
        keep::<Pod>(pod).runs.map(|runs| {
            let restarts = runs.mark.1.rsplit('/').next().unwrap_or_default().to_owned();
            let version = match &runs.version {
                Observed::Unknown(own @ Unknown::OwnNumber(_)) => own.to_string(),
                version => version.to_string(),
            };
            format!("{} {version} {restarts}", runs.component)
        })
    };
    for (labels, image, running, expected) in [
        (json!({"k8s-app": "kube-proxy"}), "r:5000/kube-proxy:v1.36.4", "", Some("kube-proxy v1.36.4 2")),
        // The pod's image was changed in place; the old one still runs.
        (
            json!({"k8s-app": "kube-proxy"}),
            "kube-proxy:v1.36.4",
            "kube-proxy:v1.35.1",
            Some("kube-proxy v1.35.1 2"),
        ),
        (json!({}), "kube-proxy:v1.36.4", "sha256:0123456789abcdef", Some("kube-proxy v1.36.4 2")),
        (
            json!({"component": "kube-scheduler"}),
            "kube-scheduler@sha256:0123",
            "",
            Some("kube-scheduler unknown 2"),
        ),
        (
            json!({"component": "kube-controller-manager"}),
            "rancher/hardened-kubernetes:v1.33.8-rke2r1-build20260101",
            "",
            Some("kube-controller-manager v1.33.8+rke2r1 2"),
        ),
        (
            json!({"k8s-app": "cloud-controller-manager"}),
            "hetznercloud/hcloud-cloud-controller-manager:v1.8.1",
            "",
            Some("cloud-controller-manager numbered by its makers: v1.8.1 2"),
        ),
        (
            json!({}),
            "provider-aws/cloud-controller-manager:v1.32.0",
            "",
            Some("cloud-controller-manager v1.32.0 2"),
        ),
        (
            json!({}),
            "k8s-image-repo/cloud-controller-manager:v35.0.0",
            "",
            Some("cloud-controller-manager numbered by its makers: v35.0.0 2"),
        ),
        (
            json!({}),
            "x/cloud-controller-manager:v1.36.1-0.20260512163953-99d91538b132",
            "",
            Some("cloud-controller-manager numbered by its makers: v1.36.1-0.20260512163953-99d91538b132 2"),
        ),
        (
            json!({"component": "kube-proxy"}),
            "gke.gcr.io/kube-proxy-amd64:v1.33.5-gke.1",
            "",
            Some("kube-proxy v1.33.5-gke.1 2"),
        ),
        // An image for one architecture, without a label.
        (json!({}), "k8s.gcr.io/kube-proxy-arm64:v1.21.3", "", Some("kube-proxy v1.21.3 2")),
        // By digest beside a tag, and by digest alone.
        (json!({}), "kube-proxy:v1.36.4@sha256:0123", "", Some("kube-proxy v1.36.4 2")),
        (json!({}), "kube-proxy@sha256:0123", "", Some("kube-proxy unknown 2")),
        // It only has the name of the tool that everybody uses.
        (json!({"component": "kubectl"}), "kubectl:v1.20.1", "", None),
        (json!({"k8s-app": "kube-dns"}), "coredns/coredns:v1.12.0", "", None),
        (json!({"component": "kubelet"}), "tool:v1", "", None),
    ] {
        assert_eq!(run(labels, image, running).as_deref(), expected, "{image}");
    }
}

/// RKE2 builds it at a pace of its own: the tag lags by a patch, or by a minor.
#[test]
fn the_cloud_controller_manager_of_rke2_has_numbers_of_its_own() {
    for tag in [
        "v1.36.1-0.20260512163953-99d91538b132-build20260513",
        "v1.36.0-rc2.0.20260420163953-99d91538b132-build20260421",
        "v1.31.2-0.20241016053446-0955fa330f90-build20241016",
        "v1.29.3-build20240515",
        "v0.0.3-build20240312",
    ] {
        let image = format!("index.docker.io/rancher/rke2-cloud-provider:{tag}");
        let runs = pod("cloud-1", "server-1", "cloud-controller-manager", &image).runs.unwrap();
        assert_eq!(runs.version, Observed::Unknown(Unknown::OwnNumber(tag.into())));
    }
}

/// kubeadm and RKE2 point the controllers of their static pods at the kube-apiserver of the same host.
#[test]
fn which_controllers_talk_to_the_apiserver_of_their_own_host() {
    let kubeadm = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint";
    let pod = |name: &str, node: &str, component: &str, image: &str, annotations: Value| {
        keep::<Pod>(json!({
            "metadata": {"name": name, "namespace": "kube-system", "uid": format!("uid-{name}"),
                         "labels": {"component": component}, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": component, "image": image}]},
            "status": {"phase": "Running"},
        }))
    };
    let mirror = || json!({"kubernetes.io/config.mirror": "x"});
    let made = json!({"kubernetes.io/config.mirror": "x", kubeadm: "192.0.2.1:6443"});
    let kcm = "kube-controller-manager";
    let image = "registry.k8s.io/kube-controller-manager:v1.36.4";
    let rke2 = "rancher/hardened-kubernetes:v1.33.8-rke2r1-build20260101";
    let pods = [
        pod("server-1", "cp-1", "kube-apiserver", SERVER, made),
        pod("server-2", "cp-2", "kube-apiserver", SERVER, mirror()),
        pod("by-kubeadm", "cp-1", kcm, image, mirror()),
        pod("by-hand", "cp-2", kcm, image, mirror()),
        // A Deployment talks to the Service.
        pod("deployed", "cp-1", kcm, image, json!({})),
        pod("cloud", "cp-1", "cloud-controller-manager", "x/cloud-controller-manager:v1.36.0", mirror()),
        pod("rke2", "cp-3", kcm, rke2, mirror()),
        pod(
            "rke2-cloud",
            "cp-3",
            "cloud-controller-manager",
            "rancher/rke2-cloud-provider:v1.33.8",
            mirror(),
        ),
    ];
    let pods: Vec<_> = pods.iter().collect();
    let (asked, now) = (true, NOW.parse().unwrap());
    let found = instances(&Sources { nodes: &[], pods: &pods, leases: &[], endpoints: &[], asked, now });
    let local = found.iter().filter(|found| found.reach == Reach::Local).map(|found| &*found.name);
    let mut local: Vec<&str> = local.collect();
    local.sort_unstable();
    assert_eq!(local, ["by-kubeadm", "rke2", "rke2-cloud"]);
}
