//! What a person decided about some pods, by their labels and namespaces.
//!
//! Here belongs which rule a pod falls under, in the meaning of Cluster API's `MachineDrainRule`; what the behavior
//! then means for a pod is said by [`class`](super::class()). The invariant: the first rule that selects a pod decides,
//! and no later one is looked at.

use std::sync::Arc;

use crate::cluster::{Pod, Selector};

/// What is done with the pods that a rule selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// They leave, as if no rule selected them: a rule that takes them out of a wider rule after it.
    Drain,
    /// They stay where they are.
    Skip,
    /// They are waited for until they have finished.
    WaitCompleted,
}

impl Behavior {
    /// The word for it in a spec.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "Drain",
            Self::Skip => "Skip",
            Self::WaitCompleted => "WaitCompleted",
        }
    }
}

/// What a person wants done with some pods; the first rule that selects a pod decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRule {
    /// The labels of the pods.
    pub selector: Selector,
    /// The names of their namespaces; all where none is named.
    pub namespaces: Vec<Arc<str>>,
    /// What is done with them.
    pub behavior: Behavior,
}

impl PodRule {
    fn selects(&self, pod: &Pod) -> bool {
        (self.namespaces.is_empty() || self.namespaces.contains(&pod.namespace))
            && self.selector.matches(&pod.labels)
    }
}

/// What the first of `rules` that selects `pod` says.
pub(super) fn behavior(pod: &Pod, rules: &[PodRule]) -> Option<Behavior> {
    rules.iter().find(|rule| rule.selects(pod)).map(|rule| rule.behavior)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::pod;

    fn rule(app: &str, namespaces: &[&str], behavior: Behavior) -> PodRule {
        let match_labels =
            if app.is_empty() { [].into() } else { [("app".to_owned(), app.to_owned())].into() };
        let namespaces = namespaces.iter().map(|name| Arc::from(*name)).collect();
        PodRule { selector: Selector { match_labels, match_expressions: Vec::new() }, namespaces, behavior }
    }

    #[test]
    fn the_first_rule_that_selects_a_pod_decides() {
        use Behavior::{Drain, Skip, WaitCompleted};
        let cart = pod("cart", 1, "n-1");
        for (rules, expected) in [
            (vec![], None),
            (vec![rule("cart", &[], Skip)], Some(Skip)),
            (vec![rule("web", &[], Skip)], None),
            (vec![rule("cart", &["bank"], Skip)], None),
            (vec![rule("cart", &["bank", "shop"], Skip)], Some(Skip)),
            (vec![rule("", &["shop"], WaitCompleted)], Some(WaitCompleted)),
            (vec![rule("cart", &[], Drain), rule("", &["shop"], Skip)], Some(Drain)),
            (vec![rule("", &["shop"], Skip), rule("cart", &[], Drain)], Some(Skip)),
        ] {
            assert_eq!(behavior(&cart, &rules), expected, "{rules:?}");
        }
    }
}
