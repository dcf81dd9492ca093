//! A whole upgrade on a real control plane: seen before, brought even, and never a budget violated on the way.

mod forced;
mod golden;
mod sixty;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Cluster, Failure, NodeGroup, TestResult, V1_36, V1_37, in_namespace};
use kube::api::ListParams;
use serde_json::{Value, json};

use evenkeel_testkit::observer::{self, Observer};
use evenkeel_testkit::operator::{self, Operator};
use evenkeel_testkit::scenario::{self, MOVABLE, OPERATOR_USER, kubectl, root, until};
use evenkeel_testkit::standin;
use evenkeel_testkit::working::idle_evictions;

/// The program that is tested.
fn binary() -> PathBuf {
    evenkeel_testkit::binary(env!("CARGO_BIN_EXE_evenkeel"))
}

/// Runs `body` with an executor and an observer beside it.
async fn beside(
    cluster: &Cluster,
    observer: &Observer,
    body: impl AsyncFnOnce() -> TestResult,
) -> TestResult {
    tokio::select! {
        done = body() => done,
        failed = standin::work(cluster) => failed,
        failed = observer.watch(cluster) => failed,
    }
}

/// `kubectl get` of one field of the upgrade.
async fn field(cluster: &Cluster, path: &str) -> Result<String, Failure> {
    kubectl(cluster, &["get", "clusterupgrade", "to-137", "-o", &format!("jsonpath={path}")]).await
}

async fn reaches(cluster: &Cluster, reason: &str, limit: Duration) -> TestResult {
    let ready = "{.status.conditions[?(@.type=='Ready')].reason}";
    let reached =
        until(
            &format!("the upgrade is {reason}"),
            limit,
            async || Ok(field(cluster, ready).await? == reason),
        )
        .await;
    if reached.is_err() {
        eprintln!("{}", kubectl(cluster, &["get", "cup,nup,nodes", "-o", "wide"]).await.unwrap_or_default());
        eprintln!("{}", kubectl(cluster, &["get", "cup", "-o", "yaml"]).await.unwrap_or_default());
    }
    reached
}

fn no_violations(observer: &Observer) {
    let seen = observer.seen();
    assert!(seen.events > 500, "the observer saw only {} events", seen.events);
    assert!(!seen.evicted.is_empty(), "the observer saw no eviction");
    assert_eq!(seen.violations, Vec::<String>::new());
}

#[test]
fn a_cluster_is_brought_even() -> TestResult {
    in_namespace("a_cluster_is_brought_even", async || {
        let cluster = scenario::prepared().await?;
        let observer = Observer::default();
        let mut operator = Operator::new(&cluster, binary(), &[]).await?;
        operator.start()?;
        let done =
            beside(&cluster, &observer, async || brought_even(&cluster, &observer, &mut operator).await)
                .await;
        if done.is_err() {
            eprintln!("{}", operator.log());
        }
        done
    })
}

async fn brought_even(cluster: &Cluster, observer: &Observer, operator: &mut Operator) -> TestResult {
    let supported = ["wait", "--for=condition=SkewSupported", "clusterskewreport/cluster", "--timeout=30s"];
    until("the report is there", Duration::from_secs(30), async || {
        Ok(kubectl(cluster, &supported).await.is_ok())
    })
    .await?;
    golden::check("before", &kubectl(cluster, &["get", "clusterskewreport"]).await?)?;

    let started = Instant::now();
    cluster.apply(root("tests/upgrade/upgrade.yaml")).await?;
    until("an apiserver is upgraded and another is not", Duration::from_mins(1), async || {
        let server = kubectl(cluster, &["get", "skew", "cluster", "-o", "jsonpath={.status.server}"]).await?;
        Ok(server == "v1.36.4..v1.37.1")
    })
    .await?;
    golden::check("control-plane-mixed", &kubectl(cluster, &["get", "clusterskewreport"]).await?)?;

    reaches(cluster, "NodesParked", Duration::from_mins(6)).await?;
    println!("parked with everything else done after {:.0} s", started.elapsed().as_secs_f64());
    settled(cluster).await?;
    golden::check("parked", &kubectl(cluster, &["get", "clusterskewreport,cup,nup"]).await?)?;
    let reason = field(cluster, "{.status.parked[*].reason}").await?;
    assert!(
        reason
            .contains("PDB shop/ledger can never allow an eviction: it needs 1 healthy of 1 (1 healthy now)"),
        "{reason}"
    );
    assert_eq!(observer::at_rest(cluster, &["general-5"]).await?, Vec::<String>::new());

    // A person mends the budget: the parked node is taken up again by itself.
    kubectl(
        cluster,
        &["-n", "shop", "patch", "pdb", "ledger", "--type=merge", "-p", r#"{"spec":{"minAvailable":0}}"#],
    )
    .await?;
    reaches(cluster, "Completed", Duration::from_mins(4)).await?;
    println!("complete after {:.0} s", started.elapsed().as_secs_f64());
    settled(cluster).await?;
    golden::check("after", &kubectl(cluster, &["get", "clusterskewreport,cup,nup"]).await?)?;
    assert_eq!(observer::at_rest(cluster, &[]).await?, Vec::<String>::new());
    kubectl(cluster, &["wait", "--for=condition=Ready", "clusterupgrade/to-137", "--timeout=5s"]).await?;

    let metrics = operator::page("/metrics").await?;
    for line in ["evenkeel_leader 1", r#"evenkeel_upgrade_nodes{state="Upgraded",upgrade="to-137"} 15"#] {
        assert!(metrics.contains(line), "no {line} in\n{metrics}");
    }
    assert!(operator::page("/healthz").await?.starts_with("HTTP/1.1 200"));
    assert!(operator::page("/readyz").await?.starts_with("HTTP/1.1 200"));

    let ended = operator.stop().await?;
    assert!(ended.success(), "SIGTERM ended it with {ended}");
    let holder = ["-n", "kube-system", "get", "lease", "evenkeel", "-o", "jsonpath={.spec.holderIdentity}"];
    assert_eq!(kubectl(cluster, &holder).await?, "", "the lease was handed over");

    no_violations(observer);
    let requests = observer.audit(cluster)?;
    println!("{requests:#?}");
    let nodes = scenario::WORKERS + 3;
    // A node takes a claim, a cordon, three states and an uncordon, besides its evictions, and each control-plane
    // component a claim and two states. What lost a race apart. The node that could not be emptied was not touched.
    // On a slow machine a node may take longer than it is given, and is parked and tried again. One whose time ends while a
    // control-plane node gets its static pods back is given back, and claimed anew.
    let given_back = requests.of("delete nodeupgrades");
    let again = tried_again(cluster).await? + given_back;
    assert!(again <= nodes / 2, "{again} drains of {nodes} nodes were tried again");
    let patches = requests.of("patch nodes") - requests.lost_of("patch nodes");
    // A cordon and an uncordon each time. Whoever waits gets its taint by a write of its own; it goes with the uncordon.
    let cordons = 2 * nodes..=2 * (nodes + again) + nodes;
    assert!(cordons.contains(&patches), "{patches} patches of {nodes} nodes, {again} of them tried again");
    assert_eq!(requests.of("create nodeupgrades"), nodes + 5 + given_back, "claims");
    let states = requests.of("patch nodeupgrades/status") - requests.lost_of("patch nodeupgrades/status");
    assert!(states <= 3 * (nodes + again) + 2 * 5 + 6, "{states} states of claims");
    let reads = requests.of("get nodes") + requests.of("list pods");
    // Before a node's executor begins, and before its drain is given up.
    assert!(reads <= 2 * (nodes + 2 + 2 * again), "{reads} reads for {nodes} nodes");
    assert!(requests.evictions <= MOVABLE * 2, "{} evictions of {MOVABLE} pods", requests.evictions);
    assert!(requests.refused <= requests.evictions / 10, "{} evictions were refused", requests.refused);
    // Here a controller renews its lease every second.
    let idle = idle_evictions(&cluster.audit_log()?, OPERATOR_USER, Duration::from_secs(6));
    assert_eq!(idle, Vec::<String>::new());
    assert_eq!(observer.seen().waited, Vec::<String>::new());
    no_violations(observer);
    Ok(())
}

/// How many attempts at a node were not the first.
async fn tried_again(cluster: &Cluster) -> Result<usize, Failure> {
    let claims = standin::node_upgrades(cluster.client()).list(&ListParams::default()).await?.items;
    let attempts = claims.iter().filter_map(|claim| claim.data["status"]["attempt"].as_u64());
    Ok(attempts.filter_map(|attempt| usize::try_from(attempt.saturating_sub(1)).ok()).sum())
}

/// Nothing is in flight, and the report has caught up.
async fn settled(cluster: &Cluster) -> TestResult {
    until("nothing is in flight", Duration::from_secs(30), async || {
        Ok(field(cluster, "{.status.progress.inFlight}").await? == "0")
    })
    .await?;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    Ok(())
}

/// Runs `body` on one kube-apiserver and five workers with the workloads, beside an operator that may not end.
async fn on_five_workers(body: impl AsyncFnOnce(&Cluster, &Observer) -> TestResult) -> TestResult {
    let workers = NodeGroup::workers(5).zones(["a", "b", "c"]).kubelet(scenario::FROM).pool("general");
    let cluster = Cluster::builder().apiservers(&[V1_36]).nodes(workers).start().await?;
    scenario::install(&cluster).await?;
    scenario::workloads(&cluster, 5).await?;
    let observer = Observer::default();
    let mut operator = Operator::new(&cluster, binary(), &[]).await?;
    operator.start()?;
    let done = operator.during(beside(&cluster, &observer, async || body(&cluster, &observer).await)).await;
    if done.is_err() {
        eprintln!("{}", operator.log());
    }
    done
}

#[test]
fn people_are_respected() -> TestResult {
    in_namespace("people_are_respected", async || on_five_workers(respected).await)
}

async fn patch(cluster: &Cluster, spec: &str) -> TestResult {
    let patch = format!(r#"{{"spec":{spec}}}"#);
    kubectl(cluster, &["patch", "clusterupgrade", "to-137", "--type=merge", "-p", &patch]).await?;
    Ok(())
}

async fn nodes_with(cluster: &Cluster, path: &str) -> Result<String, Failure> {
    kubectl(
        cluster,
        &["get", "nodes", "-o", &format!("jsonpath={{range .items[{path}]}}{{.metadata.name}} {{end}}")],
    )
    .await
}

async fn respected(cluster: &Cluster, observer: &Observer) -> TestResult {
    kubectl(cluster, &["cordon", "general-2"]).await?;
    kubectl(cluster, &["annotate", "node", "general-3", "evenkeel.dev/hold=on-call"]).await?;
    cluster.apply(root("tests/upgrade/upgrade.yaml")).await?;

    // An approval is bound to the plan that was seen.
    patch(
        cluster,
        r#"{"mode":"RequireApproval","approval":{"planHash":"00000000000000000000000000000000"}}"#,
    )
    .await?;
    kubectl(cluster, &["delete", "nodeupgrades", "--all"]).await?;
    reaches(cluster, "AwaitingApproval", Duration::from_secs(40)).await?;
    let hash = field(cluster, "{.status.plan.hash}").await?;
    patch(cluster, &format!(r#"{{"approval":{{"planHash":"{hash}"}}}}"#)).await?;

    // Suspended while nodes drain: they are given back and nothing new begins.
    let claims = standin::node_upgrades(cluster.client());
    let states = async || -> Result<Vec<String>, Failure> {
        let claims = claims.list(&ListParams::default()).await?.items;
        let kubelets = claims.iter().filter(|claim| claim.data["spec"]["component"] == "kubelet");
        Ok(kubelets
            .map(|claim| claim.data["status"]["state"].as_str().unwrap_or_default().to_owned())
            .collect())
    };
    until("a node drains", Duration::from_mins(2), async || {
        Ok(states().await?.iter().any(|s| s == "Draining"))
    })
    .await?;
    patch(cluster, r#"{"suspend":true}"#).await?;
    reaches(cluster, "Suspended", Duration::from_secs(20)).await?;
    until("nothing is in flight", Duration::from_secs(30), async || {
        Ok(states()
            .await?
            .iter()
            .all(|state| !["", "Claimed", "Draining", "Upgrading"].contains(&state.as_str())))
    })
    .await?;
    assert_eq!(
        nodes_with(cluster, "?(@.spec.unschedulable==true)").await?,
        "general-2 ",
        "only the person's cordon is left"
    );
    let before = states().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(states().await?, before, "nothing happens while it is suspended");
    let paused = field(cluster, "{.status.conditions[?(@.type=='Paused')].status}").await?;
    assert_eq!(paused, "True");

    patch(cluster, r#"{"suspend":false}"#).await?;
    kubectl(cluster, &["-n", "shop", "delete", "pdb", "ledger"]).await?;
    reaches(cluster, "NodesHeld", Duration::from_mins(3)).await?;
    let held = field(cluster, "{range .status.parked[*]}{.node}: {.reason};{end}").await?;
    assert_eq!(
        held,
        "general-2: cordoned by someone else; uncordon it to let it take part;\
         general-3: held by annotation evenkeel.dev/hold; remove it when the node may move;"
    );
    assert_eq!(nodes_with(cluster, "?(@.spec.unschedulable==true)").await?, "general-2 ");
    assert_eq!(field(cluster, "{.status.progress.summary}").await?, "4/6");

    kubectl(cluster, &["uncordon", "general-2"]).await?;
    kubectl(cluster, &["annotate", "node", "general-3", "evenkeel.dev/hold-"]).await?;
    reaches(cluster, "Completed", Duration::from_mins(4)).await?;
    settled(cluster).await?;
    assert_eq!(observer::at_rest(cluster, &[]).await?, Vec::<String>::new());

    // Deleted with everything it made; no node keeps a mark.
    kubectl(cluster, &["delete", "clusterupgrade", "to-137"]).await?;
    until("its claims are gone", Duration::from_secs(40), async || Ok(states().await?.is_empty())).await?;
    observer.audit(cluster)?;
    no_violations(observer);
    removed(cluster).await
}

/// Removes Evenkeel as docs/operations.md says, after which nothing of it is left.
async fn removed(cluster: &Cluster) -> TestResult {
    kubectl(cluster, &["delete", "nup", "--all"]).await?;
    for folder in ["config/force", "config/upgrade"] {
        let folder = root(folder).display().to_string();
        kubectl(cluster, &["delete", "--ignore-not-found", "--timeout=60s", "-k", &folder]).await?;
    }
    kubectl(cluster, &["-n", "kube-system", "delete", "lease", "evenkeel"]).await?;
    let kinds = "customresourcedefinitions,namespaces,clusterroles,clusterrolebindings,roles,rolebindings,leases,\
                 serviceaccounts,deployments,networkpolicies,poddisruptionbudgets,configmaps,resourcequotas,\
                 validatingadmissionpolicies,validatingadmissionpolicybindings";
    let all = kubectl(cluster, &["get", kinds, "-A", "-o", "name"]).await?;
    assert!(
        all.contains("namespace/shop") && all.contains("clusterrole.rbac.authorization.k8s.io/view"),
        "{all}"
    );
    let left: Vec<&str> = all.lines().filter(|name| name.contains("evenkeel")).collect();
    assert_eq!(left, Vec::<&str>::new());
    let nodes = kubectl(cluster, &["get", "nodes", "-o", "yaml"]).await?;
    assert!(!nodes.contains("evenkeel.dev"), "{nodes}");
    Ok(())
}

/// A claim of nobody's that says "Upgraded".
async fn forged(cluster: &Cluster, component: &str, node: &str) -> TestResult {
    let name = format!("forged-{component}-{node}");
    let claim = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "NodeUpgrade", "metadata": {"name": name},
        "spec": {
            "upgradeName": "nobody", "component": component, "nodeName": node,
            "fromVersion": scenario::FROM, "toVersion": scenario::TO, "executor": "machines",
        },
    });
    apply(cluster, &format!("{name}.json"), &claim).await?;
    let status = r#"{"status":{"state":"Upgraded"}}"#;
    kubectl(cluster, &["patch", "nodeupgrade", &name, "--subresource=status", "--type=merge", "-p", status])
        .await
        .map(drop)
}

/// A Job of a claim, whose pod nobody starts.
async fn job_that_runs(cluster: &Cluster) -> TestResult {
    let container = json!({"name": "work", "image": "example.test/work:1"});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "works", "namespace": "evenkeel-executors",
            "labels": {"evenkeel.dev/node-upgrade": "uid-of-claim"},
        },
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "schedulerName": "none", "containers": [container],
        }}},
    });
    // The policy that lets nobody but the operator make Jobs there.
    kubectl(cluster, &["delete", "validatingadmissionpolicybindings", "--all"]).await?;
    until("the Job is made", Duration::from_secs(30), async || {
        Ok(apply(cluster, "job.json", &job).await.is_ok())
    })
    .await?;
    let active = ["-n", "evenkeel-executors", "get", "job", "works", "-o", "jsonpath={.status.active}"];
    until("the Job is active", Duration::from_secs(20), async || Ok(kubectl(cluster, &active).await? == "1"))
        .await
}

async fn apply(cluster: &Cluster, name: &str, manifest: &Value) -> TestResult {
    let file = cluster.logs().join(name);
    std::fs::write(&file, manifest.to_string())
        .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    Ok(cluster.apply(file).await?)
}

#[test]
fn the_observer_sees_what_is_wrong() -> TestResult {
    in_namespace("the_observer_sees_what_is_wrong", async || {
        let cluster = scenario::prepared().await?;
        let observer = Observer::default();
        beside(&cluster, &observer, async || {
            until(
                "the observer has seen every node and a budget that is whole",
                Duration::from_mins(1),
                async || {
                    let seen = observer.seen();
                    Ok(seen.events > 100 && seen.is_whole("shop/ledger"))
                },
            )
            .await?;
            assert_eq!(observer.seen().violations, Vec::<String>::new());
            let expect = async |what: &str| {
                until(what, Duration::from_secs(20), async || {
                    Ok(observer.seen().violations.iter().any(|line| line.contains(what)))
                })
                .await
            };
            kubectl(&cluster, &["-n", "shop", "delete", "pod", "--wait=false", "-l", "app=ledger"]).await?;
            expect("was deleted without an eviction").await?;
            expect("PDB shop/ledger is violated").await?;
            cluster.restart_kubelet("general-1", scenario::TO).await?;
            expect("kubelet on general-1 is v1.37.1 while").await?;
            kubectl(&cluster, &["cordon", "general-1", "general-2", "general-3", "general-4", "general-7"])
                .await?;
            expect("5 workers of pool general are unavailable").await?;
            kubectl(&cluster, &["cordon", "cp-1", "cp-2"]).await?;
            expect("2 control-plane nodes are unavailable").await?;
            // It will not lead: a scheduler that is newer than its apiservers waits for APIs that they do not have.
            let scheduler = cluster.scheduler(0);
            tokio::select! {
                seen = expect("kube-scheduler is v1.37.1 while kube-apiserver-cp-1 is not") => seen?,
                done = scheduler.swap(V1_37) => return Err(Failure::new(format!("nobody saw {done:?}"))),
            }
            kubectl(&cluster, &["annotate", "node", "general-6", "evenkeel.dev/cordoned-by=nobody/x"])
                .await?;
            expect("which does not exist").await?;
            forged(&cluster, "kube-apiserver", "cp-2").await?;
            expect("kube-apiserver-cp-2 is called upgraded to v1.37.1: v1.36.4").await?;
            forged(&cluster, "kubelet", "general-8").await?;
            expect("general-8 is called upgraded: v1.36.4").await?;
            job_that_runs(&cluster).await?;
            kubectl(
                &cluster,
                &["annotate", "node", "general-7", "evenkeel.dev/cordoned-by=nobody/uid-of-claim"],
            )
            .await?;
            kubectl(&cluster, &["uncordon", "general-7"]).await?;
            expect("general-7 was given back by nobody while Job works ran").await?;
            Ok(())
        })
        .await
    })
}
