//! What pods request and nodes offer.
//!
//! Here belong the amounts and how they are compared and shown; what follows for a drain does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::name::NamespacedName;
use super::pod::Pod;

/// The resource that each pod takes one of.
const PODS: &str = "pods";

/// How much of each resource, in thousandths: `cpu`, `memory` and `ephemeral-storage` in bytes, `pods`, and whatever a
/// device plugin counts. A resource that is not named counts as 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<Arc<str>, i64>);

/// A resource of which more is wanted than is left; both amounts are ready to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// As in a pod's requests: `cpu`, `memory`, `nvidia.com/gpu`.
    pub resource: Arc<str>,
    /// What the pods request together, with its unit.
    pub wanted: String,
    /// What the nodes have left for them, with its unit.
    pub left: String,
}

/// What was read of requests, of allocatable resources and of volumes' zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// What each pod requests, by its UID.
    pub requests: BTreeMap<Arc<str>, Amounts>,
    /// `status.allocatable` of each node, by its name.
    pub offers: BTreeMap<Arc<str>, Amounts>,
    /// The zones in which a claim's volume can be mounted, where it is tied to some.
    pub zones: BTreeMap<NamespacedName, VolumeZones>,
}

/// The zones that a volume is tied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeZones {
    /// The label of Nodes by which its driver names zones.
    pub label: Arc<str>,
    /// Values of that label.
    pub zones: Vec<Arc<str>>,
}

impl Capacity {
    /// What `pod` requests, and one of `pods` for the pod itself.
    pub fn requested(&self, pod: &Pod) -> Amounts {
        let mut amounts = self.requests.get(&pod.uid).cloned().unwrap_or_default();
        amounts.0.insert(PODS.into(), 1000);
        amounts
    }
}

impl FromIterator<(Arc<str>, i64)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, i64)>>(amounts: I) -> Self {
        Self(amounts.into_iter().collect())
    }
}

impl Amounts {
    /// The thousandths of `resource`; 0 where it is not named.
    pub fn of(&self, resource: &str) -> i64 {
        self.0.get(resource).copied().unwrap_or(0)
    }

    /// Sets the thousandths of `resource`.
    pub fn set(&mut self, resource: Arc<str>, thousandths: i64) {
        self.0.insert(resource, thousandths);
    }

    /// Every named resource with its thousandths, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        self.0.iter().map(|(resource, amount)| (resource, *amount))
    }

    /// Adds what `other` has of each resource.
    pub fn add(&mut self, other: &Self) {
        for (resource, amount) in &other.0 {
            let of = self.0.entry(Arc::clone(resource)).or_default();
            *of = of.saturating_add(*amount);
        }
    }

    /// Subtracts `other`. Amounts may become negative, where a node has promised more than it has.
    pub fn take(&mut self, other: &Self) {
        for (resource, amount) in &other.0 {
            let of = self.0.entry(Arc::clone(resource)).or_default();
            *of = of.saturating_sub(*amount);
        }
    }

    /// Raises each resource to what `other` has of it.
    pub fn raise(&mut self, other: &Self) {
        for (resource, amount) in &other.0 {
            let of = self.0.entry(Arc::clone(resource)).or_insert(*amount);
            *of = (*of).max(*amount);
        }
    }

    /// Replaces every negative amount by 0.
    #[must_use]
    pub fn at_least_none(mut self) -> Self {
        self.0.values_mut().for_each(|amount| *amount = (*amount).max(0));
        self
    }

    /// The first resource of which `self` wants more than `left` has. A resource that is not wanted is never lacking.
    pub fn lack(&self, left: &Self) -> Option<Lack> {
        let lacks = |(resource, wanted): &(&Arc<str>, &i64)| **wanted > left.of(resource).max(0);
        let (resource, wanted) = self.0.iter().find(lacks)?;
        let (wanted, left) = (shown(resource, *wanted), shown(resource, left.of(resource).max(0)));
        Some(Lack { resource: Arc::clone(resource), wanted, left })
    }
}

/// An amount as Kubernetes writes it. Bytes are shown in gibibytes where those are whole, else in mebibytes, rounded
/// down, and as they are below one mebibyte. Everything else is shown whole, or in thousandths: `1500m`.
fn shown(resource: &str, thousandths: i64) -> String {
    let is_bytes = matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    let (gi, mi) = (1_i64 << 30, 1_i64 << 20);
    let whole = thousandths / 1000;
    if is_bytes && whole >= gi && whole % gi == 0 {
        format!("{}Gi", whole / gi)
    } else if is_bytes && whole >= mi {
        format!("{}Mi", whole / mi)
    } else if thousandths % 1000 == 0 || is_bytes {
        whole.to_string()
    } else {
        format!("{thousandths}m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(of: &[(&str, i64)]) -> Amounts {
        of.iter().map(|(resource, amount)| (Arc::from(*resource), *amount)).collect()
    }

    #[test]
    fn amounts_are_shown_as_kubernetes_writes_them() {
        assert_eq!([0, 250, 1500, 4000].map(|amount| shown("cpu", amount)), ["0", "250m", "1500m", "4"]);
        let gi = 1000 << 30;
        let memory = [0, 100_000, 2 * gi, gi + gi / 2, 70 * gi + 5000].map(|amount| shown("memory", amount));
        assert_eq!(memory, ["0", "100", "2Gi", "1536Mi", "71680Mi"]);
        assert_eq!(shown("nvidia.com/gpu", 8000), "8");
    }

    #[test]
    fn what_nobody_wants_is_always_enough() {
        let promised = amounts(&[("cpu", -500)]);
        assert_eq!(amounts(&[]).lack(&promised), None);
        assert_eq!(amounts(&[("cpu", 0)]).lack(&promised), None, "a pod that requests nothing");
        let gpu = amounts(&[("cpu", 1000), ("nvidia.com/gpu", 1000)]);
        let lack = gpu.lack(&amounts(&[("cpu", 1000)])).unwrap();
        assert_eq!((&*lack.resource, &*lack.wanted, &*lack.left), ("nvidia.com/gpu", "1", "0"));
    }

    #[test]
    fn sums_and_differences() {
        let mut left = amounts(&[("cpu", 4000), ("memory", 10)]);
        left.take(&amounts(&[("cpu", 5000)]));
        assert_eq!(left, amounts(&[("cpu", -1000), ("memory", 10)]));
        left.raise(&amounts(&[("cpu", -2000), ("pods", 1)]));
        assert_eq!(left, amounts(&[("cpu", -1000), ("memory", 10), ("pods", 1)]));
        assert_eq!(left.at_least_none().of("cpu"), 0);
    }
}
