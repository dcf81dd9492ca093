//! Who changes versions: a cloud, or what an upgrade's Job does on its node. It is told what the API shows anybody, and
//! does to the cluster's machines what [`Setting::way`] says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_sim::{COMPONENTS, Cluster, Deed};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use super::base::{FIRST, FROM, HOSTS, Setting, Stop, Way};
use super::watcher::host;

/// What an executor is told to move where the components of a control-plane node move together.
const PLANE: &str = "control-plane";
/// How long a kubelet is silent while it is replaced.
const KUBELET: Duration = Duration::from_secs(8);
/// How long a static pod is away while it is replaced.
const STATIC: Duration = Duration::from_secs(6);
/// After a kubelet of another minor has begun it runs all static pods of its node anew: so much later they end, and so
/// long they are away (measured on kubeadm's nodes: Ready again after 23 s).
const RESTARTS_AFTER: Duration = Duration::from_secs(8);
const RESTARTS_TAKE: Duration = Duration::from_secs(15);

/// The time between two static pods of a node, and the time that it takes after the last one until everything is written.
const BETWEEN: Duration = Duration::from_secs(2);
const WRITES: Duration = Duration::from_secs(4);

/// One thing to do.
#[derive(Clone, Debug)]
struct Order {
    component: String,
    /// What moves together; empty where `component` moves alone.
    components: Vec<String>,
    node: String,
    to: String,
    way: Way,
    /// It goes to the version that the configuration says, and does not write that.
    follows: bool,
    /// The version that the configuration of the control plane says.
    config: Arc<Mutex<String>>,
    /// Whether all went well, when it is over.
    over: Arc<Mutex<Option<bool>>>,
}

/// Works on `cluster` until it is dropped.
pub struct Executor(tokio::task::AbortHandle);

impl Drop for Executor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Executor {
    /// Begins to listen.
    pub fn start(cluster: &Cluster, setting: &Setting) -> Self {
        let (orders, work) = unbounded_channel();
        if setting.jobs {
            jobs(cluster, setting.clone(), orders);
        } else {
            claims(cluster, setting.clone(), orders);
        }
        let answered = setting.accept || setting.asked.answers();
        Self(tokio::spawn(carry_out(cluster.clone(), work, answered)).abort_handle())
    }
}

/// An external executor begins when a claim is at `Upgrading`, once for each attempt.
fn claims(cluster: &Cluster, setting: Setting, orders: UnboundedSender<Order>) {
    let mut begun: BTreeSet<(String, i64)> = BTreeSet::new();
    let config = Arc::new(Mutex::new(FROM.to_owned()));
    cluster.on_write(move |write| {
        if write.resource() != "nodeupgrades.evenkeel.dev" {
            return;
        }
        let Some(claim) = write.after() else { return };
        let attempt = claim["status"]["attempt"].as_i64().unwrap_or(0);
        if claim["status"]["state"] == "Upgrading" && begun.insert((write.uid().to_owned(), attempt)) {
            let text = |name: &str| claim["spec"][name].as_str().unwrap_or_default().to_owned();
            let (component, node) = (text("component"), text("nodeName"));
            let list = claim["spec"]["components"].as_array().into_iter().flatten();
            let components: Vec<String> = list.filter_map(|of| Some(of.as_str()?.to_owned())).collect();
            let way = setting.way(if components.is_empty() { &component } else { PLANE }, &node);
            let order = Order {
                component,
                components,
                node,
                to: release(text("toVersion")),
                way,
                follows: setting.first && text("executor") != FIRST,
                config: config.clone(),
                over: Arc::default(),
            };
            // Whoever listened has ended with the run.
            let _ = orders.send(order);
        }
    });
}

/// A Job's pod does it, when it comes to its end.
fn jobs(cluster: &Cluster, setting: Setting, orders: UnboundedSender<Order>) {
    let orders = Arc::new(Mutex::new(orders));
    let config = Arc::new(Mutex::new(FROM.to_owned()));
    // How the work of each pod stands that goes on after what it changes can be seen.
    let begun: Mutex<BTreeMap<String, Arc<Mutex<Option<bool>>>>> = Mutex::default();
    cluster.kubelets().set_program(move |pod: &Value| {
        let env = pod["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
        let text = |name: &str| {
            let found = env.iter().find(|entry| entry["name"] == name);
            found.and_then(|entry| entry["value"].as_str()).unwrap_or_default().to_owned()
        };
        let (component, node) = (text("EVENKEEL_COMPONENT"), text("EVENKEEL_NODE"));
        if component.is_empty() {
            return Deed::Succeed;
        }
        let way = setting.way(&component, &node);
        let mut order = Order {
            components: Vec::new(),
            node,
            to: text("EVENKEEL_TO"),
            way,
            follows: setting.first && pod["spec"]["containers"][0]["name"] != FIRST,
            config: config.clone(),
            over: Arc::default(),
            component,
        };
        if order.component == PLANE || matches!(order.way, Way::Lingers(_)) {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let mut begun = begun.lock().unwrap();
            if let Some(over) = begun.get(&uid) {
                return match *over.lock().unwrap() {
                    None => Deed::GoOn(Duration::from_secs(1)),
                    Some(true) => Deed::Succeed,
                    Some(false) => Deed::Fail,
                };
            }
            begun.insert(uid, order.over.clone());
            if order.component == PLANE {
                order.components = text("EVENKEEL_COMPONENTS").split(' ').map(str::to_owned).collect();
            }
            let _ = orders.lock().unwrap().send(order);
            return Deed::GoOn(Duration::from_secs(1));
        }
        let deed = match order.way {
            Way::Fail => Deed::Fail,
            Way::Hang => Deed::Hang,
            _ => Deed::Succeed,
        };
        let _ = orders.lock().unwrap().send(order);
        deed
    });
}

async fn carry_out(cluster: Cluster, mut work: UnboundedReceiver<Order>, accepted: bool) {
    let mut under_way = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(order) = work.recv() => {
                let (cluster, to) = (cluster.clone(), order.to.clone());
                under_way.spawn(async move {
                    perform(cluster.clone(), order).await;
                    if accepted {
                        follow(&cluster, &to);
                    }
                });
            }
            Some(_) = under_way.join_next() => {}
            else => return,
        }
    }
}

/// As kubeadm does it: the components of a node one after the other, those that are there already left alone, and at the
/// end it writes to what version the others may follow.
async fn plane(cluster: &Cluster, order: &Order) {
    let Order { components, node, to, way, follows, config, over, .. } = order;
    let (many, stop) = match way {
        Way::Fail => (0, Some(Stop::Fail)),
        Way::Hang | Way::Gone => (0, Some(Stop::Hang)),
        Way::Part(many, stop) => (*many, Some(*stop)),
        Way::After(seconds) => {
            sleep(Duration::from_secs(*seconds)).await;
            (components.len(), None)
        }
        Way::Lingers(_) => (components.len(), None),
        Way::Lie | Way::Wrong(_) => return *over.lock().unwrap() = Some(true),
        Way::Breaks => panic!("only kubelets break"),
    };
    if *follows && *config.lock().unwrap() != *to {
        return *over.lock().unwrap() = Some(true);
    }
    for at in 0..=components.len() {
        match stop.filter(|_| at == many) {
            Some(Stop::Fail) => return *over.lock().unwrap() = Some(false),
            Some(Stop::Hang) => return,
            Some(Stop::Lie) => *over.lock().unwrap() = Some(true),
            None => {}
        }
        let Some(component) = components.get(at) else { break };
        if cluster.control_plane().component(node, component) == Some((to.clone(), true)) {
            continue;
        }
        cluster.take_component(node, component);
        sleep(STATIC).await;
        cluster.replace_component(node, component, to);
        sleep(BETWEEN).await;
    }
    sleep(WRITES).await;
    if !follows {
        config.lock().unwrap().clone_from(to);
    }
    sleep(way.lingers()).await;
    *over.lock().unwrap() = Some(true);
}

async fn perform(cluster: Cluster, order: Order) {
    if !order.components.is_empty() {
        return plane(&cluster, &order).await;
    }
    let (lingers, over) = (order.way.lingers(), order.over.clone());
    change(&cluster, order).await;
    sleep(lingers).await;
    *over.lock().unwrap() = Some(true);
}

/// Changes the one component that `order` is about.
async fn change(cluster: &Cluster, order: Order) {
    let Order { component, node, to, way, .. } = order;
    let node = host(cluster.control_plane(), &node);
    let to = match way {
        Way::Fail | Way::Hang | Way::Lie | Way::Part(..) => return,
        Way::After(seconds) => {
            sleep(Duration::from_secs(seconds)).await;
            to
        }
        Way::Breaks if component == "kubelet" => {
            cluster.kubelets().stop(&node);
            sleep(KUBELET).await;
            return unready(cluster, &node, &to).await;
        }
        Way::Breaks => panic!("only kubelets break"),
        Way::Lingers(_) => to,
        Way::Wrong(version) => version,
        Way::Gone if component == "kubelet" => return cluster.kubelets().stop(&node),
        Way::Gone => {
            cluster.take_component(&node, &component);
            return;
        }
    };
    if component == "kubelet" {
        kubelet(cluster, &node, &to).await;
    } else {
        cluster.take_component(&node, &component);
        sleep(STATIC).await;
        cluster.replace_component(&node, &component, &to);
    }
}

/// Controllers that run as processes of hosts, which no claim ever names, go to `to` together with the last
/// kube-apiserver: what a person says who accepts that they are hidden.
fn follow(cluster: &Cluster, to: &str) {
    let plane = cluster.control_plane();
    let arrived = |host: &&str| plane.component(host, "kube-apiserver") == Some((to.to_owned(), true));
    if !HOSTS.iter().all(arrived) {
        return;
    }
    for host in HOSTS {
        for component in COMPONENTS.into_iter().filter(|component| *component != "kube-apiserver") {
            if plane.component(host, component).is_some_and(|(version, _)| version != to) {
                cluster.replace_component(host, component, to);
            }
        }
    }
}

/// What the new kubelet of `node` says whose network plugin does not come up, and no kubelet after it.
pub async fn unready(cluster: &Cluster, node: &str, to: &str) {
    let nodes: Api<Node> = Api::all(cluster.client_of("kubelet"));
    let mut says = nodes.get(node).await.unwrap();
    let status = says.status.get_or_insert_default();
    to.clone_into(&mut status.node_info.get_or_insert_default().kubelet_version);
    let now = Time(cluster.now());
    for condition in status.conditions.iter_mut().flatten().filter(|condition| condition.type_ == "Ready") {
        "False".clone_into(&mut condition.status);
        condition.reason = Some("KubeletNotReady".to_owned());
        condition.last_heartbeat_time = Some(now.clone());
        condition.last_transition_time = Some(now.clone());
    }
    nodes.replace_status(node, &PostParams::default(), &says).await.unwrap();
}

/// Replaces the kubelet of `node`; with it all static pods of the node are run anew.
pub async fn kubelet(cluster: &Cluster, node: &str, to: &str) {
    cluster.kubelets().stop(node);
    sleep(KUBELET).await;
    cluster.start_kubelet(node, to);
    let plane = cluster.control_plane();
    let here: Vec<&str> =
        COMPONENTS.into_iter().filter(|component| plane.component(node, component).is_some()).collect();
    if here.is_empty() {
        return;
    }
    sleep(RESTARTS_AFTER).await;
    for component in &here {
        cluster.take_component(node, component);
    }
    sleep(RESTARTS_TAKE).await;
    for component in &here {
        cluster.run_component(node, component, true);
    }
}

/// The release that somebody outside takes who is asked for any of a minor.
fn release(to: String) -> String {
    if to.matches('.').count() < 2 { format!("{to}.1") } else { to }
}
