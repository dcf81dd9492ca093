//! What would keep nodes from being drained, before anybody begins: from API objects alone, so from files too.
//!
//! Here belong the causes, each with its object, its numbers and what to change; which of them a drain is refused for
//! is the caller's to say. The invariant: *never* is said only of what no waiting changes; what healthy pods, a
//! controller or another actor may end is *not now*; and what only costs something is a *caution*.

mod bounds;
mod budgets;
mod capacity;
mod cause;
mod causes_found;
mod code;
mod every_cause;
pub mod explain;
mod forecast;
mod placement;
mod pods;
mod question;
mod remedy;

pub use bounds::{BudgetBound, bounds, duration_text};
pub use budgets::{CLOSED_FOR_LONG, closed, of_budget};
pub use cause::{Cause, CauseObject, ObjectKind, Outlook};
pub use code::Code;
pub use every_cause::causes;
pub use forecast::{DrainForecast, forecast};
pub use question::Question;

#[cfg(test)]
mod tests;
