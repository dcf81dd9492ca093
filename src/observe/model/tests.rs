//! Whatever happens and whenever somebody looks, the model is the one that is made anew.

use evenkeel_core::cluster::{Owner, Parts, Scale};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::fold::Watched;
use super::super::interner::Interner;
use super::super::lean::Lease;
use super::*;

/// The sources of a model.
struct ModelSources {
    nodes: Fold<Node>,
    pods: Fold<Pod>,
    budgets: Fold<PodDisruptionBudget>,
    leases: Vec<LeaseSeen>,
    endpoints: Vec<Endpoint>,
    version: u64,
    seconds: i64,
}

#[derive(Clone, Debug)]
enum Event {
    Node {
        number: u8,
        ip: u8,
        ready: bool,
        gone: bool,
    },
    Pod {
        namespace: u8,
        number: u8,
        node: u8,
        ready: bool,
        gone: bool,
    },
    Budget {
        number: u8,
        allowed: u8,
        gone: bool,
    },
    Lease {
        number: u8,
        holder: u8,
    },
    Endpoint {
        number: u8,
        version: u8,
    },
    /// Everything is listed again, but for what was deleted meanwhile.
    List {
        kind: u8,
        without: u8,
    },
    Trouble {
        kind: u8,
        trouble: u8,
    },
    Time(u8),
    Look,
}

fn any_event() -> impl Strategy<Value = Event> {
    let pod = (0..3u8, 0..4u8, 0..4u8, any::<bool>(), prop::bool::weighted(0.2));
    prop_oneof![
        4 => (0..4u8, 0..3u8, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(number, ip, ready, gone)| Event::Node { number, ip, ready, gone }),
        8 => pod.prop_map(|(namespace, number, node, ready, gone)| {
            Event::Pod { namespace, number, node, ready, gone }
        }),
        3 => (0..4u8, 0..3u8, prop::bool::weighted(0.2))
            .prop_map(|(number, allowed, gone)| Event::Budget { number, allowed, gone }),
        1 => (0..4u8, 0..2u8).prop_map(|(number, holder)| Event::Lease { number, holder }),
        1 => (0..3u8, 0..3u8).prop_map(|(number, version)| Event::Endpoint { number, version }),
        1 => (0..3u8, 0..6u8).prop_map(|(kind, without)| Event::List { kind, without }),
        1 => (0..3u8, 0..4u8).prop_map(|(kind, trouble)| Event::Trouble { kind, trouble }),
        1 => (0..40u8).prop_map(Event::Time),
        6 => Just(Event::Look),
    ]
}

fn of<K: Watched>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// The first one is a server of k3s.
fn node(number: u8, ip: u8, ready: bool, version: u64) -> Value {
    let (labels, kubelet) = match number {
        0 => (json!({"node-role.kubernetes.io/control-plane": "true"}), format!("v1.36.{ip}+k3s1")),
        _ => (json!({}), "v1.36.4".to_owned()),
    };
    json!({
        "metadata": {"name": format!("n-{number}"), "uid": format!("n-{number}"), "labels": labels,
            "resourceVersion": version.to_string()},
        "status": {
            "addresses": [{"type": "InternalIP", "address": format!("192.0.2.{ip}")}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            "nodeInfo": {"kubeletVersion": kubelet}},
    })
}

fn pod(namespace: u8, number: u8, on: u8, ready: bool, version: u64) -> Value {
    let namespace = if namespace == 0 { "kube-system".to_owned() } else { format!("ns-{namespace}") };
    let component = ["kube-apiserver", "kube-scheduler", "etcd", "other"][usize::from(number)];
    json!({
        "metadata": {"name": format!("{component}-{number}"), "namespace": namespace,
            "uid": format!("{namespace}-{number}"), "resourceVersion": version.to_string(),
            "labels": {"component": component}},
        "spec": {
            "nodeName": if on == 0 { String::new() } else { format!("n-{on}") },
            "containers": [{"name": component, "image": format!("registry.k8s.io/{component}:v1.36.{on}")}]},
        "status": {"phase": "Running", "hostIP": format!("192.0.2.{on}"),
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    })
}

fn budget(number: u8, allowed: u8, version: u64) -> Value {
    json!({
        "metadata": {"name": format!("b-{number}"), "namespace": format!("ns-{}", number % 3),
            "resourceVersion": version.to_string()},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": allowed},
    })
}

fn event<K: Watched>(fold: &mut Fold<K>, object: Value, gone: bool) {
    let object: K = of(object);
    if gone {
        fold.delete(&object);
    } else {
        fold.apply(object);
    }
}

/// Lists again what `fold` holds, each in a new version if `changed`, without the one at `without`.
fn list<K: Watched>(fold: &mut Fold<K>, objects: &[Value], without: u8, version: u64) {
    fold.list_begins();
    for (number, object) in objects.iter().enumerate() {
        if number != usize::from(without) {
            fold.listed(of(object.clone()));
        }
    }
    fold.list_ends(&version.to_string());
}

fn trouble<K: Watched>(fold: &mut Fold<K>, trouble: u8) {
    match trouble {
        0 => fold.failing("it fails", None),
        1 => fold.refused("not yours"),
        2 => fold.undecodable("unreadable"),
        _ => _ = fold.following(),
    }
}

impl ModelSources {
    fn new() -> Self {
        let mut sources = Self {
            nodes: Fold::default(),
            pods: Fold::default(),
            budgets: Fold::default(),
            leases: Vec::new(),
            endpoints: Vec::new(),
            version: 1,
            seconds: 0,
        };
        (0..3).for_each(|kind| sources.list(kind, u8::MAX));
        sources
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + self.seconds).unwrap()
    }

    fn list(&mut self, kind: u8, without: u8) {
        let version = self.version;
        match kind {
            0 => {
                let all: Vec<Value> = (0..4).map(|number| node(number, number, true, version)).collect();
                list(&mut self.nodes, &all, without, version);
            }
            1 => {
                let all =
                    (0..3).flat_map(|ns| (0..3).map(move |number| pod(ns, number, number, true, version)));
                list(&mut self.pods, &all.collect::<Vec<_>>(), without, version);
            }
            _ => {
                let all: Vec<Value> = (0..4).map(|number| budget(number, 1, version)).collect();
                list(&mut self.budgets, &all, without, version);
            }
        }
    }

    fn happens(&mut self, what: &Event) {
        self.version += 1;
        let version = self.version;
        match *what {
            Event::Node { number, ip, ready, gone } => {
                event(&mut self.nodes, node(number, ip, ready, version), gone);
            }
            Event::Pod { namespace, number, node, ready, gone } => {
                event(&mut self.pods, pod(namespace, number, node, ready, version), gone);
            }
            Event::Budget { number, allowed, gone } => {
                event(&mut self.budgets, budget(number, allowed, version), gone);
            }
            Event::Lease { number, holder } => {
                let labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver",
                    "kubernetes.io/hostname": format!("n-{}", number % 2)});
                let (name, labels) = match number {
                    3 => ("kube-scheduler".to_owned(), json!({})),
                    _ => (format!("apiserver-{number}"), labels),
                };
                let lease: Lease = of(json!({
                    "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
                    "spec": {"holderIdentity": format!("n-{holder}_x"), "renewTime": self.now().to_string()},
                }));
                let lease = lease.keep(&mut Interner::default());
                self.leases.retain(|other| other.name != lease.name);
                self.leases.push(lease);
            }
            Event::Endpoint { number, version } => {
                let address: Arc<str> = format!("192.0.2.{number}:6443").into();
                self.endpoints.retain(|other| other.address != address);
                self.endpoints.push(Endpoint {
                    address,
                    version: Observed::from_report(&format!("v1.36.{version}")),
                    effective: None,
                    build: format!("v1.36.{version}").into(),
                    reachable: version > 0,
                    ready: version > 1,
                    asked: true,
                    error: None,
                    since: Instant::now(),
                    confirmed: None,
                });
            }
            Event::List { kind, without } => self.list(kind, without),
            Event::Trouble { kind: 0, trouble: what } => trouble(&mut self.nodes, what),
            Event::Trouble { kind: 1, trouble: what } => trouble(&mut self.pods, what),
            Event::Trouble { trouble: what, .. } => trouble(&mut self.budgets, what),
            Event::Time(seconds) => self.seconds += i64::from(seconds),
            Event::Look => {}
        }
    }

    fn look(&mut self, model: &mut Model) {
        let news = self.nodes.news();
        model.nodes(&self.nodes, news);
        let news = self.pods.news();
        model.pods(&self.pods, news);
        let news = self.budgets.news();
        model.budgets(&self.budgets, news);
        model.find(&self.leases, &self.endpoints, Vec::new(), self.now());
    }

    /// Made of everything that is held, as if nobody had looked before.
    fn anew(&self, scope: PodScope) -> (Cluster, Option<Platform>) {
        fn usable<K: Watched>(fold: &Fold<K>) -> Vec<&K::Kept> {
            fold.values().filter(|_| fold.state() == SyncState::Synced).collect()
        }
        let (nodes, pods, leases) = (usable(&self.nodes), usable(&self.pods), &self.leases);
        let nodes: Vec<&NodeSeen> = nodes.into_iter().map(AsRef::as_ref).collect();
        let running: Vec<&PodSeen> = pods.iter().copied().filter(|pod| pod.runs.is_some()).collect();
        let leases: Vec<_> = leases.iter().collect();
        let (endpoints, now) = (&self.endpoints[..], self.now());
        let seen = Sources { nodes: &nodes, pods: &running, leases: &leases, endpoints, asked: true, now };
        let mut instances = components::instances(&seen);
        leaders::add(&mut instances, &[], &seen);
        let bound = pods.into_iter().filter(|seen| scope == PodScope::All && is_bound(seen));
        let parts = Parts {
            instances,
            leaders: leaders::leaders(&leases, &nodes),
            nodes: nodes.iter().map(|seen| Arc::clone(&seen.node)).collect(),
            pods: bound.map(|seen| seen.pod.as_ref().clone()).collect(),
            budgets: usable(&self.budgets).into_iter().map(|budget| budget.as_ref().clone()).collect(),
            ..Parts::default()
        };
        (parts.seal(), recognise::platform(&nodes, &running))
    }
}

proptest! {
    #[test]
    fn the_model_is_the_one_that_is_made_anew(events in prop::collection::vec(any_event(), 0..80)) {
        for scope in [PodScope::All, PodScope::KubeSystem] {
            let (mut sources, mut model) = (ModelSources::new(), Model::new(scope));
            // Who holds an earlier one keeps what was.
            let mut held: Vec<(Arc<Cluster>, Cluster)> = Vec::new();
            for event in events.iter().chain([&Event::Look]) {
                sources.happens(event);
                if matches!(event, Event::Look) {
                    sources.look(&mut model);
                    let (cluster, platform) = sources.anew(scope);
                    let seen = model.cluster();
                    prop_assert_eq!(seen.as_ref(), &cluster);
                    prop_assert_eq!(model.platform(), platform);
                    held.push((seen, cluster));
                }
            }
            for (then, cluster) in held {
                prop_assert_eq!(then.as_ref(), &cluster);
            }
        }
    }
}

/// A pod of another node, a heartbeat: what tells of no component finds none anew.
#[test]
fn components_are_found_again_only_when_something_tells_of_them() {
    let (mut sources, mut model) = (ModelSources::new(), Model::new(PodScope::All));
    sources.happens(&Event::Endpoint { number: 1, version: 4 });
    sources.look(&mut model);
    let instances = |model: &Model| model.cluster().instances().as_ptr();
    let before = instances(&model);
    sources.happens(&Event::Node { number: 1, ip: 1, ready: false, gone: false });
    sources.happens(&Event::Pod { namespace: 1, number: 0, node: 2, ready: false, gone: false });
    sources.happens(&Event::Budget { number: 1, allowed: 0, gone: false });
    sources.look(&mut model);
    assert_eq!(instances(&model), before);
    assert!(!model.cluster().node("n-1").unwrap().ready);
    sources.happens(&Event::Node { number: 1, ip: 9, ready: false, gone: false });
    sources.look(&mut model);
    assert_ne!(instances(&model), before, "its address tells which apiserver runs there");
}

/// Its controllers are seen, so they do not lead out of sight; and they follow the kubelet of their process.
#[test]
fn an_upgrade_and_a_report_see_the_same_k3s_cluster() {
    let seen = |scope| {
        let (mut sources, mut model) = (ModelSources::new(), Model::new(scope));
        (0..3).for_each(|namespace| {
            (0..3).for_each(|number| {
                sources.happens(&Event::Pod { namespace, number, node: 1, ready: true, gone: true });
            });
        });
        sources.happens(&Event::Endpoint { number: 0, version: 4 });
        sources.happens(&Event::Lease { number: 3, holder: 0 });
        let mut shown = Vec::new();
        for (ip, ready) in [(0, true), (7, true), (7, false)] {
            sources.happens(&Event::Node { number: 0, ip, ready, gone: false });
            sources.look(&mut model);
            assert!(model.leading().is_empty(), "{:?}", model.leading());
            shown.extend(model.cluster().instances().iter().map(|instance| {
                let (node, ready) = (instance.node.as_deref().unwrap_or("?"), instance.ready);
                format!("{} {node} {} {ready}", instance.component, instance.version)
            }));
        }
        shown
    };
    let upgrade = seen(PodScope::All);
    assert_eq!(
        upgrade,
        [
            "kube-apiserver n-0 v1.36.4 true",
            "kube-controller-manager n-0 v1.36.0+k3s1 true",
            "kube-scheduler n-0 v1.36.0+k3s1 true",
            "kube-apiserver ? v1.36.4 true",
            "kube-controller-manager n-0 v1.36.7+k3s1 true",
            "kube-scheduler n-0 v1.36.7+k3s1 true",
            "kube-apiserver ? v1.36.4 true",
            "kube-controller-manager n-0 v1.36.7+k3s1 false",
            "kube-scheduler n-0 v1.36.7+k3s1 false",
        ]
    );
    assert_eq!(seen(PodScope::KubeSystem), upgrade);
}

#[test]
fn volumes_that_are_tied_to_hosts_are_known_while_they_can_be_relied_on() {
    let mut fold: Fold<PersistentVolume> = Fold::default();
    let mut model = Model::new(PodScope::All);
    let volume = |name: &str, key: &str| -> PersistentVolume {
        let terms = json!([{"matchExpressions": [{"key": key, "operator": "In", "values": ["n-1"]}]}]);
        let spec = json!({"claimRef": {"namespace": "shop", "name": name}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    let mut look = |fold: &mut Fold<PersistentVolume>| {
        let news = fold.news();
        model.volumes(fold, &news);
        let volumes = model.cluster().surroundings().volumes.clone();
        volumes.map(|all| all.keys().map(|(_, name)| name.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(look(&mut fold), None, "nothing was listed yet");
    fold.list_begins();
    fold.listed(volume("data", "kubernetes.io/hostname"));
    fold.listed(volume("logs", "topology.kubernetes.io/zone"));
    fold.list_ends("1");
    assert_eq!(look(&mut fold), Some(vec!["data".to_owned()]));
    assert_eq!(look(&mut fold), Some(vec!["data".to_owned()]), "nothing is new");
    fold.failing("the server is away", None);
    assert_eq!(look(&mut fold), None);
}

#[test]
fn attached_volumes_are_known_with_their_claims_while_they_can_be_relied_on() {
    let mut model = Model::new(PodScope::All);
    let (mut volumes, mut attachments) =
        (Fold::<PersistentVolume>::default(), Fold::<VolumeAttachment>::default());
    let spec = json!({"claimRef": {"namespace": "shop", "name": "data"}});
    volumes.list_begins();
    volumes.listed(serde_json::from_value(json!({"metadata": {"name": "pv-1"}, "spec": spec})).unwrap());
    volumes.list_ends("1");
    let news = volumes.news();
    model.volumes(&volumes, &news);
    let mut look = |fold: &mut Fold<VolumeAttachment>| {
        let news = fold.news();
        model.attachments(fold, &news);
        let surroundings = model.cluster().surroundings().clone();
        assert_eq!(surroundings.claims.unwrap()["pv-1"], ("shop".into(), "data".into()));
        surroundings.attached.map(|all| all.iter().map(|of| format!("{} {}", of.node, of.volume)).collect())
    };
    assert_eq!(look(&mut attachments), None::<Vec<String>>, "nothing was listed yet");
    let attached = |name: &str, node: &str| {
        let spec = json!({"nodeName": node, "source": {"persistentVolumeName": "pv-1"}});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    attachments.list_begins();
    attachments.listed(attached("csi-1", "n-2"));
    attachments.listed(attached("csi-2", "n-1"));
    attachments.list_ends("1");
    assert_eq!(look(&mut attachments), Some(vec!["n-1 pv-1".to_owned(), "n-2 pv-1".to_owned()]));
    attachments.failing("the server is away", None);
    assert_eq!(look(&mut attachments), None);
}

#[test]
fn the_scale_of_a_stateful_set_is_known_while_it_can_be_relied_on() {
    let mut model = Model::new(PodScope::All);
    let mut fold = Fold::<StatefulSet>::default();
    let named = |kind: &str, uid: &str| Owner {
        api_version: "apps/v1".into(),
        kind: kind.into(),
        name: "db".into(),
        uid: uid.into(),
    };
    let mut look = |fold: &mut Fold<StatefulSet>| {
        let news = fold.news();
        model.stateful_sets(fold, &news);
        let cluster = model.cluster();
        let scale = |of: &Owner| cluster.surroundings().scale(&"shop".into(), of);
        [scale(&named("StatefulSet", "uid-1")), scale(&named("ReplicaSet", "uid-2"))]
    };
    assert_eq!(look(&mut fold), [Scale::Unknown, Scale::Unknown], "nothing was listed yet");
    fold.list_begins();
    let metadata = json!({"namespace": "shop", "name": "db", "uid": "uid-1"});
    let set = json!({"metadata": metadata, "spec": {"replicas": 3}});
    fold.listed(serde_json::from_value(set).unwrap());
    fold.list_ends("1");
    assert_eq!(look(&mut fold), [Scale::Of("uid-1".into(), 3), Scale::Unknown]);
    fold.failing("the server is away", None);
    assert_eq!(look(&mut fold), [Scale::Unknown, Scale::Unknown]);
}
