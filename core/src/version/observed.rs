//! A version as far as it was seen, and why not when it was not.
//!
//! Here belong the places a version can be read from; what the string means is read in `kube.rs`. The invariant:
//! what cannot be read with certainty is [`Observed::Unknown`], and blocks only what depends on it.

use std::fmt;

use super::kube::KubeVersion;
use super::minor::Minor;
use super::text::{ParseError, escape};

/// Why no version is known. Unknown blocks only what depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unknown {
    /// The object that would carry it carries nothing.
    NotReported,
    /// A string was reported that is no version; kept escaped and short enough to print.
    Unreadable(Box<str>),
    /// What runs there only plays the component (`kwok-v0.8.0`), and its own version says nothing about Kubernetes'.
    Simulated(Box<str>),
    /// The makers of the component number it as they like (`v0.1.44`), and that says nothing about Kubernetes' version.
    OwnNumber(Box<str>),
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
            Self::Simulated(text) => write!(f, "simulated: {text}"),
            Self::OwnNumber(text) => write!(f, "numbered by its makers: {text}"),
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
            Err(_) if text.starts_with("kwok-v") => Self::Unknown(Unknown::Simulated(escape(text).into())),
            Err(_) => Self::Unknown(Unknown::Unreadable(escape(text).into())),
        }
    }

    /// What `/version` says: its `gitVersion`, else `major` and `minor`, which vendors write like `1` and `33+`.
    pub fn from_info(git_version: &str, major: &str, minor: &str) -> Self {
        match (Self::from_report(git_version), Minor::from_fields(major, minor)) {
            (Self::Unknown(_), Some(minor)) => Self::Known(KubeVersion { minor, patch: None, suffix: None }),
            (observed, _) => observed,
        }
    }

    /// What a container image's tag says. A tag cannot hold the `+` of a version: Kubernetes' own images have `_` for
    /// it, and RKE2's `-`, with the day the image was built behind it (`v1.21.3-rke2r1-build20210721`).
    pub fn from_image(image: &str) -> Self {
        let name = image.split('@').next().unwrap_or_default();
        let last = name.rsplit('/').next().unwrap_or_default();
        let Some((_, tag)) = last.split_once(':') else { return Self::Unknown(Unknown::NoTag) };
        let rke2 = tag.split_once("-rke2r").map(|(release, build)| {
            let revision = build.split_once("-build").map_or(build, |(revision, _)| revision);
            format!("{release}+rke2r{revision}")
        });
        match rke2.unwrap_or_else(|| tag.replace('_', "+")).parse() {
            Ok(version) => Self::Known(version),
            Err(_) => Self::Unknown(Unknown::Unreadable(escape(tag).into())),
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
