//! Who may do what with single objects, as the server says it when it is asked: in which namespaces and by which names a
//! grant counts, and what the optional roles change.

use std::time::Duration;

use evenkeel_devcluster::{Cluster, Failure, TestResult};
use evenkeel_testkit::scenario::{OPERATOR_USER, kubectl, root, until};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;

use super::{EXECUTORS, REPORTER};

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "approve"];

/// What `user` may do with `resource` in `namespace`, with all objects or, where it is not empty, with the one called `name`;
/// what has no namespace is the same in all.
async fn verbs(
    cluster: &Cluster,
    user: &str,
    (namespace, resource, name): (&str, &str, &str),
) -> Result<Vec<&'static str>, Failure> {
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client());
    let (named, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (named, group) = named.split_once('.').unwrap_or((named, ""));
    let mut groups = vec!["system:authenticated".to_owned()];
    if let Some((namespace, _)) =
        user.strip_prefix("system:serviceaccount:").and_then(|of| of.split_once(':'))
    {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    let text = |text: &str| Some(text.to_owned());
    let mut allowed = Vec::new();
    for verb in VERBS {
        let attributes = ResourceAttributes {
            namespace: text(namespace),
            verb: text(verb),
            group: text(group),
            resource: text(named),
            subresource: text(subresource),
            name: text(name),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: text(user),
            groups: Some(groups.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = reviews.create(&PostParams::default(), &review).await?;
        if answer.status.is_some_and(|status| status.allowed) {
            allowed.push(verb);
        }
    }
    Ok(allowed)
}

/// What is asked of single objects, and of what only a part of those who are there may do: who, which namespace, resource and
/// name.
const ASKED: [(&str, (&str, &str, &str)); 27] = [
    (REPORTER, ("kube-system", "leases.coordination.k8s.io", "evenkeel")),
    (REPORTER, ("kube-system", "leases.coordination.k8s.io", "kube-scheduler")),
    (REPORTER, ("default", "leases.coordination.k8s.io", "evenkeel")),
    (OPERATOR_USER, ("kube-system", "leases.coordination.k8s.io", "evenkeel")),
    (OPERATOR_USER, ("kube-system", "leases.coordination.k8s.io", "kube-scheduler")),
    (OPERATOR_USER, ("default", "leases.coordination.k8s.io", "evenkeel")),
    (REPORTER, ("", "clusterskewreports.evenkeel.dev/status", "cluster")),
    (REPORTER, ("", "clusterskewreports.evenkeel.dev/status", "other")),
    (REPORTER, ("", "nodeupgrades.evenkeel.dev/status", "up.kubelet.n-1")),
    (OPERATOR_USER, ("", "nodeupgrades.evenkeel.dev/status", "up.kubelet.n-1")),
    ("approver", ("", "nodeupgrades.evenkeel.dev/status", "up.kubelet.n-1")),
    (REPORTER, ("", "clusterupgrades.evenkeel.dev", "up")),
    (OPERATOR_USER, ("", "clusterupgrades.evenkeel.dev", "up")),
    ("author", ("", "clusterupgrades.evenkeel.dev", "up")),
    ("approver", ("", "clusterupgrades.evenkeel.dev", "up")),
    ("platform", ("", "clusterupgrades.evenkeel.dev", "up")),
    ("stranger", ("", "clusterupgrades.evenkeel.dev", "up")),
    (REPORTER, ("", "upgradeexecutors.evenkeel.dev", "x")),
    (OPERATOR_USER, ("", "upgradeexecutors.evenkeel.dev", "x")),
    ("author", ("", "upgradeexecutors.evenkeel.dev", "x")),
    ("approver", ("", "upgradeexecutors.evenkeel.dev", "x")),
    ("platform", ("", "upgradeexecutors.evenkeel.dev", "x")),
    (REPORTER, ("shop", "servicelevels.example.com", "checkout")),
    (OPERATOR_USER, ("shop", "servicelevels.example.com", "checkout")),
    (OPERATOR_USER, ("evenkeel-executors", "jobs.batch", "up-n-1")),
    (OPERATOR_USER, ("shop", "jobs.batch", "up-n-1")),
    (EXECUTORS, ("evenkeel-executors", "jobs.batch", "up-n-1")),
];
/// What `config/force` changes.
const PODS: (&str, &str, &str) = ("shop", "pods", "cart-0");
/// What `config/gates/reader.yaml` changes, and what it does not.
const GATE: (&str, &str, &str) = ("shop", "servicelevels.example.com", "checkout");
const OTHER_GATES: [(&str, &str, &str); 2] =
    [("shop", "servicelevels.example.com", "cart"), ("default", "servicelevels.example.com", "checkout")];

/// Who may do what with single objects: a line for each question, also where the answer is nothing.
pub async fn by_name(cluster: &Cluster) -> Result<String, Failure> {
    let mut lines = Vec::new();
    for (user, of) in ASKED {
        lines.push(answer(cluster, user, of).await?);
    }
    kubectl(cluster, &["create", "namespace", "shop"]).await?;
    for (with, flag, changes, others) in [
        ("config/force", "-k", PODS, &[("kube-system", "pods", "etcd-cp-1")][..]),
        ("config/gates/reader.yaml", "-f", GATE, &OTHER_GATES),
    ] {
        let before = verbs(cluster, OPERATOR_USER, changes).await?;
        lines.push(format!("without {with}:\n"));
        lines.push(answer(cluster, OPERATOR_USER, changes).await?);
        cluster.apply(root(with)).await?;
        changed(cluster, changes, &before, true).await?;
        lines.push(format!("with {with}:\n"));
        for of in [&[changes], others].concat() {
            lines.push(answer(cluster, OPERATOR_USER, of).await?);
            lines.push(answer(cluster, REPORTER, of).await?);
        }
        kubectl(cluster, &["delete", flag, &root(with).display().to_string()]).await?;
        changed(cluster, changes, &before, false).await?;
    }
    Ok(lines.concat())
}

/// `upgrader  leases.coordination.k8s.io evenkeel  kube-system  get,update`
async fn answer(cluster: &Cluster, user: &str, of: (&str, &str, &str)) -> Result<String, Failure> {
    let who = match user {
        REPORTER => "reporter",
        OPERATOR_USER => "upgrader",
        EXECUTORS => "executor",
        person => person,
    };
    let allowed = verbs(cluster, user, of).await?;
    let allowed = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(",") };
    let (namespace, resource, name) = of;
    let place = if namespace.is_empty() { "everywhere" } else { namespace };
    Ok(format!("{who}  {resource} {name}  {place}  {allowed}\n"))
}

/// A role that was just bound, or taken away, counts a moment later.
async fn changed(
    cluster: &Cluster,
    of: (&str, &str, &str),
    before: &[&'static str],
    differs: bool,
) -> TestResult {
    until("the role counts", Duration::from_secs(30), async || {
        Ok((verbs(cluster, OPERATOR_USER, of).await? != before) == differs)
    })
    .await
}
