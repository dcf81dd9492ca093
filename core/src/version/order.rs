//! Which of two builds is the newer, where that can be said at all.
//!
//! The skew policy needs minors only; this is for what lies below them: two builds of one vendor's line. The answer
//! has four values, because two commit hashes differ and have no order. The invariant: swapping the two gives the
//! opposite answer, and [`Comparison::Different`] stays itself.

use std::cmp::Ordering;

use super::grammar;
use super::kube::KubeVersion;

/// How one build stands to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Older.
    Less,
    /// The same.
    Equal,
    /// Newer.
    Greater,
    /// Not the same, and nothing says which is newer.
    Different,
}

impl From<Ordering> for Comparison {
    fn from(order: Ordering) -> Self {
        match order {
            Ordering::Less => Self::Less,
            Ordering::Equal => Self::Equal,
            Ordering::Greater => Self::Greater,
        }
    }
}

/// What stands before the number of a build, where a distribution numbers its builds of one release.
const NUMBERED: [&str; 4] = ["+k3s", "+rke2r", "+k0s.", "-gke."];

impl KubeVersion {
    /// How far `self` is on the way of an upgrade, compared with `other`: by minor and patch, then a pre-release below
    /// its release, then by build number where one distribution numbers both. What has no order is equal: a vendor's
    /// build and the release that it builds, builds of two vendors, two commits. So `Equal` does not mean the same
    /// version, and `Less` is said only of what certainly has to move.
    pub fn progress(&self, other: &Self) -> Ordering {
        if self.suffix == other.suffix {
            return self.release().cmp(&other.release());
        }
        let builds = || match (self.numbered_build(), other.numbered_build()) {
            (Some((vendor, build)), Some((other, other_build))) if vendor == other => build.cmp(&other_build),
            _ => Ordering::Equal,
        };
        let unreleased =
            |version: &Self| if version.is_pre_release() { version.dotted() } else { String::new() };
        self.release()
            .cmp(&other.release())
            .then_with(|| grammar::pre_releases(&unreleased(self), &unreleased(other)))
            .then_with(builds)
    }

    /// The pre-release with a dot before its number: k3s and RKE2 write `rc1` for `rc.1`.
    fn dotted(&self) -> String {
        let text = self.pre_release();
        let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        match text.split_at(end) {
            (word, number) if number.starts_with(|c: char| c.is_ascii_digit()) => format!("{word}.{number}"),
            _ => text.to_owned(),
        }
    }

    /// Who numbers its builds, and which this is.
    fn numbered_build(&self) -> Option<(&'static str, u64)> {
        let (vendor, rest) =
            NUMBERED.iter().find_map(|vendor| Some((*vendor, self.suffix().split_once(vendor)?.1)))?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some((vendor, rest.get(..end)?.parse().ok()?))
    }

    /// The order of semantic versioning, without build metadata: `v1.33.4-eks-1` sorts *below* `v1.33.4`. Use it only
    /// for two versions of one vendor's line. Where the numbers are equal, a suffix that is not of semantic form is
    /// [`Comparison::Different`] from every other.
    pub fn compare(&self, other: &Self) -> Comparison {
        self.compared(other, |_, _| Comparison::Equal)
    }

    /// [`KubeVersion::compare`], and then the build metadata, identifier by identifier: numbers as numbers and below
    /// words, words only for equality (they may be commit hashes), and of two that begin alike the longer is newer.
    /// Source: Cluster API, `util/version`, `Compare` with `WithBuildTags`.
    pub fn compare_builds(&self, other: &Self) -> Comparison {
        self.compared(other, builds)
    }

    /// Whether a worker at `self` is behind the oldest wanted version `least`. Builds without an order are resolved by
    /// the control plane: a worker is either at its version or at an older one.
    /// Source: Cluster API, chained upgrades, `isLowerThanMinVersion`.
    pub fn is_behind(&self, least: &Self, control_plane: &Self) -> bool {
        match self.compare_builds(least) {
            Comparison::Less => true,
            Comparison::Different => self != control_plane,
            Comparison::Equal | Comparison::Greater => false,
        }
    }

    fn compared(&self, other: &Self, builds: impl Fn(&str, &str) -> Comparison) -> Comparison {
        let numbers = |version: &Self| (version.minor, version.patch.unwrap_or_default());
        let order = numbers(self).cmp(&numbers(other));
        if order.is_ne() {
            return order.into();
        }
        match (grammar::extra(self.suffix()), grammar::extra(other.suffix())) {
            (Some((pre, build)), Some((other_pre, other_build))) => {
                match grammar::pre_releases(pre, other_pre) {
                    Ordering::Equal => builds(build, other_build),
                    order => order.into(),
                }
            }
            _ if self.suffix == other.suffix => Comparison::Equal,
            _ => Comparison::Different,
        }
    }
}

fn builds(a: &str, b: &str) -> Comparison {
    let mut a = a.split('.').filter(|identifier| !identifier.is_empty());
    let mut b = b.split('.').filter(|identifier| !identifier.is_empty());
    loop {
        let comparison = match (a.next(), b.next()) {
            (None, None) => return Comparison::Equal,
            (None, Some(_)) => Comparison::Less,
            (Some(_), None) => Comparison::Greater,
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b).into(),
                (Ok(_), Err(_)) => Comparison::Less,
                (Err(_), Ok(_)) => Comparison::Greater,
                (Err(_), Err(_)) if a == b => Comparison::Equal,
                (Err(_), Err(_)) => Comparison::Different,
            },
        };
        if comparison != Comparison::Equal {
            return comparison;
        }
    }
}
