//! The core's own budget arithmetic beside the real disruption controller's: for workloads of every kind and every way
//! to select them, what the core computes from the objects is what the controller writes into the status.

use std::collections::BTreeMap;
use std::fmt;

use evenkeel::observe::survey::Survey;
use evenkeel_core::cluster::{Budget, Cluster, Pod};
use evenkeel_core::disruption::arithmetic::{Numbers, Unsynced, compute};
use evenkeel_devcluster::{Failure, TestResult, in_namespace};
use jiff::Timestamp;

use super::Scene;

/// What a budget's status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// Allowed, healthy, desired, expected.
    Of(i64, i64, i64, i64),
    /// The controller could not compute it.
    SyncFailed,
}
use Status::{Of, SyncFailed};

/// A budget: its name, what it asks for, what it selects, and what its status says by the documentation.
type Case = (&'static str, &'static str, &'static str, Status);

const FIVE: &str = "{matchLabels: {app: five}}";
const CASES: [Case; 36] = [
    ("five-max-30", "maxUnavailable: 30%", FIVE, Of(2, 5, 3, 5)),
    ("five-min-30", "minAvailable: 30%", FIVE, Of(3, 5, 2, 5)),
    ("five-min-4", "minAvailable: 4", FIVE, Of(1, 5, 4, 5)),
    ("five-max-1", "maxUnavailable: 1", FIVE, Of(1, 5, 4, 5)),
    ("five-max-none", "maxUnavailable: 0", FIVE, Of(0, 5, 5, 5)),
    ("five-max-0", "maxUnavailable: 0%", FIVE, Of(0, 5, 5, 5)),
    ("five-max-100", "maxUnavailable: 100%", FIVE, Of(5, 5, 0, 5)),
    ("five-max-9", "maxUnavailable: 9", FIVE, Of(5, 5, 0, 5)),
    ("five-min-100", "minAvailable: 100%", FIVE, Of(0, 5, 5, 5)),
    ("five-min-9", "minAvailable: 9", FIVE, Of(0, 5, 9, 5)),
    ("five-min-none", "minAvailable: 0", FIVE, Of(5, 5, 0, 5)),
    ("five-neither", "", FIVE, Of(0, 5, 0, 0)),
    ("three-max-50", "maxUnavailable: 50%", "{matchLabels: {app: three}}", Of(2, 3, 1, 3)),
    ("two-max-1", "maxUnavailable: 1", "{matchLabels: {app: two}}", Of(1, 2, 1, 2)),
    ("four-min-51", "minAvailable: 51%", "{matchLabels: {app: four}}", Of(1, 4, 3, 4)),
    ("bare-min-1", "minAvailable: 1", "{matchLabels: {app: bare}}", Of(1, 2, 1, 2)),
    ("bare-max-1", "maxUnavailable: 1", "{matchLabels: {app: bare}}", Of(0, 2, 0, 0)),
    ("mix-max-1", "maxUnavailable: 1", "{matchLabels: {app: mix}}", Of(3, 4, 1, 2)),
    ("mix-min-50", "minAvailable: 50%", "{matchLabels: {app: mix}}", Of(3, 4, 1, 2)),
    ("mix-min-3", "minAvailable: 3", "{matchLabels: {app: mix}}", Of(1, 4, 3, 4)),
    ("agents-max-1", "maxUnavailable: 1", "{matchLabels: {app: agents}}", SyncFailed),
    ("agents-min-50", "minAvailable: 50%", "{matchLabels: {app: agents}}", SyncFailed),
    ("agents-min-1", "minAvailable: 1", "{matchLabels: {app: agents}}", Of(1, 2, 1, 2)),
    ("done-max-1", "maxUnavailable: 1", "{matchLabels: {app: done}}", SyncFailed),
    ("done-min-1", "minAvailable: 1", "{matchLabels: {app: done}}", Of(0, 0, 1, 1)),
    ("zero-min-1", "minAvailable: 1", "{matchLabels: {app: zero}}", Of(0, 0, 1, 0)),
    ("rolling-max-1", "maxUnavailable: 1", "{matchLabels: {app: rolling}}", Of(0, 3, 3, 4)),
    ("rolling-min-50", "minAvailable: 50%", "{matchLabels: {app: rolling}}", Of(1, 3, 2, 4)),
    ("rolling-min-1", "minAvailable: 1", "{matchLabels: {app: rolling}}", Of(2, 3, 1, 5)),
    ("sick-max-2", "maxUnavailable: 2", "{matchLabels: {app: sick}}", Of(1, 2, 1, 3)),
    ("held-max-1", "maxUnavailable: 1", "{matchLabels: {app: held}}", Of(1, 2, 1, 2)),
    ("held-min-1", "minAvailable: 1", "{matchLabels: {app: held}}", Of(1, 2, 1, 3)),
    ("lost-max-1", LOST.0, LOST.1, Of(0, 2, 2, 3)),
    (
        "sum-max-25",
        "maxUnavailable: 25%",
        "{matchExpressions: [{key: app, operator: In, values: [five, three]}]}",
        Of(2, 8, 6, 8),
    ),
    (
        "gold-min-100",
        "minAvailable: 100%",
        "{matchExpressions: [{key: tier, operator: Exists}]}",
        Of(0, 6, 6, 6),
    ),
    (
        "plain-max-1",
        "maxUnavailable: 1",
        "{matchLabels: {app: five}, matchExpressions: [{key: tier, operator: DoesNotExist},
          {key: app, operator: NotIn, values: [three]}]}",
        Of(1, 5, 4, 5),
    ),
];
/// It is there before the others, because an eviction is counted on it.
const LOST: (&str, &str) = ("maxUnavailable: 1", "{matchLabels: {app: lost}}");
/// Those of another namespace: an empty selector is every pod, an absent one none.
const WHOLE: [Case; 2] = [
    ("every-pod", "minAvailable: 2", "{}", Of(1, 3, 2, 3)),
    ("no-pod", "minAvailable: 2", "null", Of(0, 0, 2, 0)),
];
/// Pods that are ready before the test changes some.
const READY: [(&str, usize); 2] = [("numbers", 5 + 3 + 2 + 4 + 2 + 4 + 2 + 4 + 3 + 2 + 3), ("whole", 3)];

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Of(allowed, healthy, desired, expected) => {
                write!(f, "{allowed} allowed, {healthy} healthy, {desired} desired, {expected} expected")
            }
            SyncFailed => f.write_str("SyncFailed"),
        }
    }
}

fn manifest(namespace: &str, (name, demand, selector, _): Case) -> String {
    format!(
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  selector: {selector}\n  {demand}\n---\n"
    )
}

/// What the controller wrote.
fn written(budget: &Budget) -> Status {
    if budget.sync_failed.is_some() {
        return SyncFailed;
    }
    let of = |number: i32| i64::from(number);
    Of(
        of(budget.disruptions_allowed),
        of(budget.current_healthy),
        of(budget.desired_healthy),
        of(budget.expected_pods),
    )
}

/// What the core makes of the same objects.
fn computed(cluster: &Cluster, budget: &Budget) -> Result<Numbers, Unsynced> {
    let pods: Vec<&Pod> = cluster.pods_in(&budget.namespace).filter(|pod| budget.selects(pod)).collect();
    compute(budget, &pods, cluster.surroundings(), Timestamp::now())
}

#[test]
fn what_the_core_computes_is_what_the_controller_writes() -> TestResult {
    in_namespace("numbers::what_the_core_computes_is_what_the_controller_writes", async || {
        let scene = Scene::begin(2, "numbers.yaml").await?;
        begin(&scene).await?;
        let mut budgets: String = WHOLE.iter().map(|case| manifest("whole", *case)).collect();
        budgets.extend(CASES.iter().map(|case| manifest("numbers", *case)));
        scene.with_file("budgets.yaml", &budgets, &["apply"]).await?;
        // Of one that it cannot compute it writes no observedGeneration.
        let path = "jsonpath={range .items[*]}{.metadata.name}={.status.conditions[*].type} {end}";
        scene
            .until("the controller has seen every budget", 30, async || {
                let all = scene.kubectl(&["get", "pdb", "-A", "-o", path]).await?;
                Ok(all.split_whitespace().all(|budget| budget.ends_with("=DisruptionAllowed")))
            })
            .await?;

        let survey = Survey::of_cluster(&scene.cluster.client()).await.map_err(Failure::new)?;
        let cluster = survey.cluster();
        let by_name: BTreeMap<&str, &Budget> =
            cluster.budgets().map(|budget| (budget.name.as_ref(), budget)).collect();
        let mut wrong = Vec::new();
        for (name, _, _, known) in CASES.iter().chain(&WHOLE) {
            let budget = by_name.get(name).ok_or_else(|| Failure::new(format!("no budget {name}")))?;
            let ours = match computed(&cluster, budget) {
                Ok(numbers) => Of(numbers.allowed, numbers.healthy, numbers.desired, numbers.expected),
                Err(Unsynced::NoScale { .. }) => SyncFailed,
                Err(why) => return Err(Failure::new(format!("{name}: {why:?}"))),
            };
            let theirs = written(budget);
            println!("{name:<16}{theirs}");
            if theirs != *known || ours != theirs {
                wrong.push(format!("{name}: known {known}; the controller's {theirs}; the core's {ours}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    })
}

/// Every workload runs; then one rolls, one is sick, one is held and one was evicted in vain.
async fn begin(scene: &Scene) -> TestResult {
    let ready = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}"#;
    for (namespace, pods) in READY {
        scene
            .until(&format!("{pods} pods of {namespace} are ready"), 60, async || {
                let all = scene.kubectl(&["get", "pods", "-n", namespace, "-o", ready]).await?;
                Ok(all.split_whitespace().filter(|ready| *ready == "True").count() == pods)
            })
            .await?;
    }
    let first = async |app: &str| {
        let label = format!("app={app}");
        let path = "jsonpath={.items[0].metadata.name}";
        scene.kubectl(&["get", "pods", "-n", "numbers", "-l", &label, "-o", path]).await
    };

    let never = r#"{"spec": {"template": {"metadata": {"annotations":
        {"pod-ready.stage.kwok.x-k8s.io/delay": "1h"}}}}}"#;
    scene.kubectl(&["patch", "deployment", "rolling", "-n", "numbers", "-p", never]).await?;

    let sick = first("sick").await?;
    let unready = r#"{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}"#;
    scene.kubectl(&["patch", "pod", &sick, "-n", "numbers", "--subresource=status", "-p", unready]).await?;

    let held = first("held").await?;
    scene.kubectl(&["delete", "pod", &held, "-n", "numbers", "--wait=false"]).await?;

    let budget = manifest("numbers", ("lost-max-1", LOST.0, LOST.1, SyncFailed));
    scene.with_file("lost.yaml", &budget, &["apply"]).await?;
    let lost = first("lost").await?;
    let eviction = format!(
        r#"{{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {{"namespace": "numbers", "name": "{lost}"}},
        "deleteOptions": {{"preconditions": {{"uid": "of-another"}}}}}}"#
    );
    let path = format!("/api/v1/namespaces/numbers/pods/{lost}/eviction");
    scene
        .until("an eviction is refused for its UID", 20, async || {
            let refused = scene.with_file("eviction.json", &eviction, &["create", "--raw", &path]).await;
            Ok(refused.is_err_and(|error| error.to_string().contains("UID")))
        })
        .await?;

    let counts = async |app: &str, ready: usize, all: usize| {
        let label = format!("app={app}");
        let path = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}|{end}"#;
        let seen = scene.kubectl(&["get", "pods", "-n", "numbers", "-l", &label, "-o", path]).await?;
        let seen: Vec<_> = seen.split_terminator('|').collect();
        Ok::<bool, Failure>(
            seen.len() == all && seen.iter().filter(|status| **status == "True").count() == ready,
        )
    };
    for (app, ready, all) in [("rolling", 3, 5), ("sick", 2, 3)] {
        let what = format!("{ready} of {all} pods of {app} are ready");
        scene.until(&what, 30, async || counts(app, ready, all).await).await?;
    }
    let path = "jsonpath={range .items[*]}{.metadata.name}={.status.phase} {end}";
    scene
        .until("the Job's pod is done and the held one has its successor", 30, async || {
            let done = scene.kubectl(&["get", "pods", "-n", "numbers", "-l", "app=done", "-o", path]).await?;
            let held =
                scene.kubectl(&["get", "pods", "-n", "numbers", "-l", "app=held", "-o", ready]).await?;
            Ok(done.contains("=Succeeded") && held.split_whitespace().count() == 3)
        })
        .await
}
