//! Which nodes a pod may run on, by what it asks for itself.
//!
//! Here belong node selectors, required node affinity and required anti-affinity between pods, and the scheduler's
//! rules for them; what follows for a drain does not. The sources are `nodeaffinity.GetRequiredNodeAffinity` of
//! `k8s.io/component-helpers`, and the scheduler's plugins `NodeAffinity` and `InterPodAffinity`. The invariant: what
//! cannot be read allows no node, as the scheduler has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::node::Node;
use super::pod::Pod;
use super::selector::{Expression, Selector};

/// The only field that a node can be selected by.
const NAME_FIELD: &str = "metadata.name";

/// What a pod asks of its node. Preferences are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placement {
    /// `spec.nodeSelector`: labels that the node has.
    pub labels: BTreeMap<String, String>,
    /// Terms of the required node affinity, of which one has to hold; `None` where it has none.
    pub terms: Option<Vec<NodeSelectorTerm>>,
    /// The required anti-affinity: pods that it does not share a node, a zone or another domain with.
    pub apart: Vec<AntiAffinityTerm>,
}

/// One term of a required node affinity: all of it has to hold. An empty one holds nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSelectorTerm {
    /// Expressions about labels of the Node.
    pub labels: Vec<Expression>,
    /// Expressions about fields of the Node.
    pub fields: Vec<Expression>,
}

/// One term of a required anti-affinity between pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AntiAffinityTerm {
    /// `topologyKey`: the label whose values divide the cluster into domains, such as `kubernetes.io/hostname`.
    pub topology: String,
    /// The pods that it is about; `None` is about none.
    pub selector: Option<Selector>,
    /// The namespaces that it is about.
    pub namespaces: Namespaces,
}

/// The namespaces that a term is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Namespaces {
    /// That of the pod itself.
    #[default]
    Own,
    /// Every one.
    All,
    /// These. Namespaces that are selected by labels are left out, because nobody reads those labels.
    Named(Vec<String>),
}

impl Placement {
    /// Whether its selector and its affinity allow `node`.
    pub fn allows(&self, node: &Node) -> bool {
        self.labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.holds(node)))
    }

    /// Whether it says anything about nodes.
    pub fn chooses(&self) -> bool {
        !self.labels.is_empty() || self.terms.is_some()
    }

    /// How it chooses nodes, in a few words: `node selector node-role=infra`.
    pub fn shown(&self) -> String {
        let labels: Vec<String> = self
            .labels
            .iter()
            .map(|(key, value)| if value.is_empty() { key.clone() } else { format!("{key}={value}") })
            .collect();
        match (labels.as_slice(), &self.terms) {
            ([], _) => "node affinity".to_owned(),
            (labels, None) => format!("node selector {}", labels.join(",")),
            (labels, Some(_)) => format!("node selector {} and node affinity", labels.join(",")),
        }
    }
}

impl NodeSelectorTerm {
    fn holds(&self, node: &Node) -> bool {
        let by_label = |wanted: &Expression| {
            let value = node.labels.get(&wanted.key).map(String::as_str);
            match wanted.operator.as_str() {
                "Gt" => compared(wanted, value).is_some_and(|(own, bound)| own > bound),
                "Lt" => compared(wanted, value).is_some_and(|(own, bound)| own < bound),
                _ => wanted.holds(value),
            }
        };
        let by_field = |wanted: &Expression| {
            wanted.key == NAME_FIELD
                && wanted.values.len() == 1
                && matches!(wanted.operator.as_str(), "In" | "NotIn")
                && wanted.holds(Some(&node.name))
        };
        (!self.labels.is_empty() || !self.fields.is_empty())
            && self.labels.iter().all(by_label)
            && self.fields.iter().all(by_field)
    }
}

/// The node's number and the one that it is compared with.
fn compared(wanted: &Expression, value: Option<&str>) -> Option<(i64, i64)> {
    match wanted.values.as_slice() {
        [bound] => Some((value?.parse().ok()?, bound.parse().ok()?)),
        _ => None,
    }
}

impl AntiAffinityTerm {
    /// Whether it is about `other`, as a term of a pod in `namespace`.
    pub fn is_about(&self, namespace: &Arc<str>, other: &Pod) -> bool {
        let there = match &self.namespaces {
            Namespaces::Own => *namespace == other.namespace,
            Namespaces::All => true,
            Namespaces::Named(names) => names.iter().any(|name| **name == *other.namespace),
        };
        there && self.selector.as_ref().is_some_and(|selector| selector.matches(&other.labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{node, pod};

    fn labelled(labels: &[(&str, &str)]) -> Node {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Node { labels: Arc::new(labels), ..node("n-1", "v1.36.4") }
    }

    fn wants(key: &str, operator: &str, values: &[&str]) -> Expression {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Expression { key: key.to_owned(), operator: operator.to_owned(), values }
    }

    #[test]
    fn nodes_are_chosen_as_the_scheduler_chooses_them() {
        let node = labelled(&[("pool", "infra"), ("cores", "16")]);
        let by_label = |labels: Vec<Expression>| NodeSelectorTerm { labels, fields: vec![] };
        let by_field = |fields: Vec<Expression>| NodeSelectorTerm { labels: vec![], fields };
        for (what, terms, allowed) in [
            ("no term", vec![], false),
            ("an empty term", vec![NodeSelectorTerm::default()], false),
            ("in", vec![by_label(vec![wants("pool", "In", &["web", "infra"])])], true),
            ("not in", vec![by_label(vec![wants("pool", "NotIn", &["infra"])])], false),
            ("an absent label is not in", vec![by_label(vec![wants("zone", "NotIn", &["a"])])], true),
            ("exists", vec![by_label(vec![wants("pool", "Exists", &[])])], true),
            ("does not exist", vec![by_label(vec![wants("pool", "DoesNotExist", &[])])], false),
            ("greater", vec![by_label(vec![wants("cores", "Gt", &["8"])])], true),
            ("not greater", vec![by_label(vec![wants("cores", "Gt", &["16"])])], false),
            ("less", vec![by_label(vec![wants("cores", "Lt", &["17"])])], true),
            ("no number", vec![by_label(vec![wants("pool", "Lt", &["17"])])], false),
            ("an operator nobody knows", vec![by_label(vec![wants("pool", "Like", &["infra"])])], false),
            (
                "all of a term",
                vec![by_label(vec![wants("pool", "Exists", &[]), wants("gpu", "Exists", &[])])],
                false,
            ),
            (
                "any of the terms",
                vec![
                    by_label(vec![wants("gpu", "Exists", &[])]),
                    by_label(vec![wants("pool", "Exists", &[])]),
                ],
                true,
            ),
            ("by name", vec![by_field(vec![wants("metadata.name", "In", &["n-1"])])], true),
            ("by another name", vec![by_field(vec![wants("metadata.name", "NotIn", &["n-1"])])], false),
            ("by two names", vec![by_field(vec![wants("metadata.name", "In", &["n-1", "n-2"])])], false),
            ("by another field", vec![by_field(vec![wants("spec.x", "In", &["n-1"])])], false),
        ] {
            let placement = Placement { terms: Some(terms), ..Placement::default() };
            assert_eq!(placement.allows(&node), allowed, "{what}");
        }
        let labels = |value: &str| [("pool".to_owned(), value.to_owned())].into();
        assert!(Placement::default().allows(&node));
        assert!(Placement { labels: labels("infra"), ..Placement::default() }.allows(&node));
        assert!(!Placement { labels: labels("web"), ..Placement::default() }.allows(&node));
        let both = Placement { labels: labels("infra"), terms: Some(vec![]), ..Placement::default() };
        assert!(!both.allows(&node), "selector and affinity both have to hold");
    }

    #[test]
    fn whom_a_pod_keeps_apart_from() {
        let own =
            Selector { match_labels: [("app".to_owned(), "cart".to_owned())].into(), ..Selector::default() };
        let term = |namespaces, selector: Option<Selector>| AntiAffinityTerm {
            topology: "x".to_owned(),
            selector,
            namespaces,
        };
        let (cart, shop, bank) = (pod("cart", 1, "n-1"), Arc::from("shop"), Arc::from("bank"));
        assert!(term(Namespaces::Own, Some(own.clone())).is_about(&shop, &cart));
        assert!(!term(Namespaces::Own, Some(own.clone())).is_about(&bank, &cart));
        assert!(term(Namespaces::All, Some(own.clone())).is_about(&bank, &cart));
        assert!(term(Namespaces::Named(vec!["shop".to_owned()]), Some(own)).is_about(&bank, &cart));
        assert!(!term(Namespaces::Own, None).is_about(&shop, &cart), "a null selector is about nobody");
        assert!(term(Namespaces::Own, Some(Selector::default())).is_about(&shop, &cart));
    }
}
