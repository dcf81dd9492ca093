//! What pods request and nodes offer.
//!
//! Here belong the amounts and how they are compared and shown; what follows for a drain does not.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;

use super::Pod;
use super::around::Name;

/// How much of each resource that every node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Pods.
    pub pods: i64,
}

/// What was read of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What each pod requests, by its UID.
    pub requests: BTreeMap<Arc<str>, Amounts>,
    /// `status.allocatable` of each node, by its name.
    pub offers: BTreeMap<Arc<str>, Amounts>,
    /// The zones in which a claim's volume can be mounted, where it is tied to some.
    pub zones: BTreeMap<Name, Vec<Arc<str>>>,
}

impl Room {
    /// What `pod` requests, and itself.
    pub fn requested(&self, pod: &Pod) -> Amounts {
        Amounts { pods: 1, ..self.requests.get(&pod.uid).copied().unwrap_or_default() }
    }
}

impl Amounts {
    /// Nothing.
    pub const ZERO: Self = Self { cpu: 0, memory: 0, pods: 0 };

    /// Whether there is room for it in `left`.
    pub fn fits(self, left: Self) -> bool {
        self.beyond(left).is_none()
    }

    /// The first resource of which it is more than in `left`: its name, what is wanted, and what is left, to be shown.
    /// Of what it wants none of there is always enough.
    pub fn beyond(self, left: Self) -> Option<(&'static str, String, String)> {
        let left = left.at_least_none();
        if self.cpu > left.cpu {
            Some(("cpu", cpus(self.cpu), cpus(left.cpu)))
        } else if self.memory > left.memory {
            Some(("memory", bytes(self.memory), bytes(left.memory)))
        } else if self.pods > left.pods {
            Some(("pods", self.pods.to_string(), left.pods.to_string()))
        } else {
            None
        }
    }

    /// Of each resource the larger amount.
    #[must_use]
    pub fn most(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
            pods: self.pods.max(other.pods),
        }
    }

    /// Nothing instead of less than that: a node may have promised more than it has.
    #[must_use]
    pub fn at_least_none(self) -> Self {
        self.most(Self::ZERO)
    }
}

impl Add for Amounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            pods: self.pods.saturating_add(other.pods),
        }
    }
}

impl Sub for Amounts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
            pods: self.pods.saturating_sub(other.pods),
        }
    }
}

impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu {} and memory {}", cpus(self.cpu), bytes(self.memory))
    }
}

fn cpus(thousandths: i64) -> String {
    if thousandths % 1000 == 0 { (thousandths / 1000).to_string() } else { format!("{thousandths}m") }
}

/// In the largest unit that leaves it whole; in mebibytes, rounded down, where none does.
fn bytes(bytes: i64) -> String {
    let (gi, mi) = (1_i64 << 30, 1_i64 << 20);
    if bytes >= gi && bytes % gi == 0 {
        format!("{}Gi", bytes / gi)
    } else if bytes >= mi {
        format!("{}Mi", bytes / mi)
    } else {
        bytes.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shown_as_kubernetes_writes_them() {
        assert_eq!([0, 250, 1500, 4000].map(cpus), ["0", "250m", "1500m", "4"]);
        let gi = 1 << 30;
        assert_eq!(
            [0, 100, 2 * gi, gi + (gi >> 1), 70 * gi + 5].map(bytes),
            ["0", "100", "2Gi", "1536Mi", "71680Mi"]
        );
    }

    #[test]
    fn what_nobody_wants_is_always_enough() {
        let none = Amounts { cpu: -500, ..Amounts::ZERO };
        assert!(Amounts::ZERO.fits(none), "a node that promised too much takes a pod that requests nothing");
        let beyond =
            Amounts { cpu: 500, memory: 1, pods: 1 }.beyond(Amounts { cpu: 500, memory: 0, pods: 0 });
        assert_eq!(beyond, Some(("memory", "1".to_owned(), "0".to_owned())));
    }
}
