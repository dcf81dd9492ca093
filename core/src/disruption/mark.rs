//! Whose cordon a Node carries: the value of [`CORDON_ANNOTATION`](crate::cluster::CORDON_ANNOTATION).
//!
//! One annotation serves both: an upgrade writes its claim; a drain that a person began writes since when and by whom.
//! It stands only on Nodes that were schedulable before, so taking cordon and mark off gives the Node back as it was.
//! The invariant: a value of neither form belongs to nobody, and is left alone.

use jiff::Timestamp;

use crate::cluster::Node;

const DRAIN: &str = "drain:";

/// The field manager of every cordon of ours.
pub const CORDON_MANAGER: &str = "evenkeel-upgrade";
/// The server gives the fields of the oldest managers to this one when there are too many
/// (`staging/src/k8s.io/apimachinery/pkg/util/managedfields/internal/capmanagers.go`).
const ANCIENT: &str = "ancient-changes";

/// Who cordoned a Node, read from its annotation `evenkeel.dev/cordoned-by`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CordonMark<'a> {
    /// A claim: the name and the UID of a `NodeUpgrade`.
    Upgrade {
        /// `metadata.name` of the `NodeUpgrade`.
        claim: &'a str,
        /// `metadata.uid` of the `NodeUpgrade`: one of the same name is another claim.
        uid: &'a str,
    },
    /// A person's drain.
    Drain {
        /// When that drain began; the mark is the same on all of its nodes.
        since: Timestamp,
        /// The name of that person, where the drain was run.
        by: &'a str,
    },
}

impl<'a> CordonMark<'a> {
    /// Whether the mark on a cordoned Node is about the cordon that the Node has now. `owners` are the managers that
    /// own `spec.unschedulable`. A person who uncordons with another tool leaves the mark behind, and the next cordon
    /// is then somebody else's. Where no owner is known, as in a file, the mark is believed.
    pub fn is_current<'m>(owners: impl IntoIterator<Item = &'m str>) -> bool {
        let mut owners = owners.into_iter().peekable();
        owners.peek().is_none() || owners.any(|owner| [CORDON_MANAGER, ANCIENT].contains(&owner))
    }

    /// Reads the annotation's value; `None` for a value of neither form.
    pub fn read(text: &'a str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix(DRAIN) {
            let (since, by) = rest.split_once('/')?;
            return Some(Self::Drain { since: since.parse().ok()?, by });
        }
        let (claim, uid) = text.split_once('/')?;
        Some(Self::Upgrade { claim, uid })
    }

    /// Whether an upgrade wrote `text`.
    pub fn is_upgrade(text: &'a str) -> bool {
        matches!(Self::read(text), Some(Self::Upgrade { .. }))
    }

    /// Whether `node` is cordoned, and by no upgrade: a person or another program did it, or a person's drain. Upgrades leave it
    /// alone.
    pub fn is_foreign(node: &'a Node) -> bool {
        node.unschedulable && !node.cordoned_by.as_deref().is_some_and(Self::is_upgrade)
    }

    /// Whether a drain of a person wrote `text`.
    pub fn is_drain(text: &'a str) -> bool {
        matches!(Self::read(text), Some(Self::Drain { .. }))
    }

    /// Whether a drain that writes `mark` may take off a cordon that is marked `text`: its own, or one that the same
    /// person made from the same machine, as before a crash. A name without a machine, such as `root`, may be
    /// anybody's.
    pub fn is_own_drain(text: &str, mark: &str) -> bool {
        let person = |text| match CordonMark::read(text) {
            Some(CordonMark::Drain { by, .. }) if by.contains('@') => Some(by.to_owned()),
            _ => None,
        };
        text == mark || person(text).is_some_and(|by| Some(by) == person(mark))
    }

    /// The value that a drain writes which `by` began at `since`. Of `by` it keeps at most 64 ASCII letters, digits and
    /// `-._@`.
    pub fn of_drain(since: Timestamp, by: &str) -> String {
        let plain: String =
            by.chars().filter(|c| c.is_ascii_alphanumeric() || "-._@".contains(*c)).take(64).collect();
        let since = since.round(jiff::Unit::Second).unwrap_or(since);
        format!("{DRAIN}{since}/{plain}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::at;

    #[test]
    fn a_mark_of_an_older_cordon_is_nobodys() {
        for (owners, current) in [
            (&[][..], true),
            (&[CORDON_MANAGER], true),
            (&["kubectl-cordon"], false),
            (&["kubectl-cordon", CORDON_MANAGER], true),
            (&["kubelet", ANCIENT], true),
        ] {
            assert_eq!(CordonMark::is_current(owners.iter().copied()), current, "{owners:?}");
        }
    }

    #[test]
    fn both_forms_are_told_apart() {
        let drain = CordonMark::of_drain(at(0), "ann@host\n/x");
        assert_eq!(drain, "drain:2027-01-15T08:00:00Z/ann@hostx");
        assert_eq!(CordonMark::read(&drain), Some(CordonMark::Drain { since: at(0), by: "ann@hostx" }));
        assert_eq!(
            CordonMark::read("up.kubelet.n-1/uid"),
            Some(CordonMark::Upgrade { claim: "up.kubelet.n-1", uid: "uid" })
        );
        for nobodys in ["", "x", "drain:", "drain:yesterday/ann"] {
            assert_eq!(CordonMark::read(nobodys), None, "{nobodys}");
        }
    }
}
