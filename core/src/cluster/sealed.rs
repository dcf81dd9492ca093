//! Everything seen of a cluster at one moment, complete and in a fixed order.
//!
//! A [`Cluster`] is sealed from its [`Parts`]. From then on Nodes, pods and budgets are changed object by object,
//! instances, webhooks and leaders are replaced as a whole, and the surroundings of pods are changed in place. The
//! invariant: two clusters of the same objects are equal whatever order the objects and the changes came in, so a
//! decision never depends on that order. The cost of a change to one object depends on what is near the object, and not
//! on the size of the cluster, with two exceptions: a budget that is set or removed, and a Node that is added or
//! removed, moves the pointers behind it in its list; and a copy of a cluster costs as much as its nodes, because only
//! its pods are shared.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::budget::Budget;
use super::component::Component;
use super::guards::Guards;
use super::instance::Instance;
use super::leader::Leader;
use super::node::Node;
use super::pod::Pod;
use super::surroundings::Surroundings;
use super::webhook::Webhook;

/// What a [`Cluster`] is made of, in any order.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// kube-apiservers, controllers and kube-proxies.
    pub instances: Vec<Instance>,
    /// Nodes and their kubelets.
    pub nodes: Vec<Arc<Node>>,
    /// Pods. Empty where only the report is made, which needs none.
    pub pods: Vec<Pod>,
    /// Budgets of all namespaces.
    pub budgets: Vec<Budget>,
    /// Admission webhooks. Empty where none were read; they are asked only about the next minor.
    pub webhooks: Vec<Webhook>,
    /// One for each controller whose lease somebody holds.
    pub leaders: Vec<Leader>,
    /// What stands around pods. What of it was read depends on who looks, as the module `surroundings` says.
    pub surroundings: Surroundings,
}

impl Parts {
    /// Seals the parts into a [`Cluster`], each list in its fixed order.
    #[must_use]
    pub fn seal(self) -> Cluster {
        let Self { instances, nodes, pods, budgets, webhooks, leaders, surroundings } = self;
        let mut cluster = Cluster { surroundings, ..Cluster::default() };
        cluster.set_instances(instances);
        cluster.set_nodes(nodes);
        cluster.set_pods(pods.into_iter().map(Arc::new).collect());
        cluster.set_budgets(budgets.into_iter().map(Arc::new).collect());
        cluster.set_webhooks(webhooks);
        cluster.set_leaders(leaders);
        cluster
    }
}

/// Pods under the text that they have in common. Each list is shared between a cluster and its copies until one
/// changes, so that a copy of a cluster costs as much as its nodes and not as its pods.
type ByText = BTreeMap<Arc<str>, Arc<Vec<Arc<Pod>>>>;

/// Everything seen of a cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// By component and name.
    instances: Vec<Instance>,
    /// By name. Whoever keeps a Node shares it with the cluster, so that no look copies thousands of Nodes.
    nodes: Vec<Arc<Node>>,
    /// Under each node's name, by namespace and name.
    on_node: ByText,
    /// The same pods under each namespace, by name.
    in_namespace: ByText,
    /// Those of them that start ([`Traits::starting_since`](super::Traits)), under the UID of their controller.
    starting: ByText,
    /// By namespace and name.
    budgets: Vec<Arc<Budget>>,
    /// The same budgets, to be found by what they select.
    guards: Guards,
    /// Sorted.
    webhooks: Vec<Webhook>,
    /// Sorted.
    leaders: Vec<Leader>,
    surroundings: Surroundings,
}

/// How a cluster is read.
impl Cluster {
    /// kube-apiservers, controllers and kube-proxies, by component and name.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// The instances of `component`, by name.
    pub fn of(&self, component: Component) -> impl Iterator<Item = &Instance> {
        self.instances.iter().filter(move |instance| instance.component == component)
    }

    /// Nodes and their kubelets, by name.
    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// The Node of that name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        let place = self.place_of_node(name).ok()?;
        self.nodes.get(place).map(AsRef::as_ref)
    }

    /// Every pod, by node, namespace and name. A pod that is not bound has an empty node name and comes first. A
    /// cluster that was read only for the report has no pods.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> + Clone {
        self.on_node.values().flat_map(|pods| pods.iter()).map(AsRef::as_ref)
    }

    /// The pods bound to the node of that name, by namespace and name.
    pub fn pods_on<'a>(&'a self, node: &str) -> impl ExactSizeIterator<Item = &'a Pod> + Clone + use<'a> {
        self.on_node.get(node).map_or(&[][..], |pods| pods.as_slice()).iter().map(AsRef::as_ref)
    }

    /// The pods of a namespace, by name.
    pub fn pods_in<'a>(
        &'a self,
        namespace: &str,
    ) -> impl ExactSizeIterator<Item = &'a Pod> + Clone + use<'a> {
        self.in_namespace.get(namespace).map_or(&[][..], |pods| pods.as_slice()).iter().map(AsRef::as_ref)
    }

    /// The pods of the controller of that UID that start ([`Traits::starting_since`](super::Traits)), by namespace and
    /// name.
    pub fn starting_of<'a>(&'a self, controller: &str) -> impl Iterator<Item = &'a Pod> + Clone + use<'a> {
        self.starting.get(controller).map_or(&[][..], |pods| pods.as_slice()).iter().map(AsRef::as_ref)
    }

    /// The pod of that namespace and name.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Pod> {
        let pods = self.in_namespace.get(namespace)?;
        pods.get(pods.partition_point(|pod| *pod.name < *name))
            .map(AsRef::as_ref)
            .filter(|pod| *pod.name == *name)
    }

    /// Budgets of all namespaces, by namespace and name.
    pub fn budgets(&self) -> impl ExactSizeIterator<Item = &Budget> + Clone {
        self.budgets.iter().map(AsRef::as_ref)
    }

    /// The budget of that namespace and name.
    pub fn budget(&self, namespace: &str, name: &str) -> Option<&Budget> {
        let place = self.place_of_budget(namespace, name).ok()?;
        self.budgets.get(place).map(AsRef::as_ref)
    }

    /// The budgets that select `pod`, by name.
    pub fn budgets_of<'a>(&'a self, pod: &Pod) -> Vec<&'a Budget> {
        self.guards.of(pod)
    }

    /// Admission webhooks, sorted.
    pub fn webhooks(&self) -> &[Webhook] {
        &self.webhooks
    }

    /// Whether part of the control plane runs on `node`: it is labelled so, or a kube-apiserver is seen there. Nothing makes
    /// a person label such a Node.
    pub fn is_of_control_plane(&self, node: &Node) -> bool {
        let mut servers = self.instances.iter().take_while(|of| of.component == Component::KubeApiserver);
        node.control_plane || servers.any(|server| server.node.as_deref() == Some(&*node.name))
    }

    /// Whether `node` goes one at a time, with all others of which this is so: part of the control plane runs on it, or a
    /// member of etcd, of which two that are away at once may be one too many.
    pub fn goes_alone(&self, node: &Node) -> bool {
        node.etcd || self.is_of_control_plane(node)
    }

    /// Who leads each controller whose lease somebody holds, in the order of [`Component`].
    pub fn leaders(&self) -> &[Leader] {
        &self.leaders
    }

    /// What stands around pods. What of it was read depends on who looks, as the module `surroundings` says.
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    fn place_of_node(&self, name: &str) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.name.as_ref().cmp(name))
    }

    fn place_of_budget(&self, namespace: &str, name: &str) -> Result<usize, usize> {
        self.budgets.binary_search_by(|budget| budget_key(budget).cmp(&(namespace, name)))
    }
}

/// How a cluster is changed.
impl Cluster {
    /// Replaces all instances.
    pub fn set_instances(&mut self, mut instances: Vec<Instance>) {
        instances.sort_by(|a, b| (a.component, &a.name).cmp(&(b.component, &b.name)));
        self.instances = instances;
    }

    /// Sets when each kube-apiserver last answered, to what `probed` says of it.
    pub fn set_probed(&mut self, probed: impl Fn(&Instance) -> Option<Timestamp>) {
        let servers = self.instances.iter_mut();
        for server in servers.take_while(|instance| instance.component == Component::KubeApiserver) {
            server.probed = probed(server);
        }
    }

    /// Replaces all Nodes.
    pub fn set_nodes(&mut self, mut nodes: Vec<Arc<Node>>) {
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        self.nodes = nodes;
    }

    /// Adds `node`, or replaces the Node of its name.
    pub fn set_node(&mut self, node: impl Into<Arc<Node>>) {
        let node = node.into();
        match self.place_of_node(&node.name) {
            Ok(place) => self.nodes.splice(place..=place, [node]).for_each(drop),
            Err(place) => self.nodes.insert(place, node),
        }
    }

    /// Removes the Node of that name. Its pods stay until they are seen to be gone.
    pub fn remove_node(&mut self, name: &str) {
        if let Ok(place) = self.place_of_node(name) {
            self.nodes.remove(place);
        }
    }

    /// Applies `change` to the Node of that name, for a caller that knows more than was seen. Returns whether there is
    /// such a Node. Whoever else shares the Node keeps it as it was seen.
    pub fn change_node(&mut self, name: &str, change: impl FnOnce(&mut Node)) -> bool {
        let Some(seen) = self.node(name) else { return false };
        let mut node = seen.clone();
        change(&mut node);
        if *node.name != *name {
            self.remove_node(name);
        }
        self.set_node(node);
        true
    }

    /// Replaces all pods.
    pub fn set_pods(&mut self, mut pods: Vec<Arc<Pod>>) {
        // Where each node is watched by itself, two pods of one name may be seen on two nodes. Both stay.
        pods.sort_by(|a, b| (pod_key(a), &a.node, &a.uid).cmp(&(pod_key(b), &b.node, &b.uid)));
        let mut on_node: BTreeMap<Arc<str>, Vec<Arc<Pod>>> = BTreeMap::new();
        let (mut in_namespace, mut starting) = (on_node.clone(), on_node.clone());
        for pod in pods {
            if let Some(controller) = starts_for(&pod) {
                starting.entry(Arc::clone(controller)).or_default().push(Arc::clone(&pod));
            }
            on_node.entry(Arc::clone(&pod.node)).or_default().push(Arc::clone(&pod));
            in_namespace.entry(Arc::clone(&pod.namespace)).or_default().push(pod);
        }
        let shared = |(text, mut pods): (Arc<str>, Vec<Arc<Pod>>)| {
            pods.shrink_to_fit();
            (text, Arc::new(pods))
        };
        self.on_node = on_node.into_iter().map(shared).collect();
        self.in_namespace = in_namespace.into_iter().map(shared).collect();
        self.starting = starting.into_iter().map(shared).collect();
    }

    /// Adds `pod`, or replaces the pod of its namespace and name, which may have been on another node.
    pub fn set_pod(&mut self, pod: impl Into<Arc<Pod>>) {
        let pod = pod.into();
        let held = self.pod(&pod.namespace, &pod.name).filter(|held| held.node == pod.node);
        let started = held.map(|held| starts_for(held).cloned());
        let replaced = started.is_some()
            && replace(&mut self.in_namespace, &pod.namespace, &pod)
            && replace(&mut self.on_node, &pod.node, &pod);
        if replaced {
            if let Some(controller) = started.flatten() {
                take(&mut self.starting, &controller, pod_key(&pod));
            }
        } else {
            self.remove_pod(&pod.namespace, &pod.name);
            put(&mut self.on_node, Arc::clone(&pod.node), Arc::clone(&pod));
            put(&mut self.in_namespace, Arc::clone(&pod.namespace), Arc::clone(&pod));
        }
        if let Some(controller) = starts_for(&pod).cloned() {
            put(&mut self.starting, controller, pod);
        }
    }

    /// Removes every pod of that namespace and name.
    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        for gone in take(&mut self.in_namespace, namespace, (namespace, name)) {
            take(&mut self.on_node, &gone.node, (namespace, name));
            if let Some(controller) = starts_for(&gone) {
                take(&mut self.starting, controller, (namespace, name));
            }
        }
    }

    /// Replaces all budgets.
    pub fn set_budgets(&mut self, mut budgets: Vec<Arc<Budget>>) {
        budgets.sort_by(|a, b| budget_key(a).cmp(&budget_key(b)));
        self.guards = Guards::default();
        for budget in &budgets {
            self.guards.add(budget);
        }
        self.budgets = budgets;
    }

    /// Adds `budget`, or replaces the budget of its namespace and name.
    pub fn set_budget(&mut self, budget: impl Into<Arc<Budget>>) {
        let budget = budget.into();
        let place = self.place_of_budget(&budget.namespace, &budget.name);
        if let Ok(place) = place {
            self.guards.remove(&self.budgets.remove(place));
        }
        self.guards.add(&budget);
        self.budgets.insert(place.unwrap_or_else(|place| place), budget);
    }

    /// Removes the budget of that namespace and name.
    pub fn remove_budget(&mut self, namespace: &str, name: &str) {
        if let Ok(place) = self.place_of_budget(namespace, name) {
            self.guards.remove(&self.budgets.remove(place));
        }
    }

    /// Replaces all admission webhooks.
    pub fn set_webhooks(&mut self, mut webhooks: Vec<Webhook>) {
        webhooks.sort();
        self.webhooks = webhooks;
    }

    /// Replaces the leaders.
    pub fn set_leaders(&mut self, mut leaders: Vec<Leader>) {
        leaders.sort();
        self.leaders = leaders;
    }

    /// What stands around pods, for the caller to change.
    pub fn surroundings_mut(&mut self) -> &mut Surroundings {
        &mut self.surroundings
    }
}

fn pod_key(pod: &Pod) -> (&str, &str) {
    (&pod.namespace, &pod.name)
}

/// The UID of the controller for which `pod` was made, while it starts.
fn starts_for(pod: &Pod) -> Option<&Arc<str>> {
    pod.traits().starting_since?;
    Some(&pod.owner.as_ref()?.uid)
}

fn budget_key(budget: &Budget) -> (&str, &str) {
    (&budget.namespace, &budget.name)
}

/// Puts `pod` under `text`, where there must be none of its name.
fn put(all: &mut ByText, text: Arc<str>, pod: Arc<Pod>) {
    let pods = Arc::make_mut(all.entry(text).or_default());
    let place = pods.partition_point(|other| pod_key(other) < pod_key(&pod));
    pods.insert(place, pod);
}

/// Replaces the only pod of its name under `text` by `pod`. Returns false, and changes nothing, if there is none or
/// more than one.
fn replace(all: &mut ByText, text: &str, pod: &Arc<Pod>) -> bool {
    let Some(pods) = all.get_mut(text) else { return false };
    let place = pods.partition_point(|other| pod_key(other) < pod_key(pod));
    let alone = pods.get(place + 1).is_none_or(|next| pod_key(next) != pod_key(pod));
    let held = if alone { Arc::make_mut(pods).get_mut(place) } else { None };
    held.filter(|held| pod_key(held) == pod_key(pod)).map(|held| *held = Arc::clone(pod)).is_some()
}

/// Takes the pods of that namespace and name from under `text`.
fn take(all: &mut ByText, text: &str, key: (&str, &str)) -> Vec<Arc<Pod>> {
    let Some(pods) = all.get_mut(text) else { return Vec::new() };
    let begin = pods.partition_point(|pod| pod_key(pod) < key);
    let count = pods.iter().skip(begin).take_while(|pod| pod_key(pod) == key).count();
    if count == 0 {
        return Vec::new();
    }
    let pods = Arc::make_mut(pods);
    let taken = pods.drain(begin..begin + count).collect();
    // An empty list would make the cluster differ from one that never had these pods.
    if pods.is_empty() {
        all.remove(text);
    }
    taken
}

#[cfg(test)]
mod tests;
