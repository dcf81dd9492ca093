//! Why a node is not drained.
//!
//! Here belong the reasons and the line that a person reads; which of them holds is decided in `request`. The
//! invariant: every reason is one line.

use std::fmt;

use super::node::GivenUp;

/// Why a node is not drained. As text it is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDrained {
    /// Its drain had begun and was given up.
    GivenUp(GivenUp),
    /// Its drain did not begin or was ended, for the reason in this line.
    Because(String),
}

impl NotDrained {
    /// The reason as a line that says that the node is not drained.
    pub fn told(&self) -> String {
        match self {
            // Its reason says so itself.
            Self::GivenUp(GivenUp::Late { .. }) => self.to_string(),
            _ => format!("not drained: {self}"),
        }
    }
}

impl fmt::Display for NotDrained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GivenUp(why) => fmt::Display::fmt(why, f),
            Self::Because(why) => f.write_str(why),
        }
    }
}
