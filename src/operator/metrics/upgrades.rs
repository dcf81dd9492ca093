//! What is shown of upgrades: their nodes, what they wait for, and which nodes they leave out.
//!
//! The invariants: an upgrade has a series for every reason with which it may wait, of which at most one is 1, and one
//! for every reason that `status.waitingFor` may have.

use evenkeel_core::rollout::{UpgradePhase, WaitReason};
use prometheus::Registry;

use super::table::{Table, integer, show};
use crate::api::upgrade::UNSEEN_REASONS;

/// How many nodes of one upgrade are in one state.
#[derive(Clone, Copy, Debug)]
pub struct UpgradeNodes<'a> {
    /// The name of the `ClusterUpgrade`.
    pub upgrade: &'a str,
    /// The state of the nodes, such as `Pending` or `Upgraded`.
    pub state: &'a str,
    /// How many nodes are in that state; 0 where none is, so that the series stays.
    pub count: u64,
}

/// A node that an upgrade leaves out for now.
#[derive(Clone, Copy, Debug)]
pub struct BlockedNode<'a> {
    /// The name of the `ClusterUpgrade`.
    pub upgrade: &'a str,
    /// The name of the node.
    pub node: &'a str,
    /// `Parked`, `Failed` or `Held`.
    pub state: &'a str,
}

/// The gauges of all upgrades; each is replaced as a whole, so an upgrade that is gone has no series.
pub struct Upgrades {
    nodes: Table<2>,
    waiting: Table<2>,
    waiting_for: Table<2>,
    blocked: Table<3>,
    omitted: Table<1>,
}

impl Upgrades {
    /// The gauges, registered in `registry`.
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            nodes: Table::new(
                registry,
                "evenkeel_upgrade_nodes",
                "How many nodes of the upgrade are in the state.",
                ["upgrade", "state"],
            )?,
            waiting: Table::new(
                registry,
                "evenkeel_upgrade_waiting",
                "1 for the reason with which the upgrade waits or stands still, the reason of its condition Ready.",
                ["upgrade", "reason"],
            )?,
            waiting_for: Table::new(
                registry,
                "evenkeel_upgrade_waiting_for",
                "How many things the status of the upgrade lists with the reason under waitingFor.",
                ["upgrade", "reason"],
            )?,
            blocked: Table::new(
                registry,
                "evenkeel_upgrade_blocked_node",
                "1 for each node that the status of the upgrade names as parked, failed or held.",
                ["upgrade", "node", "state"],
            )?,
            omitted: Table::new(
                registry,
                "evenkeel_upgrade_blocked_nodes_omitted",
                "How many more nodes are parked, failed or held than are named.",
                ["upgrade"],
            )?,
        })
    }

    /// Removes every row of every upgrade.
    pub(super) fn clear(&self) {
        let Self { nodes, waiting, waiting_for, blocked, omitted } = self;
        nodes.clear();
        waiting.clear();
        waiting_for.clear();
        blocked.clear();
        omitted.clear();
    }

    /// Shows how many nodes of each upgrade are in each state; replaces what was shown before.
    pub fn show_nodes(&self, rows: &[UpgradeNodes<'_>]) {
        show(&self.nodes, rows, |row| ([row.upgrade, row.state], integer(row.count)));
    }

    /// Shows for each upgrade the reason of its condition Ready, where that is one with which it waits; replaces what was
    /// shown before.
    pub fn show_waiting(&self, rows: &[(&str, &str)]) {
        let all = rows.iter().flat_map(|(upgrade, reason)| {
            waits().map(move |wait| ([*upgrade, wait], i64::from(wait == *reason)))
        });
        self.waiting.replace(all);
    }

    /// Shows the reasons of all that each upgrade waits for, one for each thing; replaces what was shown before.
    pub fn show_waiting_for(&self, rows: &[(&str, &[String])]) {
        let all = rows.iter().flat_map(|(upgrade, reasons)| {
            let others = WaitReason::OTHERS.into_iter().map(WaitReason::name);
            waits().chain(others).map(move |wait| {
                let count = reasons.iter().filter(|reason| **reason == *wait).count();
                ([*upgrade, wait], integer(count as u64))
            })
        });
        self.waiting_for.replace(all);
    }

    /// Shows the nodes that upgrades name as left out; replaces what was shown before.
    pub fn show_blocked(&self, rows: &[BlockedNode<'_>]) {
        show(&self.blocked, rows, |row| ([row.upgrade, row.node, row.state], 1));
    }

    /// Shows how many nodes each upgrade leaves out besides those that it names; replaces what was shown before.
    pub fn show_omitted(&self, rows: &[(&str, i32)]) {
        show(&self.omitted, rows, |(upgrade, count)| ([*upgrade], i64::from(*count)));
    }
}

/// The reasons of condition Ready with which an upgrade waits, does nothing or stands still.
fn waits() -> impl Iterator<Item = &'static str> {
    UpgradePhase::WAITS.into_iter().map(UpgradePhase::reason).chain(UNSEEN_REASONS)
}

#[cfg(test)]
mod tests {
    use super::super::tests::metrics;
    use super::*;

    #[test]
    fn an_upgrade_waits_for_one_reason_of_a_closed_set() {
        let metrics = metrics();
        metrics.upgrades().show_waiting(&[("a", "Frozen"), ("b", "UpgradingNodes")]);
        let text = metrics.text().unwrap();
        let shown: Vec<_> =
            text.lines().filter(|line| line.starts_with("evenkeel_upgrade_waiting{")).collect();
        assert_eq!(shown.len(), 2 * waits().count());
        let on: Vec<_> = shown.into_iter().filter(|line| line.ends_with(" 1")).collect();
        assert_eq!(on, [r#"evenkeel_upgrade_waiting{reason="Frozen",upgrade="a"} 1"#]);
    }
    #[test]
    fn all_that_an_upgrade_waits_for_is_counted() {
        let metrics = metrics();
        let reasons = ["PodsLeaving", "Frozen", "PodsLeaving", "of a newer release"].map(str::to_owned);
        metrics.upgrades().show_waiting_for(&[("a", &reasons), ("b", &[])]);
        let text = metrics.text().unwrap();
        let shown: Vec<_> =
            text.lines().filter(|line| line.starts_with("evenkeel_upgrade_waiting_for{")).collect();
        assert_eq!(shown.len(), 2 * (waits().count() + WaitReason::OTHERS.len()));
        let on: Vec<_> = shown.into_iter().filter(|line| !line.ends_with(" 0")).collect();
        assert_eq!(
            on,
            [
                r#"evenkeel_upgrade_waiting_for{reason="Frozen",upgrade="a"} 1"#,
                r#"evenkeel_upgrade_waiting_for{reason="PodsLeaving",upgrade="a"} 2"#
            ]
        );
    }
}
