//! What the eviction handler's answer means for the pod, the budget and us.
//!
//! Source: `pkg/registry/core/pod/storage/eviction.go` and the API server's own answers around it. There is no
//! default that says "try again": an answer that is not known is reported as it came.

use jiff::SignedDuration;

/// The cause type by which a 429 of a budget differs from one of API priority and fairness.
const BUDGET_CAUSE: &str = "DisruptionBudget";
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// An answer as it came: HTTP status, `details.causes[].reason`, `details.retryAfterSeconds` and the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    /// HTTP status code.
    pub code: u16,
    /// The types of `details.causes`.
    pub causes: Vec<&'a str>,
    /// `details.retryAfterSeconds`, 0 when absent.
    pub retry_after: u32,
    /// The message.
    pub message: &'a str,
}

/// What it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The deletion has begun; the pod is not gone yet.
    Accepted,
    /// It was gone already, or another pod has its name.
    Gone,
    /// The budget refused: ask again when its status changes, at the latest after this long.
    Budget {
        /// Upper bound of the wait.
        within: SignedDuration,
    },
    /// The server is busy, no budget is to blame: everything waits this long.
    Throttled {
        /// How long.
        wait: SignedDuration,
    },
    /// The request may or may not have been carried out, or the server could not: look again after this long.
    Unclear {
        /// How long.
        wait: SignedDuration,
    },
    /// It will be refused until somebody changes something: asked again now and then, and shown.
    Refused {
        /// What the server said.
        why: String,
    },
}

impl Answer {
    /// The label it is counted under.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Accepted => "evicted",
            Self::Gone => "not_found",
            Self::Budget { .. } => "refused_pdb",
            Self::Throttled { .. } => "throttled",
            Self::Unclear { .. } => "unclear",
            Self::Refused { .. } => "error",
        }
    }
}

/// Reads an answer.
pub fn read(raw: &Raw<'_>) -> Answer {
    let seconds = |at_least: u32| SignedDuration::from_secs(i64::from(raw.retry_after.max(at_least)));
    let refused = || Answer::Refused { why: raw.message.to_owned() };
    match raw.code {
        200..=299 => Answer::Accepted,
        404 => Answer::Gone,
        // Another UID has the name (done), or a write raced with ours (the pod is still there): the watch tells.
        409 => Answer::Unclear { wait: seconds(1) },
        429 if raw.causes.contains(&BUDGET_CAUSE) => Answer::Budget { within: seconds(10) },
        429 => Answer::Throttled { wait: seconds(1) },
        403 if raw.causes.contains(&NAMESPACE_TERMINATING) => Answer::Unclear { wait: seconds(5) },
        500 if raw.message.contains("more than one PodDisruptionBudget") => refused(),
        // A fail-closed webhook that is down, a lost race over the budget, a server that restarts.
        500 if raw.message.contains("failed calling webhook") => refused(),
        500..=599 => Answer::Unclear { wait: seconds(5) },
        _ => refused(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_own_meaning() {
        let secs = SignedDuration::from_secs;
        let refused = |why: &str| Answer::Refused { why: why.to_owned() };
        let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        for (code, causes, retry_after, message, meaning) in [
            (201, vec![], 0, "", Answer::Accepted),
            (404, vec![], 0, "", Answer::Gone),
            (409, vec![], 0, "", Answer::Unclear { wait: secs(1) }),
            (429, vec!["DisruptionBudget"], 0, "", Answer::Budget { within: secs(10) }),
            (429, vec!["DisruptionBudget"], 30, "", Answer::Budget { within: secs(30) }),
            (429, vec![], 1, "", Answer::Throttled { wait: secs(1) }),
            (403, vec!["NamespaceTerminating"], 0, "", Answer::Unclear { wait: secs(5) }),
            (403, vec![], 0, "no", refused("no")),
            (400, vec![], 0, "denied by policy", refused("denied by policy")),
            (500, vec![], 0, two, refused(two)),
            (504, vec![], 10, "", Answer::Unclear { wait: secs(10) }),
        ] {
            assert_eq!(read(&Raw { code, causes, retry_after, message }), meaning, "{code} {message}");
        }
    }
}
