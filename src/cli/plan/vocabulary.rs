//! The words of the document that programs match on.
//!
//! Here belongs how each is written. The words that a person reads never belong here; they are in `words`. The invariant:
//! a word that a later release wrote is kept as it was read, so that no document is spoiled by it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An enum whose values are words of the document.
macro_rules! vocabulary {
    ($(#[$about:meta])* $name:ident { $($(#[$told:meta])* $word:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
        #[serde(from = "String", into = "String")]
        pub(super) enum $name {
            $($(#[$told])* $word,)+
            /// One that this release does not know; empty where there is none.
            Other(String),
        }

        impl $name {
            /// As it is written.
            pub(super) fn text(&self) -> &str {
                match self {
                    $(Self::$word => $text,)+
                    Self::Other(text) => text,
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::Other(String::new())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $($text => Self::$word,)+
                    _ => Self::Other(text),
                }
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.text().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text())
            }
        }
    };
}

vocabulary!(
    /// What is to be said of the plan as a whole.
    Verdict {
        /// It can be carried out.
        Ready = "Ready",
        /// It can begin, and stops on its way until somebody changes something.
        Stops = "Stops",
        /// Nothing may begin.
        Blocked = "Blocked",
        /// The check found an error in it.
        Refuted = "Refuted",
        /// There is nothing to do.
        Done = "Done",
    }
);

vocabulary!(
    /// Who picked the version of a hop.
    PickedBy {
        /// It is the target.
        Target = "Target",
        /// A person named it.
        Person = "Person",
        /// kube-apiservers run it already.
        Cluster = "Cluster",
        /// It is the newest known release of its minor.
        Catalogue = "Catalogue",
        /// Whoever moves the control plane: any release of its minor will do.
        Anyone = "Anyone",
    }
);

vocabulary!(
    /// What a finding does to the plan.
    Gravity {
        /// Nothing may begin.
        Blocks = "blocks",
        /// It begins, and stops there or leaves nodes behind.
        Stops = "stops",
        /// It is only to be known.
        Warns = "warns",
    }
);

vocabulary!(
    /// When work may begin.
    ApprovalMode {
        /// Never.
        PlanOnly = "PlanOnly",
        /// When a person approved the plan.
        RequireApproval = "RequireApproval",
        /// At once.
        Automatic = "Automatic",
    }
);

vocabulary!(
    /// What a difference from an older document is about.
    About {
        /// The hash that a person approves.
        Hash = "hash",
        /// The version that the plan starts from, or the one that it goes to.
        Version = "version",
        /// Whether components of the control plane move one by one, or all of a node together.
        Unit = "unit",
        /// Whether the plan may be carried out.
        Verdict = "verdict",
        /// Which minors the plan goes over, and to which version of each.
        Hop = "hop",
        /// What others have to do before a hop.
        Need = "need",
        /// Which components a hop moves where, from which version, and in which order.
        Step = "step",
        /// Which nodes go together, how many at once, and in which order.
        Wave = "wave",
        /// Which groups of nodes there are, their settings and their order.
        Group = "group",
        /// What was found, how grave it is, and whether a person accepted it.
        Finding = "finding",
        /// How long the plan takes, as its median.
        Time = "time",
        /// What the upgrade waits for besides its plan, such as a window or a gate.
        Wait = "wait",
        /// What could not be read when the plan was made.
        Sight = "sight",
    }
);

vocabulary!(
    /// How something differs from an older document.
    How {
        /// It was not there.
        Added = "added",
        /// It is gone.
        Removed = "removed",
        /// It was otherwise.
        Changed = "changed",
    }
);
