//! Which budgets select a pod, found by its labels.
//!
//! Here belongs the search alone; what a budget selects is the budget's own. The invariant: it finds what asking every
//! budget of the pod's namespace would find, in the order of their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::budget::Budget;
use super::pod::Pod;

/// The budgets of every namespace. Each namespace is shared between a cluster and its copies until it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Guards(BTreeMap<Arc<str>, Arc<Namespace>>);

/// The budgets of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Namespace {
    /// Those with `matchLabels`, under the first of them: its key, and then its value.
    labelled: BTreeMap<String, BTreeMap<String, Vec<Arc<Budget>>>>,
    /// Those without, which may select any pod.
    others: Vec<Arc<Budget>>,
}

impl Namespace {
    /// Where `budget` is, or would be.
    fn place(&mut self, budget: &Budget) -> &mut Vec<Arc<Budget>> {
        match budget.selector.as_ref().and_then(|selector| selector.match_labels.first_key_value()) {
            Some((key, value)) => {
                self.labelled.entry(key.clone()).or_default().entry(value.clone()).or_default()
            }
            None => &mut self.others,
        }
    }

    /// Takes out empty places, so that a cluster that lost a budget equals one that never had it.
    fn sweep(&mut self) {
        for values in self.labelled.values_mut() {
            values.retain(|_, budgets| !budgets.is_empty());
        }
        self.labelled.retain(|_, values| !values.is_empty());
    }

    fn is_empty(&self) -> bool {
        self.labelled.is_empty() && self.others.is_empty()
    }
}

impl Guards {
    /// Adds `budget`; there must be none of its name in its namespace.
    pub(super) fn add(&mut self, budget: &Arc<Budget>) {
        let namespace = Arc::make_mut(self.0.entry(Arc::clone(&budget.namespace)).or_default());
        let place = namespace.place(budget);
        let at = place.partition_point(|other| other.name < budget.name);
        place.insert(at, Arc::clone(budget));
    }

    /// Takes out `budget`, as it was added.
    pub(super) fn remove(&mut self, budget: &Budget) {
        let Some(namespace) = self.0.get_mut(&budget.namespace).map(Arc::make_mut) else { return };
        namespace.place(budget).retain(|other| other.name != budget.name);
        namespace.sweep();
        if namespace.is_empty() {
            self.0.remove(&budget.namespace);
        }
    }

    /// The budgets that select `pod`, by name.
    pub(super) fn of<'a>(&'a self, pod: &Pod) -> Vec<&'a Budget> {
        let Some(namespace) = self.0.get(&pod.namespace) else { return Vec::new() };
        let labelled = namespace.labelled.iter().filter_map(|(key, values)| values.get(pod.labels.get(key)?));
        let all = labelled.flatten().chain(&namespace.others);
        let mut found: Vec<&Budget> = all.map(AsRef::as_ref).filter(|budget| budget.selects(pod)).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Cluster, Expression, Selector};
    use super::*;
    use crate::fixture::{budget, pod};

    fn labels(pairs: &[(u8, u8)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (format!("k{key}"), format!("v{value}"))).collect()
    }

    fn selector(kind: u8, pairs: &[(u8, u8)]) -> Option<Selector> {
        let term = Expression { key: "k0".to_owned(), operator: "Exists".to_owned(), values: Vec::new() };
        match kind {
            0 => None,
            1 => Some(Selector::default()),
            2 => Some(Selector { match_labels: BTreeMap::new(), match_expressions: vec![term] }),
            3 => Some(Selector { match_labels: labels(pairs), match_expressions: vec![term] }),
            _ => Some(Selector { match_labels: labels(pairs), match_expressions: Vec::new() }),
        }
    }

    fn pairs() -> impl Strategy<Value = Vec<(u8, u8)>> {
        prop::collection::vec((0..3u8, 0..2u8), 0..3)
    }

    proptest! {
        /// The budgets found for a pod are those that select it, after budgets came, changed and went in any order.
        #[test]
        fn they_are_those_that_every_budget_was_asked_for(
            steps in prop::collection::vec((0..5u8, 0..2u8, any::<bool>(), 0..6u8, pairs()), 0..24),
            pods in prop::collection::vec((0..2u8, pairs()), 1..6),
        ) {
            let mut cluster = Cluster::default();
            for (number, namespace, gone, kind, pairs) in steps {
                let (name, namespace) = (format!("b-{number}"), format!("ns-{namespace}"));
                if gone {
                    cluster.remove_budget(&namespace, &name);
                } else {
                    let (name, namespace) = (name.into(), namespace.into());
                    let selector = selector(kind, &pairs);
                    cluster.set_budget(Budget { namespace, name, selector, ..budget("x", 1, 1, 1) });
                }
            }
            for (namespace, pairs) in pods {
                let namespace = format!("ns-{namespace}").into();
                let pod = Pod { namespace, labels: labels(&pairs).into(), ..pod("x", 0, "n-1") };
                let asked: Vec<_> = cluster.budgets().filter(|budget| budget.selects(&pod)).collect();
                prop_assert_eq!(cluster.budgets_of(&pod), asked);
            }
            let mut anew = Cluster::default();
            anew.set_budgets(cluster.budgets().cloned().map(Arc::new).collect());
            prop_assert_eq!(anew, cluster);
        }
    }
}
