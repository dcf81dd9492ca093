//! What lies ahead of upgrades, as it was last reckoned.
//!
//! How it is reckoned never belongs here; the core does that. The invariant: losing all of it costs time alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::plan::{Plan, PlanFinding};
use evenkeel_core::rollout::{self, Forecast, World, forecast, refused_jobs};
use evenkeel_core::upgrade::Upgrade;
use tokio::time::Instant;

/// It is reckoned anew no more often: at 5,000 nodes that takes as long as many looks.
const BETWEEN: Duration = Duration::from_mins(1);

/// What was reckoned last, by the name of the upgrade.
#[derive(Default)]
pub(super) struct Forecasts(BTreeMap<Arc<str>, Reckoned>);

/// What was reckoned at one time, for one plan.
struct Reckoned {
    at: Instant,
    hash: Option<String>,
    /// What was known of the plan without it: its own findings, and the Jobs that the server would refuse.
    known: Vec<PlanFinding>,
    forecast: Forecast,
}

impl Forecasts {
    /// What lies ahead of `plan`: reckoned anew when another plan is shown, and from time to time. `None` when nothing is
    /// left to do.
    pub(super) fn of(
        &mut self,
        plan: &Plan,
        upgrade: &Upgrade,
        status: &rollout::UpgradeStatus,
        world: World<'_>,
    ) -> Option<Forecast> {
        if status.completed.is_some() || plan.hops.is_empty() {
            self.0.remove(&upgrade.name);
            return None;
        }
        let known = [plan.findings.clone(), refused_jobs(upgrade, world.jobs, world.now)].concat();
        let fresh =
            |last: &&Reckoned| last.hash == status.hash && last.known == known && last.at.elapsed() < BETWEEN;
        if let Some(last) = self.0.get(&upgrade.name).filter(fresh) {
            return Some(last.forecast.clone());
        }
        let forecast = forecast(plan, upgrade, &status.soaks, world);
        let (at, hash) = (Instant::now(), status.hash.clone());
        let reckoned = Reckoned { at, hash, known, forecast: forecast.clone() };
        self.0.insert(upgrade.name.clone(), reckoned);
        Some(forecast)
    }
}
