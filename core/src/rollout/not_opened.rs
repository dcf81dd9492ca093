//! Why nothing new is opened, although something could be.
//!
//! Here belong the reasons, as values that code compares, with what ends each of them, and their words. Whether one
//! holds is decided in `gate` and in what it asks; that an upgrade waits for it is told by `waiting`.

use std::fmt;
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::hold_reason::OutOf;
use super::write::{Write, WriteKind};
use crate::disruption::preflight::duration_text;
use crate::upgrade::Soaked;
use crate::upgrade::calendar::{Opening, Shut, zoned_time};

/// How often it is looked whether somebody has removed what is in the way: the object of a gate is read, a write that was refused
/// is sent, and a Job is tried. What was read of a gate is believed for so long.
pub(super) const EVERY: SignedDuration = SignedDuration::from_secs(15);

/// What keeps from being opened what could be opened otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotOpened {
    /// As many nodes are out of the rollout as may be.
    Failures {
        /// What is counted: failed nodes or parked ones.
        state: OutOf,
        /// How many nodes are out in that way now.
        count: usize,
        /// Of so many selected nodes.
        selected: usize,
        /// From so many on, nothing is opened.
        limit: usize,
        /// The first of them, by name.
        first: Arc<str>,
    },
    /// The calendar does not allow it.
    Shut {
        /// What of the calendar is in the way.
        shut: Shut,
        /// What is to be opened, such as `a node`.
        what: &'static str,
        /// How long that is expected to take.
        needs: SignedDuration,
        /// When it may be opened; `None` if never.
        opens: Option<Opening>,
    },
    /// What was done last is watched.
    Soak {
        /// What was done last.
        what: Soaked,
        /// The end of the time that a person set for it; of controllers, of the time that they take.
        until: Timestamp,
    },
    /// The server is asked first whether it would take the Jobs of executors.
    Trial,
    /// The same, and it was asked and gave no answer.
    Unanswered {
        /// The name of the `UpgradeExecutor`.
        executor: Arc<str>,
        /// Why there is no answer, in one line.
        why: String,
        /// It has given none for so long that a person has to look at it.
        lasting: bool,
    },
    /// The object of a gate is read first.
    GateRead {
        /// The name of the gate.
        gate: Arc<str>,
    },
    /// The object of a gate is not as it has to be.
    Gate {
        /// The name of the gate.
        gate: Arc<str>,
        /// Why it is closed, and what a person has to do if it is lasting, in one line.
        why: String,
        /// Its object could not be read more than once in a row for a reason that only a person removes.
        lasting: bool,
        /// When the object is read again.
        read_at: Timestamp,
    },
    /// An empty node is upgraded first, so that what leaves the others has a place.
    Seed {
        /// The empty node.
        seed: Arc<str>,
        /// After this the others go on, whether the empty node is upgraded or not.
        until: Timestamp,
    },
    /// What left an earlier node starts elsewhere, and a node has more of the same.
    Replacements {
        /// The node that is next, and has more of the same pods.
        node: Arc<str>,
        /// One of those that start.
        pod: String,
        /// So many start besides.
        more: usize,
        /// Until when they are waited for.
        until: Timestamp,
    },
    /// The server refuses a write.
    Refused {
        /// What is written.
        write: Write,
        /// The server's reason, in one line.
        why: String,
        /// The server is asked again then, at the earliest now.
        sent_at: Timestamp,
    },
    /// The server would refuse the Job of an executor.
    Job {
        /// The name of the `UpgradeExecutor`.
        executor: Arc<str>,
        /// The server's reason, in one line.
        why: String,
        /// It was refused more than once in a row, so that a person has to look at it.
        lasting: bool,
    },
    /// Too many nodes of a zone are not ready.
    Zone {
        /// The zone; empty for nodes without one.
        zone: Arc<str>,
        /// So many.
        not_ready: usize,
        /// Of so many.
        nodes: usize,
        /// They have not been ready for so long that it does not end by itself.
        lasting: bool,
    },
    /// No node of any zone is ready.
    AllZones {
        /// So many are not.
        not_ready: usize,
        /// They have not been ready for so long that it does not end by itself.
        lasting: bool,
    },
}

impl NotOpened {
    /// Whether other nodes may be opened all the same.
    pub(super) fn is_of_a_part(&self) -> bool {
        let taints = |write: &Write| write.kind == WriteKind::Taint;
        matches!(self, Self::Zone { .. }) || matches!(self, Self::Refused { write, .. } if taints(write))
    }

    /// When it ends, where that is known.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Shut { opens, .. } => opens.as_ref().map(|opening| opening.at),
            Self::Soak { until, .. } | Self::Seed { until, .. } | Self::Replacements { until, .. } => {
                Some(*until)
            }
            Self::Gate { read_at: at, .. } | Self::Refused { sent_at: at, .. } => Some(*at),
            Self::Trial
            | Self::Unanswered { .. }
            | Self::GateRead { .. }
            | Self::Failures { .. }
            | Self::Job { .. }
            | Self::Zone { .. }
            | Self::AllZones { .. } => None,
        }
    }
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failures { state, count, selected, limit, first } => {
                // What a failed node's claim leaves behind is cordoned.
                let (what, mend, field) = match state {
                    OutOf::Failed => ("failed", "delete their NodeUpgrades and uncordon them", "maxFailed"),
                    _ => ("are parked", "delete their NodeUpgrades", "maxParked"),
                };
                write!(
                    f,
                    "{count} of {selected} nodes {what}, {first} first, and from {limit} on nothing new is begun: mend \
                     them and {mend}, or raise failurePolicy.{field}"
                )
            }
            Self::Shut { shut, what, needs, opens } => closed(f, shut, what, *needs, opens.as_ref()),
            Self::Soak { what, until } => {
                match what {
                    Soaked::Controllers => {
                        f.write_str("kubelets wait while the controllers take up their work")?;
                    }
                    Soaked::ControlPlane => write!(f, "kubelets wait while the control plane soaks")?,
                    Soaked::Group(name) => write!(f, "the groups after {name} wait while it soaks")?,
                    Soaked::Canaries(name) => {
                        write!(f, "the others of group {name} wait while its canaries soak")?;
                    }
                }
                write!(f, ", until {}", zoned_time(*until, &TimeZone::UTC))
            }
            Self::Trial => f.write_str("asks the server whether it would take the Jobs of executors"),
            Self::Unanswered { executor, why, .. } => {
                let every = duration_text(EVERY);
                write!(
                    f,
                    "executor {executor}: nothing begins until the server says whether it would take its Job (asked at \
                     least every {every}): {why}"
                )
            }
            Self::GateRead { gate } => write!(f, "reads the object of gate {gate}"),
            Self::Gate { gate, why, .. } => {
                write!(f, "gate {gate} is closed (read every {}): {why}", duration_text(EVERY))
            }
            Self::Seed { seed, until } => write!(
                f,
                "the others wait until {seed}, which is empty, is upgraded and takes their pods, at the latest until {}",
                zoned_time(*until, &TimeZone::UTC)
            ),
            Self::Replacements { node, pod, more, until } => {
                write!(f, "{node} waits until pod {pod}")?;
                if *more > 0 {
                    write!(f, " and {more} more")?;
                }
                let verb = if *more > 0 { "are" } else { "is" };
                write!(
                    f,
                    ", which took the place of what left, {verb} ready, at the latest until {}",
                    zoned_time(*until, &TimeZone::UTC)
                )
            }
            Self::Refused { write, why, .. } => {
                write!(f, "the server refuses to {write} (asked every {}): {why}", duration_text(EVERY))
            }
            Self::Job { executor, why, .. } => {
                let every = duration_text(EVERY);
                write!(f, "executor {executor}: the server would refuse its Job (asked every {every}): {why}")
            }
            Self::Zone { zone, not_ready, nodes, lasting } => {
                let zone =
                    if zone.is_empty() { "nodes without a zone".to_owned() } else { format!("zone {zone}") };
                let end = if *lasting { "a person brings them back" } else { "more of them are" };
                write!(
                    f,
                    "{zone}: {not_ready} of {nodes} nodes are not ready, and none of it is taken up until {end}"
                )
            }
            Self::AllZones { not_ready, lasting } => {
                let end = if *lasting { "a person brings some back" } else { "some are" };
                write!(f, "no node is ready ({not_ready} are not), and nothing is begun until {end}")
            }
        }
    }
}

/// Says why the calendar does not allow `what`, which takes about `needs`, and when it does.
fn closed(
    f: &mut fmt::Formatter<'_>,
    shut: &Shut,
    what: &str,
    needs: SignedDuration,
    opens: Option<&Opening>,
) -> fmt::Result {
    let needs = duration_text(needs);
    let Some(opens) = opens else {
        return match shut {
            Shut::Frozen(name) | Shut::Freezes(name, _) => {
                write!(
                    f,
                    "frozen by {name}, and no time in sight is long enough for {what} ({needs}): shorten the freeze"
                )
            }
            _ => write!(f, "no window in sight is long enough for {what} ({needs}): lengthen one"),
        };
    };
    match shut {
        Shut::Window => write!(f, "no window is open")?,
        Shut::Frozen(name) => write!(f, "frozen by {name}")?,
        Shut::Closes(at) => {
            write!(f, "{what} takes about {needs}, and the window closes {}", zoned_time(*at, &opens.zone))?;
        }
        Shut::Freezes(name, at) => {
            write!(f, "{what} takes about {needs}, and {name} freezes it {}", zoned_time(*at, &opens.zone))?;
        }
    }
    write!(f, "; opens {}", zoned_time(opens.at, &opens.zone))
}
