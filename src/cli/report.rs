//! `evenkeel report`: the judgement of a cluster, without an operator.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::cluster::{Cluster, Component, Instance, Reach};
use evenkeel_core::skew::policy::Policy;
use evenkeel_core::skew::{Assessment, Verdict, assess, names};
use evenkeel_core::version::Observed;
use k8s_openapi::jiff::Timestamp;
use kube::Config;
use tokio_util::sync::CancellationToken;

use super::table::table;
use super::{EXIT_FINDINGS, EXIT_OK, Output, ReportArgs, connect, print};
use crate::api::report::{Context, status, with_lifecycle};
use crate::clients::{effects_client, one_line, probe_client, read_client, within};
use crate::observe::cache::Changes;
use crate::observe::{Inventory, Observer, PodScope, apiservers};

/// How long the cluster may take to tell everything.
const PATIENCE: Duration = Duration::from_secs(15);
/// Sources that answer by refusing do so at once; this much longer is waited for the others.
const LATECOMERS: Duration = Duration::from_secs(2);

pub(super) async fn run(args: ReportArgs) -> Result<u8, String> {
    let config = connect::config(&args.cluster).await?;
    let (cluster, inventory) = observe(&config).await?;
    let now = Timestamp::now();
    let judged = with_lifecycle(assess(&cluster, &Policy::default()), now);
    let missing: Vec<String> = inventory.missing.iter().map(|missing| missing.reason.to_string()).collect();
    let text = match args.output {
        Output::Table => render(&judged, &missing, &config.cluster_url.to_string()),
        Output::Json | Output::Yaml => {
            let context =
                Context { missing: &missing, before: &[], generation: None, nodes: cluster.nodes.len(), now };
            let status = status(&judged, &context);
            let text = if args.output == Output::Json {
                serde_json::to_string_pretty(&status)
                    .map(|text| text + "\n")
                    .map_err(|error| error.to_string())
            } else {
                serde_saphyr::to_string(&status).map_err(|error| error.to_string())
            };
            text.map_err(|error| format!("cannot write the report: {error}"))?
        }
    };
    print(&text)?;
    Ok(if judged.supported == Verdict::False { EXIT_FINDINGS } else { EXIT_OK })
}

/// Looks once, with the operator's own eyes.
async fn observe(config: &Config) -> Result<(Cluster, Inventory), String> {
    let read = read_client(config).map_err(|error| one_line(&error))?;
    let asking = effects_client(config).map_err(|error| one_line(&error))?;
    // One question first: whatever is wrong with the connection is then told once, and not by every watch.
    let version = within(PATIENCE, asking.apiserver_version()).await;
    let version =
        version.map_err(|error| format!("cannot reach {}: {}", config.cluster_url, one_line(&error)))?;
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    let changes = Changes::default();
    let mut changed = changes.subscribe();
    let connect: apiservers::Connect = {
        let config = config.clone();
        Arc::new(move |address: &str| probe_client(&config, address))
    };
    let observer = Observer::start(&read, connect, PodScope::KubeSystem, changes, &stop);
    let begun = tokio::time::Instant::now();
    loop {
        let seen = observer.cluster(Timestamp::now());
        let late = begun.elapsed() > PATIENCE;
        match seen {
            Ok((cluster, inventory))
                if inventory.missing.is_empty() || late || begun.elapsed() > LATECOMERS =>
            {
                return Ok((by_the_front_door(cluster, config, &version.git_version), inventory));
            }
            Err(not_ready) if late => return Err(not_ready.to_string()),
            Err(not_ready) if begun.elapsed() > LATECOMERS && refused(&not_ready) => {
                return Err(not_ready.to_string());
            }
            _ => {}
        }
        let _ = tokio::time::timeout(Duration::from_millis(200), changed.changed()).await;
    }
}

fn refused(not_ready: &crate::observe::NotReady) -> bool {
    not_ready
        .0
        .iter()
        .any(|missing| missing.reason.contains("forbidden") || missing.reason.contains("HTTP 40"))
}

/// From outside, the apiservers' own addresses are often not reachable. Then what answers at the front door stands for
/// them, under that name.
fn by_the_front_door(mut cluster: Cluster, config: &Config, version: &str) -> Cluster {
    if cluster.of(Component::KubeApiserver).any(|instance| instance.version.known().is_some()) {
        return cluster;
    }
    cluster.instances.retain(|instance| instance.component != Component::KubeApiserver);
    cluster.instances.push(Instance {
        component: Component::KubeApiserver,
        name: config.cluster_url.host().unwrap_or("apiserver").into(),
        node: None,
        version: Observed::from_report(version),
        effective: None,
        reach: Reach::Any,
        incarnation: "".into(),
        ready: true,
    });
    cluster.sorted()
}

/// The report for a person: verdict, rows, findings, next minor.
fn render(judged: &Assessment, missing: &[String], server: &str) -> String {
    let mut text = String::new();
    let verdict = match judged.supported {
        Verdict::True => "SUPPORTED",
        Verdict::False => "UNSUPPORTED",
        Verdict::Unknown => "UNKNOWN",
    };
    let behind = match (judged.behind, judged.limit) {
        (Some(behind), Some(limit)) => format!("   {behind} of {limit} minors behind"),
        _ => String::new(),
    };
    let next = &judged.next_minor;
    let allowed = match (next.minor, next.allowed) {
        (None, _) => "   next minor: unknown".to_owned(),
        (Some(minor), Verdict::True) => format!("   next minor {minor}: allowed"),
        (Some(minor), Verdict::False) => format!("   next minor {minor}: blocked"),
        (Some(minor), Verdict::Unknown) => format!("   next minor {minor}: unknown"),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "Cluster   {server}\nVerdict   {verdict}{behind}{allowed}\n");
    let rows: Vec<[String; 8]> = judged
        .rows
        .iter()
        .map(|row| {
            [
                row.component.to_string(),
                row.pool.to_string(),
                row.version.to_string(),
                row.count.to_string(),
                row.behind.map_or_else(|| "-".to_owned(), |behind| behind.to_string()),
                row.headroom.map_or_else(|| "-".to_owned(), |headroom| headroom.to_string()),
                row.standing.name().to_owned(),
                names(row.count, &row.samples),
            ]
        })
        .collect();
    text.push_str(&table(
        ["COMPONENT", "POOL", "VERSION", "COUNT", "BEHIND", "HEADROOM", "STATE", "NAMES"],
        &rows,
    ));
    let lines = |text: &mut String, title: &str, lines: &mut dyn Iterator<Item = String>| {
        let lines: Vec<String> = lines.collect();
        if !lines.is_empty() {
            let _ = write!(text, "\n{title}\n");
            for line in lines {
                let _ = writeln!(text, "- {line}");
            }
        }
    };
    lines(
        &mut text,
        "FINDINGS",
        &mut judged
            .findings
            .iter()
            .map(|f| format!("{}: {} [{}]\n  to do: {}", f.severity.name(), f.message, f.rule.id, f.remedy)),
    );
    if let Some(minor) = next.minor {
        lines(&mut text, &format!("BEFORE {minor}"), &mut next.blockers.iter().cloned());
    }
    lines(&mut text, "NOT SEEN", &mut missing.iter().cloned());
    text
}
