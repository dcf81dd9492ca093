//! A version as a component reports it, and how it is read and written.
//!
//! Here belong its parts and the one comparison that an upgrade is done by; which of two builds is newer is said in
//! `order.rs`, and what a person may type in `person.rs`. The invariant: what is written is read again as the same
//! version.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::grammar;
use super::minor::Minor;
use super::text::{MAX_VERSION_BYTES, ParseError, escape};

/// A version as a component reports it: minor, patch and the vendor's or builder's suffix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KubeVersion {
    pub(super) minor: Minor,
    pub(super) patch: Option<u32>,
    /// `None` for none: most versions have none, and two of those are equal without a comparison of texts, which costs
    /// a hundred times as much where both are empty (a masked load from an address that is not mapped).
    pub(super) suffix: Option<Box<str>>,
}

impl KubeVersion {
    /// The minor release, for the skew policy.
    pub fn minor(&self) -> Minor {
        self.minor
    }

    /// What follows the patch, with its leading `-` or `+`: `-eks-99d6cc0`, `+k3s1`, or nothing.
    pub fn suffix(&self) -> &str {
        self.suffix.as_deref().unwrap_or_default()
    }

    /// Minor and patch, comparable; a missing patch sorts below patch 0. The suffix takes no part: a vendor's build
    /// of a release is that release, and suffixes of different vendors have no order.
    pub fn release(&self) -> (Minor, Option<u32>) {
        (self.minor, self.patch)
    }

    /// The target that any release of `minor` reaches.
    pub fn any_of(minor: Minor) -> Self {
        Self { minor, patch: None, suffix: None }
    }

    /// Whether, as a target, any release of its minor will do: it names no patch.
    pub fn is_any_of_its_minor(&self) -> bool {
        self.patch.is_none()
    }

    /// Whether something that reports `self` needs no move to reach `target`: the same minor, and not below the target
    /// by [`KubeVersion::progress`], where the target names a patch.
    pub fn satisfies(&self, target: &Self) -> bool {
        self.minor == target.minor && (target.is_any_of_its_minor() || self.progress(target).is_ge())
    }

    /// Whether `target` is older than what reports `self`, so that going there would be a downgrade.
    pub fn is_beyond(&self, target: &Self) -> bool {
        let patch = || !target.is_any_of_its_minor() && self.progress(target).is_gt();
        self.minor > target.minor || self.minor == target.minor && patch()
    }
}

/// The suffix as a version holds it.
pub(super) fn held(suffix: String) -> Option<Box<str>> {
    (!suffix.is_empty()).then(|| suffix.into())
}

impl FromStr for KubeVersion {
    type Err = ParseError;

    /// Reads `[v]MAJOR.MINOR[.PATCH][suffix]`, blanks around it ignored.
    ///
    /// # Errors
    /// [`ParseError`], whose text completes the sentence "version X …".
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ParseError::Empty);
        }
        // It is shown with a `v`, and what is shown must be readable again.
        if text.strip_prefix('v').unwrap_or(text).len() >= MAX_VERSION_BYTES {
            return Err(ParseError::TooLong);
        }
        let written = grammar::Written::read(text).ok_or(ParseError::Malformed)?;
        let (&[major, minor], more) = written.numbers().split_first_chunk().ok_or(ParseError::Malformed)?;
        let number = |n: u64| u16::try_from(n).map_err(|_| ParseError::Malformed);
        let (major, minor) = (number(major)?, number(minor)?);
        let patch = more.first().map(|&n| u32::try_from(n)).transpose().map_err(|_| ParseError::Malformed)?;
        // A fourth number belongs to the suffix: `v1.33.1.2` is 1.33.1 with `.2` behind it.
        let mut suffix = String::new();
        for number in more.iter().skip(1) {
            // Writing to a String cannot fail.
            let _ = write!(suffix, ".{number}");
        }
        suffix.push_str(written.rest());
        // `$` and `%` occur only in the unexpanded `$Format:%H$`, which the check for 0.0 below names better.
        let readable = |c: char| c.is_ascii_alphanumeric() || "-+._~$%:".contains(c);
        if !suffix.chars().all(readable) {
            return Err(ParseError::Malformed);
        }
        if (major, minor) == (0, 0) {
            return Err(ParseError::Unstamped);
        }
        Ok(Self { minor: Minor::new(major, minor), patch, suffix: held(suffix) })
    }
}

impl fmt::Display for KubeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.minor)?;
        if let Some(patch) = self.patch {
            write!(f, ".{patch}")?;
        }
        f.write_str(self.suffix())
    }
}

impl Serialize for KubeVersion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KubeVersion {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error| serde::de::Error::custom(format!("version {} {error}", escape(&text))))
    }
}
