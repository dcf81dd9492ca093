//! One drain: what it looks at, what it sends, and what it tells of the answers.
//!
//! The loop belongs to [`crate::drive`], and every decision to the core. The invariant: what a drain keeps between two
//! looks may be lost; started again, the command goes on from the Nodes' cordons.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::disruption::Charge;
use evenkeel_core::disruption::answer::Answer;
use evenkeel_core::drain::{
    DrainAction, DrainConditions, DrainDecision, DrainRequest, DrainUnseen, DrainWorld, decide,
};
use futures::Stream;
use jiff::Timestamp;
use kube::Client;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::super::absent::absent_node;
use super::display::{Event, Teller};
use super::kept::{DrainKept, NodeChange, Reply};
use super::reread::PodsRead;
use super::waited::DrainTrouble;
use super::watches::Watches;
use crate::act::evict::Manner;
use crate::act::{Authority, Effects, Leaves, node, refusal};
use crate::clock::Clock;
use crate::drive::{Conclusion, Driven, Interrupt, NextLook, drive};
use crate::observe::fold::Unseen;

/// At most one decision in this time: what changes together is seen together.
const BETWEEN_DECISIONS: Duration = Duration::from_millis(20);
/// Longest time between two looks, so that the live view and the waits are up to date.
const TICK: Duration = Duration::from_secs(1);
/// Interrupts within this time after the first count as the same one.
const ONE_PRESS: Duration = Duration::from_millis(500);
/// How long a drain that stops tries to make schedulable again what it cordoned, where that was asked for.
const GIVES_BACK: Duration = Duration::from_secs(30);
/// How long a node gets no new request after one that failed for another reason than a lost race.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// How long a node gets no new request after one that read its pods and found some that have to leave.
const AFTER_READ: Duration = Duration::from_millis(500);

/// One drain of the nodes in `request`, with its watches and what it remembers.
pub(super) struct Draining {
    client: Client,
    pub(super) effects: Effects,
    pub(super) clock: Clock,
    pub(super) request: DrainRequest,
    pub(super) teller: Teller,
    pub(super) manner: Manner,
    /// Whether the drain writes the conditions `DrainInProgress` and `Drained` of its nodes.
    conditions: bool,
    chunk: u32,
    pub(super) watches: Watches,
    pub(super) kept: DrainKept,
}

impl Driven for Draining {
    type Done = Reply;
    type Failure = String;

    fn running(&mut self) -> &mut JoinSet<Reply> {
        &mut self.kept.running
    }

    async fn look(&mut self) -> Result<NextLook, String> {
        self.kept.queue.forget();
        match self.watches.seen() {
            Ok(()) => {
                self.kept.unseen = None;
                self.kept.troubles.ends(&DrainTrouble::Watch);
            }
            Err(unseen) if self.stops_unseen(&unseen)? => {}
            Err(_) => return Ok(NextLook::Again(TICK)),
        }
        let (done, again) = self.once()?;
        Ok(if done { NextLook::Done } else { NextLook::Again(again) })
    }

    fn take(&mut self, done: Result<Reply, JoinError>) -> Result<(), String> {
        // A request whose task panicked counts as one without an answer.
        done.map_or(Ok(()), |reply| self.answered(reply))?;
        self.send_evictions()
    }

    fn interrupted(&mut self) -> Result<Interrupt, String> {
        match self.kept.interrupted {
            // One Ctrl-C may come twice: from the terminal, and from a parent process that passes it on.
            Some(first) if first.elapsed() < ONE_PRESS => Ok(Interrupt::Nothing),
            Some(_) => Ok(Interrupt::Quit),
            None => {
                self.kept.interrupted = Some(Instant::now());
                self.stop("interrupted".into());
                if self.request.give_back {
                    self.teller.note(
                        "interrupted: asks no more pods, uncordons what is not drained, and waits for answers; again: quits",
                    )?;
                    // Its looks go on until all is given back, or the time for that is over.
                    return Ok(Interrupt::Nothing);
                }
                self.teller.note("interrupted: asks no more pods, and waits for answers; again: quits")?;
                Ok(Interrupt::Settle)
            }
        }
    }
}

impl Draining {
    /// Begins to watch, and waits until the watches have shown everything that the drain needs.
    pub(super) async fn begin(
        client: &Client,
        effects: Effects,
        clock: Clock,
        request: DrainRequest,
        teller: Teller,
        grace: Option<i64>,
        chunk: u32,
    ) -> Result<Self, String> {
        // A steady clock: no wait becomes longer if somebody sets the machine's clock back.
        let clock = clock.steady();
        let watches = Watches::begin(client, &request.nodes, request.policy.await_volumes).await?;
        let mut work = Self {
            client: client.clone(),
            effects,
            clock,
            request,
            teller,
            manner: Manner { grace, dry_run: false },
            conditions: false,
            chunk,
            watches,
            kept: DrainKept::default(),
        };
        for name in &work.request.nodes {
            let Some(uid) = work.watches.uid(name) else {
                return Err(absent_node(name));
            };
            work.kept.uids.insert(Arc::clone(name), uid);
        }
        Ok(work)
    }

    /// Sets whether the drain writes the conditions `DrainInProgress` and `Drained` of its nodes.
    pub(super) fn with_conditions(mut self, conditions: bool) -> Self {
        self.conditions = conditions;
        self
    }

    /// Writes conditions of a node, if that was asked for, when those before them are written.
    pub(super) fn say_on_node(&mut self, name: &Arc<str>, conditions: DrainConditions) {
        let Some(uid) = self.kept.uids.get(name).filter(|_| self.conditions) else { return };
        if let Some(next) = self.kept.conditions.get_mut(name) {
            *next = Some(conditions);
            return;
        }
        self.kept.conditions.insert(Arc::clone(name), None);
        let (effects, name, uid) = (self.effects.clone(), Arc::clone(name), Arc::clone(uid));
        let now = self.clock.now();
        self.kept.running.spawn(async move {
            let sent = node::conditions(&effects, &Authority::Person, &name, &uid, conditions, now).await;
            Reply::Conditions(name, sent)
        });
    }

    /// Drains, until every node is done or somebody `interrupts`: the first time ends it early, the second time at once.
    pub(super) async fn run(mut self, interrupts: impl Stream<Item = ()>) -> Result<u8, String> {
        self.foretell()?;
        let changes = self.watches.changes.clone();
        match drive(&mut self, &changes, BETWEEN_DECISIONS, interrupts).await? {
            // Who quits is told, too, what stays behind.
            Conclusion::Settled | Conclusion::Quit => self.finish(),
        }
    }

    /// Takes one look at everything. Returns whether the drain is done, and how long to wait before the next look.
    fn once(&mut self) -> Result<(bool, Duration), String> {
        let cluster = self.watches.cluster();
        let now = self.clock.now();
        self.warn(&cluster, now)?;
        let memory = self.kept.sent.memory(&cluster, now);
        // A pod may come after the look: only the decision that follows it goes by it.
        let confirmed = std::mem::take(&mut self.kept.confirmed);
        let world = DrainWorld {
            cluster: &cluster,
            memory: &memory,
            states: &self.kept.states,
            uids: &self.kept.uids,
            confirmed: &confirmed,
            reread: &self.kept.reread,
            refused: &self.kept.refused_patches,
            now,
        };
        let decision = decide(&self.request, world);
        self.gone(&cluster)?;
        self.changed(&cluster, &decision)?;
        self.waiting(&decision)?;
        self.show(&cluster, &decision)?;
        let DrainDecision { actions, states, again_at, done, .. } = decision;
        self.kept.states = states;
        self.kept.busy.retain(|_, until| until.is_none_or(|until| until > Instant::now()));
        let over = self.kept.stopped.is_some_and(|at| at.elapsed() >= GIVES_BACK);
        for action in actions.into_iter().filter(|_| !over) {
            self.act(action);
        }
        self.send_evictions()?;
        let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
        let next = [again_at, self.kept.sent.next()].into_iter().flatten().min().map_or(TICK, until);
        Ok(((done || over) && self.kept.running.is_empty(), next.clamp(Duration::from_millis(5), TICK)))
    }

    /// Asks for nothing more, for the reason `why`.
    fn stop(&mut self, why: Arc<str>) {
        self.request.stopped.get_or_insert(why);
        self.kept.stopped.get_or_insert_with(Instant::now);
        self.kept.queue.forget();
    }

    /// Whether the drain stops, or has, while the cluster is `unseen`. As long as it hopes, it decides nothing: the watches
    /// open again by themselves. One that stops only gives nodes back, for which it need not see what changes.
    fn stops_unseen(&mut self, unseen: &Unseen) -> Result<bool, String> {
        self.trouble(DrainTrouble::Watch, &unseen.line)?;
        let now = self.clock.now();
        // Whose credentials are not accepted is refused as well.
        let refused = unseen.refused || unseen.code == Some(401);
        let since = DrainUnseen::goes_on(self.kept.unseen, refused, now);
        self.kept.unseen = Some(since);
        if let Some(why) = since.ends(&self.request, &self.kept.states, &unseen.line, now) {
            self.stop(why.into());
        }
        Ok(self.request.stopped.is_some())
    }

    fn act(&mut self, action: DrainAction) {
        let effects = self.effects.clone();
        match action {
            DrainAction::Cordon(node) => {
                if self.is_busy(&node.name) {
                    return;
                }
                let mark = self.request.mark.clone();
                self.kept.cordoning.insert(Arc::clone(&node.name));
                self.kept.running.spawn(async move {
                    let sent = node::cordon(&effects, &Authority::Person, &node, &mark, false).await;
                    Reply::Node(node.name, NodeChange::Cordoned, sent.map(Box::new))
                });
            }
            DrainAction::Uncordon(node) => {
                if self.is_busy(&node.name) {
                    return;
                }
                self.kept.running.spawn(async move {
                    let sent = node::uncordon(&effects, &Authority::Person, &node, false).await;
                    Reply::Node(node.name, NodeChange::Uncordoned, sent.map(Box::new))
                });
            }
            DrainAction::Evict(permit) => self.kept.queue.push(Leaves::ByEviction(permit)),
            DrainAction::Delete(forced) => self.kept.queue.push(Leaves::ByDeletion(forced)),
            DrainAction::Reread(name) => self.reads(name),
        }
    }

    /// Has the pods of a node read by a request of their own.
    fn reads(&mut self, name: Arc<str>) {
        if self.is_busy(&name) {
            return;
        }
        let (client, chunk, asked) = (self.client.clone(), self.chunk, self.clock.now());
        self.kept.running.spawn(async move {
            let read = PodsRead::of(&client, &name, chunk).await;
            Reply::Reread(name, asked, read)
        });
    }

    /// Whether the node gets no new request yet. If it does, it is marked busy, because the caller sends one.
    fn is_busy(&mut self, name: &Arc<str>) -> bool {
        if self.kept.busy.contains_key(name) {
            return true;
        }
        self.kept.busy.insert(Arc::clone(name), None);
        false
    }

    /// Takes in the outcome of a request.
    fn answered(&mut self, reply: Reply) -> Result<(), String> {
        if let Reply::Node(name, NodeChange::Cordoned, _) = &reply {
            self.kept.cordoning.remove(name);
        }
        match reply {
            Reply::Node(name, change, Ok(node)) => {
                self.kept.busy.remove(&name);
                self.kept.refused_patches.taken(&name);
                self.kept.troubles.ends(&DrainTrouble::Patch(Arc::clone(&name)));
                self.watches.apply_own(&name, *node);
                self.teller.tell(Event::of_node(&name, change.text(), change.text()))
            }
            Reply::Conditions(name, sent) => {
                if let Some(next) = self.kept.conditions.remove(&name).flatten() {
                    self.say_on_node(&name, next);
                }
                let Err(error) = sent else { return Ok(()) };
                self.teller
                    .note(&format!("warning: conditions of node/{name} are not written: {}", error.line()))
            }
            Reply::Node(name, change, Err(error)) => {
                // Somebody else changed the node: the core decides again when the watch shows the change.
                let lost = error.code() == Some(409);
                // Who sees nothing would lose at once again.
                let soon = lost && self.kept.unseen.is_none();
                let wait = if soon { Duration::from_millis(100) } else { AFTER_FAILURE };
                self.kept.busy.insert(Arc::clone(&name), Some(Instant::now() + wait));
                if lost {
                    self.kept.refused_patches.taken(&name);
                    self.kept.troubles.ends(&DrainTrouble::Patch(name));
                    return Ok(());
                }
                if let Some(why) = refusal(&error) {
                    self.kept.refused_patches.refused(&name, why, self.clock.now());
                }
                let line = format!("node/{name} is not {}: {}", change.text(), error.line());
                self.trouble(DrainTrouble::Patch(name), &line)
            }
            Reply::Pod { node, pod, uid, charge, forced, answer } => {
                self.was_asked((node, pod, uid), charge, forced, &answer)
            }
            Reply::Reread(name, asked, Ok(read)) => {
                self.kept.troubles.ends(&DrainTrouble::Reread(Arc::clone(&name)));
                self.was_read(name, asked, read);
                Ok(())
            }
            Reply::Reread(name, _, Err(why)) => {
                self.kept.busy.insert(Arc::clone(&name), Some(Instant::now() + AFTER_FAILURE));
                let line = format!("node/{name}: its pods cannot be read once more: {why}");
                self.trouble(DrainTrouble::Reread(name), &line)
            }
        }
    }

    /// Takes in what the server answered about a pod that was asked to leave, or deleted if `forced`: of that node, that name and
    /// that UID.
    fn was_asked(
        &mut self,
        (node, pod, uid): (Arc<str>, String, Arc<str>),
        charge: Option<Charge>,
        forced: bool,
        answer: &Answer,
    ) -> Result<(), String> {
        let now = self.clock.now();
        // What waits is decided anew by what this answer says: a busy server is left alone for a while.
        if !matches!(answer, Answer::Accepted(_)) {
            self.kept.queue.forget();
        }
        match answer {
            Answer::Accepted(_) => {
                self.kept.evictions += 1;
                self.kept.asked.insert(Arc::clone(&uid), (Arc::clone(&node), pod.clone()));
                self.teller.tell(Event::of_pod(&node, "evicting", &pod, "is leaving"))?;
            }
            // The watch may tell of its end in a moment, or may have lost it.
            Answer::Gone => {
                let on = self.watches.node_of(&uid);
                if !on.is_empty() {
                    self.reads(on);
                }
            }
            refused => {
                self.kept.refused += 1;
                tracing::debug!(pod, answer = refused.label(), "not evicted");
            }
        }
        if forced {
            self.kept.sent.deleted(uid, answer, now);
        } else {
            self.kept.sent.answered(uid, charge, answer, now);
        }
        Ok(())
    }

    /// Takes in what the server told of the pods of node `name` when it was `asked`. The watch shows what it lacked when the
    /// next decision is made, and pods that it lost the end of are gone.
    fn was_read(&mut self, name: Arc<str>, asked: Timestamp, read: PodsRead) {
        let now = self.clock.now();
        if read.may_stay(&self.request.policy.rules, &self.watches.surroundings(), now) {
            self.kept.busy.remove(&name);
            self.kept.confirmed.insert(Arc::clone(&name), asked);
        } else {
            self.kept.busy.insert(Arc::clone(&name), Some(Instant::now() + AFTER_READ));
        }
        self.watches.reread(&name, read);
        self.kept.reread.insert(name, now);
    }
}
