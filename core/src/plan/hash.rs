//! The hash of a plan, by which a person approves it.
//!
//! The invariant: a later release computes the same hash for the same spec.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::cluster::Selector;
use crate::disruption::PodRule;
use crate::drain::{DrainMode, DrainOptions, OnTimeout};
use crate::upgrade::calendar::Calendar;
use crate::upgrade::{Amount, Executor, Hidden, NodeGroup, Upgrade, Zones};
use crate::version::KubeVersion;

/// The plan's hash, 32 hex digits: what an approval is bound to. Half of a SHA-256: with fewer digits, whoever writes a plan
/// could find two that have the same, have one approved and put the other in its place.
///
/// It covers where the upgrade comes from and goes, who moves what and with which pod, which nodes take part and how
/// many at once. It does not cover the nodes that exist at the moment, or an autoscaler would void every approval.
///
/// `way` are the versions of the minors between `from` and the target ([`on_the_way`](super::on_the_way)).
pub fn hash(upgrade: &Upgrade, from: &KubeVersion, way: &[KubeVersion]) -> String {
    hex(&Sha256::digest(canonical(upgrade, from, way)), 16)
}

/// What a person approves, as one text: JSON with sorted keys, led by the version of this form.
///
/// A later release of the program must write the same text for the same spec, or every approval and every completed
/// upgrade would be void after its own upgrade. A field that a later release adds is left out where it has its default.
pub fn canonical(upgrade: &Upgrade, from: &KubeVersion, way: &[KubeVersion]) -> String {
    let group = |group: &NodeGroup| {
        let mut text = json!({
            "name": &*group.name,
            "executor": &*group.executor,
            "maxUnavailable": amount(group.max_unavailable),
            "selector": selector(&group.selector),
        });
        if !group.depends_on.is_empty() {
            text["dependsOn"] = group.depends_on.iter().map(|name| &**name).collect();
        }
        if group.zones == Zones::OneAtATime {
            text["zones"] = json!("OneAtATime");
        }
        if group.canary > 0 {
            text["canary"] = json!(group.canary);
        }
        if !group.soak.is_zero() {
            text["soakSeconds"] = json!(group.soak.as_secs());
        }
        text
    };
    let executor = |name: &Arc<str>| {
        let executor = upgrade.executors.get(name);
        let (kind, template) = match executor {
            Some(Executor::Job { template, .. }) => ("job", Some(&**template)),
            Some(Executor::External { .. }) => ("external", None),
            // Whatever comes in its place is another plan.
            None => ("absent", None),
        };
        let seconds = executor.map_or(Executor::UNKNOWN_DEADLINE, Executor::deadline).as_secs();
        json!({"name": &**name, "kind": kind, "deadlineSeconds": seconds, "template": template})
    };
    let executors: BTreeSet<&Arc<str>> = upgrade.executor_names().collect();
    let mut control_plane =
        json!({"executor": &*upgrade.control_plane.executor, "unit": upgrade.control_plane.unit.name()});
    if let Some(first) = &upgrade.control_plane.first_executor {
        control_plane["firstExecutor"] = json!(&**first);
    }
    if upgrade.control_plane.hidden == Hidden::Accept {
        control_plane["hidden"] = json!("Accept");
    }
    if !upgrade.control_plane.soak.is_zero() {
        control_plane["soakSeconds"] = json!(upgrade.control_plane.soak.as_secs());
    }
    let mut text: Value = json!({
        "form": 1,
        "from": from.to_string(),
        "to": upgrade.version.to_string(),
        "controlPlane": control_plane,
        "drainTimeoutSeconds": upgrade.drain.timeout.as_secs(),
        "nodeGroups": upgrade.groups.iter().map(group).collect::<Vec<_>>(),
        "executors": executors.into_iter().map(executor).collect::<Vec<_>>(),
    });
    let drain = drain(&upgrade.drain);
    if drain != json!({}) {
        text["drain"] = drain;
    }
    if !way.is_empty() {
        text["way"] = way.iter().map(ToString::to_string).collect();
    }
    if !upgrade.accepted.is_empty() {
        let accepted = upgrade.accepted.iter();
        text["acceptedRisks"] = accepted
            .map(|risk| json!({"finding": &*risk.finding, "until": risk.until.to_string()}))
            .collect();
    }
    delays(upgrade, &mut text);
    canonical_json(&text)
}

fn amount(amount: Amount) -> Value {
    match amount {
        Amount::Count(count) => json!(count),
        Amount::Percent(percent) => json!(format!("{percent}%")),
    }
}

/// Adds to `text` what only delays: the calendar, failures, and gates, whose names are for people.
fn delays(upgrade: &Upgrade, text: &mut Value) {
    when(&upgrade.calendar, text);
    let (failed, parked) = (upgrade.failures.max_failed, upgrade.failures.max_parked);
    if failed.is_some() || parked.is_some() {
        text["failurePolicy"] = json!({"maxFailed": failed.map(amount), "maxParked": parked.map(amount)});
    }
    if !upgrade.gates.is_empty() {
        let gates = upgrade.gates.iter().map(|gate| {
            let object = &gate.object;
            json!({
                "apiVersion": &*object.api_version,
                "kind": &*object.kind,
                "namespace": &*object.namespace,
                "name": &*object.name,
                "condition": &*gate.condition,
                "status": &*gate.status,
            })
        });
        text["gates"] = gates.collect();
    }
}

/// Adds to `text` when something may begin: as clocks in its time zone say it, because a later release may know other
/// rules of that zone. Names are for people, and no part of it.
fn when(calendar: &Calendar, text: &mut Value) {
    let zone = |zone: &TimeZone| zone.iana_name().map(str::to_owned);
    if !calendar.windows.is_empty() {
        let windows = calendar.windows.iter().map(|window| {
            json!({
                "timeZone": zone(&window.zone),
                "days": window.days.iter().map(|day| day.to_monday_one_offset()).collect::<Vec<_>>(),
                "start": window.start.to_string(),
                "durationSeconds": window.length.as_secs(),
            })
        });
        text["windows"] = windows.collect();
    }
    if !calendar.freezes.is_empty() {
        let freezes = calendar.freezes.iter().map(|freeze| {
            let clock = |at: Timestamp| at.to_zoned(freeze.zone.clone()).datetime().to_string();
            json!({"timeZone": zone(&freeze.zone), "from": clock(freeze.from), "until": clock(freeze.until)})
        });
        text["freezes"] = freezes.collect();
    }
}

fn selector(selector: &Selector) -> Value {
    let terms = selector.match_expressions.iter();
    json!({
        "matchLabels": selector.match_labels,
        "matchExpressions": terms
            .map(|term| json!({"key": term.key, "operator": term.operator, "values": term.values}))
            .collect::<Vec<_>>(),
    })
}

/// What differs from the defaults in how nodes are drained, besides the timeout.
fn drain(options: &DrainOptions) -> Value {
    let mut text = json!({});
    match options.on_timeout {
        OnTimeout::Park => {}
        OnTimeout::Halt => text["onTimeout"] = json!("Halt"),
        OnTimeout::Force => text["onTimeout"] = json!("Force"),
    }
    if options.mode == DrainMode::MinorOnly {
        text["mode"] = json!("MinorOnly");
    }
    if options.refuse_empty_dir {
        text["emptyDir"] = json!("Refuse");
    }
    if options.evict_bare {
        text["barePods"] = json!("Evict");
    }
    if options.await_volumes {
        text["volumes"] = json!("Detach");
    }
    if !options.pods.is_empty() {
        let rule = |rule: &PodRule| {
            let namespaces: Vec<&str> = rule.namespaces.iter().map(|name| &**name).collect();
            json!({"selector": selector(&rule.selector), "namespaces": namespaces, "behavior": rule.behavior.name()})
        };
        text["podRules"] = options.pods.iter().map(rule).collect();
    }
    text
}

/// `value` as JSON with sorted keys and without blanks, whatever the order in which it was read.
pub fn canonical_json(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            let field = |(key, value): (&&String, &&Value)| {
                format!("{}:{}", Value::String((*key).clone()), canonical_json(value))
            };
            format!("{{{}}}", sorted.iter().map(field).collect::<Vec<_>>().join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(canonical_json).collect::<Vec<_>>().join(",")),
        plain => plain.to_string(),
    }
}

/// The first `bytes` of a digest in hex.
pub(crate) fn hex(digest: &[u8], bytes: usize) -> String {
    digest.iter().take(bytes).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use jiff::SignedDuration;

    use super::*;
    use crate::cluster::Expression;
    use crate::disruption::Behavior;
    use crate::upgrade::calendar::{Freeze, Window, time_zone};
    use crate::upgrade::{AcceptedRisk, ApprovalMode, ControlPlane, FailurePolicy, Gate, GateObject, Unit};

    /// What a release computes, each later one has to compute alike.
    #[test]
    fn the_hash_of_a_spec_stays_what_it_was() {
        let minute = SignedDuration::from_mins(1);
        let selector = Selector {
            match_labels: [("pool".to_owned(), "web".to_owned())].into(),
            match_expressions: vec![Expression {
                key: "zone".to_owned(),
                operator: "In".to_owned(),
                values: vec!["a".to_owned(), "b".to_owned()],
            }],
        };
        let group = |name: &str, max_unavailable| NodeGroup {
            name: name.into(),
            selector: selector.clone(),
            max_unavailable,
            executor: "job".into(),
            depends_on: Vec::new(),
            zones: Zones::Any,
            canary: 0,
            soak: SignedDuration::ZERO,
        };
        let template = canonical_json(&json!({"spec": {"hostPID": true, "containers": []}, "metadata": {}}));
        let upgrade = Upgrade {
            name: "up".into(),
            uid: "uid".into(),
            version: "v1.37.1".parse().unwrap(),
            mode: ApprovalMode::RequireApproval,
            approved_hash: None,
            suspended: false,
            via: Vec::new(),
            accepted: Vec::new(),
            control_plane: ControlPlane {
                unit: Unit::Component,
                executor: "cloud".into(),
                first_executor: None,
                hidden: Hidden::Refuse,
                soak: SignedDuration::ZERO,
            },
            calendar: Calendar::default(),
            gates: Vec::new(),
            failures: FailurePolicy::default(),
            groups: vec![group("a", Amount::Count(1)), group("b", Amount::Percent(10))],
            drain: DrainOptions::new(minute * 30),
            executors: [
                ("cloud".into(), Executor::External { deadline: minute * 120 }),
                ("job".into(), Executor::Job { template: template.into(), deadline: minute * 60 }),
            ]
            .into(),
        };
        let from = "v1.36.4".parse().unwrap();
        let text = canonical(&upgrade, &from, &[]);
        expect![[r#"
            {"controlPlane":{"executor":"cloud","unit":"Component"},
            "drainTimeoutSeconds":1800,"executors":[{"deadlineSeconds":7200,"kind":"external","name":"cloud","template":null},
            {"deadlineSeconds":3600,"kind":"job","name":"job","template":"{\"metadata\":{},
            \"spec\":{\"containers\":[],\"hostPID\":true}}"}],"form":1,"from":"v1.36.4","nodeGroups":[{"executor":"job","maxUnavailable":1,"name":"a","selector":{"matchExpressions":[{"key":"zone","operator":"In","values":["a","b"]}],"matchLabels":{"pool":"web"}}},
            {"executor":"job","maxUnavailable":"10%","name":"b","selector":{"matchExpressions":[{"key":"zone","operator":"In","values":["a","b"]}],"matchLabels":{"pool":"web"}}}],"to":"v1.37.1"}"#]].assert_eq(&text.replace("},", "},\n"));
        expect!["7adb413b69f511cba8e6560b7e9b09ff"].assert_eq(&hash(&upgrade, &from, &[]));
        let suspended = Upgrade {
            suspended: true,
            mode: ApprovalMode::Automatic,
            uid: "other".into(),
            ..upgrade.clone()
        };
        assert_eq!(hash(&suspended, &from, &[]), hash(&upgrade, &from, &[]), "when it runs is no part of it");
        let mut other = upgrade.clone();
        let template = canonical_json(&json!({"spec": {"hostPID": false, "containers": []}, "metadata": {}}));
        other
            .executors
            .insert("job".into(), Executor::Job { template: template.into(), deadline: minute * 60 });
        assert_ne!(hash(&other, &from, &[]), hash(&upgrade, &from, &[]), "another pod is another plan");
    }

    /// What was added to the form later is left out where nothing is said of it.
    #[test]
    fn the_hash_of_a_spec_with_order_ways_and_risks_stays_what_it_was() {
        let mut upgrade = Upgrade::to("v1.38.1".parse().unwrap());
        let from = "v1.36.4".parse().unwrap();
        let plain = canonical(&upgrade, &from, &[]);
        for word in [
            "dependsOn",
            "zones",
            "canary",
            "way",
            "acceptedRisks",
            "firstExecutor",
            "soak",
            "windows",
            "freezes",
            "gates",
            "failurePolicy",
            "drain\"",
        ] {
            assert!(!plain.contains(word), "{word}");
        }
        upgrade.groups.push(NodeGroup {
            depends_on: vec!["all".into()],
            zones: Zones::OneAtATime,
            canary: 2,
            ..NodeGroup::new("late", Selector::default(), "external")
        });
        upgrade.control_plane.unit = Unit::Node;
        upgrade.control_plane.hidden = Hidden::Accept;
        upgrade.accepted = vec![AcceptedRisk {
            finding: "O5/a/b".into(),
            until: "2026-12-02T00:00:00Z".parse().unwrap(),
            reason: "its words are no part of it".into(),
        }];
        let way = ["v1.37.2".parse().unwrap()];
        let text = canonical(&upgrade, &from, &way);
        expect![[r#"
            {"acceptedRisks":[{"finding":"O5/a/b","until":"2026-12-02T00:00:00Z"}],"controlPlane":{"executor":"external","hidden":"Accept","unit":"Node"},
            "drainTimeoutSeconds":1800,"executors":[{"deadlineSeconds":7200,"kind":"external","name":"external","template":null}],"form":1,"from":"v1.36.4","nodeGroups":[{"executor":"external","maxUnavailable":1,"name":"all","selector":{"matchExpressions":[],"matchLabels":{}}},
            {"canary":2,"dependsOn":["all"],"executor":"external","maxUnavailable":1,"name":"late","selector":{"matchExpressions":[],"matchLabels":{}},
            "zones":"OneAtATime"}],"to":"v1.38.1","way":["v1.37.2"]}"#]].assert_eq(&text.replace("},", "},\n"));
        expect!["533dcff7167e8e71722cb073a210714e"].assert_eq(&hash(&upgrade, &from, &way));
        upgrade.control_plane.first_executor = Some("external".into());
        let text = canonical(&upgrade, &from, &way);
        assert!(text.contains(r#""firstExecutor":"external""#), "{text}");
        expect!["c1cc788fdde8083f20da6736f56535c6"].assert_eq(&hash(&upgrade, &from, &way));
    }

    #[test]
    fn the_hash_of_a_spec_that_waits_stays_what_it_was() {
        let mut upgrade = Upgrade::to("v1.37.1".parse().unwrap());
        let from = "v1.36.4".parse().unwrap();
        let berlin = time_zone("Europe/Berlin").unwrap();
        upgrade.control_plane.soak = SignedDuration::from_secs(600);
        upgrade.groups[0].soak = SignedDuration::from_secs(1800);
        upgrade.calendar = Calendar {
            windows: vec![Window {
                name: "nights".into(),
                zone: berlin.clone(),
                days: vec![jiff::civil::Weekday::Monday, jiff::civil::Weekday::Sunday],
                start: jiff::civil::time(22, 0, 0, 0),
                length: SignedDuration::from_hours(6),
            }],
            freezes: vec![Freeze {
                name: "year-end".into(),
                zone: berlin,
                from: "2026-12-17T23:00:00Z".parse().unwrap(),
                until: "2027-01-07T23:00:00Z".parse().unwrap(),
            }],
        };
        upgrade.failures = FailurePolicy { max_failed: Some(Amount::Count(3)), max_parked: None };
        let text = canonical(&upgrade, &from, &[]);
        expect![[r#"
            {"controlPlane":{"executor":"external","soakSeconds":600,"unit":"Component"},
            "drainTimeoutSeconds":1800,"executors":[{"deadlineSeconds":7200,"kind":"external","name":"external","template":null}],"failurePolicy":{"maxFailed":3,"maxParked":null},
            "form":1,"freezes":[{"from":"2026-12-18T00:00:00","timeZone":"Europe/Berlin","until":"2027-01-08T00:00:00"}],"from":"v1.36.4","nodeGroups":[{"executor":"external","maxUnavailable":1,"name":"all","selector":{"matchExpressions":[],"matchLabels":{}},
            "soakSeconds":1800}],"to":"v1.37.1","windows":[{"days":[1,7],"durationSeconds":21600,"start":"22:00:00","timeZone":"Europe/Berlin"}]}"#]].assert_eq(&text.replace("},", "},\n"));
        expect!["1473744bba0077aac8650bcf8fd5d08b"].assert_eq(&hash(&upgrade, &from, &[]));
    }

    #[test]
    fn the_hash_of_a_spec_with_drain_options_stays_what_it_was() {
        let mut upgrade = Upgrade::to("v1.37.1".parse().unwrap());
        let from = "v1.36.4".parse().unwrap();
        let pool =
            || Selector { match_labels: [("app".to_owned(), "db".to_owned())].into(), ..Selector::default() };
        upgrade.drain.on_timeout = OnTimeout::Force;
        upgrade.drain.mode = DrainMode::MinorOnly;
        upgrade.drain.refuse_empty_dir = true;
        upgrade.drain.evict_bare = true;
        upgrade.drain.pods = vec![PodRule {
            selector: pool(),
            namespaces: vec!["shop".into()],
            behavior: Behavior::WaitCompleted,
        }];
        let text = canonical(&upgrade, &from, &[]);
        let drain = text.split("\"drain\":").nth(1).and_then(|rest| rest.split(",\"drainTimeout").next());
        expect![[r#"{"barePods":"Evict","emptyDir":"Refuse","mode":"MinorOnly","onTimeout":"Force","podRules":[{"behavior":"WaitCompleted","namespaces":["shop"],"selector":{"matchExpressions":[],"matchLabels":{"app":"db"}}}]}"#]].assert_eq(drain.unwrap());
        expect!["950a727ac77b5494bc0ebb2a0d0e8fd3"].assert_eq(&hash(&upgrade, &from, &[]));
        upgrade.drain.await_volumes = true;
        assert!(canonical(&upgrade, &from, &[]).contains(r#","volumes":"Detach"}"#));
        expect!["c8d8de0ba39594fb452b7c927b4585c1"].assert_eq(&hash(&upgrade, &from, &[]));
    }

    #[test]
    fn the_hash_of_a_spec_with_a_gate_stays_what_it_was() {
        let mut upgrade = Upgrade::to("v1.37.1".parse().unwrap());
        let from = "v1.36.4".parse().unwrap();
        upgrade.gates = vec![Gate {
            name: "slo".into(),
            object: GateObject {
                api_version: "example.com/v1".into(),
                kind: "ServiceLevel".into(),
                namespace: "shop".into(),
                name: "checkout".into(),
            },
            condition: "Healthy".into(),
            status: "True".into(),
        }];
        let text = canonical(&upgrade, &from, &[]);
        let gates = text.split("\"gates\":").nth(1).and_then(|rest| rest.split("],").next()).unwrap();
        expect![[r#"[{"apiVersion":"example.com/v1","condition":"Healthy","kind":"ServiceLevel","name":"checkout","namespace":"shop","status":"True"}"#]].assert_eq(gates);
        expect!["d2c6d22d8827db3679ebfc2446fc0065"].assert_eq(&hash(&upgrade, &from, &[]));
    }
}
