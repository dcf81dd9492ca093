//! Sixty workers in two pools and three zones, six hundred pods and forty budgets, from one minor or two below the
//! target, while nothing around the upgrade holds still: replicas of the operator are killed and frozen, kube-apiservers
//! are killed, and people cordon, hold, suspend and edit a budget. An observer that shares no code with the operator follows
//! every event.

use std::time::{Duration, Instant};

use evenkeel_devcluster::{Cluster, Failure, NodeGroup, Release, TestResult, V1_35, V1_36, in_namespace};
use evenkeel_testkit::observer::{self, Observer};
use evenkeel_testkit::operator::Operator;
use evenkeel_testkit::scenario::{self, is_ready, kubectl, root, until};
use evenkeel_testkit::standin;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::{beside, binary, field, no_violations, reaches, settled};

/// Workers of each pool, and how many of them the upgrade may make unavailable at once.
const POOLS: [(&str, usize, usize); 2] = [("general", 36, 6), ("memory", 24, 4)];
/// Of a pool, those that the upgrade makes unavailable and the one that a person cordons.
const LIMITS: [(&str, usize); 2] = [("general", 7), ("memory", 5)];
const WORKERS: usize = 60;
const PODS: usize = 600;
const BUDGETS: usize = 40;
/// Pods that never become ready.
const UNREADY: usize = 19 + 3;
/// Budgets that allow nothing until a person mends them: each keeps its pods, one or three, where they are.
const IMPOSSIBLE: [&str; 3] = ["app-36", "app-37", "app-39"];
/// A quiet moment between two troubles.
const PAUSE: Duration = Duration::from_secs(5);
/// So many troubles are met, however slow the machine is that runs the test: each costs the upgrade time.
const TROUBLES: u32 = 27;
/// An upgrade with all its troubles takes six minutes on an idle machine with two cores.
const LIMIT: Duration = Duration::from_mins(20);

#[test]
fn sixty_nodes_go_over_one_minor() -> TestResult {
    in_namespace("sixty::sixty_nodes_go_over_one_minor", async || from(V1_36).await)
}

/// Kubelets skip 1.36: three minors behind a kube-apiserver are allowed.
#[test]
fn sixty_nodes_go_over_two_minors() -> TestResult {
    in_namespace("sixty::sixty_nodes_go_over_two_minors", async || from(V1_35).await)
}

async fn from(release: Release) -> TestResult {
    let mut builder = Cluster::builder().apiservers(&[release, release, release]);
    for (pool, count, _) in POOLS {
        let workers = NodeGroup::workers(count).zones(["a", "b", "c"]).kubelet(release.version()).pool(pool);
        builder = builder.nodes(workers);
    }
    let cluster = builder.start().await?;
    scenario::install(&cluster).await?;
    workloads(&cluster).await?;
    let observer = Observer::with_limits(&LIMITS);
    let extra = ["--lease-duration", "3"];
    let mut operators = [
        Operator::new(&cluster, binary(), &extra).await?,
        Operator::new(&cluster, binary(), &extra).await?.beside(&cluster, "standby").await?,
    ];
    for operator in &mut operators {
        operator.start()?;
    }
    let done =
        beside(&cluster, &observer, async || upgraded(&cluster, release, &observer, &mut operators).await)
            .await;
    if done.is_err() {
        for operator in &operators {
            let log = operator.log();
            let last = log.lines().rev().take(12).collect::<Vec<_>>().into_iter().rev();
            eprintln!("{}:\n{}", operator.identity, last.collect::<Vec<_>>().join("\n"));
        }
        eprintln!("{}", kubectl(&cluster, &["get", "cup", "-o", "wide"]).await.unwrap_or_default());
        eprintln!("{done:?}");
    }
    done
}

async fn upgraded(
    cluster: &Cluster,
    release: Release,
    observer: &Observer,
    operators: &mut [Operator; 2],
) -> TestResult {
    let manifest = std::fs::read_to_string(root("tests/upgrade/sixty.yaml"))
        .map_err(|error| Failure::new(format!("tests/upgrade/sixty.yaml: {error}")))?;
    let via = if release < V1_36 { format!("via: [{}]", V1_36.version()) } else { "via: []".to_owned() };
    let started = Instant::now();
    apply(cluster, "upgrade.yaml", &manifest.replace("via: []", &via)).await?;
    let mut met = 0;
    tokio::select! {
        left = only_impossible_ones_are_left(cluster) => left?,
        failed = troubles(cluster, operators, &mut met) => failed?,
    }
    println!(
        "parked with everything else done after {:.0} s and {met} troubles",
        started.elapsed().as_secs_f64()
    );
    assert!(met >= 12, "only {met} troubles were met on the way");
    calm(cluster, operators).await?;
    settled(cluster).await?;
    let parked = field(cluster, "{range .status.parked[*]}{.node}: {.reason}{\"\\n\"}{end}").await?;
    let nodes: Vec<&str> = parked.lines().filter_map(|line| line.split(':').next()).collect();
    for line in parked.lines() {
        assert!(IMPOSSIBLE.iter().any(|budget| line.contains(&format!("PDB shop/{budget} "))), "{line}");
    }
    // A line names one budget, and two of their pods may be on one node.
    for budget in IMPOSSIBLE {
        let app = format!("app={budget}");
        let path = "jsonpath={.items[*].spec.nodeName}";
        let on = kubectl(cluster, &["-n", "shop", "get", "pods", "-l", &app, "-o", path]).await?;
        assert!(!on.is_empty(), "{budget} has no pod");
        for node in on.split(' ') {
            assert!(nodes.contains(&node), "{budget} does not keep {node}:\n{parked}");
        }
    }
    assert_eq!(observer::at_rest(cluster, &nodes).await?, Vec::<String>::new());

    // A person mends what can never be met.
    for budget in IMPOSSIBLE {
        kubectl(cluster, &["-n", "shop", "delete", "pdb", budget]).await?;
    }
    reaches(cluster, "Completed", Duration::from_mins(6)).await?;
    println!("complete after {:.0} s", started.elapsed().as_secs_f64());
    settled(cluster).await?;
    assert_eq!(observer::at_rest(cluster, &[]).await?, Vec::<String>::new());
    let claims = standin::node_upgrades(cluster.client()).list(&ListParams::default()).await?.items;
    let kubelets = claims.iter().filter(|claim| claim.data["spec"]["component"] == "kubelet");
    for claim in kubelets {
        assert_eq!(
            claim.data["spec"]["fromVersion"],
            release.version(),
            "{} went over 1.36",
            claim.name_any()
        );
    }
    let requests = observer.audit(cluster)?;
    println!("{requests:#?}");
    assert!(requests.leading.changes >= 3, "the lease changed hands {} times", requests.leading.changes);
    // A pod moves once; who was asked by a leader that died is not asked again for nothing.
    assert!(requests.evictions <= PODS * 3 / 2, "{} evictions of {PODS} pods", requests.evictions);
    no_violations(observer);
    Ok(())
}

/// Every node is upgraded but those that a budget keeps for good, or for as long as pods are not ready.
async fn only_impossible_ones_are_left(cluster: &Cluster) -> TestResult {
    let mut told = Instant::now();
    until("every node is upgraded or parked", LIMIT, async || {
        let text = field(
            cluster,
            "{.status.progress.upgraded} {.status.progress.blocked} {.status.progress.inFlight}",
        )
        .await?;
        let counts: Vec<usize> = text.split(' ').filter_map(|count| count.parse().ok()).collect();
        let [upgraded, parked, in_flight] = counts[..] else {
            return Err(Failure::new(format!("the progress is {text:?}")));
        };
        if told.elapsed() > Duration::from_mins(1) {
            told = Instant::now();
            println!("{upgraded} nodes are upgraded, {parked} parked");
        }
        Ok(upgraded + parked == WORKERS + 3 && parked <= 5 && in_flight == 0)
    })
    .await
}

/// One trouble after the other, each of another kind, and then none, until the future is dropped. `met` counts them.
async fn troubles(cluster: &Cluster, operators: &mut [Operator; 2], met: &mut u32) -> TestResult {
    while *met < TROUBLES {
        tokio::time::sleep(PAUSE).await;
        let round = *met / 9;
        match *met % 9 {
            // Whoever leads is killed, so that the other takes over, and comes back as the standby.
            0 | 4 => {
                let leader = leader(cluster, operators).await?;
                leader.kill().await?;
                leader.start()?;
            }
            // Whoever leads stands still for longer than the lease lasts, and wakes while the other leads.
            1 => {
                let leader = leader(cluster, operators).await?;
                leader.pause().await?;
                tokio::time::sleep(Duration::from_secs(5)).await;
                leader.resume().await?;
            }
            // One after the other.
            2 | 6 => {
                let server = round + u32::from(*met % 9 == 6);
                cluster.apiserver(usize::try_from(server % 3).unwrap_or_default()).kill().await?;
            }
            3 => {
                for operator in &mut *operators {
                    operator.kill().await?;
                }
                tokio::time::sleep(Duration::from_secs(2)).await;
                for operator in &mut *operators {
                    operator.start()?;
                }
            }
            5 => {
                person(cluster, &["cordon", "general-30"]).await;
                person(cluster, &["annotate", "node", "memory-20", "evenkeel.dev/hold=on-call"]).await;
                tokio::time::sleep(PAUSE).await;
                release(cluster).await;
            }
            7 => {
                suspend(cluster, true).await;
                tokio::time::sleep(PAUSE).await;
                suspend(cluster, false).await;
            }
            _ => {
                person(cluster, &["-n", "shop", "patch", "pdb", "app-0", "--type=merge", "-p", LOOSER]).await;
            }
        }
        *met += 1;
    }
    std::future::pending().await
}

/// The trouble that was under way when the upgrade was as far as it could get is over.
async fn calm(cluster: &Cluster, operators: &mut [Operator; 2]) -> TestResult {
    for operator in operators {
        if operator.runs() {
            operator.resume().await?;
        } else {
            operator.start()?;
        }
    }
    release(cluster).await;
    suspend(cluster, false).await;
    Ok(())
}

/// The person who cordoned one node and held another lets both go.
async fn release(cluster: &Cluster) {
    person(cluster, &["uncordon", "general-30"]).await;
    person(cluster, &["annotate", "node", "memory-20", "evenkeel.dev/hold-"]).await;
}

const LOOSER: &str = r#"{"spec":{"maxUnavailable":"40%"}}"#;

/// What a person does until it is done: also for people kube-apiservers come and go.
async fn person(cluster: &Cluster, args: &[&str]) {
    for _ in 0..20 {
        match kubectl(cluster, args).await {
            Ok(_) => return,
            Err(failure) => println!("{failure:?}"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn suspend(cluster: &Cluster, suspend: bool) {
    let patch = format!(r#"{{"spec":{{"suspend":{suspend}}}}}"#);
    person(cluster, &["patch", "clusterupgrade", "to-137", "--type=merge", "-p", &patch]).await;
}

/// The operator that leads, as soon as one does.
async fn leader<'o>(
    cluster: &Cluster,
    operators: &'o mut [Operator; 2],
) -> Result<&'o mut Operator, Failure> {
    let lease = ["-n", "kube-system", "get", "lease", "evenkeel", "-o", "jsonpath={.spec.holderIdentity}"];
    let mut leads = None;
    until("an operator leads", Duration::from_mins(1), async || {
        let holder = kubectl(cluster, &lease).await.unwrap_or_default();
        // Its name, and a word that changes with each start.
        let name = holder.rsplit_once('_').map(|(name, _)| name.to_owned());
        leads = operators.iter().position(|operator| name.as_deref() == Some(operator.identity));
        Ok(leads.is_some())
    })
    .await?;
    leads.and_then(|at| operators.get_mut(at)).ok_or_else(|| Failure::new("nobody leads"))
}

async fn apply(cluster: &Cluster, name: &str, manifest: &str) -> TestResult {
    let file = cluster.logs().join(name);
    std::fs::write(&file, manifest).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    Ok(cluster.apply(file).await?)
}

/// Makes the workloads, and waits until those that can be ready are, and every budget is computed.
async fn workloads(cluster: &Cluster) -> TestResult {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let items: Vec<Value> = [namespace].into_iter().chain((0..BUDGETS).flat_map(app)).collect();
    let all = json!({"apiVersion": "v1", "kind": "List", "items": items});
    apply(cluster, "workloads.json", &all.to_string()).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client(), "shop");
    let nodes: Api<Node> = Api::all(cluster.client());
    until("every pod runs and every budget is computed", Duration::from_mins(4), async || {
        let pods = pods.list(&ListParams::default()).await?.items;
        let budgets = budgets.list(&ListParams::default()).await?.items;
        let computed = budgets.iter().filter_map(|budget| {
            let status = budget.status.as_ref()?;
            let unready = status.current_healthy.unwrap_or_default() == 0;
            Some(unready || status.current_healthy == status.expected_pods)
        });
        let workers = nodes.list(&ListParams::default()).await?.items.len() - 3;
        let scheduled =
            pods.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
        assert_eq!(workers, WORKERS);
        Ok(scheduled.count() == PODS
            && pods.iter().filter(|pod| is_ready(pod)).count() == PODS - UNREADY
            && computed.filter(|whole| *whole).count() == BUDGETS)
    })
    .await
}

/// Workload number `number`, and its budget.
fn app(number: usize) -> [Value; 2] {
    let name = format!("app-{number}");
    // Two of one pod that must stay, two that never become ready, and all others of sixteen pods: 600.
    let (replicas, ready, mut budget) = match number {
        36 | 37 => (1, "1s", json!({"minAvailable": 1})),
        38 => (19, "never", json!({"minAvailable": "50%", "unhealthyPodEvictionPolicy": "AlwaysAllow"})),
        39 => (3, "never", json!({"minAvailable": "50%"})),
        _ => match number % 4 {
            0 => (16, "1s", json!({"maxUnavailable": "20%"})),
            1 => (16, "1s", json!({"minAvailable": "70%"})),
            2 => (16, "2s", json!({"maxUnavailable": 1})),
            _ => (16, "1s", json!({"minAvailable": 12})),
        },
    };
    let labels = json!({"app": name});
    let ready = match ready {
        "never" => json!({"devcluster/unready": "true"}),
        delay => json!({"pod-ready.stage.kwok.x-k8s.io/delay": delay}),
    };
    budget["selector"] = json!({"matchLabels": labels});
    let container =
        json!({"name": "app", "image": "example.test/app:1", "resources": {"requests": {"cpu": "100m"}}});
    let workload = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels, "annotations": ready},
            "spec": {"containers": [container]},
        }},
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"}, "spec": budget,
    });
    [workload, budget]
}
