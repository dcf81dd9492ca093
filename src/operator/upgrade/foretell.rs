//! How long upgrades take, as it was last reckoned.
//!
//! Never here: how it is reckoned, which is the core's. The invariant: losing all of it costs time alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::plan::Plan;
use evenkeel_core::rollout::{self, Forecast, World, forecast};
use evenkeel_core::upgrade::Upgrade;
use tokio::time::Instant;

/// It is reckoned anew no more often: at 5,000 nodes that takes as long as many looks.
const BETWEEN: Duration = Duration::from_mins(1);

/// What was reckoned last, by the name of the upgrade: when, for the plan of which hash.
#[derive(Default)]
pub(super) struct Forecasts(BTreeMap<Arc<str>, (Instant, Option<String>, Forecast)>);

impl Forecasts {
    /// How long `plan` takes: reckoned anew when another plan is shown, and from time to time. `None` when nothing is left
    /// to do.
    pub(super) fn of(
        &mut self,
        plan: &Plan,
        upgrade: &Upgrade,
        status: &rollout::Status,
        world: World<'_>,
    ) -> Option<Forecast> {
        if status.completed.is_some() || plan.hops.is_empty() {
            self.0.remove(&upgrade.name);
            return None;
        }
        let fresh = |(at, hash, _): &&(Instant, Option<String>, Forecast)| {
            *hash == status.hash && at.elapsed() < BETWEEN
        };
        if let Some((.., known)) = self.0.get(&upgrade.name).filter(fresh) {
            return Some(known.clone());
        }
        let made = forecast(plan, upgrade, world);
        self.0.insert(upgrade.name.clone(), (Instant::now(), status.hash.clone(), made.clone()));
        Some(made)
    }
}
