//! What an upgrade waits for besides its plan, in words: windows, freezes, soaks, gates, and limits of failures.
//!
//! Here belong the words alone; when something is open is decided in the core. The invariant: every name that a person
//! wrote is made harmless.

use evenkeel_core::disruption::preflight::duration_text;
use evenkeel_core::text::harmless;
use evenkeel_core::upgrade::calendar::{Freeze, Window, zoned_time};
use evenkeel_core::upgrade::{Amount, Gate, GateObject, Upgrade};
use jiff::civil::Weekday;

/// One line for each thing that `upgrade` waits for, in the order in which they are met.
pub(super) fn delays(upgrade: &Upgrade) -> Vec<String> {
    let calendar = &upgrade.calendar;
    let mut lines: Vec<String> = calendar.windows.iter().map(window).collect();
    lines.extend(calendar.freezes.iter().map(freeze));
    if !upgrade.control_plane.soak.is_zero() {
        let soak = duration_text(upgrade.control_plane.soak);
        lines.push(format!("kubelets wait for {soak} after the last step of the control plane"));
    }
    for group in upgrade.groups.iter().filter(|group| !group.soak.is_zero()) {
        let (name, soak) = (harmless(&group.name), duration_text(group.soak));
        let canaries = if group.canary > 0 { "its other nodes after its canaries, and " } else { "" };
        lines.push(format!("group {name} soaks for {soak}: {canaries}the groups that depend on it after it"));
    }
    lines.extend(upgrade.gates.iter().map(gate));
    for (limit, what) in
        [(upgrade.failures.max_failed, "failed"), (upgrade.failures.max_parked, "are parked")]
    {
        let nodes = match limit {
            Some(Amount::Count(count)) => format!("{count} nodes or more"),
            Some(Amount::Percent(percent)) => format!("{percent}% of the nodes or more"),
            None => continue,
        };
        lines.push(format!("nothing new is begun while {nodes} {what}"));
    }
    lines
}

fn window(window: &Window) -> String {
    let short = |day: &Weekday| match day {
        Weekday::Monday => "Mon",
        Weekday::Tuesday => "Tue",
        Weekday::Wednesday => "Wed",
        Weekday::Thursday => "Thu",
        Weekday::Friday => "Fri",
        Weekday::Saturday => "Sat",
        Weekday::Sunday => "Sun",
    };
    let days: Vec<_> = window.days.iter().map(short).collect();
    let days = if days.is_empty() { "every day".to_owned() } else { days.join(", ") };
    let zone = window.zone.iana_name().unwrap_or("UTC");
    let (name, start, length) =
        (harmless(&window.name), window.start.strftime("%H:%M"), duration_text(window.length));
    format!("window {name}: {days} from {start} for {length} ({zone})")
}

fn freeze(freeze: &Freeze) -> String {
    let (from, until) = (zoned_time(freeze.from, &freeze.zone), zoned_time(freeze.until, &freeze.zone));
    format!("freeze {}: from {from} until {until}", harmless(&freeze.name))
}

fn gate(gate: &Gate) -> String {
    let GateObject { kind, namespace, name, .. } = &gate.object;
    let name = if namespace.is_empty() { name.to_string() } else { format!("{namespace}/{name}") };
    harmless(&format!(
        "gate {}: condition {} of {kind} {name} has to be {}",
        gate.name, gate.condition, gate.status
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use evenkeel_core::upgrade::calendar::{Calendar, time_zone};
    use evenkeel_core::upgrade::{FailurePolicy, NodeGroup};
    use expect_test::expect;
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn what_an_upgrade_waits_for_in_words() {
        let mut upgrade = Upgrade::to("v1.37.1".parse().unwrap());
        assert_eq!(delays(&upgrade), Vec::<String>::new());
        let berlin = time_zone("Europe/Berlin").unwrap();
        let window = |name: &str, days: Vec<Weekday>| Window {
            name: name.into(),
            zone: berlin.clone(),
            days,
            start: jiff::civil::time(22, 0, 0, 0),
            length: SignedDuration::from_hours(6),
        };
        upgrade.calendar = Calendar {
            windows: vec![
                window("nights", vec![Weekday::Monday, Weekday::Sunday]),
                window("\u{1b}[2J", Vec::new()),
            ],
            freezes: vec![Freeze {
                name: "year-end".into(),
                zone: berlin,
                from: "2026-12-17T23:00:00Z".parse().unwrap(),
                until: "2027-01-07T23:00:00Z".parse().unwrap(),
            }],
        };
        upgrade.control_plane.soak = SignedDuration::from_mins(10);
        let group = |name: &str, canary: usize| NodeGroup {
            canary,
            soak: SignedDuration::from_mins(30),
            ..NodeGroup::new(name, evenkeel_core::cluster::Selector::default(), "external")
        };
        upgrade.groups = vec![group("canary", 0), group("web", 2)];
        let object = GateObject {
            api_version: "example.com/v1".into(),
            kind: "ServiceLevel".into(),
            namespace: "shop".into(),
            name: "checkout".into(),
        };
        let (condition, status): (Arc<str>, Arc<str>) = ("Healthy".into(), "True".into());
        upgrade.gates = vec![Gate { name: "slo".into(), object, condition, status }];
        upgrade.failures =
            FailurePolicy { max_failed: Some(Amount::Count(3)), max_parked: Some(Amount::Percent(10)) };
        expect![[r#"
            window nights: Mon, Sun from 22:00 for 6 h (Europe/Berlin)
            window ?[2J: every day from 22:00 for 6 h (Europe/Berlin)
            freeze year-end: from Fri 2026-12-18 00:00 Europe/Berlin until Fri 2027-01-08 00:00 Europe/Berlin
            kubelets wait for 10 min after the last step of the control plane
            group canary soaks for 30 min: the groups that depend on it after it
            group web soaks for 30 min: its other nodes after its canaries, and the groups that depend on it after it
            gate slo: condition Healthy of ServiceLevel shop/checkout has to be True
            nothing new is begun while 3 nodes or more failed
            nothing new is begun while 10% of the nodes or more are parked
        "#]].assert_eq(&(delays(&upgrade).join("\n") + "\n"));
    }
}
