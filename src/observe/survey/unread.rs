//! What is there, as a survey knows, though it could not be read.
//!
//! The invariant: an object that could not be read is never taken for one that is not there.

use std::sync::Arc;

use evenkeel_core::disruption::preflight::ObjectKind;
use evenkeel_core::disruption::preflight::explain::UnseenBudgets;
use evenkeel_core::version::escape;

use super::Survey;

impl Survey {
    /// Why the object of this kind, namespace and name cannot be read, though it is there; `None` if it can, or if
    /// nothing is known of it.
    pub fn unread(&self, kind: ObjectKind, namespace: &str, name: &str) -> Option<&str> {
        self.unread.get(&(kind, (namespace.into(), name.into()))).map(String::as_str)
    }

    /// The budgets that may be there though [`Survey::cluster`] lacks them.
    pub fn unseen_budgets(&self) -> UnseenBudgets {
        let of_budgets = self.unread.keys().filter(|(kind, _)| *kind == ObjectKind::Budget);
        let lacking = of_budgets.filter(|(_, (namespace, name))| self.budgets.get(namespace, name).is_none());
        UnseenBudgets {
            anywhere: self.without_budgets.then(|| "no PodDisruptionBudget is in the files".to_owned()),
            unread: lacking.map(|(_, (namespace, name))| (safe(namespace), safe(name))).collect(),
        }
    }
}

fn safe(text: &str) -> Arc<str> {
    escape(text).into()
}
