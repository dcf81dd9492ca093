//! The minor release: the only part of a version that the skew policy compares.
//!
//! Here belong its order, its neighbours and the distance between two; which distance is allowed is decided in
//! [`crate::skew`]. The invariant: a text that names no minor gives none, and never 0.0.

use std::fmt;

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
