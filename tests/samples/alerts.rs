//! The alerts of `config/prometheus`: which reasons of an upgrade they are about, and that a page says of each what to do.
//!
//! When an alert fires is tested with promtool (`make check-rules`).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use evenkeel::api::upgrade::UNSEEN_REASONS;
use evenkeel_core::rollout::UpgradePhase;
use serde_json::Value;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The name of each alert, and when it fires.
fn alerts() -> Vec<(String, String)> {
    let rules: Value = serde_saphyr::from_str(&read("config/prometheus/rules.yaml")).unwrap();
    let groups = rules["spec"]["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    let text = |rule: &Value, field: &str| rule[field].as_str().map(str::to_owned);
    rules.filter_map(|rule| text(rule, "alert").zip(text(rule, "expr"))).collect()
}

/// The reasons in the expression of the alert `name`.
fn reasons(name: &str) -> BTreeSet<String> {
    let (_, expression) = alerts().into_iter().find(|(alert, _)| alert == name).unwrap();
    let (_, reasons) = expression.split_once("reason=~\"").unwrap();
    let (reasons, _) = reasons.split_once('"').unwrap();
    reasons.split('|').map(str::to_owned).collect()
}

#[test]
fn whatever_only_a_person_can_end_is_an_alert() {
    let stalled = UpgradePhase::WAITS.into_iter().filter(|phase| phase.stalled()).map(UpgradePhase::reason);
    let wanted: BTreeSet<String> = stalled.chain(["Forbidden"]).map(str::to_owned).collect();
    assert_eq!(reasons("ClusterUpgradeStalled"), wanted);
}

#[test]
fn alerts_name_only_reasons_that_there_are() {
    let all: Vec<&str> =
        UpgradePhase::WAITS.map(UpgradePhase::reason).into_iter().chain(UNSEEN_REASONS).collect();
    for name in ["ClusterUpgradeStalled", "ClusterUpgradeWaits"] {
        for reason in reasons(name) {
            assert!(all.contains(&&*reason), "{name}: {reason}");
        }
    }
}

#[test]
fn the_page_about_alerts_has_each_of_them_in_their_order() {
    let page = read("docs/alerts.md");
    let told: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let names: Vec<String> = alerts().into_iter().map(|(name, _)| name).collect();
    assert_eq!(told, names);
    let rules = read("config/prometheus/rules.yaml");
    for name in names {
        assert!(rules.contains(&format!("docs/alerts.md#{}\n", name.to_lowercase())), "{name}");
    }
}
