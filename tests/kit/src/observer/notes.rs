//! What comes of an event: a line that something is wrong, or a question that only the cluster can answer.

use evenkeel_devcluster::Release;
use k8s_openapi::jiff::Timestamp;

/// A line, and when the event was read that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    pub at: Timestamp,
    pub line: String,
}

/// What an event asks of the cluster itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Question {
    /// No kubelet is newer than any apiserver or controller, and none moves before all of them did.
    KubeletMay { node: String, version: String },
    /// No controller is newer than an apiserver that it may ask.
    ControllerMay { component: String, node: String, runs: Release },
    /// The claim was recorded before the cordon.
    ClaimExists { node: String, mark: String },
    /// What a claim calls upgraded is, and was when that was said.
    Upgraded { claim: String, component: String, node: String, to: String, said: Timestamp },
    /// Every node is whole, and was when that was said.
    Completed { said: Timestamp },
}
