//! Every cause that holds up a drain, of budgets and of pods, in one order.
//!
//! Here belongs how what budgets and what pods tell is put together; what each of them tells is in `budgets.rs` and
//! `pods.rs`. The invariant: the gravest stands first, and the order is the same in every run.

use std::collections::BTreeMap;

use super::super::permit::Budgets;
use super::cause::Cause;
use super::question::Question;
use super::{budgets, pods};

/// Everything in the way of draining the nodes of `question`, the gravest first, then by code and object.
pub fn causes(question: &Question<'_>) -> Vec<Cause> {
    let budgets = Budgets::new(question.cluster, BTreeMap::new(), question.now);
    let mut causes = pods::causes(question);
    causes.extend(budgets::causes(question, &budgets));
    causes.sort_by(|a, b| (a.outlook, a.code, &a.object).cmp(&(b.outlook, b.code, &b.object)));
    causes
}
