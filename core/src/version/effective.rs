//! Emulated versions: a kube-apiserver of one binary that behaves as an older minor (KEP-4330, compatibility versions).
//!
//! Here belongs which combinations exist and what their defaults are; what they allow others belongs to
//! [`crate::skew`]. The invariant: an [`Effective`] always has `min_compat <= emulation <= binary`; a server that
//! says otherwise is read by its binary alone.

use super::minor::Minor;

/// The oldest minor that can be emulated at all: the first with the flag.
const FIRST: Minor = Minor::new(1, 31);

/// How many minors below its binary a server may emulate.
const REACH: u16 = 3;

/// The oldest values that a binary takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floors {
    /// Of `--emulated-version`.
    pub emulation: Minor,
    /// Of `--min-compatibility-version`.
    pub min_compat: Minor,
}

impl Floors {
    /// What component-base takes when a component sets no floors.
    pub const NONE: Self = Self { emulation: Minor::new(0, 0), min_compat: Minor::new(0, 0) };

    /// What kube-apiserver sets: three minors below the binary, and not before 1.31.
    /// Source: apiserver `util/compatibility`.
    pub fn of(binary: Minor) -> Self {
        let floor = binary.back(REACH).max(FIRST);
        Self { emulation: floor, min_compat: floor }
    }
}

/// What a kube-apiserver is, what it behaves as, and the oldest that it stays compatible with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effective {
    binary: Minor,
    emulation: Minor,
    min_compat: Minor,
}

impl Effective {
    /// A server that emulates nothing: compatible with the minor before its own, as the skew policy has always been.
    pub const fn plain(binary: Minor) -> Self {
        Self { binary, emulation: binary, min_compat: binary.back(1) }
    }

    /// A server of these versions; `None` where they cannot be together. A missing `min_compat` is the minor before the
    /// emulation, but not below its floor. Source: component-base `compatibility`, `Validate` and
    /// `SetEmulationVersion`.
    pub fn new(binary: Minor, emulation: Minor, min_compat: Option<Minor>, floors: Floors) -> Option<Self> {
        let min_compat = min_compat.unwrap_or_else(|| emulation.back(1).max(floors.min_compat));
        let valid = (floors.emulation..=binary).contains(&emulation)
            && (floors.min_compat..=emulation).contains(&min_compat);
        valid.then_some(Self { binary, emulation, min_compat })
    }

    /// What a server says of itself in `/version`: `(major, minor)` of the emulation and of the oldest compatible
    /// version, each empty where it says nothing. Where the combination cannot be, the server is read by its binary.
    pub fn reported(binary: Minor, emulation: (&str, &str), min_compat: (&str, &str)) -> Self {
        let emulation = Minor::from_fields(emulation.0, emulation.1);
        let min_compat = Minor::from_fields(min_compat.0, min_compat.1);
        emulation
            .and_then(|emulation| Self::new(binary, emulation, min_compat, Floors::NONE))
            .unwrap_or_else(|| Self::plain(binary))
    }

    /// The minor of the binary, whatever it emulates.
    pub const fn binary(self) -> Minor {
        self.binary
    }

    /// What it behaves as.
    pub const fn emulation(self) -> Minor {
        self.emulation
    }

    /// The oldest controller it works with.
    pub const fn min_compat(self) -> Minor {
        self.min_compat
    }
}
