//! Who may write, and the one way in which a write is sent.
//!
//! Nothing here decides what is written. The invariants: the client for writes is reached only through
//! [`Authority::send`], [`Authority::send_eviction`] and the publisher of events; a request first waits for its turn, then
//! the authority is checked, then the request is sent and its timeout begins; an eviction, of which there may be hundreds, is
//! sent by whoever got a place for it, so that none waits here and none takes the turn of another write; an event has places
//! of its own, too, and is dropped where it would wait for long; and when a term of leadership ends, every request that is
//! still on its way is given up.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::elect::{LeadershipLost, Term};
use crate::clients::{EFFECT_TIMEOUT, one_line, within};

/// How many writes may be on their way at once, evictions apart.
const IN_FLIGHT: usize = 8;

/// How many evictions, and deletions of pods past their budgets, may be on their way at once.
pub const EVICTIONS_AT_ONCE: usize = 8;

/// How many events may be on their way at once. Where they are kept in a store of their own, that one may hang while every
/// other write works.
const EVENTS_AT_ONCE: usize = 2;

/// How long an event waits for its place.
const EVENT_WAITS: Duration = Duration::from_secs(3);

/// On whose behalf something is written.
#[derive(Clone, Debug)]
pub enum Authority {
    /// The operator leads, for as long as this term lasts.
    Leader(Term),
    /// Somebody at a terminal began this and watches it.
    Person,
}

impl Authority {
    /// Sends `request` with the client for writes, once.
    ///
    /// # Errors
    /// [`NotDone`]. After an error that is no answer of the server the request may still have been carried out.
    pub async fn send<T>(
        &self,
        effects: &Effects,
        request: impl AsyncFnOnce(Client) -> kube::Result<T>,
    ) -> Result<T, NotDone> {
        // Nobody closes the semaphore; without a turn the request is sent all the same.
        let _turn = effects.turns.acquire().await;
        self.send_now(effects, request).await
    }

    /// Sends `request`, which is the eviction of a pod or its deletion, in `place`.
    ///
    /// # Errors
    /// Those of [`Authority::send`].
    pub async fn send_eviction<T>(
        &self,
        effects: &Effects,
        place: EvictionPlace,
        request: impl AsyncFnOnce(Client) -> kube::Result<T>,
    ) -> Result<T, NotDone> {
        let sent = self.send_now(effects, request).await;
        drop(place);
        sent
    }

    async fn send_now<T>(
        &self,
        effects: &Effects,
        request: impl AsyncFnOnce(Client) -> kube::Result<T>,
    ) -> Result<T, NotDone> {
        self.check()?;
        let answer = within(EFFECT_TIMEOUT, request(effects.client.clone()));
        match self {
            // When the term ends, a request that is on its way is given up.
            Self::Leader(term) => tokio::select! {
                biased;
                answer = answer => Ok(answer?),
                () = term.lost() => Err(LeadershipLost.into()),
            },
            Self::Person => Ok(answer.await?),
        }
    }

    fn check(&self) -> Result<(), LeadershipLost> {
        match self {
            Self::Leader(term) => term.proof().map(drop).ok_or(LeadershipLost),
            Self::Person => Ok(()),
        }
    }
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum NotDone {
    /// We do not lead any more; nothing was sent, or it was given up on its way.
    #[error(transparent)]
    NotLeading(#[from] LeadershipLost),
    /// The server refused, or it is not known what it did.
    #[error(transparent)]
    Failed(#[from] kube::Error),
}

impl NotDone {
    /// The HTTP status of the server's refusal.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Failed(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// The error for a person, in one line.
    pub fn line(&self) -> String {
        match self {
            Self::NotLeading(lost) => lost.to_string(),
            Self::Failed(error) => one_line(error),
        }
    }
}

/// The client for everything that is written. It is reached with an [`Authority`] alone:
///
/// ```compile_fail
/// fn around(effects: evenkeel::act::Effects) -> kube::Client {
///     effects.client
/// }
/// ```
#[derive(Clone)]
pub struct Effects {
    client: Client,
    turns: Arc<Semaphore>,
    evictions: Arc<Semaphore>,
    events: Arc<Semaphore>,
}

impl Effects {
    /// Sends writes through `client`, which must not retry by itself.
    pub fn new(client: Client) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        let (turns, events) = (places(IN_FLIGHT), places(EVENTS_AT_ONCE));
        Self { client, turns, evictions: places(EVICTIONS_AT_ONCE), events }
    }

    /// A place for one more eviction; `None` while as many are on their way as may be.
    pub fn eviction_place(&self) -> Option<EvictionPlace> {
        Arc::clone(&self.evictions).try_acquire_owned().ok().map(EvictionPlace)
    }
}

/// The right to have one eviction on its way. It is free again when this is dropped.
pub struct EvictionPlace(#[expect(dead_code, reason = "it is only held")] OwnedSemaphorePermit);

/// Publishes events as long as its authority lasts, and counts those that repeat; a clone counts with it. The recorder has a
/// client of its own, so it does not leave this file.
#[derive(Clone)]
pub(super) struct EventPublisher {
    recorder: Recorder,
    effects: Effects,
    authority: Authority,
}

impl EventPublisher {
    pub(super) fn new(effects: Effects, authority: Authority) -> Self {
        Self { recorder: Recorder::new(effects.client.clone(), "evenkeel".into()), effects, authority }
    }

    /// Sends `event` about `regarding`, once, unless too many others are on their way for too long.
    pub(super) async fn publish(&self, event: &Event, regarding: &ObjectReference) -> Result<(), NotDone> {
        // Nobody closes the semaphore.
        let place = async { Ok(self.effects.events.acquire().await) };
        let _place = within(EVENT_WAITS, place).await?;
        let request = async |_| self.recorder.publish(event, regarding).await;
        self.authority.send_now(&self.effects, request).await
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::future::join_all;
    use kube::client::Body;
    use tokio::time::{Instant, sleep};

    use super::super::elect::Lessor;
    use super::*;

    /// A server that takes `takes` for each answer, and counts how often it is asked.
    fn slow(takes: Duration) -> (Effects, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            counter.fetch_add(1, Ordering::SeqCst);
            async move {
                sleep(takes).await;
                Ok::<_, Infallible>(http::Response::new(Body::from(b"{}".to_vec())))
            }
        });
        (Effects::new(Client::new(service, "default")), asked)
    }

    async fn write(authority: &Authority, effects: &Effects) -> Result<String, NotDone> {
        let request = http::Request::builder().uri("/").body(Vec::new()).unwrap();
        authority.send(effects, async |client| client.request_text(request).await).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_turn_is_no_part_of_a_requests_time() {
        let (effects, asked) = slow(Duration::from_secs(7));
        let begun = Instant::now();
        let sent = join_all((0..=IN_FLIGHT).map(|_| write(&Authority::Person, &effects))).await;
        assert_eq!(begun.elapsed().as_secs(), 14, "the last one had to wait for its turn");
        assert!(sent.iter().all(Result::is_ok), "{sent:?}");
        assert_eq!(asked.load(Ordering::SeqCst), IN_FLIGHT + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn evictions_have_so_many_places_and_no_other_write_waits_for_them() {
        let (effects, asked) = slow(Duration::from_secs(7));
        let evict = |place| {
            let effects = effects.clone();
            async move {
                let request = http::Request::builder().uri("/").body(Vec::new()).unwrap();
                let send = async |client: Client| client.request_text(request).await;
                Authority::Person.send_eviction(&effects, place, send).await.map(drop)
            }
        };
        let places: Vec<EvictionPlace> = std::iter::from_fn(|| effects.eviction_place()).collect();
        assert_eq!(places.len(), EVICTIONS_AT_ONCE);
        let begun = Instant::now();
        let evictions = tokio::spawn(join_all(places.into_iter().map(evict)));
        sleep(Duration::from_secs(1)).await;
        assert!(write(&Authority::Person, &effects).await.is_ok());
        assert_eq!(begun.elapsed().as_secs(), 8, "it was sent at once");
        assert_eq!(asked.load(Ordering::SeqCst), EVICTIONS_AT_ONCE + 1);
        assert!(evictions.await.unwrap().iter().all(Result::is_ok));
        assert!(effects.eviction_place().is_some(), "the places are free again");
    }

    #[tokio::test(start_paused = true)]
    async fn no_other_write_waits_for_events_that_hang_and_those_that_would_wait_are_dropped() {
        use kube::runtime::events::EventType;

        let (effects, asked) = slow(Duration::from_hours(1));
        let publisher = EventPublisher::new(effects.clone(), Authority::Person);
        let event = |reason: usize| Event {
            type_: EventType::Normal,
            reason: format!("Reason{reason}"),
            note: None,
            action: "Decide".to_owned(),
            secondary: None,
        };
        let begun = Instant::now();
        let publish = |reason: usize| {
            let (publisher, event) = (publisher.clone(), event(reason));
            async move {
                let published = publisher.publish(&event, &ObjectReference::default()).await;
                (published.is_err(), begun.elapsed())
            }
        };
        let events = tokio::spawn(join_all((0..20).map(publish)));
        sleep(Duration::from_secs(1)).await;
        let before = asked.load(Ordering::SeqCst);
        assert_eq!(before, EVENTS_AT_ONCE, "so many events are on their way");
        let writing = {
            let effects = effects.clone();
            tokio::spawn(async move { write(&Authority::Person, &effects).await })
        };
        sleep(Duration::from_millis(1)).await;
        assert_eq!(asked.load(Ordering::SeqCst), before + 1, "another write is sent at once");
        let ended = events.await.unwrap();
        let at = |time: Duration| ended.iter().filter(|end| **end == (true, time)).count();
        assert_eq!((at(EVENT_WAITS), at(EFFECT_TIMEOUT)), (20 - EVENTS_AT_ONCE, EVENTS_AT_ONCE), "{ended:?}");
        assert!(writing.await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_is_given_up() {
        let (effects, _) = slow(Duration::from_hours(1));
        let begun = Instant::now();
        let sent = write(&Authority::Person, &effects).await;
        assert_eq!(sent.unwrap_err().line(), "no answer in time");
        assert_eq!(begun.elapsed(), EFFECT_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_that_ends_while_a_write_waits_for_its_turn_sends_nothing() {
        let (effects, asked) = slow(Duration::from_secs(7));
        let mut lessor = Lessor::default();
        let authority = Authority::Leader(lessor.lets(Duration::from_secs(5)));
        let sent = join_all((0..=IN_FLIGHT).map(|_| write(&authority, &effects))).await;
        assert_eq!(asked.load(Ordering::SeqCst), IN_FLIGHT);
        assert!(matches!(sent.last(), Some(Err(NotDone::NotLeading(_)))), "{:?}", sent.last());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_on_its_way_when_a_term_ends_is_given_up() {
        let (effects, asked) = slow(Duration::from_secs(7));
        let authority = Authority::Leader(Lessor::default().lets(Duration::from_secs(5)));
        let begun = Instant::now();
        let sent = write(&authority, &effects).await;
        assert!(matches!(sent, Err(NotDone::NotLeading(_))), "{sent:?}");
        assert_eq!((begun.elapsed().as_secs(), asked.load(Ordering::SeqCst)), (5, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_an_old_term_writes_nothing_in_the_next_one() {
        let (effects, asked) = slow(Duration::ZERO);
        let mut lessor = Lessor::default();
        let old = Authority::Leader(lessor.lets(Duration::from_secs(5)));
        assert!(write(&old, &effects).await.is_ok());
        sleep(Duration::from_secs(6)).await;
        let new = Authority::Leader(lessor.lets(Duration::from_secs(5)));
        assert!(matches!(write(&old, &effects).await, Err(NotDone::NotLeading(_))));
        assert!(write(&new, &effects).await.is_ok());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}
