//! Faults: what goes wrong with which request, before or after it is carried out, and with which watch event.
//!
//! Rules are tried in the order in which they were added; the first that fits a request decides. Nothing here is random:
//! a script is a list, so that the shortest one that still fails can be found by leaving rules out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What a rule looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// How many requests came before this one: 0 for the first.
    pub ordinal: u64,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// `pods`, `deployments.apps`; empty for what is no resource.
    pub resource: String,
    /// The namespace, if the request names one.
    pub namespace: Option<String>,
    /// The object's name, if the request names one.
    pub name: Option<String>,
    /// `status`, `eviction`, …
    pub subresource: Option<String>,
    /// The program that asks, as its `User-Agent` says.
    pub agent: String,
}

impl Call {
    /// Does it change anything?
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request is answered with this status and not carried out.
    Refuse(u16),
    /// Too many requests, without a budget as the cause: priority and fairness.
    Throttle {
        /// `Retry-After`, in seconds.
        retry_after: u32,
    },
    /// The connection breaks before the request arrives.
    ResetBefore,
    /// The request is carried out, then the connection breaks.
    ResetAfter,
    /// The request never arrives, and never is answered.
    HangBefore,
    /// The request is carried out, and never answered.
    HangAfter,
    /// The request is carried out, and answered with this status all the same.
    AnswerAfter(u16),
    /// The request waits so long before it is carried out.
    Delay(Duration),
    /// A get or list is answered from so many revisions ago.
    Stale(u64),
    /// Everything before now is forgotten, then the request is carried out.
    Compact,
    /// The program that asks dies before the request is sent: the client never works again.
    CrashBefore,
    /// The program that asks dies after the request is carried out.
    CrashAfter,
}

/// What goes wrong with an event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchFault {
    /// It is not delivered.
    Drop,
    /// It is delivered twice.
    Duplicate,
    /// It, and every one after it, is delivered so much later.
    Delay(Duration),
    /// Instead of it comes a 410, and the watch ends.
    Gone,
    /// Instead of it the watch ends, as if its time were over.
    End,
}

type CallTest = Arc<dyn Fn(&Call) -> bool + Send + Sync>;

#[derive(Clone)]
struct Rule {
    test: CallTest,
    fault: Fault,
    left: u64,
}

struct WatchRule {
    resource: String,
    /// Of the events of that resource, over all watches that the rule sees.
    ordinal: u64,
    fault: WatchFault,
}

#[derive(Default)]
struct Script {
    calls: u64,
    rules: Vec<Rule>,
    watches: Vec<WatchRule>,
    events: std::collections::BTreeMap<String, u64>,
    blackout: Option<Instant>,
    log: Option<Vec<Call>>,
}

/// The faults of a cluster; cloning it is another handle on the same script.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Script>>);

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let script = self.lock();
        f.debug_struct("Faults").field("calls", &script.calls).field("rules", &script.rules.len()).finish()
    }
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This fault for the request with that ordinal, counted from the first that ever came.
    pub fn at(&self, ordinal: u64, fault: Fault) -> &Self {
        self.when(move |call| call.ordinal == ordinal, fault, 1)
    }

    /// This fault for the first `times` requests that fit.
    pub fn when(
        &self,
        test: impl Fn(&Call) -> bool + Send + Sync + 'static,
        fault: Fault,
        times: u64,
    ) -> &Self {
        self.lock().rules.push(Rule { test: Arc::new(test), fault, left: times });
        self
    }

    /// This fault for one event of a resource, counted from the first that a watch ever delivered from now on.
    pub fn event(&self, resource: &str, ordinal: u64, fault: WatchFault) -> &Self {
        self.lock().watches.push(WatchRule { resource: resource.to_owned(), ordinal, fault });
        self
    }

    /// From now on nobody gets an answer, for so long; watches end.
    pub fn blackout(&self, time: Duration) -> &Self {
        self.lock().blackout = Some(Instant::now() + time);
        self
    }

    /// No more faults.
    pub fn clear(&self) {
        let mut script = self.lock();
        script.rules.clear();
        script.watches.clear();
        script.blackout = None;
    }

    /// How many requests have come.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Remembers every request from now on; what was remembered until now.
    pub fn record(&self) -> Vec<Call> {
        self.lock().log.replace(Vec::new()).unwrap_or_default()
    }

    /// Counts a request and says what goes wrong with it.
    pub(crate) fn next(&self, mut call: Call) -> Option<Fault> {
        let mut script = self.lock();
        call.ordinal = script.calls;
        script.calls += 1;
        if let Some(log) = &mut script.log {
            log.push(call.clone());
        }
        if script.blackout.is_some_and(|end| Instant::now() < end) {
            return Some(Fault::ResetBefore);
        }
        let rule = script.rules.iter_mut().find(|rule| rule.left > 0 && (rule.test)(&call))?;
        rule.left -= 1;
        Some(rule.fault.clone())
    }

    /// The faults of one watch.
    pub(crate) fn stream(&self, resource: &str) -> Stream {
        Stream {
            faults: self.clone(),
            resource: resource.to_owned(),
            late: VecDeque::new(),
            delay: Duration::ZERO,
        }
    }

    fn event_fault(&self, resource: &str) -> Option<WatchFault> {
        let mut script = self.lock();
        if script.watches.is_empty() {
            return None;
        }
        let count = script.events.entry(resource.to_owned()).or_default();
        let ordinal = *count;
        *count += 1;
        let at =
            script.watches.iter().position(|rule| rule.resource == resource && rule.ordinal == ordinal)?;
        Some(script.watches.remove(at).fault)
    }
}

/// What has become of the events of one watch.
pub(crate) struct Stream {
    faults: Faults,
    resource: String,
    late: VecDeque<(Instant, String)>,
    delay: Duration,
}

impl Stream {
    /// Takes an event that is to be delivered.
    pub(crate) fn deliver(&mut self, line: String, lines: &mut VecDeque<String>, over: &mut bool) {
        if *over {
            return;
        }
        match self.faults.event_fault(&self.resource) {
            Some(WatchFault::Drop) => return,
            Some(WatchFault::Duplicate) => self.push(line.clone(), lines),
            Some(WatchFault::Delay(time)) => self.delay = time,
            Some(WatchFault::Gone) => {
                let gone = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;
                lines.push_back(gone.to_owned());
                *over = true;
                return;
            }
            Some(WatchFault::End) => {
                *over = true;
                return;
            }
            None => {}
        }
        self.push(line, lines);
    }

    fn push(&mut self, line: String, lines: &mut VecDeque<String>) {
        if self.delay.is_zero() {
            lines.push_back(line);
        } else {
            self.late.push_back((Instant::now() + self.delay, line));
        }
    }

    /// Until something that was delayed is due.
    pub(crate) async fn wait(&self) {
        match self.late.front() {
            Some((due, _)) => tokio::time::sleep_until(*due).await,
            None => std::future::pending().await,
        }
    }

    /// What was delayed until now.
    pub(crate) fn due(&mut self) -> Vec<String> {
        let now = Instant::now();
        let count = self.late.iter().take_while(|(due, _)| *due <= now).count();
        self.late.drain(..count).map(|(_, line)| line).collect()
    }
}
