//! What a person or a program reads of a drain: a line for each event, JSON, or a live view on a terminal.
//!
//! Nothing here decides. The invariants: an event is told once; piped output never moves a cursor; text of others,
//! such as a webhook's denial, never does either; and the live view says at any time what the drain waits for and
//! since when.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write};
use std::sync::Arc;

use clap::ValueEnum;
use evenkeel_core::disruption::preflight::DrainForecast;
use evenkeel_core::text::harmless;
use serde::Serialize;

use super::super::exit::print_to;
use crate::clock::Clock;

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DrainForm {
    /// A line for each event; on a terminal a live view.
    Text,
    /// One document at the end.
    Json,
    /// A JSON object for each event.
    Jsonl,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    /// When it was told.
    time: String,
    /// `cordoned`, `evicting`, `gone`, `waiting`, `drained`, …
    #[serde(rename = "type")]
    what: &'static str,
    node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<String>,
    message: String,
}

impl Event {
    pub(super) fn of_node(node: &Arc<str>, what: &'static str, message: impl Into<String>) -> Self {
        Self {
            time: String::new(),
            what,
            node: node.to_string(),
            pod: None,
            budget: None,
            message: message.into(),
        }
    }

    pub(super) fn of_pod(node: &Arc<str>, what: &'static str, pod: &str, message: impl Into<String>) -> Self {
        Self { pod: Some(pod.to_owned()), ..Self::of_node(node, what, message) }
    }

    pub(super) fn about(mut self, budget: Option<String>) -> Self {
        self.budget = budget;
        self
    }
}

/// How one node stands when the drain ends.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfNode {
    pub(super) node: String,
    pub(super) drained: bool,
    pub(super) cordoned: bool,
    pub(super) seconds: Option<i64>,
    pub(super) reason: Option<String>,
}

/// The result of a drain: every node, and how many evictions the server accepted and refused.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DrainTold {
    pub(super) nodes: Vec<OfNode>,
    pub(super) evictions: usize,
    pub(super) refused: usize,
}

/// Writes events, notes and the result of a drain in one form of output.
pub(super) struct Teller {
    form: DrainForm,
    live: bool,
    /// How many lines of the live view stand on the terminal.
    shown: usize,
    events: Vec<Event>,
    forecast: Option<DrainForecast>,
    out: Box<dyn Write + Send + Sync>,
    /// Where lines about the command itself go, such as warnings: standard error, unless a caller chose another writer.
    notes: Box<dyn Write + Send + Sync>,
    clock: Clock,
}

/// The lines of the live view.
#[derive(Default)]
pub(super) struct DrainScreen {
    /// Each node's name, and what happens to the node now.
    pub(super) nodes: Vec<(Arc<str>, String)>,
    /// A line for each budget that pods wait for: how many wait, and its numbers.
    pub(super) budgets: Vec<String>,
    /// The longest wait: its reason, and since when it lasts.
    pub(super) waits: String,
}

const MAX_NODES: usize = 12;
const MAX_BUDGETS: usize = 6;

impl Teller {
    pub(super) fn new(form: DrainForm, clock: Clock) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let live = form == DrainForm::Text && std::io::stdout().is_terminal() && !dumb;
        let (out, notes) = (Box::new(std::io::stdout()), Box::new(std::io::stderr()));
        Self { live, ..Self::to(form, out, notes, clock) }
    }

    /// Writes to `out` and `notes` instead of the standard streams, and never shows a live view.
    pub(super) fn to(
        form: DrainForm,
        out: Box<dyn Write + Send + Sync>,
        notes: Box<dyn Write + Send + Sync>,
        clock: Clock,
    ) -> Self {
        Self { form, live: false, shown: 0, events: Vec::new(), forecast: None, out, notes, clock }
    }

    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    pub(super) fn tell(&mut self, mut event: Event) -> Result<(), String> {
        event.message = harmless(&event.message);
        event.time = self.clock.now().round(jiff::Unit::Millisecond).unwrap_or_default().to_string();
        match self.form {
            DrainForm::Json => {
                self.events.push(event);
                Ok(())
            }
            DrainForm::Jsonl => {
                let line = serde_json::to_string(&event).map_err(|error| format!("cannot write: {error}"))?;
                print_to(&mut self.out, &(line + "\n"))
            }
            DrainForm::Text => {
                let line = match &event.pod {
                    Some(pod) => format!("node/{}: pod {pod}: {}\n", event.node, event.message),
                    None => format!("node/{}: {}\n", event.node, event.message),
                };
                let wipe = self.wipe();
                print_to(&mut self.out, &(wipe + &line))
            }
        }
    }

    /// Tells how long the drain will take: a note before the first event for text, a field of the document for JSON,
    /// nothing for JSON lines.
    pub(super) fn foretell(&mut self, forecast: DrainForecast) -> Result<(), String> {
        match self.form {
            DrainForm::Text => self.note(&forecast.to_string()),
            DrainForm::Jsonl => Ok(()),
            DrainForm::Json => {
                self.forecast = Some(forecast);
                Ok(())
            }
        }
    }

    /// Writes a line about the command itself to the notes, which are standard error by default.
    pub(super) fn note(&mut self, line: &str) -> Result<(), String> {
        let wipe = self.wipe();
        print_to(&mut self.out, &wipe)?;
        // Standard error is not buffered: what is written later must not be wiped.
        self.out.flush().map_err(|error| format!("cannot write: {error}"))?;
        // A drain goes on whether or not anybody can read its notes.
        let _ = writeln!(self.notes, "{}", harmless(line));
        Ok(())
    }

    /// Draws the live view anew.
    pub(super) fn draw(&mut self, view: &DrainScreen) -> Result<(), String> {
        if !self.live {
            return Ok(());
        }
        let width = terminal_width();
        let mut lines = Vec::new();
        let name_width = view.nodes.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, what) in view.nodes.iter().take(MAX_NODES) {
            lines.push(format!("{name:<name_width$}  {what}"));
        }
        if view.nodes.len() > MAX_NODES {
            lines.push(format!("and {} more nodes", view.nodes.len() - MAX_NODES));
        }
        lines.extend(view.budgets.iter().take(MAX_BUDGETS).cloned());
        if view.budgets.len() > MAX_BUDGETS {
            lines.push(format!("and {} more PDBs", view.budgets.len() - MAX_BUDGETS));
        }
        lines.push(view.waits.clone());
        let mut text = self.wipe();
        for line in &lines {
            // A line that the terminal wraps takes two rows, and `wipe` counts one.
            let cut: String = harmless(line).chars().take(width.saturating_sub(1)).collect();
            let _ = writeln!(text, "{cut}");
        }
        self.shown = lines.len();
        print_to(&mut self.out, &text)?;
        self.out.flush().map_err(|error| format!("cannot write: {error}"))
    }

    /// Returns the escape sequence that takes the live view off the terminal, and counts it as gone.
    fn wipe(&mut self) -> String {
        match std::mem::take(&mut self.shown) {
            0 => String::new(),
            lines => format!("\r\u{1b}[{lines}A\u{1b}[J"),
        }
    }

    pub(super) fn end(&mut self, told: &DrainTold) -> Result<(), String> {
        let wipe = self.wipe();
        match self.form {
            DrainForm::Text => print_to(&mut self.out, &wipe),
            DrainForm::Jsonl => Ok(()),
            DrainForm::Json => {
                let forecast = self.forecast.as_ref().map(|forecast| {
                    let better = forecast.better.as_ref();
                    serde_json::json!({
                        "seconds": forecast.time.as_secs(),
                        "concurrency": forecast.at_once,
                        "replacementSeconds": forecast.slot.as_secs(),
                        "replacementKnown": forecast.known,
                        "betterConcurrency": better.map(|(nodes, _)| nodes),
                        "betterSeconds": better.map(|(_, time)| time.as_secs()),
                        "podsWithoutBudget": forecast.unguarded,
                    })
                });
                let document = serde_json::json!({
                    "apiVersion": "cli.evenkeel.dev/v1alpha1",
                    "kind": "Drain",
                    "forecast": forecast,
                    "nodes": told.nodes,
                    "evictions": told.evictions,
                    "refused": told.refused,
                    "events": self.events,
                });
                let text = serde_json::to_string_pretty(&document);
                let text = text.map_err(|error| format!("cannot write: {error}"))? + "\n";
                print_to(&mut self.out, &text)
            }
        }
    }
}

/// Columns of the terminal; 80 if it does not say or says fewer than 20.
fn terminal_width() -> usize {
    let of_terminal = terminal_size::terminal_size().map(|(width, _)| width.0.into());
    of_terminal.filter(|width| *width >= 20).unwrap_or(80)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_others_wrote_moves_no_cursor() {
        for form in [DrainForm::Text, DrainForm::Jsonl] {
            let (out, notes) = (Paper::default(), Paper::default());
            let (to, beside) = (Box::new(out.clone()), Box::new(notes.clone()));
            let mut teller = Teller::to(form, to, beside, Clock::default());
            let denied = "denied: \u{1b}[2J\u{202e}drawkcab\u{2069}\n";
            teller.tell(Event::of_pod(&"n-1".into(), "waiting", "shop/cart", denied)).unwrap();
            teller.note(denied).unwrap();
            for paper in [out, notes] {
                let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
                assert!(text.contains("denied: ?[2J?drawkcab??"), "{text:?}");
            }
        }
    }
}
