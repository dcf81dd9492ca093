//! What is told of an upgrade besides its status: events and metrics.
//!
//! Nothing is decided or put into words here. The invariant: the reasons, names and lines of events and metrics are
//! those of the status that was written or shown.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use kube::core::DynamicObject;
use kube::{CustomResourceExt as _, Resource as _, ResourceExt as _};
use tokio::time::Instant;

use super::super::metrics::{BlockedNode, Metrics};
use crate::act::Hands;
use crate::act::event::{StatusNews, news};
use crate::api::{ClusterUpgrade, ClusterUpgradeStatus, ConditionType};

/// How upgrades stand, as it was last shown, and what was told of it in events. Losing it is safe.
#[derive(Default)]
pub(super) struct Announced {
    /// By the name of the upgrade.
    shown: BTreeMap<String, Shown>,
    /// When an event was last sent, by the name of the upgrade and what the event was about.
    sent: BTreeMap<(String, String), Instant>,
}

#[derive(Default)]
struct Shown {
    reason: String,
    /// The reasons of all that it waits for, as its status lists them.
    waits: Vec<String>,
    /// The nodes that the status names as out of the rollout, each with its state.
    blocked: Vec<(String, String)>,
    omitted: i32,
}

impl Announced {
    /// Remembers `status` of the upgrade called `name` for the metrics.
    pub(super) fn stands(&mut self, name: &str, status: &ClusterUpgradeStatus) {
        let ready = ConditionType::Ready.of(&status.conditions);
        let shown = Shown {
            reason: ready.map(|of| of.reason.clone()).unwrap_or_default(),
            waits: status.waiting_for.iter().map(|wait| wait.reason.clone()).collect(),
            blocked: status.parked.iter().map(|out| (out.node.clone(), out.state.clone())).collect(),
            omitted: status.parked_omitted,
        };
        self.shown.insert(name.to_owned(), shown);
    }

    /// Sends the events of what is new in `status`, which was `written` in place of `before`. What was told within
    /// [`StatusNews::AGAIN`] is not told again, so that a reason that comes and goes is no storm.
    pub(super) fn announce(
        &mut self,
        hands: &Hands,
        before: Option<&ClusterUpgradeStatus>,
        written: &DynamicObject,
        status: &ClusterUpgradeStatus,
    ) {
        self.sent.retain(|_, at| at.elapsed() < StatusNews::AGAIN);
        for news in news(before, status) {
            let key = (written.name_any(), news.about());
            if let Entry::Vacant(place) = self.sent.entry(key) {
                place.insert(Instant::now());
                let regarding = written.object_ref(&ClusterUpgrade::api_resource());
                hands.tell(regarding, written.resource_version(), news);
            }
        }
    }

    /// Shows in `metrics` the upgrades that are still `there`.
    pub(super) fn show(&mut self, metrics: &Metrics, there: impl Fn(&str) -> bool) {
        self.shown.retain(|name, _| there(name));
        let waiting: Vec<(&str, &str)> =
            self.shown.iter().map(|(name, shown)| (name.as_str(), shown.reason.as_str())).collect();
        metrics.upgrades().show_waiting(&waiting);
        let waits: Vec<(&str, &[String])> =
            self.shown.iter().map(|(name, shown)| (name.as_str(), shown.waits.as_slice())).collect();
        metrics.upgrades().show_waiting_for(&waits);
        let blocked = self.shown.iter().flat_map(|(upgrade, shown)| {
            shown.blocked.iter().map(move |(node, state)| BlockedNode { upgrade, node, state })
        });
        metrics.upgrades().show_blocked(&blocked.collect::<Vec<_>>());
        let omitted: Vec<(&str, i32)> =
            self.shown.iter().map(|(name, shown)| (name.as_str(), shown.omitted)).collect();
        metrics.upgrades().show_omitted(&omitted);
    }
}
