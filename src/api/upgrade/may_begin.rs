//! When something may begin: windows, freezes, gates and soaks, as they are read from the spec and written to the status.
//!
//! Nothing is decided here. The invariant: every time zone that a value names is one that this program knows.

use std::sync::Arc;

use evenkeel_core::upgrade::calendar::{self, Calendar, time_of, time_zone};
use evenkeel_core::upgrade::{self, Soaked};
use evenkeel_core::version::escape;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use k8s_openapi::jiff::civil::Weekday;
use k8s_openapi::jiff::tz::TimeZone;

use super::schema::{ClusterUpgradeSpec, Day, Freeze, Gate, Window};
use super::status_schema::Soak;

/// What is wrong with a window or a freeze that the schema let through.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTime {
    /// There is no such time zone.
    #[error("{0} {1}: timeZone {2} is not known; write it like Europe/Berlin")]
    Zone(&'static str, String, String),
    /// The start of a window is no time of the day.
    #[error("windows {0}: start {1} is no time of the day; write it like 22:00")]
    Start(String, String),
    /// A window is never open.
    #[error("windows {0}: durationSeconds must be at least 60")]
    Length(String),
    /// The beginning or the end of a freeze is no day and no time.
    #[error("freezes {0}: {1} {2} is no day and no time; write it like 2026-12-18 or 2026-12-18T18:00")]
    Time(String, &'static str, String),
    /// A freeze ends before it begins.
    #[error("freezes {0}: it is over before it begins")]
    Order(String),
}

/// When something may begin.
pub(super) fn calendar(spec: &ClusterUpgradeSpec) -> Result<Calendar, InvalidTime> {
    Ok(Calendar {
        windows: spec.windows.iter().map(window).collect::<Result<_, _>>()?,
        freezes: spec.freezes.iter().map(freeze).collect::<Result<_, _>>()?,
    })
}

fn zone(field: &'static str, name: &str, zone: &str) -> Result<TimeZone, InvalidTime> {
    time_zone(zone).ok_or_else(|| InvalidTime::Zone(field, escape(name), escape(zone)))
}

fn window(window: &Window) -> Result<calendar::Window, InvalidTime> {
    let name = || escape(&window.name);
    let start = window.start.parse().map_err(|_| InvalidTime::Start(name(), escape(&window.start)))?;
    if window.duration_seconds < 60 {
        return Err(InvalidTime::Length(name()));
    }
    let day = |day: &Day| match day {
        Day::Mon => Weekday::Monday,
        Day::Tue => Weekday::Tuesday,
        Day::Wed => Weekday::Wednesday,
        Day::Thu => Weekday::Thursday,
        Day::Fri => Weekday::Friday,
        Day::Sat => Weekday::Saturday,
        Day::Sun => Weekday::Sunday,
    };
    Ok(calendar::Window {
        zone: zone("windows", &window.name, &window.time_zone)?,
        days: window.days.iter().map(day).collect(),
        start,
        length: SignedDuration::from_secs(i64::from(window.duration_seconds)),
        name: window.name.as_str().into(),
    })
}

fn freeze(freeze: &Freeze) -> Result<calendar::Freeze, InvalidTime> {
    let zone = zone("freezes", &freeze.name, &freeze.time_zone)?;
    let name = || escape(&freeze.name);
    let time = |field: &'static str, text: &str, to_its_end: bool| {
        time_of(text, &zone, to_its_end).map_err(|_| InvalidTime::Time(name(), field, escape(text)))
    };
    let (from, until) = (time("from", &freeze.from, false)?, time("until", &freeze.until, true)?);
    if until <= from {
        return Err(InvalidTime::Order(name()));
    }
    Ok(calendar::Freeze { name: freeze.name.as_str().into(), zone, from, until })
}

/// A gate, of which every value is as the schema lets it through.
pub(super) fn gate(gate: &Gate) -> upgrade::Gate {
    let object = &gate.object;
    upgrade::Gate {
        name: gate.name.as_str().into(),
        object: upgrade::GateObject {
            api_version: object.api_version.as_str().into(),
            kind: object.kind.as_str().into(),
            namespace: object.namespace.as_str().into(),
            name: object.name.as_str().into(),
        },
        condition: gate.condition.type_.as_str().into(),
        status: gate.condition.status.as_str().into(),
    }
}

/// What the status remembers of what soaks. A later release may know other kinds.
pub(super) fn soaks(stored: &[Soak]) -> Vec<upgrade::Soak> {
    let soak = |soak: &Soak| {
        let group: Arc<str> = soak.group.as_str().into();
        let what = match soak.kind.as_str() {
            "ControlPlane" => Soaked::ControlPlane,
            "Group" => Soaked::Group(group),
            "Canaries" => Soaked::Canaries(group),
            "Controllers" => Soaked::Controllers,
            _ => return None,
        };
        Some(upgrade::Soak { what, version: soak.version.parse().ok()?, done: soak.done_time.0 })
    };
    stored.iter().filter_map(soak).collect()
}

/// What the status says of `soak`.
pub(super) fn told(soak: &upgrade::Soak) -> Soak {
    let (kind, group) = match &soak.what {
        Soaked::ControlPlane => ("ControlPlane", String::new()),
        Soaked::Group(name) => ("Group", name.to_string()),
        Soaked::Canaries(name) => ("Canaries", name.to_string()),
        Soaked::Controllers => ("Controllers", String::new()),
    };
    Soak { kind: kind.to_owned(), group, version: soak.version.to_string(), done_time: Time(soak.done) }
}
