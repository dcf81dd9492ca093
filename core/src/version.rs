//! What a Kubernetes version string means.
//!
//! Here belong parsing and the two comparisons that the skew policy knows: by minor, and by release inside a minor.
//! What a version *allows* is decided in [`crate::skew`]. The invariant: a string that cannot be read with certainty
//! is [`Observed::Unknown`], never a guess and never minor 0. Semantic-version order is not used anywhere, because
//! it sorts `v1.33.4-eks-99d6cc0` below `v1.33.4` although it is the same release (policy reference section 5).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest version string that is read at all, in bytes. Node-supplied strings may be a megabyte long.
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

    /// The minor release after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { major: self.major, minor: self.minor.saturating_add(1) }
    }

    /// The minor release `count` before this one, at least `x.0`.
    #[must_use]
    pub const fn back(self, count: u16) -> Self {
        Self { major: self.major, minor: self.minor.saturating_sub(count) }
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
}

/// A version as a component reports it: minor, patch and the vendor's or builder's suffix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KubeVersion {
    minor: Minor,
    patch: Option<u32>,
    suffix: Box<str>,
}

impl KubeVersion {
    /// The minor release, for the skew policy.
    pub fn minor(&self) -> Minor {
        self.minor
    }

    /// What follows the patch, with its leading `-` or `+`: `-eks-99d6cc0`, `+k3s1`, or nothing.
    pub fn suffix(&self) -> &str {
        &self.suffix
    }

    /// Minor and patch, comparable; a missing patch sorts below patch 0. The suffix takes no part: a vendor's build
    /// of a release is that release, and suffixes of different vendors have no order.
    pub fn release(&self) -> (Minor, Option<u32>) {
        (self.minor, self.patch)
    }

    /// Whether something that reports `self` needs no move to reach `target`.
    ///
    /// True for the same minor at the target's patch or a later one. A target that names a suffix wants exactly that
    /// build when minor and patch are equal.
    pub fn satisfies(&self, target: &Self) -> bool {
        self.minor == target.minor
            && match self.patch.cmp(&target.patch) {
                std::cmp::Ordering::Less => false,
                std::cmp::Ordering::Greater => true,
                std::cmp::Ordering::Equal => target.suffix.is_empty() || self.suffix == target.suffix,
            }
    }
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
        if text.len() > MAX_VERSION_BYTES {
            return Err(ParseError::TooLong);
        }
        let numbers = text.strip_prefix('v').unwrap_or(text);
        let (major, rest) = number::<u16>(numbers).ok_or(ParseError::Malformed)?;
        if numbers.len() - rest.len() > 1 && numbers.starts_with('0') {
            return Err(ParseError::Malformed);
        }
        let rest = rest.strip_prefix('.').ok_or(ParseError::Malformed)?;
        let (minor, rest) = number::<u16>(rest).ok_or(ParseError::Malformed)?;
        let (patch, suffix) = match rest.strip_prefix('.') {
            Some(after_dot) => match number::<u32>(after_dot) {
                Some((patch, suffix)) => (Some(patch), suffix),
                None => return Err(ParseError::Malformed),
            },
            None => (None, rest),
        };
        // `$` and `%` occur only in the unexpanded `$Format:%H$`, which the check for 0.0 below names better.
        let readable = |c: char| c.is_ascii_alphanumeric() || "-+._~$%:".contains(c);
        if !suffix.chars().all(readable) {
            return Err(ParseError::Malformed);
        }
        if (major, minor) == (0, 0) {
            return Err(ParseError::Unstamped);
        }
        Ok(Self { minor: Minor::new(major, minor), patch, suffix: suffix.into() })
    }
}

/// The digits `text` begins with, and what follows them; `None` when there are none or they overflow.
fn number<N: FromStr>(text: &str) -> Option<(N, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

impl fmt::Display for KubeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.minor)?;
        if let Some(patch) = self.patch {
            write!(f, ".{patch}")?;
        }
        f.write_str(&self.suffix)
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

/// Why no version is known. Unknown blocks only what depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unknown {
    /// The object that would carry it carries nothing.
    NotReported,
    /// A string was reported that is no version; kept escaped and short enough to print.
    Unreadable(Box<str>),
    /// A container image named by digest or without a tag.
    NoTag,
    /// The endpoint did not answer.
    Unreachable,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReported => f.write_str("not reported"),
            Self::Unreadable(text) => write!(f, "unreadable: {text}"),
            Self::NoTag => f.write_str("image has no version tag"),
            Self::Unreachable => f.write_str("does not answer"),
        }
    }
}

/// A version as far as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Observed {
    /// It was seen and read.
    Known(KubeVersion),
    /// It was not, for this reason.
    Unknown(Unknown),
}

impl Observed {
    /// What a component said of itself: a `gitVersion`, a `kubeletVersion`.
    pub fn from_report(text: &str) -> Self {
        match text.parse() {
            Ok(version) => Self::Known(version),
            Err(ParseError::Empty) => Self::Unknown(Unknown::NotReported),
            Err(_) => Self::Unknown(Unknown::Unreadable(escape(text).into())),
        }
    }

    /// What a container image's tag says. Kubernetes' own images turn the `+` of a version into `_`.
    pub fn from_image(image: &str) -> Self {
        let name = image.split('@').next().unwrap_or_default();
        let last = name.rsplit('/').next().unwrap_or_default();
        match last.split_once(':') {
            None => Self::Unknown(Unknown::NoTag),
            Some((_, tag)) => match tag.replace('_', "+").parse() {
                Ok(version) => Self::Known(version),
                Err(_) => Self::Unknown(Unknown::Unreadable(escape(tag).into())),
            },
        }
    }

    /// The version, when it is known.
    pub fn known(&self) -> Option<&KubeVersion> {
        match self {
            Self::Known(version) => Some(version),
            Self::Unknown(_) => None,
        }
    }

    /// The minor, when it is known.
    pub fn minor(&self) -> Option<Minor> {
        self.known().map(KubeVersion::minor)
    }
}

impl fmt::Display for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(version) => version.fmt(f),
            Self::Unknown(_) => f.write_str("unknown"),
        }
    }
}

/// `text` as it may be shown to a person or written to a status: at most [`MAX_VERSION_BYTES`] bytes, everything but
/// printable ASCII replaced by `?`. What a node reports is that node's claim and may hold escapes or markup.
pub fn escape(text: &str) -> String {
    let clean = |c: char| if c.is_ascii_graphic() && !"<>&\"'`".contains(c) { c } else { '?' };
    let mut shown: String = text.chars().take(MAX_VERSION_BYTES).map(clean).collect();
    if text.chars().nth(MAX_VERSION_BYTES).is_some() {
        shown.truncate(MAX_VERSION_BYTES - 3);
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, String), ParseError> {
        text.parse::<KubeVersion>().map(|v| (v.to_string(), v.minor().to_string()))
    }

    #[test]
    fn strings_seen_in_the_wild() {
        for (text, shown, minor) in [
            ("v1.34.9", "v1.34.9", "1.34"),
            ("1.37.1", "v1.37.1", "1.37"),
            ("v1.33.11-eks-7fcd7ec", "v1.33.11-eks-7fcd7ec", "1.33"),
            ("v1.31.14-gke.1020000+vendor.1", "v1.31.14-gke.1020000+vendor.1", "1.31"),
            ("v1.29.5+k3s1", "v1.29.5+k3s1", "1.29"),
            ("v1.33.8+rke2r1", "v1.33.8+rke2r1", "1.33"),
            ("v1.29.5+29c95f3", "v1.29.5+29c95f3", "1.29"),
            ("v1.37.0-alpha.1.23+abcdef", "v1.37.0-alpha.1.23+abcdef", "1.37"),
            ("  v1.36.4\n", "v1.36.4", "1.36"),
            ("1.37", "v1.37", "1.37"),
            ("v1.33.1.2", "v1.33.1.2", "1.33"),
        ] {
            assert_eq!(read(text), Ok((shown.to_owned(), minor.to_owned())), "{text}");
        }
    }

    #[test]
    fn strings_that_are_no_version() {
        for (text, error) in [
            ("", ParseError::Empty),
            (" \t", ParseError::Empty),
            ("v0.0.0-master+$Format:%H$", ParseError::Unstamped),
            ("1", ParseError::Malformed),
            ("v1", ParseError::Malformed),
            ("1.bob", ParseError::Malformed),
            ("vv1.2.3", ParseError::Malformed),
            ("01.2.3", ParseError::Malformed),
            ("1. 2.3", ParseError::Malformed),
            ("1.2.3 <script>", ParseError::Malformed),
            ("1.37.1\u{202e}", ParseError::Malformed),
            ("1.99999999999.1", ParseError::Malformed),
        ] {
            assert_eq!(read(text), Err(error), "{text}");
        }
        assert_eq!(read(&format!("v1.37.1-{}", "a".repeat(1_000_000))), Err(ParseError::TooLong));
    }

    #[test]
    fn a_vendor_build_is_the_release_it_builds() {
        let version = |text: &str| text.parse::<KubeVersion>().unwrap();
        assert!(version("v1.33.4-eks-99d6cc0").satisfies(&version("v1.33.4")));
        assert!(version("v1.33.5+k3s1").satisfies(&version("v1.33.4+k3s1")));
        assert!(!version("v1.33.4+k3s1").satisfies(&version("v1.33.4+k3s2")));
        assert!(!version("v1.33.3").satisfies(&version("v1.33.4")));
        assert!(!version("v1.34.0").satisfies(&version("v1.33.4")), "another minor is another step");
    }

    #[test]
    fn image_tags() {
        let shown = |image: &str| Observed::from_image(image).to_string();
        assert_eq!(shown("registry.k8s.io/kube-apiserver:v1.36.4"), "v1.36.4");
        assert_eq!(shown("registry.k8s.io:5000/kube-apiserver:v1.36.4@sha256:abc"), "v1.36.4");
        assert_eq!(shown("example/kube-proxy:v1.29.5_k3s1"), "v1.29.5+k3s1");
        assert_eq!(
            Observed::from_image("registry:5000/kube-apiserver@sha256:abc"),
            Observed::Unknown(Unknown::NoTag)
        );
        assert_eq!(shown("kube-apiserver:latest"), "unknown");
    }

    #[test]
    fn evil_strings_are_shown_harmless_and_short() {
        assert_eq!(escape("a\u{1b}[31m<b>"), "a?[31m?b?");
        assert_eq!(escape(&"x".repeat(1_000_007)).len(), MAX_VERSION_BYTES);
    }

    proptest::proptest! {
        #[test]
        fn reading_is_total_and_what_is_shown_reads_the_same(text in ".{0,80}") {
            if let Ok(version) = text.parse::<KubeVersion>() {
                proptest::prop_assert_eq!(version.to_string().parse::<KubeVersion>(), Ok(version));
            }
        }

        #[test]
        fn behind_is_antisymmetric(a in 0u16..60, b in 0u16..60) {
            let (a, b) = (Minor::new(1, a), Minor::new(1, b));
            proptest::prop_assert_eq!(a.behind(b), -b.behind(a));
        }
    }
}
