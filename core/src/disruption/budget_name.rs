//! How a budget is named where it is a key.

use std::sync::Arc;

use crate::cluster::Budget;

/// A budget's key.
pub type BudgetName = (Arc<str>, Arc<str>);

/// The key of `budget`.
pub fn name(budget: &Budget) -> BudgetName {
    (Arc::clone(&budget.namespace), Arc::clone(&budget.name))
}
