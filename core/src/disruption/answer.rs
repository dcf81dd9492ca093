//! What the eviction handler's answer means for the pod, the budget and us.
//!
//! The source is `pkg/registry/core/pod/storage/eviction.go` and the API server's own answers around it. There is no
//! default that says "try again": an answer that is not known is reported as it came.

use jiff::SignedDuration;

/// The cause type by which a 429 of a budget differs from one of API priority and fairness.
const BUDGET_CAUSE: &str = "DisruptionBudget";
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
/// What the server says, with 500, when it needs an admission webhook that does not answer and fails closed
/// (`k8s.io/apiserver/pkg/admission/plugin/webhook/errors`).
pub const WEBHOOK_AWAY: &str = "failed calling webhook";
/// An eviction whose refusal somebody has to mend is sent again after this long.
const REFUSED: SignedDuration = SignedDuration::from_secs(30);

/// An answer as it came: HTTP status, `details.causes[].reason`, `details.retryAfterSeconds` and the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    /// HTTP status code.
    pub code: u16,
    /// `details.causes[].reason`: the types of the causes.
    pub causes: Vec<&'a str>,
    /// `details.retryAfterSeconds`, 0 when absent.
    pub retry_after: u32,
    /// `message` of the Status, in the server's words.
    pub message: &'a str,
}

/// What an answer to an eviction means, whatever server or webhook gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The deletion has begun; the pod is not gone yet. Holds the deleted pod's resourceVersion, if the server told it.
    Accepted(Option<Box<str>>),
    /// There is no such pod any more, so it need not leave.
    Gone,
    /// The budget allows none: ask again when its status changes, at the latest after this long.
    Budget {
        /// Upper bound of the wait.
        within: SignedDuration,
    },
    /// The budget's status is older than its spec or than the pod: ask again when it changes, at the latest then.
    Stale {
        /// Upper bound of the wait.
        within: SignedDuration,
    },
    /// The server is busy, no budget is to blame: everything waits this long.
    Throttled {
        /// As the server asked, or a default where it named no time.
        wait: SignedDuration,
    },
    /// Another pod has the name now, or a write raced with ours: the watch tells which; look again after this long.
    Conflict {
        /// Until the pod is looked at again.
        wait: SignedDuration,
    },
    /// Several budgets select the pod: no eviction of it ever succeeds.
    TwoBudgets,
    /// Its namespace is being deleted, and the pod will be: look again after this long.
    NamespaceTerminating {
        /// Until the pod is looked at again.
        wait: SignedDuration,
    },
    /// Not allowed to us, or the budget's status is broken (below zero, too many disrupted pods).
    Forbidden {
        /// What the server said.
        why: String,
    },
    /// An admission webhook or policy denies it.
    Denied {
        /// The message of the webhook or policy.
        why: String,
        /// It is a webhook, which may have the pod moved otherwise: `KubeVirt` and Strimzi deny the eviction of a pod that
        /// they then move themselves.
        by_webhook: bool,
    },
    /// A fail-closed admission webhook does not answer.
    WebhookDown {
        /// What the server said.
        why: String,
    },
    /// The request makes no sense to the server.
    Invalid {
        /// What the server said.
        why: String,
    },
    /// The server, or something in front of it, failed: the request may have been carried out. Look after this long.
    ServerTrouble {
        /// Until the pod is looked at again.
        wait: SignedDuration,
    },
    /// No answer came: the request may have been carried out. Look after this long.
    NoAnswer {
        /// Until the pod is looked at again.
        wait: SignedDuration,
    },
    /// An answer that is not known here, as it came.
    Unknown {
        /// Its code and what it said.
        why: String,
    },
}

/// What to do with the pod after an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterAnswer {
    /// It is going or gone: the watch tells.
    Watch,
    /// Its budget has to change first; at the latest after this long.
    Budget(SignedDuration),
    /// Nothing at all is sent for this long.
    Quiet(SignedDuration),
    /// Look at it again after this long; with a line where a person should know.
    Again(SignedDuration, Option<&'static str>),
    /// Somebody has to change something; shown with this line, and asked again now and then.
    Show(SignedDuration, String),
}

impl Answer {
    /// One word for it, for logs and what a drain prints.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Accepted(_) => "evicted",
            Self::Gone => "not_found",
            Self::Budget { .. } => "refused_pdb",
            Self::Stale { .. } => "stale_pdb",
            Self::Throttled { .. } => "throttled",
            Self::Conflict { .. } => "conflict",
            Self::TwoBudgets => "two_pdbs",
            Self::NamespaceTerminating { .. } => "namespace_terminating",
            Self::Forbidden { .. } => "forbidden",
            Self::Denied { .. } => "denied",
            Self::WebhookDown { .. } => "webhook_down",
            Self::Invalid { .. } => "invalid",
            Self::ServerTrouble { .. } => "server_error",
            Self::NoAnswer { .. } => "no_answer",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// What the server said itself, where it refused.
    pub fn said(&self) -> Option<String> {
        match self {
            Self::Forbidden { why }
            | Self::Denied { why, .. }
            | Self::WebhookDown { why }
            | Self::Invalid { why }
            | Self::Unknown { why } => Some(why.clone()),
            _ => None,
        }
    }

    /// Whether it refuses the eviction until a person changes something, when it is repeated: what refuses it does nothing
    /// by itself.
    pub const fn needs_a_person(&self) -> bool {
        matches!(
            self,
            Self::Forbidden { .. }
                | Self::Denied { by_webhook: false, .. }
                | Self::Invalid { .. }
                | Self::TwoBudgets
        )
    }

    /// What to do with the pod.
    pub fn next(&self) -> AfterAnswer {
        let show = |why: String| AfterAnswer::Show(REFUSED, why);
        match self {
            Self::Accepted(_) | Self::Gone => AfterAnswer::Watch,
            Self::Budget { within } | Self::Stale { within } => AfterAnswer::Budget(*within),
            Self::Throttled { wait } => AfterAnswer::Quiet(*wait),
            Self::NamespaceTerminating { wait } => AfterAnswer::Show(
                *wait,
                "its namespace is being deleted: it is not evicted, and goes with it".to_owned(),
            ),
            Self::Conflict { wait } => AfterAnswer::Again(*wait, None),
            Self::ServerTrouble { wait } => AfterAnswer::Again(
                *wait,
                Some("the apiserver could not answer its eviction; asked again soon"),
            ),
            Self::NoAnswer { wait } => AfterAnswer::Again(
                *wait,
                Some("its eviction got no answer from the apiserver; asked again soon"),
            ),
            Self::TwoBudgets => show(
                "more than one PDB selects it, which the eviction API refuses; let one select it".to_owned(),
            ),
            Self::Forbidden { why } => show(format!("its eviction is forbidden: {why}")),
            Self::Denied { why, .. } => show(format!("its eviction is denied: {why}")),
            Self::WebhookDown { why } => {
                show(format!("its eviction needs an admission webhook that is down: {why}"))
            }
            Self::Invalid { why } => show(format!("the server does not accept its eviction: {why}")),
            Self::Unknown { why } => show(format!("its eviction got an unknown answer: {why}")),
        }
    }
}

/// Says what `raw` means. `raw` carries no pod, so [`Answer::Accepted`] holds no resourceVersion here.
pub fn read(raw: &Raw<'_>) -> Answer {
    let seconds = |at_least: u32| SignedDuration::from_secs(i64::from(raw.retry_after.max(at_least)));
    let why = || raw.message.to_owned();
    let said = |text: &str| raw.message.contains(text);
    // A webhook chooses the code of its denial itself, a policy may too; the server writes the words around it.
    let by_webhook = said("denied the request");
    let denied =
        raw.code >= 400 && (by_webhook || (said("ValidatingAdmissionPolicy") && said("denied request")));
    match raw.code {
        200..=299 => Answer::Accepted(None),
        _ if denied => Answer::Denied { why: why(), by_webhook },
        404 => Answer::Gone,
        409 => Answer::Conflict { wait: seconds(1) },
        // The server sets retryAfterSeconds only where the budget's status is stale.
        429 if raw.causes.contains(&BUDGET_CAUSE) && raw.retry_after > 0 => {
            Answer::Stale { within: seconds(1) }
        }
        429 if raw.causes.contains(&BUDGET_CAUSE) => Answer::Budget { within: seconds(10) },
        429 => Answer::Throttled { wait: seconds(1) },
        403 if raw.causes.contains(&NAMESPACE_TERMINATING) => {
            Answer::NamespaceTerminating { wait: seconds(5) }
        }
        401 | 403 => Answer::Forbidden { why: why() },
        500 if said("more than one PodDisruptionBudget") => Answer::TwoBudgets,
        500 if said(WEBHOOK_AWAY) => Answer::WebhookDown { why: why() },
        400 | 405 | 413 | 415 | 422 => Answer::Invalid { why: why() },
        // A lost race over the budget (504), a server that restarts, a load balancer without a server behind it.
        500 | 502..=504 => Answer::ServerTrouble { wait: seconds(5) },
        code => Answer::Unknown { why: format!("HTTP {code}: {}", raw.message) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_has_its_own_meaning() {
        let secs = SignedDuration::from_secs;
        let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let webhook = "admission webhook \"no.example\" denied the request: not today";
        let policy =
            "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        let down = "Internal error occurred: failed calling webhook \"w\": connection refused";
        let denied = |why: &str| Answer::Denied { why: why.to_owned(), by_webhook: why == webhook };
        for (code, causes, retry_after, message, meaning) in [
            (200, vec![], 0, "", Answer::Accepted(None)),
            (201, vec![], 0, "", Answer::Accepted(None)),
            (404, vec![], 0, "", Answer::Gone),
            (409, vec![], 0, "", Answer::Conflict { wait: secs(1) }),
            (429, vec!["DisruptionBudget"], 0, "", Answer::Budget { within: secs(10) }),
            (429, vec!["DisruptionBudget"], 10, "", Answer::Stale { within: secs(10) }),
            (429, vec![], 1, "", Answer::Throttled { wait: secs(1) }),
            (429, vec![], 0, webhook, denied(webhook)),
            (403, vec!["NamespaceTerminating"], 0, "", Answer::NamespaceTerminating { wait: secs(5) }),
            (403, vec![], 0, "no", Answer::Forbidden { why: "no".to_owned() }),
            (403, vec![], 0, webhook, denied(webhook)),
            (422, vec![], 0, policy, denied(policy)),
            (400, vec![], 0, "name differs", Answer::Invalid { why: "name differs".to_owned() }),
            (500, vec![], 0, two, Answer::TwoBudgets),
            (500, vec![], 0, down, Answer::WebhookDown { why: down.to_owned() }),
            (500, vec![], 0, "etcd", Answer::ServerTrouble { wait: secs(5) }),
            (504, vec![], 10, "", Answer::ServerTrouble { wait: secs(10) }),
            (418, vec![], 0, "tea", Answer::Unknown { why: "HTTP 418: tea".to_owned() }),
            (501, vec![], 0, "no", Answer::Unknown { why: "HTTP 501: no".to_owned() }),
        ] {
            assert_eq!(read(&Raw { code, causes, retry_after, message }), meaning, "{code} {message}");
        }
    }

    #[test]
    fn what_moves_a_pod_otherwise_needs_no_person() {
        let kubevirt = "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: \
                        Eviction triggered evacuation of VMI \"shop/vm\"";
        let strimzi = "admission webhook \"strimzi-drain-cleaner.strimzi.io\" denied the request: The pod will be \
                       rolled by the Strimzi Cluster Operator.";
        let policy = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        let right = "pods \"a\" is forbidden: User \"ann\" cannot create resource \"pods/eviction\"";
        for (code, causes, message, needs) in [
            (429, vec![], kubevirt, false),
            (500, vec![], strimzi, false),
            (422, vec![], policy, true),
            (403, vec![], right, true),
            (403, vec!["NamespaceTerminating"], "", false),
            (400, vec![], "no such field", true),
            (500, vec![], "This pod has more than one PodDisruptionBudget", true),
            (500, vec![], "failed calling webhook \"w\": connection refused", false),
            (500, vec![], "etcd", false),
            (429, vec!["DisruptionBudget"], "", false),
            (409, vec![], "", false),
            (418, vec![], "tea", false),
            (200, vec![], "", false),
        ] {
            let answer = read(&Raw { code, causes, retry_after: 0, message });
            assert_eq!(answer.needs_a_person(), needs, "{answer:?}");
        }
    }

    #[test]
    fn only_what_may_pass_by_itself_is_asked_again_unseen() {
        for code in 100..600 {
            let answer = read(&Raw { code, causes: vec![], retry_after: 0, message: "" });
            let again = matches!(answer.next(), AfterAnswer::Again(..) | AfterAnswer::Quiet(_));
            assert_eq!(again, matches!(code, 409 | 429 | 500 | 502..=504), "{code}");
        }
    }
}
