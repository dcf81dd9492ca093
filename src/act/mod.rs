//! Writes: each [`Action`] of the core becomes one request with its precondition, and its answer an [`Outcome`].
//!
//! Nothing here decides; a write whose precondition failed is [`Outcome::Lost`] and is never repeated from here: the
//! world is read again and decided again. The invariant: every request is sent by [`Hands`], which holds the proof of
//! leadership it needs and looks at it right before sending.

mod claim;
pub mod elect;
mod event;
pub mod evict;
mod job;
pub mod node;
pub mod status;

use std::sync::Arc;

use evenkeel_core::disruption::{CORDON_MANAGER, Charge, answer::Answer};
use evenkeel_core::rollout::{Action, NodeRef};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};

use self::elect::Leadership;
use crate::api::{ClusterUpgrade, NodeUpgrade};
use crate::clock::Clock;
use crate::observe::lean;

pub use event::Events;
pub use job::ATTEMPT_LABEL;

/// Field manager of everything written about an upgrade.
pub const FIELD_MANAGER: &str = CORDON_MANAGER;

/// What became of an action.
#[derive(Debug)]
pub enum Outcome {
    /// The claim as the server has it now.
    Claim(Box<DynamicObject>),
    /// The claim is deleted.
    ClaimGone {
        /// Its name.
        name: Arc<str>,
        /// Its UID.
        uid: Arc<str>,
    },
    /// The Node as the server has it now.
    Node(Box<lean::Node>),
    /// The executor's Job exists.
    Job(Box<lean::Job>),
    /// The eviction was answered.
    Eviction {
        /// UID of the pod.
        uid: Arc<str>,
        /// The budget it was charged to.
        charge: Option<Charge>,
        /// What the answer means.
        answer: Answer,
    },
    /// The world had moved on; nothing was changed.
    Lost(String),
    /// The request failed, or it is not known whether it was carried out. One line.
    Failed(String),
    /// We do not lead any more; nothing was sent.
    NotLeading,
}

/// What writes need.
#[derive(Clone)]
pub struct Hands {
    client: Client,
    leadership: Leadership,
    executors_namespace: Arc<str>,
    events: Events,
    clock: Clock,
}

/// Why a write did not happen, before it is told as an [`Outcome`].
#[derive(Debug)]
enum Stop {
    Lost(String),
    Failed(String),
    NotLeading,
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Lost(why) => Self::Lost(why),
            Stop::Failed(why) => Self::Failed(why),
            Stop::NotLeading => Self::NotLeading,
        }
    }
}

/// What an API error means for a write with a precondition.
fn stop(what: &str, error: &kube::Error) -> Stop {
    let line = crate::clients::one_line(error);
    match error {
        // Conflict, AlreadyExists, or the object is gone: somebody was faster.
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => Stop::Lost(format!("{what}: {line}")),
        _ => Stop::Failed(format!("{what}: {line}")),
    }
}

impl Hands {
    /// Writes with `client` (an effects client) by `clock`, while `leadership` lasts; executors' Jobs go to
    /// `executors_namespace`.
    pub fn new(client: Client, leadership: Leadership, executors_namespace: &str, clock: Clock) -> Self {
        let events = Events::new(client.clone());
        Self { client, leadership, executors_namespace: executors_namespace.into(), events, clock }
    }

    /// Carries out `action` of `upgrade`.
    pub async fn perform(&self, upgrade: &ClusterUpgrade, action: Action) -> Outcome {
        let done = match action {
            Action::Claim { name, subject } => self.create_claim(upgrade, &name, &subject).await,
            Action::Record { claim, resource_version, state, attempt, message, blockers, drained } => {
                let next = claim::Next { state, attempt, message, blockers };
                self.record(upgrade, &claim, &resource_version, next, drained).await
            }
            Action::Release { claim, uid, resource_version } => {
                self.delete_claim(claim, uid, &resource_version).await
            }
            Action::Cordon { node, mark } => self.cordon(&node, &mark).await,
            Action::Uncordon { node, .. } => self.uncordon(&node).await,
            Action::ReleaseOrphan { node, mark } => self.uncordon_orphan(&node, &mark).await,
            Action::Evict(permit) => self.evict(permit).await,
            Action::StartJob { claim, uid, attempt, subject } => {
                self.start_job(upgrade, &claim, &uid, attempt, &subject).await
            }
        };
        done.unwrap_or_else(Outcome::from)
    }

    /// Gives back a node whose claim does not exist.
    pub async fn release_orphan(&self, node: &NodeRef, mark: &str) -> Outcome {
        self.uncordon_orphan(node, mark).await.unwrap_or_else(Outcome::from)
    }

    /// Our leadership still holds; asked right before every request.
    fn leading(&self) -> Result<(), Stop> {
        self.leadership.proof().map(|_| ()).ok_or(Stop::NotLeading)
    }

    fn claims(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<NodeUpgrade>(&()))
    }

    fn nodes(&self) -> Api<lean::Node> {
        Api::all(self.client.clone())
    }
}
