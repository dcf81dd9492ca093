//! Why a plan must not be carried out.
//!
//! Here belong the reasons and how they are told; they are found by the other files.

use std::fmt;

/// Why a plan must not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refutation {
    /// A finding says that nothing may begin.
    Blocked(String),
    /// A write makes a pair worse than it was.
    Skew {
        /// What is written: `kube-apiserver on cp-1 to v1.37.1`.
        write: String,
        /// What is then outside the policy.
        broken: String,
    },
    /// Something moves before what has to be done first.
    Order(String),
    /// Something would go back, or over a minor.
    Way(String),
    /// Something is not at the target when the plan is done.
    Unfinished(String),
    /// The waves do not keep what their groups ask for.
    Waves(String),
}

impl fmt::Display for Refutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skew { write, broken } => write!(f, "{write} would leave {broken}"),
            Self::Blocked(line)
            | Self::Order(line)
            | Self::Way(line)
            | Self::Unfinished(line)
            | Self::Waves(line) => f.write_str(line),
        }
    }
}
