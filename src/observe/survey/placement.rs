//! What pods ask of their nodes, as the API writes it.
//!
//! Here belong field names and bounds; which node fits is the core's. Pods that ask for the same share one value.
//! The invariant: a pod that asks for more than anybody writes by hand is read as one of which nothing is known, so
//! that no file takes all memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_core::cluster::{self, AntiAffinityTerm, Expression, Namespaces, Placement, Selector};
use serde::Deserialize;

/// The most requirements and values of one pod. If a pod has more, what it asks for counts as not known.
const MAX_PARTS: usize = 1000;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Affinity {
    node_affinity: Option<Required<NodeSelector>>,
    pod_anti_affinity: Option<Required<Vec<PodAffinityTerm>>>,
}

#[derive(Deserialize)]
struct Required<T> {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<T>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelector {
    node_selector_terms: Option<Vec<NodeSelectorTerm>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSelectorTerm {
    match_expressions: Option<Vec<Requirement>>,
    match_fields: Option<Vec<Requirement>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodAffinityTerm {
    topology_key: String,
    label_selector: Option<LabelSelector>,
    namespaces: Option<Vec<String>>,
    namespace_selector: Option<LabelSelector>,
}

/// Go writes `null` for what is empty.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LabelSelector {
    match_labels: Option<BTreeMap<String, String>>,
    match_expressions: Option<Vec<Requirement>>,
}

/// Every different thing that pods ask for, each held once.
#[derive(Default)]
pub(super) struct Known(BTreeSet<Arc<Placement>>);

impl Known {
    /// What a pod with this node selector and affinity asks of its node; `None` if it asks for nothing, or for more
    /// than [`MAX_PARTS`].
    pub(super) fn placement(
        &mut self,
        labels: Option<&BTreeMap<String, String>>,
        affinity: Option<&Affinity>,
    ) -> Option<Arc<Placement>> {
        let required = affinity.and_then(|of| of.node_affinity.as_ref()?.required.as_ref());
        let apart = affinity.and_then(|of| of.pod_anti_affinity.as_ref()?.required.as_ref());
        let placement = Placement {
            labels: labels.cloned().unwrap_or_default(),
            terms: required
                .map(|of| of.node_selector_terms.iter().flatten().map(NodeSelectorTerm::read).collect()),
            apart: apart.into_iter().flatten().map(PodAffinityTerm::read).collect(),
        };
        if placement == Placement::default() || parts(&placement) > MAX_PARTS {
            return None;
        }
        if let Some(known) = self.0.get(&placement) {
            return Some(Arc::clone(known));
        }
        let placement = Arc::new(placement);
        self.0.insert(Arc::clone(&placement));
        Some(placement)
    }
}

fn parts(placement: &Placement) -> usize {
    let of = |all: &[Expression]| all.iter().map(|one| 1 + one.values.len()).sum::<usize>();
    let term = |term: &cluster::NodeSelectorTerm| 1 + of(&term.labels) + of(&term.fields);
    let apart = |apart: &AntiAffinityTerm| {
        let named = if let Namespaces::Named(names) = &apart.namespaces { names.len() } else { 0 };
        let selector = apart.selector.as_ref();
        1 + named + selector.map_or(0, |all| all.match_labels.len() + of(&all.match_expressions))
    };
    placement.labels.len()
        + placement.terms.iter().flatten().map(term).sum::<usize>()
        + placement.apart.iter().map(apart).sum::<usize>()
}

fn requirements(all: Option<&Vec<Requirement>>) -> Vec<Expression> {
    let one = |of: &Requirement| Expression {
        key: of.key.clone(),
        operator: of.operator.clone(),
        values: of.values.clone().unwrap_or_default(),
    };
    all.into_iter().flatten().map(one).collect()
}

impl NodeSelectorTerm {
    fn read(&self) -> cluster::NodeSelectorTerm {
        cluster::NodeSelectorTerm {
            labels: requirements(self.match_expressions.as_ref()),
            fields: requirements(self.match_fields.as_ref()),
        }
    }
}

impl LabelSelector {
    pub(super) fn read(&self) -> Selector {
        Selector {
            match_labels: self.match_labels.clone().unwrap_or_default(),
            match_expressions: requirements(self.match_expressions.as_ref()),
        }
    }
}

impl PodAffinityTerm {
    fn read(&self) -> AntiAffinityTerm {
        let named = self.namespaces.clone().unwrap_or_default();
        let selected = self.namespace_selector.as_ref().map(LabelSelector::read);
        AntiAffinityTerm {
            topology: self.topology_key.clone(),
            selector: self.label_selector.as_ref().map(LabelSelector::read),
            namespaces: match selected {
                Some(all) if all == Selector::default() => Namespaces::All,
                None if named.is_empty() => Namespaces::Own,
                _ => Namespaces::Named(named),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(affinity: serde_json::Value) -> Option<Arc<Placement>> {
        let affinity: Affinity = serde_json::from_value(affinity).unwrap();
        Known::default().placement(None, Some(&affinity))
    }

    #[test]
    fn what_is_required_is_read_and_what_is_preferred_is_not() {
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        assert_eq!(read(serde_json::json!({"nodeAffinity": {preferred: []}, "podAffinity": {}})), None);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let seen = read(serde_json::json!({
            "nodeAffinity": {required: {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "pool", "operator": "Exists", "values": null}]}]}},
            "podAntiAffinity": {required: [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}, "matchExpressions": null}},
                {"topologyKey": "zone", "namespaceSelector": {}},
                {"topologyKey": "zone", "namespaces": ["b"], "namespaceSelector": {"matchLabels": {"c": "d"}}}]},
        }))
        .unwrap();
        assert_eq!(seen.terms.as_ref().unwrap()[0].labels[0].operator, "Exists");
        let namespaces: Vec<_> = seen.apart.iter().map(|apart| &apart.namespaces).collect();
        assert_eq!(
            namespaces,
            [&Namespaces::Own, &Namespaces::All, &Namespaces::Named(vec!["b".to_owned()])]
        );
        assert!(seen.apart[0].selector.is_some() && seen.apart[1].selector.is_none());
    }

    #[test]
    fn replicas_share_what_they_ask_for_and_a_bomb_is_not_known() {
        let mut known = Known::default();
        let labels = |count: usize| (0..count).map(|key| (key.to_string(), String::new())).collect();
        let (one, bomb): (BTreeMap<_, _>, BTreeMap<_, _>) = (labels(1), labels(MAX_PARTS + 1));
        let first = known.placement(Some(&one), None).unwrap();
        assert!(Arc::ptr_eq(&first, &known.placement(Some(&one), None).unwrap()));
        assert_eq!(known.placement(Some(&bomb), None), None);
    }
}
