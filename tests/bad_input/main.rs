//! What is wrong is said in one clear line, changes nothing, and stops nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod gates;
mod whole;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_devcluster::{Cluster, Failure, NodeGroup, TestResult, V1_36, in_namespace};
use evenkeel_testkit::operator::{self, Operator};
use evenkeel_testkit::scenario::{self, kubectl, root, until};

/// The program that is tested.
fn binary() -> PathBuf {
    evenkeel_testkit::binary(env!("CARGO_BIN_EXE_evenkeel"))
}

/// Runs the binary to its end: exit code and standard error, which must be one line.
fn fails(args: &[&str], kubeconfig: Option<&Path>) -> (Option<i32>, String) {
    let mut command = Command::new(binary());
    command
        .args(args)
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .env_remove("KUBERNETES_SERVICE_HOST");
    if let Some(path) = kubeconfig {
        command.arg("--kubeconfig").arg(path);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = said.lines().filter(|line| !line.starts_with('{')).collect();
    assert_eq!(errors.len(), 1, "one line, not {said}");
    assert!(output.stdout.is_empty(), "nothing on standard output");
    (output.status.code(), errors[0].to_owned())
}

/// Runs the operator until it says why it waits: alive, not ready, and the same once in its log.
fn waits(kubeconfig: &Path, parts: &[&str]) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    let mut command = Command::new(binary());
    command.args(["operator", "--listen", &listen]).arg("--kubeconfig").arg(kubeconfig);
    let mut child = command.env_remove("KUBECONFIG").stderr(Stdio::piped()).spawn().unwrap();
    let page = |path: &str| {
        let mut connection = std::net::TcpStream::connect(&listen)?;
        write!(connection, "GET {path} HTTP/1.1\r\nHost: evenkeel\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).map(|_| answer)
    };
    let says = |answer: &str| parts.iter().all(|part| answer.contains(part));
    let (begun, mut answer) = (Instant::now(), String::new());
    while !says(&answer) && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(100));
        answer = page("/readyz").unwrap_or_default();
    }
    let alive = page("/healthz").unwrap_or_default();
    // Long enough to try again.
    std::thread::sleep(Duration::from_secs(3));
    let runs = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    let log = String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned();
    assert!(runs, "it waits: {log}");
    assert!(answer.starts_with("HTTP/1.1 503") && says(&answer), "{answer}\n{log}");
    assert!(alive.starts_with("HTTP/1.1 200"), "{alive}");
    // The watches say so too, each for itself.
    let waits = log.lines().filter(|line| line.contains("waits, and tries again"));
    assert_eq!(waits.filter(|line| says(line)).count(), 1, "it is said once: {log}");
}

#[test]
fn without_a_cluster() {
    let dir = std::env::temp_dir().join(format!("evenkeel-bad-input-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let broken = dir.join("broken");
    std::fs::write(&broken, "clusters: [").unwrap();
    let nobody = dir.join("nobody");
    // Port 1 of the loopback address: nobody listens there.
    let config = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], \
        clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: u, user: {}}]}";
    std::fs::write(&nobody, config).unwrap();
    for command in ["report", "operator"] {
        let check = |kubeconfig: Option<&Path>, parts: &[&str]| {
            let (code, line) = fails(&[command], kubeconfig);
            assert_eq!(code, Some(1), "{line}");
            assert!(parts.iter().all(|part| line.contains(part)), "{command}: {line}");
        };
        check(None, &["error: no cluster is configured; set KUBECONFIG, use --kubeconfig, or"]);
        check(Some(&dir.join("missing")), &["--kubeconfig", "no such file"]);
        check(Some(&broken), &["kubeconfig", "cannot be read"]);
        if command == "report" {
            check(Some(&nobody), &["Connection refused"]);
        }
    }
    waits(&nobody, &["cannot list clusterskewreports", "Connection refused"]);
    let usage = Command::new(binary()).arg("rapport").output().unwrap();
    assert_eq!(usage.status.code(), Some(64));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn on_a_cluster() -> TestResult {
    in_namespace("on_a_cluster", async || {
        let cluster = Cluster::builder()
            .apiservers(&[V1_36])
            .nodes(NodeGroup::workers(2).kubelet(scenario::FROM))
            .start()
            .await?;
        let missing = [
            "clusterskewreports.evenkeel.dev is not installed",
            "install it with kubectl apply -k config/crd",
        ];
        waits(cluster.kubeconfig(), &missing);

        cluster.apply(root("config/default")).await?;
        scenario::install(&cluster).await?;
        cluster.apply(root("config/samples")).await?;
        kubectl(&cluster, &["delete", "-f", &root("config/samples").display().to_string()]).await?;

        let stranger = cluster.service_account_kubeconfig("default", "default").await?;
        waits(&stranger, &["cannot list clusterskewreports", "forbidden"]);
        let (code, line) = fails(&["report"], Some(&stranger));
        assert_eq!(code, Some(1));
        assert!(line.contains("nodes") && line.contains("forbidden"), "{line}");

        credentials_and_rights(&cluster).await?;
        schema_refuses(&cluster).await?;
        let mut operator = Operator::new(&cluster, binary(), &[]).await?;
        operator.start()?;
        let told = match operator.during(outlives_its_apiserver(&cluster)).await {
            Ok(()) => told_by_the_operator(&cluster, &mut operator).await,
            failed => failed,
        };
        if told.is_err() {
            eprintln!("{}", operator.log());
        }
        told
    })
}

const SPEC: &str = r#""mode":"Automatic","controlPlane":{"executor":"x"}"#;

async fn create(cluster: &Cluster, name: &str, spec: &str) -> Result<String, Failure> {
    create_of(cluster, "ClusterUpgrade", name, spec).await
}

async fn create_of(cluster: &Cluster, kind: &str, name: &str, spec: &str) -> Result<String, Failure> {
    let path = cluster.logs().join(format!("{name}.json"));
    let object = format!(
        r#"{{"apiVersion":"evenkeel.dev/v1alpha1","kind":"{kind}","metadata":{{"name":"{name}"}},"spec":{{{spec}}}}}"#
    );
    std::fs::write(&path, object).map_err(|error| Failure::new(error.to_string()))?;
    kubectl(cluster, &["create", "-f", &path.display().to_string()]).await
}

/// A token that has ended; and a person who may read some of the cluster, and is told what of it.
async fn credentials_and_rights(cluster: &Cluster) -> TestResult {
    let expired = cluster.expired_kubeconfig("default", "default").await?;
    let says = ["Unauthorized (HTTP 401)", "has the token or the certificate expired?"];
    let (code, line) = fails(&["report"], Some(&expired));
    assert_eq!(code, Some(1));
    assert!(says.iter().all(|part| line.contains(part)), "{line}");
    waits(&expired, &says);

    let stranger = cluster.service_account_kubeconfig("default", "default").await?;
    let reader = ["create", "clusterrole", "reads-nodes", "--verb=list,watch", "--resource=nodes"];
    kubectl(cluster, &reader).await?;
    let bind = ["create", "clusterrolebinding", "reads-nodes", "--clusterrole=reads-nodes"];
    kubectl(cluster, &[&bind[..], &["--serviceaccount=default:default"]].concat()).await?;
    until("it may read the nodes", Duration::from_secs(10), async || {
        let (code, text) = reports(&stranger);
        let lines = [
            "UNKNOWN, incomplete",
            "kubelet",
            "NOT SEEN",
            "EndpointSlice: grant the verbs list and watch on endpointslices.discovery.k8s.io",
            "Pod: grant the verbs list and watch on pods",
        ];
        match lines.iter().find(|line| !text.contains(**line)) {
            None => Ok(code == Some(0)),
            Some(line) => Err(Failure::new(format!("exit code {code:?}; {line:?} is not in\n{text}"))),
        }
    })
    .await
}

/// What `evenkeel report` prints.
fn reports(kubeconfig: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(binary());
    let output = command.arg("report").arg("--kubeconfig").arg(kubeconfig).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What is wrong in a ClusterUpgrade, each with what the server says of it.
fn wrong() -> Vec<(String, &'static str)> {
    let order = "`until` must be after `from`, where a last day counts to its end";
    let amount = "must be a number from 1 to 5000, or a percentage from `1%` to `100%`";
    vec![
        (
            format!(r#""version":"1.37",{SPEC}"#),
            "spec.version: Invalid value: \"1.37\": must be a version such as `v1.37.1` or `v1.37.1+k3s1`, or `v1.37` where any \
             release of it will do",
        ),
        (group(r#""executor":"""#), "spec.nodeGroups[0].executor in body should be at least 1 chars long"),
        (
            group(r#""executor":"x","dependsOn":["g"]"#),
            "`dependsOn` must name other groups; take the name of the group itself out",
        ),
        (group(r#""executor":"x","maxUnavailable":0"#), amount),
        (group(r#""executor":"x","maxUnavailable":"0%""#), amount),
        (
            group(r#""executor":"x","canary":-1"#),
            "must be from 0 to 5000 nodes; with 0 no node of the group goes first",
        ),
        (
            group(r#""executor":"x","soakSeconds":604801"#),
            "must be from 0 to 604800 seconds (at most a week)",
        ),
        (
            with(r#""drain":{"timeoutSeconds":9}"#),
            "must be from 10 to 604800 seconds (ten seconds to a week)",
        ),
        (
            with(r#""windows":[{"name":"w","start":"22:00","durationSeconds":0}]"#),
            "spec.windows[0].durationSeconds: Invalid value: 0: must be from 60 to 604800 seconds (a minute to a week)",
        ),
        (freeze("2026-12-18", "2026-12-17"), order),
        (freeze("2026-12-18T18:00", "2026-12-18T18:00"), order),
        (freeze("2026-12-18T18:00:00Z", "2026-12-18T17:59:59Z"), order),
        (
            with(r#""approval":{"planHash":"3f9c0e1b7a42"}"#),
            "must be the 32 characters of `status.plan.hash`",
        ),
    ]
}

/// Which nodes take part, with `more` of them said besides.
fn group(more: &str) -> String {
    with(&format!(r#""nodeGroups":[{{"name":"g","selector":{{}},{more}}}]"#))
}

/// An upgrade of which `more` is said besides.
fn with(more: &str) -> String {
    format!(r#""version":"v1.37.1",{SPEC},{more}"#)
}

fn freeze(from: &str, until: &str) -> String {
    with(&format!(r#""freezes":[{{"name":"f","from":"{from}","until":"{until}"}}]"#))
}

/// The schema refuses what can be seen to be wrong, and says what is allowed.
async fn schema_refuses(cluster: &Cluster) -> TestResult {
    for (spec, says) in wrong() {
        let refused = create(cluster, "refused", &spec).await;
        let refused = refused.err().ok_or_else(|| Failure::new(format!("{spec} was accepted")))?;
        let line = refused.to_string();
        assert!(line.contains(says), "{spec}: {line}");
    }
    let either = "exactly one of `job` and `external` must be set; `external` is for whoever changes versions outside of \
                  Evenkeel";
    for spec in ["", r#""external":{},"job":{"template":{}}"#] {
        let refused = create_of(cluster, "UpgradeExecutor", "refused", spec).await;
        let line =
            format!("{:?}", refused.err().ok_or_else(|| Failure::new(format!("{spec} was accepted")))?);
        assert!(line.contains(either), "{spec}: {line}");
    }
    for (kind, spec, says) in [
        (
            "UpgradeExecutor",
            r#""external":{"deadlineSeconds":0}"#,
            "must be from 1 to 604800 seconds (at most a week)",
        ),
        (
            "UpgradeExecutor",
            r#""job":{"template":{},"deadlineSeconds":86401}"#,
            "must be from 1 to 86400 seconds (at most a day); what takes longer is `external`",
        ),
        (
            "ClusterSkewReport",
            r#""refreshPeriodSeconds":5"#,
            "must be from 30 to 3600 seconds (half a minute to an hour)",
        ),
    ] {
        let refused =
            create_of(cluster, kind, if kind == "ClusterSkewReport" { "cluster" } else { "x" }, spec).await;
        let line =
            format!("{:?}", refused.err().ok_or_else(|| Failure::new(format!("{spec} was accepted")))?);
        assert!(line.contains(says), "{spec}: {line}");
    }
    create(cluster, "percent", &group(r#""executor":"x","maxUnavailable":"100%""#)).await?;
    // A last day counts to its end, and times in two forms are not compared by the server.
    create(cluster, "a-day", &freeze("2026-12-18", "2026-12-18")).await?;
    create(cluster, "two-forms", &freeze("2026-12-18T18:00", "2026-12-18T17:59:59Z")).await?;
    create(cluster, "an-hour", &freeze("2026-12-18T18:00", "2026-12-18T19:00")).await?;
    order_of_groups(cluster).await?;
    kubectl(cluster, &["delete", "clusterupgrade", "--all"]).await?;
    all_begin_unobserved(cluster).await
}

/// Groups in a circle are refused; however many after one another are not.
async fn order_of_groups(cluster: &Cluster) -> TestResult {
    let groups = |first: &str| {
        let of = |at: usize| {
            let on = if at == 0 { first.to_owned() } else { format!(r#""g{}""#, at - 1) };
            format!(r#"{{"name":"g{at}","selector":{{}},"executor":"x","dependsOn":[{on}]}}"#)
        };
        let all: Vec<String> = (0..20).map(of).collect();
        format!(r#""version":"v1.37.1",{SPEC},"nodeGroups":[{}]"#, all.join(","))
    };
    create(cluster, "long", &groups("")).await?;
    let circle = groups(r#""g19""#);
    until("the server refuses a circle", Duration::from_secs(20), async || {
        let Err(refused) = create(cluster, "circle", &circle).await else {
            kubectl(cluster, &["delete", "clusterupgrade", "circle"]).await?;
            return Ok(false);
        };
        let line =
            "group g0 could never begin: what it depends on waits for itself; take a name out of dependsOn";
        if format!("{refused:?}").contains(line) { Ok(true) } else { Err(refused) }
    })
    .await?;
    create(cluster, "long-still", &groups("")).await.map(drop)
}

/// kstatus takes an object that nobody has told of for done, unless its status says that it is of an earlier generation.
async fn all_begin_unobserved(cluster: &Cluster) -> TestResult {
    create(cluster, "new", &format!(r#""version":"v1.37.1",{SPEC}"#)).await?;
    let spec = r#""upgradeName":"up","component":"kubelet","nodeName":"n","fromVersion":"v1.36.4","toVersion":"v1.37.1","executor":"x""#;
    create_of(cluster, "NodeUpgrade", "new", spec).await?;
    for kind in ["nodeupgrade", "clusterupgrade"] {
        let status = kubectl(cluster, &["get", kind, "new", "-o", "jsonpath={.status}"]).await?;
        assert!(status.contains(r#""observedGeneration":-1"#), "{kind}: {status}");
        kubectl(cluster, &["delete", kind, "new"]).await?;
    }
    Ok(())
}

async fn says(cluster: &Cluster, kind: &str, name: &str, condition: &str, line: &str) -> TestResult {
    let path = format!("jsonpath={{.status.conditions[?(@.type=='{condition}')]['status','message']}}");
    until(&format!("{condition} of {name} says {line}"), Duration::from_secs(40), async || {
        let told = kubectl(cluster, &["get", kind, name, "-o", &path]).await?;
        if told.contains(line) { Ok(true) } else { Err(Failure::new(told)) }
    })
    .await
}

/// The only kube-apiserver goes away for longer than a leader may be silent, and returns.
async fn outlives_its_apiserver(cluster: &Cluster) -> TestResult {
    let leads = async |leads: &str| {
        let metrics = operator::page("/metrics").await?;
        Ok(metrics.lines().any(|line| line == format!("evenkeel_leader {leads}")))
    };
    until("it leads", Duration::from_secs(30), async || leads("1").await).await?;
    cluster.apiserver(0).stop().await?;
    until("it does not lead any more", Duration::from_secs(30), async || leads("0").await).await?;
    let alive = operator::page("/healthz").await?;
    assert!(alive.starts_with("HTTP/1.1 200"), "{alive}");
    until("it is not ready", Duration::from_secs(30), async || {
        Ok(operator::page("/readyz").await?.starts_with("HTTP/1.1 503"))
    })
    .await?;
    let unready = operator::page("/readyz").await?;
    let line = unready.split("\r\n\r\n").nth(1).unwrap_or_default();
    assert!(line.trim().lines().count() == 1 && line.contains("nodes"), "one line says why: {unready}");
    cluster.apiserver(0).start().await?;
    until("it leads again", Duration::from_mins(1), async || leads("1").await).await?;
    until("it is ready again", Duration::from_mins(1), async || {
        Ok(operator::page("/readyz").await?.starts_with("HTTP/1.1 200"))
    })
    .await
}

async fn told_by_the_operator(cluster: &Cluster, operator: &mut Operator) -> TestResult {
    // One whose executor is not there says so, and goes on by itself when it comes.
    create(cluster, "without", &format!(r#""version":"v1.37.1",{}"#, SPEC.replace("Automatic", "PlanOnly")))
        .await?;
    let line = "spec.controlPlane names UpgradeExecutor x, which does not exist: install it";
    says(cluster, "cup", "without", "Ready", &format!("False {line}")).await?;
    says(cluster, "cup", "without", "Stalled", &format!("True {line}")).await?;
    create_of(cluster, "UpgradeExecutor", "x", r#""external":{}"#).await?;
    says(cluster, "cup", "without", "Ready", "Unknown mode is PlanOnly").await?;
    kubectl(cluster, &["delete", "cup", "without"]).await?;
    // One that never begins holds up nobody.
    let looking = SPEC.replace("Automatic", "PlanOnly");
    create(cluster, "a-look", &format!(r#""version":"v1.37.1",{looking}"#)).await?;
    says(cluster, "cup", "a-look", "Ready", "Unknown mode is PlanOnly").await?;
    // The server refuses a downgrade; where it lets one through, the operator says so itself.
    let down = format!(r#""version":"v1.35.9",{SPEC}"#);
    let line = "v1.35.9 would be a downgrade: a kube-apiserver runs v1.36.4";
    // The server knows by the report what runs, and that has only just been written.
    until("the server refuses a downgrade", Duration::from_secs(20), async || {
        let Err(refused) = create(cluster, "refused", &down).await else {
            kubectl(cluster, &["delete", "cup", "refused"]).await?;
            return Ok(false);
        };
        if format!("{refused:?}").contains(line) { Ok(true) } else { Err(refused) }
    })
    .await?;
    kubectl(cluster, &["delete", "validatingadmissionpolicybinding", "evenkeel-upgrade-version"]).await?;
    until("the policy is no longer in force", Duration::from_secs(20), async || {
        Ok(create(cluster, "let-through", &down).await.is_ok())
    })
    .await?;
    kubectl(cluster, &["delete", "cup", "let-through"]).await?;
    for (name, version, line) in [
        ("down", "v1.35.9", "v1.35.9 would be a downgrade: kube-apiserver cp-1 runs v1.36.4"),
        ("far", "v1.50.0", "no release of 1.38 is known, which is on the way to v1.50.0"),
        ("too-far", "v1.60.0", "v1.60.0 is 24 minors ahead of the oldest kube-apiserver"),
    ] {
        create(cluster, name, &format!(r#""version":"{version}",{SPEC}"#)).await?;
        says(cluster, "cup", name, "Ready", &format!("False {line}")).await?;
        says(cluster, "cup", name, "Stalled", &format!("True {line}")).await?;
        kubectl(cluster, &["delete", "cup", name]).await?;
    }
    let claims = kubectl(cluster, &["get", "nodeupgrades", "-o", "name"]).await?;
    assert_eq!(claims, "", "nothing was begun");
    create_of(cluster, "UpgradeExecutor", "first", r#""external":{}"#).await?;
    whole::is_kept_and_read(cluster).await?;
    gates::open_and_close(cluster).await?;
    operator.stop().await?;
    gates::go(cluster).await?;
    what_may_not_be_read(cluster, operator).await
}

async fn what_may_not_be_read(cluster: &Cluster, operator: &mut Operator) -> TestResult {
    // Budgets that may not be read: the report names the permission and goes on. Watches that are open stay open, so
    // this is seen by the next start.
    let rules = "jsonpath={range .rules[*]}{.resources}{\"\\n\"}{end}";
    let rules = kubectl(cluster, &["get", "clusterrole", "evenkeel-reporter", "-o", rules]).await?;
    let index = rules.lines().position(|line| line.contains("poddisruptionbudgets"));
    let index = index.ok_or_else(|| Failure::new(format!("no rule for budgets in {rules}")))?;
    let patch = format!(r#"[{{"op":"remove","path":"/rules/{index}"}}]"#);
    kubectl(cluster, &["patch", "clusterrole", "evenkeel-reporter", "--type=json", "-p", &patch]).await?;
    operator.start()?;
    says(cluster, "skew", "cluster", "InventoryComplete", "False").await?;
    says(cluster, "skew", "cluster", "InventoryComplete", "poddisruptionbudgets").await?;
    says(cluster, "skew", "cluster", "SkewSupported", "True").await?;
    let unready = operator::page("/readyz").await?;
    assert!(unready.starts_with("HTTP/1.1 503") && unready.contains("poddisruptionbudgets"), "{unready}");

    let back = r#"[{"op":"add","path":"/rules/-","value":{"apiGroups":["policy"],"resources":["poddisruptionbudgets"],"verbs":["list","watch"]}}]"#;
    kubectl(cluster, &["patch", "clusterrole", "evenkeel-reporter", "--type=json", "-p", back]).await?;
    until("the operator is ready again", Duration::from_mins(1), async || {
        Ok(operator::page("/readyz").await?.starts_with("HTTP/1.1 200"))
    })
    .await?;

    // An object that cannot be read: it is named, and the others go on.
    let preserve = r#"[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema","value":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}]"#;
    kubectl(cluster, &["patch", "crd", "clusterupgrades.evenkeel.dev", "--type=json", "-p", preserve])
        .await?;
    until("the laxer schema is in force", Duration::from_secs(20), async || {
        Ok(create(cluster, "unreadable", r#""version":5"#).await.is_ok())
    })
    .await?;
    until("the log names it", Duration::from_secs(30), async || {
        let log = operator.log();
        Ok(log
            .lines()
            .any(|line| line.contains("ClusterUpgrade unreadable") && line.contains("invalid type")))
    })
    .await?;
    let log = operator.log();
    let named = log.lines().filter(|line| line.contains("ClusterUpgrade unreadable")).count();
    assert_eq!(named, 1, "it is named once");
    Ok(())
}
