//! The audit log: what every client asked of the API, and what it was answered.
//!
//! Belongs here: the policy that the apiservers record by, and reading their logs. Never here: judging what was
//! asked. Invariant: a request is one entry, however many stages of it were logged.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;

/// The user that the harness itself acts as: what a real cluster's kubelets would do.
pub const HARNESS: &str = "devcluster:kubelets";

/// Everything is recorded, without bodies: who, what, when, and the answer. Only the health checks of the harness and, on
/// real nodes, of the balancer and the kubelets, several each second, are not.
pub(crate) const POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived"],
  "rules": [
    {
      "level": "None",
      "users": ["devcluster:kubelets", "kubernetes-admin", "system:anonymous"],
      "nonResourceURLs": ["/readyz", "/livez"]
    },
    { "level": "Metadata" }
  ]
}
"#;

/// One request to one apiserver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Which control-plane node's apiserver answered, from 0.
    pub apiserver: usize,
    /// When the request came in.
    pub received: Timestamp,
    /// When it was answered; for a watch that still runs, when it began.
    pub answered: Timestamp,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// The resource, for instance `pods`; empty for paths such as `/version`.
    pub resource: String,
    /// The subresource, for instance `eviction`; empty without one.
    pub subresource: String,
    /// The namespace; empty for cluster-scoped requests.
    pub namespace: String,
    /// The object's name; empty for collections.
    pub name: String,
    /// Who asked.
    pub user: String,
    /// The pod that asked with the token of its service account; empty for everybody else.
    pub pod: String,
    /// What the client calls itself.
    pub user_agent: String,
    /// Path and query.
    pub uri: String,
    /// The HTTP status; 0 if there was none.
    pub code: u16,
    /// Is it a watch (or another long request) that has not ended yet?
    pub open: bool,
}

impl AuditEntry {
    /// Does it ask for a change (in a dry run, too)?
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch" | "head" | "options")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: String,
    #[serde(rename = "requestURI", default)]
    request_uri: String,
    #[serde(default)]
    verb: String,
    #[serde(default)]
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize, Default)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

/// What the authenticator of service accounts' tokens adds to a user.
const POD: &str = "authentication.kubernetes.io/pod-name";

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

/// The entries of one apiserver's log. A last line that is still being written is left for the next read.
pub(crate) fn read(path: &Path, apiserver: usize) -> std::io::Result<Vec<AuditEntry>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(parse(&text, apiserver)),
        // An apiserver that has not started yet has logged nothing.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

fn parse(text: &str, apiserver: usize) -> Vec<AuditEntry> {
    let mut by_id: BTreeMap<String, AuditEntry> = BTreeMap::new();
    for line in text.lines() {
        let Ok(mut line) = serde_json::from_str::<Line>(line) else { continue };
        let pod = line.user.extra.remove(POD).and_then(|names| names.into_iter().next());
        // A later stage of the same request replaces the earlier one.
        by_id.insert(
            line.audit_id,
            AuditEntry {
                apiserver,
                received: line.request_received_timestamp,
                answered: line.stage_timestamp,
                verb: line.verb,
                resource: line.object_ref.resource,
                subresource: line.object_ref.subresource,
                namespace: line.object_ref.namespace,
                name: line.object_ref.name,
                user: line.user.username,
                pod: pod.unwrap_or_default(),
                user_agent: line.user_agent,
                uri: line.request_uri,
                code: line.response_status.code,
                open: line.stage == "ResponseStarted",
            },
        );
    }
    let mut entries: Vec<_> = by_id.into_values().collect();
    entries.sort_by_key(|e| e.received);
    entries
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod tests {
    use super::*;

    const EVICTION: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"b","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/pods/cart-1/eviction","verb":"create","user":{"username":"system:serviceaccount:ops:up","groups":["system:authenticated"],"extra":{"authentication.kubernetes.io/pod-name":["up-1"]}},"sourceIPs":["192.0.2.1"],"userAgent":"tool/1","objectRef":{"resource":"pods","namespace":"shop","name":"cart-1","apiVersion":"v1","subresource":"eviction"},"responseStatus":{"metadata":{},"status":"Failure","reason":"TooManyRequests","code":429},"requestReceivedTimestamp":"2026-11-21T10:00:01.500000Z","stageTimestamp":"2026-11-21T10:00:01.600000Z"}"#;

    fn watch(stage: &str) -> String {
        format!(
            r#"{{"auditID":"a","stage":"{stage}","requestURI":"/api/v1/nodes?watch=1","verb":"watch","objectRef":{{"resource":"nodes","apiVersion":"v1"}},"responseStatus":{{"code":200}},"requestReceivedTimestamp":"2026-11-21T10:00:00Z","stageTimestamp":"2026-11-21T10:00:00Z"}}"#
        )
    }

    #[test]
    fn every_field_of_an_entry_is_read() {
        let entries = parse(EVICTION, 2);
        let [entry] = entries.as_slice() else { unreachable!("one line is one entry") };
        assert_eq!((entry.apiserver, entry.code, entry.open), (2, 429, false));
        assert_eq!((entry.verb.as_str(), entry.resource.as_str()), ("create", "pods"));
        assert_eq!((entry.subresource.as_str(), entry.name.as_str()), ("eviction", "cart-1"));
        assert_eq!((entry.namespace.as_str(), entry.user_agent.as_str()), ("shop", "tool/1"));
        assert_eq!((entry.user.as_str(), entry.pod.as_str()), ("system:serviceaccount:ops:up", "up-1"));
        assert_eq!(entry.received.to_string(), "2026-11-21T10:00:01.5Z");
        assert!(entry.is_write());
    }

    #[test]
    fn a_watch_is_one_entry_in_every_stage() {
        let running = parse(&watch("ResponseStarted"), 0);
        assert_eq!((running.len(), running[0].open, running[0].is_write()), (1, true, false));
        let both = format!("{}\n{}", watch("ResponseStarted"), watch("ResponseComplete"));
        let ended = parse(&both, 0);
        assert_eq!((ended.len(), ended[0].open), (1, false));
    }

    #[test]
    fn entries_are_in_the_order_of_the_requests_and_a_torn_line_is_left_out() {
        let text = format!("{EVICTION}\n{}\n{{\"auditID\":\"c\",\"sta", watch("ResponseComplete"));
        let verbs: Vec<_> = parse(&text, 0).into_iter().map(|e| e.verb).collect();
        assert_eq!(verbs, ["watch", "create"]);
    }

    #[test]
    fn no_log_is_no_entries() {
        assert_eq!(read(Path::new("/nonexistent/audit.log"), 0).unwrap(), []);
    }
}
