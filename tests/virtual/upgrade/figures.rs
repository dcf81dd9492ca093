//! What the operator's metrics say of a look that saw too little, and of one whose write failed.

use std::net::TcpListener;
use std::time::Duration;

use evenkeel::operator::{OperatorOptions, operate};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::campaign::{Wrong, virtually};
use super::super::replica::{clients, clock, options, page};
use super::super::script;
use super::UP;
use super::base::{self, Setting, UPGRADES};
use super::watcher::rest::asked_well;

/// The page of metrics of an operator that ran for two minutes, with every request like one of `refused` answered by 403.
fn after_two_minutes(refused: &[&str]) -> String {
    let (page, wrong) = virtually(async || {
        let mut setting = Setting::of(&[]);
        let (cluster, kube) = base::start(&setting, 1).await;
        setting.begins = cluster.now();
        kube.create(UPGRADES, &setting.upgrade(UP, &setting.to)).await;
        for line in refused {
            script::arm(&cluster, &[format!("like evenkeel-a {line} refuse:403").parse().unwrap()]);
        }
        let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (process, stop) = (cluster.process("evenkeel-a"), CancellationToken::new());
        let options = OperatorOptions { listen, ..options("a", 1, true) };
        let running = tokio::spawn(operate(clients(&process), options, clock(&cluster), stop.clone()));
        cluster.faults().record();
        sleep(Duration::from_mins(2)).await;
        let page = page(listen).await;
        stop.cancel();
        assert!(running.await.unwrap().is_ok());
        assert_eq!(asked_well(&cluster.faults().record()), Wrong::new());
        page
    });
    assert_eq!(wrong, Wrong::new());
    page
}

/// The number that `page` has for `series`.
fn number(page: &str, series: &str) -> u64 {
    let found = page.lines().find_map(|line| line.strip_prefix(series));
    let found = found.and_then(|count| count.trim().parse::<u64>().ok());
    found.unwrap_or_else(|| panic!("no {series} in\n{page}"))
}

/// How many looks of the upgrades' controller ended with `result`.
fn looks(page: &str, result: &str) -> u64 {
    let labels = format!("{{controller=\"upgrade\",result=\"{result}\"}}");
    number(page, &format!("evenkeel_reconcile_duration_seconds_count{labels}"))
}

#[test]
fn a_look_that_saw_too_little_is_counted_as_an_error() {
    let page = after_two_minutes(&["list~persistentvolumes", "watch~persistentvolumes"]);
    assert!(looks(&page, "error") > 0 && looks(&page, "ok") == 0, "{page}");
}

#[test]
fn a_look_whose_write_or_status_failed_is_counted_as_an_error() {
    for refused in ["create~nodeupgrades.evenkeel.dev", "update~clusterupgrades.evenkeel.dev/status"] {
        let page = after_two_minutes(&[refused]);
        let errors = |reason: &str| {
            let labels = format!("{{controller=\"upgrade\",reason=\"{reason}\"}}");
            number(&page, &format!("evenkeel_reconcile_errors_total{labels}"))
        };
        assert!(errors("api") > 0, "{refused}: {page}");
        assert!(looks(&page, "error") > errors("not_ready"), "{refused}: {page}");
    }
}
