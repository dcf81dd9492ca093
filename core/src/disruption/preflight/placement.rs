//! Whether any other node may take a pod, by its node selector, its affinity and whom it keeps apart from (B4, B6).
//!
//! Here belongs what follows from [`Placement`] for pods that would leave a node. The invariant: a pod that is reported
//! cannot be placed as things are. So the pods of the drained node are taken to be gone, preferences and taints are not
//! asked, and namespaces that a term selects by labels are taken to hold no pod.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::question::Question;
use crate::cluster::{AntiAffinityTerm, Cluster, Node, Phase, Placement, Pod};

/// The values of a topology's label where pods of a sort are, and on which nodes.
type Domains<'a> = BTreeMap<&'a str, HolderNodes<'a>>;

/// The nodes of a part of the cluster on which pods of a sort are.
#[derive(Clone, Copy)]
enum HolderNodes<'a> {
    /// On this one only.
    One(&'a str),
    Several,
}

/// A term of anti-affinity, and where the pods of a namespace are that have it.
struct TermHolders<'a> {
    namespace: Arc<str>,
    apart: &'a AntiAffinityTerm,
    /// Where those pods are.
    holders: Rc<Domains<'a>>,
}

type About<'a> = BTreeMap<(&'a AntiAffinityTerm, Arc<str>), Rc<Domains<'a>>>;

/// The placements of a cluster.
pub(super) struct Placements<'a> {
    cluster: &'a Cluster,
    nodes: BTreeMap<&'a str, &'a Node>,
    /// Every term that some pod has.
    terms: Vec<TermHolders<'a>>,
    /// Where the pods are that a term is about, by the term and the namespace of the pods that have it.
    about: RefCell<About<'a>>,
}

/// Why a node is not for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// By the selector or the affinity.
    NotChosen,
    /// By a pod that is there, or near.
    KeptApart,
}

/// A pod that looks for another node.
pub(super) struct Seeking<'p, 'a> {
    pub(super) rule: Option<&'a Placement>,
    /// The node that it leaves.
    from: &'p str,
    /// Labels of nodes, and the values of them that are closed to it.
    closed: Vec<(&'a str, Rc<Domains<'a>>)>,
}

impl Seeking<'_, '_> {
    /// Why `other` cannot take it, if anything known is in the way.
    pub(super) fn unfit(&self, other: &Node) -> Option<Unfit> {
        if self.rule.is_some_and(|rule| !rule.allows(other)) {
            return Some(Unfit::NotChosen);
        }
        let is_taken = |(topology, domains): &(&str, Rc<Domains<'_>>)| match other
            .labels
            .get(*topology)
            .and_then(|value| domains.get(value.as_str()))
        {
            Some(HolderNodes::One(node)) => *node != self.from,
            Some(HolderNodes::Several) => true,
            None => false,
        };
        self.closed.iter().any(is_taken).then_some(Unfit::KeptApart)
    }
}

impl<'a> Placements<'a> {
    pub(super) fn of(question: &Question<'a>) -> Self {
        let cluster = question.cluster;
        let nodes = cluster.nodes().iter().map(|node| (&*node.name, &**node)).collect();
        let mut places = Self { cluster, nodes, terms: Vec::new(), about: RefCell::default() };
        let mut terms: BTreeMap<(Arc<str>, &'a AntiAffinityTerm), Domains<'a>> = BTreeMap::new();
        for pod in cluster.pods().filter(|pod| is_there(pod)) {
            for apart in places.rule(pod).into_iter().flat_map(|rule| &rule.apart) {
                let domains = terms.entry((Arc::clone(&pod.namespace), apart)).or_default();
                places.hold(domains, apart, pod);
            }
        }
        let term =
            |((namespace, apart), holders)| TermHolders { namespace, apart, holders: Rc::new(holders) };
        places.terms = terms.into_iter().map(term).collect();
        places
    }

    /// What `pod` asks for, if that is anything.
    fn rule(&self, pod: &Pod) -> Option<&'a Placement> {
        self.cluster.surroundings().placements.as_ref()?.get(&pod.uid).map(AsRef::as_ref)
    }

    /// `pod`, which leaves its node.
    pub(super) fn seek<'p>(&self, pod: &'p Pod) -> Seeking<'p, 'a> {
        let rule = self.rule(pod);
        let own = rule.into_iter().flat_map(|rule| &rule.apart);
        let own = own.map(|apart| (apart.topology.as_str(), self.about(&pod.namespace, apart)));
        let theirs = self.terms.iter().filter(|term| term.apart.is_about(&term.namespace, pod));
        let theirs = theirs.map(|term| (term.apart.topology.as_str(), Rc::clone(&term.holders)));
        Seeking { rule, from: &pod.node, closed: own.chain(theirs).collect() }
    }

    /// Where the pods are that `apart`, a term of a pod in `namespace`, is about.
    fn about(&self, namespace: &Arc<str>, apart: &'a AntiAffinityTerm) -> Rc<Domains<'a>> {
        let mut about = self.about.borrow_mut();
        let domains = about.entry((apart, Arc::clone(namespace))).or_insert_with(|| {
            let mut domains = Domains::new();
            let pods = self.cluster.pods().filter(|pod| is_there(pod) && apart.is_about(namespace, pod));
            pods.for_each(|pod| self.hold(&mut domains, apart, pod));
            Rc::new(domains)
        });
        Rc::clone(domains)
    }

    fn hold(&self, domains: &mut Domains<'a>, apart: &AntiAffinityTerm, pod: &'a Pod) {
        let node = self.nodes.get(&*pod.node);
        if let Some(value) = node.and_then(|node| node.labels.get(&apart.topology)) {
            let held = domains.entry(value).or_insert(HolderNodes::One(&pod.node));
            if matches!(held, HolderNodes::One(node) if *node != &*pod.node) {
                *held = HolderNodes::Several;
            }
        }
    }
}

/// Whether the scheduler counts `pod` among those of its node.
fn is_there(pod: &Pod) -> bool {
    !pod.node.is_empty() && pod.phase != Phase::Finished
}
