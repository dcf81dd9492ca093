//! What an upgrade will do, in which order, and what stands in its way before it starts.
//!
//! Here belong the plan as a value, the making of it ([`make()`]), a second judge of it ([`check()`], which uses
//! nothing of `make`), the waves in which nodes go, the least time that it takes, and the hash by which a person
//! approves it. Carrying it out is [`crate::rollout`]. The invariants: a plan says rules for kubelets, not names of
//! nodes, so that a node that joins later belongs to it; and a [`Checked`] plan exists only through [`check()`].

mod accept;
mod bounds;
mod check;
mod drains;
mod finding;
mod finding_id;
mod forecast_input;
mod hash;
mod hop_duration;
mod hop_end;
mod hops;
mod length;
mod make;
mod node_pools;
mod order;
mod plan_input;
mod planned;
mod pods_to_leave;
mod start;
mod timing;
mod waves;

pub use bounds::HopBound;
pub use check::{Checked, Refutation, check, check_waves};
pub use drains::{drain_findings, foresee};
pub use finding::{Accepted, PlanFinding, Weight};
pub use finding_id::{FindingCode, FindingId};
pub use forecast_input::ForecastInput;
pub(crate) use hash::hex;
pub use hash::{canonical, canonical_json, hash};
pub use hops::{Hop, MAX_MINORS, Need, Pass, Picked, Plan, Step};
pub use length::{Durations, Estimate, Took};
pub use make::make;
pub(crate) use order::is_there;
pub use order::{Stage, StageProgress, progress};
pub use plan_input::PlanInput;
pub use planned::{Planned, moved_nodes, on_the_way};
pub use start::{from_version, hidden_id};
pub use timing::{HopTiming, PlanTiming, timing};
pub use waves::{Wave, is_empty, is_spare, rank, waves, zone};

#[cfg(test)]
mod tests;
