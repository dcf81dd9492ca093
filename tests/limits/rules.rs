//! All that each account may do, as the server lists it when the account itself asks (SelfSubjectRulesReview): in every
//! namespace that is there, and in one that is not. Nothing is asked for by name, so a grant that nobody expects is in the
//! text, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_devcluster::{Cluster, Failure};
use evenkeel_testkit::scenario::{OPERATOR_USER, kubectl, root, until};
use k8s_openapi::api::authorization::v1::SubjectRulesReviewStatus;
use serde_json::{Value, json};

use super::{EXECUTORS, REPORTER, written};

/// Each account, and whose rights are left out of its own because they are in the text already.
const ACCOUNTS: [(&str, &str, &str); 8] = [
    ("anybody", "stranger", ""),
    ("any pod", "system:serviceaccount:elsewhere:stranger", "stranger"),
    ("reporter", REPORTER, "system:serviceaccount:elsewhere:stranger"),
    ("upgrader", OPERATOR_USER, "system:serviceaccount:elsewhere:stranger"),
    ("executor", EXECUTORS, "system:serviceaccount:elsewhere:stranger"),
    ("viewer", "viewer", "stranger"),
    ("approver", "approver", "stranger"),
    ("platform", "platform", "stranger"),
];
/// What gives the upgrader more.
const FORCE: &str = "config/force";
/// No role is bound there: what is allowed in it is allowed everywhere.
const NOWHERE: &str = "any-other";
/// Verbs in the order in which people name them; others follow.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
/// Kubelets have rights that are in no role, and no rules.
const INCOMPLETE: &str = "node authorizer does not support user rule resolution";

/// What may be done, and with which verbs.
type Rules = BTreeMap<String, BTreeSet<String>>;
/// That by namespace.
type Account = BTreeMap<String, Rules>;

/// Who may do what where: a line for each resource, with its verbs.
pub async fn all(cluster: &Cluster) -> Result<String, Failure> {
    // As it is aggregated into `view`, without all the rest of that.
    let view = ["create", "clusterrolebinding", "viewer", "--clusterrole=evenkeel-view", "--user=viewer"];
    kubectl(cluster, &view).await?;
    let mut lines = Vec::new();
    for (who, user, base) in ACCOUNTS {
        lines.extend(more(&of(cluster, user).await?, &of(cluster, base).await?, who));
    }
    let before = of(cluster, OPERATOR_USER).await?;
    cluster.apply(root(FORCE)).await?;
    let with = changed(cluster, &before, true).await?;
    lines.extend(more(&with, &before, &format!("upgrader with {FORCE}")));
    kubectl(cluster, &["delete", "-k", &root(FORCE).display().to_string()]).await?;
    changed(cluster, &before, false).await?;
    Ok(lines.concat())
}

/// What the upgrader may do when that differs from `before`, or no longer does: a role that was just bound, or taken away,
/// counts a moment later.
async fn changed(cluster: &Cluster, before: &Account, differs: bool) -> Result<Account, Failure> {
    let mut now = Account::new();
    until("the role counts", Duration::from_secs(30), async || {
        now = of(cluster, OPERATOR_USER).await?;
        Ok((now != *before) == differs)
    })
    .await?;
    Ok(now)
}

/// A line for each right that is in `rules` and not in `base`; what is allowed everywhere is not repeated by namespace.
fn more(rules: &Account, base: &Account, who: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let everywhere = rules.get(NOWHERE);
    for (namespace, here) in rules {
        let place = if namespace == NOWHERE { "everywhere" } else { namespace };
        for (what, verbs) in here {
            let elsewhere = everywhere.filter(|_| namespace != NOWHERE);
            let known = [base.get(namespace), elsewhere].into_iter().flatten().filter_map(|of| of.get(what));
            let known: BTreeSet<&String> = known.flatten().collect();
            let mut verbs: Vec<&str> =
                verbs.iter().filter(|verb| !known.contains(verb)).map(String::as_str).collect();
            if verbs.is_empty() {
                continue;
            }
            verbs.sort_by_key(|verb| VERBS.iter().position(|known| known == verb).unwrap_or(VERBS.len()));
            lines.push(format!("{who}  {place}  {what}  {}\n", verbs.join(",")));
        }
    }
    lines
}

/// What `user` may do, by namespace; nobody may do nothing.
async fn of(cluster: &Cluster, user: &str) -> Result<Account, Failure> {
    let mut all = Account::new();
    if user.is_empty() {
        return Ok(all);
    }
    let names = kubectl(cluster, &["get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}"]).await?;
    for namespace in names.split_whitespace().chain([NOWHERE]) {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        });
        let path = written(cluster, &review)?;
        let reviews = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let told = kubectl(cluster, &["--as", user, "create", "--raw", reviews, "-f", &path]).await?;
        let told: Value = serde_json::from_str(&told)?;
        let status: SubjectRulesReviewStatus = serde_json::from_value(told["status"].clone())?;
        let left_out = status.evaluation_error.as_deref().unwrap_or(INCOMPLETE);
        if status.incomplete && left_out != INCOMPLETE {
            return Err(Failure::new(format!("not all of what {user} may do is told: {left_out}")));
        }
        all.insert(namespace.to_owned(), rules(&status));
    }
    Ok(all)
}

/// `pods/eviction`, `jobs.batch`, `leases.coordination.k8s.io evenkeel`, `/readyz`.
fn rules(status: &SubjectRulesReviewStatus) -> Rules {
    let mut rules = Rules::new();
    for rule in &status.resource_rules {
        let groups = rule.api_groups.as_deref().unwrap_or_default();
        let resources = rule.resources.as_deref().unwrap_or_default();
        let names = rule.resource_names.as_deref().unwrap_or_default().join(" ");
        for (group, resource) in groups.iter().flat_map(|group| resources.iter().map(move |one| (group, one)))
        {
            let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
            let dot = if group.is_empty() { "" } else { "." };
            let slash = if part.is_empty() { "" } else { "/" };
            let what = format!("{resource}{dot}{group}{slash}{part} {names}");
            rules.entry(what.trim_end().to_owned()).or_default().extend(rule.verbs.iter().cloned());
        }
    }
    for rule in &status.non_resource_rules {
        for path in rule.non_resource_urls.as_deref().unwrap_or_default() {
            rules.entry(path.clone()).or_default().extend(rule.verbs.iter().cloned());
        }
    }
    rules
}
