//! Which of two builds is the newer, where that can be said at all.
//!
//! The skew policy needs minors only; this is for what lies below them: patches, pre-releases, and builds of one
//! distribution. The invariant: swapping the two gives the opposite answer.

use std::cmp::Ordering;

use super::grammar;
use super::kube::KubeVersion;

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
}
