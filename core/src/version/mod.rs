//! What a Kubernetes version string means.
//!
//! Here belong parsing and the comparisons: by minor for the skew policy, by release inside a minor, and by build
//! inside one vendor's line ([`Comparison`]). What a version *allows* is decided in [`crate::skew`]. The invariant: a
//! string that cannot be read with certainty is [`Observed::Unknown`], never a guess and never minor 0. Skew is never
//! judged by semantic-version order, which sorts `v1.33.4-eks-99d6cc0` below `v1.33.4` although it is that release.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

mod effective;
pub mod grammar;
mod observed;
mod order;
mod person;

pub use effective::{Effective, Floors};
pub use observed::{Observed, Unknown, escape};
pub use order::Comparison;
pub use person::{area_and_label, image_tag};

/// Longest version string that is read at all, in bytes and with its `v`. Node-supplied strings may be a megabyte long.
pub const MAX_VERSION_BYTES: usize = 64;

/// A minor release such as `1.37`: the only part of a version the skew policy compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minor {
    major: u16,
    minor: u16,
}

impl Minor {
    /// The minor release `major.minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Reads the `major` and `minor` of `/version`, which vendors write like `1` and `33+`. `None` for what is no
    /// number, and for the 0.0 of a binary built without version stamps.
    pub fn from_fields(major: &str, minor: &str) -> Option<Self> {
        let minor = minor.strip_suffix('+').unwrap_or(minor);
        let number =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let read = Self::new(number(major)?, number(minor)?);
        (read != Self::new(0, 0)).then_some(read)
    }

    /// The number before the dot.
    pub const fn major(self) -> u16 {
        self.major
    }

    /// The number behind the dot.
    pub const fn minor(self) -> u16 {
        self.minor
    }

    /// The minor release after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        self.forward(1)
    }

    /// The minor release `count` before this one, at least `x.0`.
    #[must_use]
    pub const fn back(self, count: u16) -> Self {
        Self { major: self.major, minor: self.minor.saturating_sub(count) }
    }

    /// The minor release `count` after this one.
    #[must_use]
    pub const fn forward(self, count: u16) -> Self {
        Self { major: self.major, minor: self.minor.saturating_add(count) }
    }

    /// How many minors `self` is older than `other`; negative when it is newer.
    ///
    /// Majors that differ count as a thousand minors: no rule of the policy spans them, so the pair is out of every
    /// allowed range in the right direction.
    pub fn behind(self, other: Self) -> i32 {
        other.ordinal() - self.ordinal()
    }

    fn ordinal(self) -> i32 {
        i32::from(self.major) * 1000 + i32::from(self.minor)
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why a string is not a Kubernetes version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Nothing, or only blanks.
    #[error("is empty")]
    Empty,
    /// Over [`MAX_VERSION_BYTES`].
    #[error("is longer than {MAX_VERSION_BYTES} bytes")]
    TooLong,
    /// Not `[v]MAJOR.MINOR[.PATCH][suffix]` of printable version characters.
    #[error("is not of the form v1.37.1")]
    Malformed,
    /// `v0.0.0-master+$Format:%H$` and its like: a binary built without version stamps.
    #[error("was built without a version (v0.0)")]
    Unstamped,
    /// `stable`, `latest-1.37`: what they stand for changes, and only the network knows it.
    #[error("is a label that stands for another version tomorrow")]
    Label,
}

/// A version as a component reports it: minor, patch and the vendor's or builder's suffix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KubeVersion {
    minor: Minor,
    patch: Option<u32>,
    /// `None` for none: most versions have none, and two of those are equal without a comparison of texts, which costs
    /// a hundred times as much where both are empty (a masked load from an address that is not mapped).
    suffix: Option<Box<str>>,
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

    /// Whether something that reports `self` needs no move to reach `target`: the same minor, and not below the target
    /// by [`KubeVersion::progress`].
    pub fn satisfies(&self, target: &Self) -> bool {
        self.minor == target.minor && self.progress(target).is_ge()
    }
}

/// The suffix as a version holds it.
fn held(suffix: String) -> Option<Box<str>> {
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

#[cfg(test)]
mod tests;
