//! The taints of a Node, with and without ours.
//!
//! Here belongs what a write of them holds; which nodes carry ours is decided in `avoid.rs`. The invariant: all other
//! taints stay as they are.

use serde_json::{Value, json};

use crate::cluster::{Node, OUTDATED_TAINT};

const EFFECT: &str = "PreferNoSchedule";

/// All taints of a Node, as a write has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taints(Value);

impl Taints {
    /// `spec.taints`; null where no taint is left.
    pub const fn json(&self) -> &Value {
        &self.0
    }

    /// The taints of `node` but ours; `None` where it does not carry ours.
    pub(super) fn without_ours(node: &Node) -> Option<Self> {
        node.outdated_for.as_ref()?;
        let others = others(node)?;
        Some(Self(if others.is_empty() { Value::Null } else { others.into() }))
    }

    /// The taints of `node` and ours, for the upgrade of that UID; `None` where they cannot be read.
    pub(super) fn with_ours(node: &Node, upgrade: &str) -> Option<Self> {
        let mut all = others(node)?;
        all.push(json!({"key": OUTDATED_TAINT, "value": upgrade, "effect": EFFECT}));
        Some(Self(all.into()))
    }
}

/// The taints of `node` that are not ours.
fn others(node: &Node) -> Option<Vec<Value>> {
    let mut all: Vec<Value> =
        if node.taints.is_empty() { Vec::new() } else { serde_json::from_str(&node.taints).ok()? };
    all.retain(|taint| taint["key"] != OUTDATED_TAINT || taint["effect"] != EFFECT);
    Some(all)
}
