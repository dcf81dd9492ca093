//! Scripts: what goes wrong in one run, in a form that can be shown, shortened and put in again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use evenkeel_sim::Cluster;
use evenkeel_sim::faults::{Call, Fault, WatchFault};

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// With a program's requests from the `nth` on, as often as said.
    Call { agent: String, nth: u64, times: u64, fault: String },
    /// With every request of a program that is like this one: of one object, as [`Call::line`] says it, or of any, as
    /// [`kind_of`] does.
    Like { agent: String, line: String, fault: String },
    /// With an event that a program is told.
    Told { agent: String, resource: String, nth: u64, fault: String },
    /// Something that happens, so long after the beginning.
    At { millis: u64, deed: String },
}

/// The faults of a request by name.
pub fn fault(name: &str) -> Option<Fault> {
    let (word, number) = name.split_once(':').unwrap_or((name, ""));
    let count = number.parse::<u64>().unwrap_or(0);
    Some(match word {
        "refuse" => Fault::Refuse(u16::try_from(count).ok()?),
        "answer-after" => Fault::AnswerAfter(u16::try_from(count).ok()?),
        "throttle" => Fault::Throttle { retry_after: u32::try_from(count).ok()? },
        "budget" => Fault::Budget { retry_after: u32::try_from(count).ok()? },
        "deny" => Fault::Deny("no.example"),
        "webhook-down" => Fault::WebhookDown("w.example"),
        "too-large" => Fault::TooLarge,
        "reset-before" => Fault::ResetBefore,
        "reset-after" => Fault::ResetAfter,
        "hang-before" => Fault::HangBefore,
        "hang-after" => Fault::HangAfter,
        "delay" => Fault::Delay(Duration::from_secs(count)),
        "late" => Fault::Late(Duration::from_secs(count)),
        "pause" => Fault::Pause(Duration::from_secs(count)),
        "stale" => Fault::Stale(count),
        "compact" => Fault::Compact,
        "bookmarks" => Fault::Bookmarks,
        "silence" => Fault::Silence,
        "crash-before" => Fault::CrashBefore,
        "crash-after" => Fault::CrashAfter,
        _ => return None,
    })
}

/// The faults of an event by name.
pub fn told(name: &str) -> Option<WatchFault> {
    let (word, number) = name.split_once(':').unwrap_or((name, ""));
    Some(match word {
        "drop" => WatchFault::Drop,
        "duplicate" => WatchFault::Duplicate,
        "delay" => WatchFault::Delay(Duration::from_secs(number.parse().ok()?)),
        "swap" => WatchFault::Swap,
        "gone" => WatchFault::Gone,
        "end" => WatchFault::End,
        "reset" => WatchFault::Reset,
        "garbage" => WatchFault::Garbage,
        _ => return None,
    })
}

/// Every status of the plan, each before the request is carried out and after.
pub fn statuses() -> Vec<String> {
    let codes = [400, 403, 404, 409, 410, 413, 422, 429, 500, 503, 504];
    let mut all: Vec<String> = Vec::new();
    for code in codes {
        all.push(format!("refuse:{code}"));
        all.push(format!("answer-after:{code}"));
    }
    for name in [
        "throttle:1",
        "budget:0",
        "budget:10",
        "deny",
        "webhook-down",
        "too-large",
        "reset-before",
        "reset-after",
        "hang-before",
        "hang-after",
        "delay:3",
    ] {
        all.push(name.to_owned());
    }
    all
}

/// Those of them that this request can meet, and that differ there: a read that is carried out and then not answered, or
/// answered otherwise, has changed nothing, so that it is as one that never arrived. Admission looks at writes alone, a
/// budget at evictions, and only what is read can be newer than a server's cache.
pub fn statuses_of(call: &Call) -> Vec<String> {
    let (writes, evicts) = (call.is_write(), call.subresource.as_deref() == Some("eviction"));
    let fits = |fault: &String| match fault.split(':').next().unwrap_or_default() {
        "answer-after" | "reset-after" | "hang-after" | "deny" | "webhook-down" => writes,
        "budget" => evicts,
        "too-large" => !writes,
        _ => true,
    };
    statuses().into_iter().filter(fits).collect()
}

/// One of each class of those that this request can meet. What an answer means to the operator is decided in one place, and by
/// its class: somebody was faster, it is refused for a reason that lasts, or it failed; each of them before the request is
/// carried out and after. An eviction is answered in ways of its own.
pub fn classes_of(call: &Call) -> Vec<String> {
    let evicts = call.subresource.as_deref() == Some("eviction");
    let is_one = |fault: &String| match fault.as_str() {
        "refuse:403" | "refuse:503" | "hang-before" => true,
        "refuse:409" | "answer-after:403" | "answer-after:409" | "answer-after:503" | "hang-after"
        | "webhook-down" => call.is_write(),
        "refuse:410" => !call.is_write(),
        "throttle:1" | "budget:0" | "budget:10" => evicts,
        _ => false,
    };
    statuses_of(call).into_iter().filter(is_one).collect()
}

/// Puts every step that is a fault into the cluster; what is to happen is left to the scenario.
pub fn arm(cluster: &Cluster, script: &[Step]) {
    arm_while(cluster, script, || true);
}

/// The same, for as long as `holds`.
pub fn arm_while(
    cluster: &Cluster,
    script: &[Step],
    holds: impl Fn() -> bool + Clone + Send + Sync + 'static,
) {
    for step in script {
        let holds = holds.clone();
        match step.clone() {
            Step::Call { agent, nth, times, fault: name } => {
                let fault = fault(&name).unwrap_or_else(|| panic!("no fault is called {name}"));
                let fits = move |call: &Call| holds() && call.agent == agent && call.nth >= nth;
                cluster.faults().when(fits, fault, times);
            }
            Step::Like { agent, line, fault: name } => {
                let fault = fault(&name).unwrap_or_else(|| panic!("no fault is called {name}"));
                let fits = move |call: &Call| {
                    holds() && call.agent == agent && [kind_of(call), call.line()].contains(&line)
                };
                cluster.faults().when(fits, fault, u64::MAX);
            }
            Step::Told { agent, resource, nth, fault: name } => {
                let fault = told(&name).unwrap_or_else(|| panic!("no fault of an event is called {name}"));
                let fits = move |told: &evenkeel_sim::faults::Told| {
                    holds() && told.agent == agent && told.resource == resource && told.nth == nth
                };
                cluster.faults().when_told(fits, fault, 1);
            }
            Step::At { .. } => {}
        }
    }
}

/// What a request is like, whichever object it is about: `create pods/eviction`.
pub fn kind_of(call: &Call) -> String {
    match &call.subresource {
        Some(sub) => format!("{} {}/{sub}", call.verb, call.resource),
        None => format!("{} {}", call.verb, call.resource),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { agent, nth, times, fault } => write!(f, "call {agent} {nth} {times} {fault}"),
            Self::Like { agent, line, fault } => write!(f, "like {agent} {} {fault}", line.replace(' ', "~")),
            Self::Told { agent, resource, nth, fault } => write!(f, "told {agent} {resource} {nth} {fault}"),
            Self::At { millis, deed } => write!(f, "at {millis} {deed}"),
        }
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let owned = |word: &&str| (*word).to_owned();
        let number = |word: &&str| word.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        match words.as_slice() {
            ["call", agent, nth, times, fault] => Ok(Self::Call {
                agent: owned(agent),
                nth: number(nth)?,
                times: number(times)?,
                fault: owned(fault),
            }),
            ["like", agent, line, fault] => {
                Ok(Self::Like { agent: owned(agent), line: line.replace('~', " "), fault: owned(fault) })
            }
            ["told", agent, resource, nth, fault] => Ok(Self::Told {
                agent: owned(agent),
                resource: owned(resource),
                nth: number(nth)?,
                fault: owned(fault),
            }),
            ["at", millis, rest @ ..] => Ok(Self::At { millis: number(millis)?, deed: rest.join(" ") }),
            _ => Err(format!("{text}: not a step")),
        }
    }
}

/// The script as one line.
pub fn line(script: &[Step]) -> String {
    script.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_script_can_be_put_in_again() {
    let steps = [
        Step::Call { agent: "a".into(), nth: 3, times: 1, fault: "refuse:500".into() },
        Step::Like { agent: "a".into(), line: "create pods/eviction".into(), fault: "reset-after".into() },
        Step::Told { agent: "a".into(), resource: "pods".into(), nth: 2, fault: "drop".into() },
        Step::At { millis: 1500, deed: "cordon worker-1".into() },
    ];
    let read: Vec<Step> = line(&steps).split(';').map(|step| step.parse().unwrap()).collect();
    assert_eq!(read, steps);
}

/// Whether a run has two replicas: where the script speaks of the second or of the lease, or the first loses the lead
/// while it lives.
pub fn has_two(script: &[Step]) -> bool {
    let line = line(script);
    line.contains("evenkeel-b") || line.contains("-lease") || script.iter().any(is_failover)
}

/// Steps by which the first replica loses the lead while it lives.
fn is_failover(step: &Step) -> bool {
    match step {
        Step::Call { fault, .. } => fault.starts_with("pause"),
        Step::At { deed, .. } => deed.starts_with("cut"),
        _ => false,
    }
}
