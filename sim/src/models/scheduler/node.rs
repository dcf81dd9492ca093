//! A node as the scheduler keeps it, and how much of one a pod needs.
//!
//! Here belong amounts and what is left of them. Which node a pod may run on never belongs here, nor does which is
//! best. The invariant: no sum overflows, whatever an object says of its size.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::labels::Labels;
use crate::schema::milli;

/// How much of a node a pod needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// In thousandths.
    pub(super) cpu: i64,
    /// In bytes.
    pub(super) memory: i64,
    pub(super) pods: i64,
}

/// A greater amount counts as this, which is more than any machine has, so that a hundred times an amount does not
/// overflow.
const MOST: i64 = i64::MAX / 512;

pub(super) struct Node {
    pub(super) name: Arc<str>,
    pub(super) labels: Arc<Labels>,
    pub(super) taints: Value,
    pub(super) unschedulable: bool,
    pub(super) room: Load,
    pub(super) used: Load,
    pub(super) pods: BTreeSet<Arc<str>>,
}

/// A quantity, in units of this many thousandths.
pub(super) fn amount(quantity: &Value, of: i128) -> i64 {
    let exact = quantity.as_str().and_then(milli).unwrap_or(0) / of;
    i64::try_from(exact).unwrap_or(MOST).min(MOST)
}

pub(super) fn load(spec: &Value) -> Load {
    let mut load = Load { pods: 1, ..Load::default() };
    for container in spec["containers"].as_array().into_iter().flatten() {
        let requests = &container["resources"]["requests"];
        load.cpu = load.cpu.saturating_add(amount(&requests["cpu"], 1));
        load.memory = load.memory.saturating_add(amount(&requests["memory"], 1000));
    }
    load
}

impl Load {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            pods: self.pods + other.pods,
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
            pods: self.pods - other.pods,
        }
    }
}
