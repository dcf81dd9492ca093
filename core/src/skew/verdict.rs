//! The answers of a judgement: of the whole cluster, and of a part of it.
//!
//! Here belong the answers alone; how one is found is in `assess.rs` and `row.rs`. The invariant: what is not known is
//! an answer of its own, and is never taken for yes or no.

/// Yes, no, or not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything that decides it is known, and it is so.
    True,
    /// It is not so, whatever the unknown may be.
    False,
    /// Something that decides it is not known.
    Unknown,
}

impl Verdict {
    /// The word for it in a status, as conditions spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// The verdict of that [`Verdict::name`].
    pub fn read(name: &str) -> Option<Self> {
        [Self::True, Self::False, Self::Unknown].into_iter().find(|verdict| verdict.name() == name)
    }
}

/// How a group of components stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Outside the policy.
    Unsupported,
    /// Its version is not known.
    Unknown,
    /// Inside, but the next control-plane minor would put it outside.
    AtLimit,
    /// A controller one minor behind: allowed only while an upgrade is under way (policy, "are expected to match"). Or
    /// what is at the minor of the kube-apiserver of its own node, the only one it talks to, while another is still behind.
    Transitional,
    /// Inside the policy, and nothing of the above.
    Supported,
}

impl Standing {
    /// The word for it in a status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unsupported => "Unsupported",
            Self::Unknown => "Unknown",
            Self::AtLimit => "AtLimit",
            Self::Transitional => "Transitional",
            Self::Supported => "Supported",
        }
    }
}
