//! Faults: what goes wrong with which request, before or after it is carried out, and with which watch event.
//!
//! Rules are tried in the order in which they were added; the first that fits a request decides. Nothing here is
//! random: a script is a list, so that the shortest one that still fails can be found by leaving rules out
//! ([`shortest`]).

pub(crate) mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::signal::Signal;

/// What a rule looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// How many requests came before this one: 0 for the first.
    pub ordinal: u64,
    /// How many requests of the same program came before this one.
    pub nth: u64,
    /// When it came.
    pub at: Instant,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
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
    /// What was sent.
    pub body: Bytes,
}

impl Call {
    /// Whether the request may change anything.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }

    /// The body, as JSON; null if it is no JSON.
    pub fn sent(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The request in one line: `create pods/eviction default/web-1`.
    pub fn line(&self) -> String {
        let path = match &self.subresource {
            Some(sub) => format!("{}/{sub}", self.resource),
            None => self.resource.clone(),
        };
        let of = [&self.namespace, &self.name].into_iter().flatten().cloned().collect::<Vec<_>>().join("/");
        [self.verb, path.as_str(), of.as_str()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// What admission makes of an object or a patch.
#[derive(Clone)]
pub struct Rewrite(Arc<dyn Fn(&mut Value) + Send + Sync>);

impl Rewrite {
    /// Changes what was sent.
    pub fn new(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self(Arc::new(change))
    }

    /// Takes away the field at this JSON pointer, as a policy does that does not allow the field.
    pub fn without(pointer: &str) -> Self {
        let (parent, name) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        let (parent, name) = (parent.to_owned(), name.replace("~1", "/").replace("~0", "~"));
        Self::new(move |object| {
            drop(object.pointer_mut(&parent).and_then(Value::as_object_mut).map(|map| map.remove(&name)));
        })
    }

    pub(crate) fn apply(&self, body: &Bytes) -> Option<Bytes> {
        let mut object = serde_json::from_slice(body).ok()?;
        (self.0)(&mut object);
        Some(object.to_string().into())
    }
}

impl std::fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rewrite(…)")
    }
}

impl PartialEq for Rewrite {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Rewrite {}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request is answered with this status and not carried out.
    Refuse(u16),
    /// 429 without a budget as the cause, as priority and fairness answers.
    Throttle {
        /// `Retry-After`, in seconds.
        retry_after: u32,
    },
    /// 429 with a budget as the cause, as the eviction handler answers.
    Budget {
        /// `Retry-After`, in seconds: the answer says that the budget's status is behind. 0: it says that the budget is
        /// spent.
        retry_after: u32,
    },
    /// A validating webhook of that name denies it: 400, in the server's words.
    Deny(&'static str),
    /// A webhook of that name, which fails closed, does not answer: 500.
    WebhookDown(&'static str),
    /// Admission changes what was sent, then it is carried out.
    Rewrite(Rewrite),
    /// 504: the server's cache is older than the `resourceVersion` that was asked for.
    TooLarge,
    /// The connection breaks before the request arrives.
    ResetBefore,
    /// The request is carried out, then the connection breaks.
    ResetAfter,
    /// The request never arrives, and is never answered.
    HangBefore,
    /// The request is carried out, and never answered.
    HangAfter,
    /// The request is carried out, and answered with this status all the same.
    AnswerAfter(u16),
    /// The request waits for this time before it is carried out. It is not carried out if the program gives it up
    /// meanwhile.
    Delay(Duration),
    /// The request is carried out after this time, whether or not anybody still waits for the answer, as behind a slow
    /// proxy.
    Late(Duration),
    /// The program that asks is stopped just before the request is sent, and goes on after this time, as with SIGSTOP
    /// and SIGCONT. Then the request is carried out, whatever has happened meanwhile. Until then the program sends no
    /// other request and gets no answer and no event. Its timers run on, but what they start waits at the next request.
    Pause(Duration),
    /// A get, a list or the beginning of a watch is answered as of this many revisions ago.
    Stale(u64),
    /// The server forgets everything before now, then carries out the request.
    Compact,
    /// The watch tells nothing but bookmarks.
    Bookmarks,
    /// The watch opens and never says anything, not even that it ends.
    Silence,
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
    /// It, and every event after it on this watch, is delivered later by this time: events of other kinds overtake it.
    Delay(Duration),
    /// The next event of this watch comes first, so that this one is older than what was told already.
    Swap,
    /// Instead of it comes a 410, and the watch ends.
    Gone,
    /// Instead of it the watch ends, as if its time were over.
    End,
    /// Instead of it the connection breaks.
    Reset,
    /// Instead of it comes something that is no JSON, and the watch ends.
    Garbage,
}

/// An event that is about to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Told {
    /// How many events of that resource were delivered before, to anybody.
    pub ordinal: u64,
    /// How many of that resource were delivered to the same program before.
    pub nth: u64,
    /// The program that watches.
    pub agent: String,
    /// `pods`, `deployments.apps`.
    pub resource: String,
    /// The event in the watch's own words, as JSON.
    pub line: String,
}

type CallTest = Arc<dyn Fn(&Call) -> bool + Send + Sync>;
type ToldTest = Arc<dyn Fn(&Told) -> bool + Send + Sync>;

#[derive(Clone)]
struct FaultRule {
    test: CallTest,
    fault: Fault,
    left: u64,
}

struct WatchRule {
    test: ToldTest,
    fault: WatchFault,
    left: u64,
}

#[derive(Default)]
struct Script {
    calls: u64,
    of_agent: BTreeMap<String, u64>,
    rules: Vec<FaultRule>,
    watches: Vec<WatchRule>,
    events: BTreeMap<String, u64>,
    events_of_agent: BTreeMap<(String, String), u64>,
    /// Until when nobody, or only these programs, get an answer.
    blackout: Option<(Instant, BTreeSet<String>)>,
    log: Option<Vec<Call>>,
}

impl Script {
    fn is_dark(&self, agent: &str) -> bool {
        self.blackout.as_ref().is_some_and(|(end, agents)| {
            Instant::now() < *end && (agents.is_empty() || agents.contains(agent))
        })
    }
}

struct FaultState {
    script: Mutex<Script>,
    /// Given at a blackout; a watch that is told of one looks whether it concerns its program.
    cuts: Signal,
    /// Counts crashes.
    crashes: watch::Sender<u64>,
}

/// The faults of a cluster; cloning it is another handle on the same script.
#[derive(Clone)]
pub struct Faults(Arc<FaultState>);

impl Default for Faults {
    fn default() -> Self {
        let (cuts, crashes) = (Signal::default(), watch::Sender::new(0));
        Self(Arc::new(FaultState { script: Mutex::default(), cuts, crashes }))
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let script = self.lock();
        f.debug_struct("Faults").field("calls", &script.calls).field("rules", &script.rules.len()).finish()
    }
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, Script> {
        self.0.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This fault for the request with that ordinal; the first request to the cluster has the ordinal 0.
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
        self.lock().rules.push(FaultRule { test: Arc::new(test), fault, left: times });
        self
    }

    /// This fault for the event of a resource with that ordinal; the first event of the resource that any watch of the
    /// cluster delivered has the ordinal 0.
    pub fn event(&self, resource: &str, ordinal: u64, fault: WatchFault) -> &Self {
        let resource = resource.to_owned();
        self.when_told(move |told| told.resource == resource && told.ordinal == ordinal, fault, 1)
    }

    /// This fault for the first `times` events that fit. The objects with which a watch begins are no events.
    pub fn when_told(
        &self,
        test: impl Fn(&Told) -> bool + Send + Sync + 'static,
        fault: WatchFault,
        times: u64,
    ) -> &Self {
        self.lock().watches.push(WatchRule { test: Arc::new(test), fault, left: times });
        self
    }

    /// For this time from now on nobody gets an answer, and watches break.
    pub fn blackout(&self, time: Duration) -> &Self {
        self.blackout_of(&[], time)
    }

    /// For this time from now on these programs get no answer, and their watches break. It replaces an earlier
    /// blackout.
    pub fn blackout_of(&self, agents: &[&str], time: Duration) -> &Self {
        let agents = agents.iter().map(|&agent| agent.to_owned()).collect();
        self.lock().blackout = Some((Instant::now() + time, agents));
        self.0.cuts.give();
        self
    }

    /// Takes all rules away and ends a blackout. The counts go on.
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

    /// Remembers every request from now on. Returns the requests that were remembered until now.
    pub fn record(&self) -> Vec<Call> {
        self.lock().log.replace(Vec::new()).unwrap_or_default()
    }

    /// How often a fault has crashed a program.
    pub fn crashes(&self) -> u64 {
        *self.0.crashes.borrow()
    }

    /// Resolves when faults have crashed programs more than `known` times.
    pub async fn crashed(&self, known: u64) {
        let mut crashes = self.0.crashes.subscribe();
        // The sender lives as long as this handle.
        let _ = crashes.wait_for(|count| *count > known).await;
    }

    pub(crate) fn crash(&self) {
        self.0.crashes.send_modify(|crashes| *crashes += 1);
    }

    /// Counts a request and says what goes wrong with it.
    pub(crate) fn next(&self, mut call: Call) -> Option<Fault> {
        let mut script = self.lock();
        call.ordinal = script.calls;
        script.calls += 1;
        let count = script.of_agent.entry(call.agent.clone()).or_default();
        call.nth = *count;
        *count += 1;
        let dark = script.is_dark(&call.agent);
        let rule = script.rules.iter_mut().find(|rule| !dark && rule.left > 0 && (rule.test)(&call));
        let fault = rule.map(|rule| {
            rule.left -= 1;
            rule.fault.clone()
        });
        if let Some(log) = &mut script.log {
            log.push(call);
        }
        if dark { Some(Fault::ResetBefore) } else { fault }
    }

    fn event_fault(&self, resource: &str, agent: &str, line: &str) -> Option<WatchFault> {
        let mut script = self.lock();
        let count = |count: &mut u64| std::mem::replace(count, *count + 1);
        let ordinal = count(script.events.entry(resource.to_owned()).or_default());
        let key = (agent.to_owned(), resource.to_owned());
        let nth = count(script.events_of_agent.entry(key).or_default());
        if script.watches.is_empty() {
            return None;
        }
        let (agent, resource, line) = (agent.to_owned(), resource.to_owned(), line.to_owned());
        let told = Told { ordinal, nth, agent, resource, line };
        let rule = script.watches.iter_mut().find(|rule| rule.left > 0 && (rule.test)(&told))?;
        rule.left -= 1;
        Some(rule.fault)
    }
}

/// The shortest script that still fails: parts are left out, halves first, as long as what is left fails.
///
/// `fails` is asked about parts of `script`, each in the order of `script`. The result cannot be made shorter by
/// leaving out any one step.
pub fn shortest<T: Clone>(script: &[T], mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut kept = script.to_vec();
    let mut size = kept.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut shorter = false;
        while at < kept.len() {
            let end = (at + size).min(kept.len());
            let less: Vec<T> = kept.iter().take(at).chain(kept.iter().skip(end)).cloned().collect();
            if less.len() < kept.len() && fails(&less) {
                kept = less;
                shorter = true;
            } else {
                at = end;
            }
        }
        if !shorter && size == 1 {
            return kept;
        }
        if !shorter {
            size = size.div_ceil(2).min(size - 1);
        }
    }
}
