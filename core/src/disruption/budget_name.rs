//! How a PodDisruptionBudget is named where it is a key: its namespace and name.
//!
//! Nothing of what a budget allows belongs here. The invariant: everything that counts by budget uses this one key, so
//! what two nodes or two permits take from a budget is added up.

use std::sync::Arc;

use crate::cluster::Budget;

/// A budget's key.
pub type BudgetName = (Arc<str>, Arc<str>);

/// The key of `budget`.
pub fn budget_name(budget: &Budget) -> BudgetName {
    (Arc::clone(&budget.namespace), Arc::clone(&budget.name))
}
