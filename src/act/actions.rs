//! The operator's hands: they carry out the actions that the core decided.
//!
//! Here belongs which action calls which request; the requests themselves are in the files beside this one, one file
//! for each kind of object. The invariant: an action changes at most one object, besides its event, and every
//! request uses the authority that the hands were made with.

use std::sync::Arc;

use evenkeel_core::cluster::NodeRef;
use evenkeel_core::rollout::Action;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt as _};

use super::authority::{Authority, Effects, NotDone};
use super::event::{Events, StatusNews};
use super::outcome::{NextState, Outcome, Stop};
use crate::api::{ClusterUpgrade, NodeUpgrade};
use crate::clock::Clock;
use crate::observe::lean;

/// Everything that a write needs: the client, the authority, the clock. Cheap to clone.
#[derive(Clone)]
pub struct Hands {
    pub(super) effects: Effects,
    pub(super) authority: Authority,
    pub(super) executors_namespace: Arc<str>,
    pub(super) events: Events,
    pub(super) clock: Clock,
}

/// What was known of the objects of an action when it was decided.
#[derive(Default)]
pub struct Known {
    /// The stored claim that it moves on, if it moves one on.
    pub claim: Option<Arc<DynamicObject>>,
    /// UID of the Node that it reads, if it reads one.
    pub node: Option<Arc<str>>,
}

impl Hands {
    /// Hands that write with `effects` while `authority` lasts, take the time from `clock`, and create the
    /// executors' Jobs in `executors_namespace`.
    pub fn new(effects: Effects, authority: Authority, executors_namespace: &str, clock: Clock) -> Self {
        let events = Events::new(effects.clone(), authority.clone());
        Self { effects, authority, executors_namespace: executors_namespace.into(), events, clock }
    }

    /// Carries out `action` of `upgrade`, where `known` is what was known of its objects.
    pub async fn perform(&self, upgrade: &ClusterUpgrade, action: Action, known: Known) -> Outcome {
        let write = action.write(&upgrade.name_any());
        let done = match action {
            Action::Claim { name, subject } => self.create_claim(upgrade, &name, &subject).await,
            Action::Record {
                claim: name,
                resource_version,
                state,
                attempt,
                message,
                blockers,
                job,
                drained,
            } => {
                let next = NextState { state, attempt, message, blockers, job };
                match known.claim {
                    Some(claim) => self.record(upgrade, &claim, &resource_version, next, drained).await,
                    None => Err(Stop::Lost(format!("record NodeUpgrade {name}: it is gone"))),
                }
            }
            Action::Release { claim, uid, resource_version, finalizers } => {
                self.delete_claim(claim, uid, &resource_version, finalizers).await
            }
            Action::Reread { node, job } => self.reread(node, known.node, job).await,
            Action::ReadAttachments => self.read_attachments().await,
            Action::ReadLeases => self.read_leases().await,
            Action::ReadGate { object } => self.read_gate(object).await,
            Action::AskApiservers => Err(Stop::Failed("asking the kube-apiservers is no write".to_owned())),
            Action::Protect => self.protect(upgrade, true).await,
            Action::Unprotect => self.protect(upgrade, false).await,
            Action::HandOver { node } => self.hand_over(&node).await,
            Action::TryJob { executor, template, subject } => {
                self.try_job(executor, template, &subject).await
            }
            Action::Cordon { node, mark } => self.cordon(&node, &mark).await,
            Action::Uncordon { node, taints, .. } => self.uncordon(&node, taints.as_ref()).await,
            Action::Taint { node, taints } => self.taint(&node, &taints).await,
            Action::ReleaseOrphan { node, mark } => self.uncordon_orphan(&node, &mark).await,
            Action::Evict(_) | Action::Delete(_) => {
                Err(Stop::Failed("a pod is asked to leave only in a place for evictions".to_owned()))
            }
            Action::StartJob { claim, uid, attempt, subject, template } => {
                self.start_job(&claim, &uid, attempt, &subject, &template).await
            }
        };
        done.unwrap_or_else(|stop| stop.of(write))
    }

    /// Carries out an action of a claim whose upgrade is gone: giving its node back, or taking our finalizer off.
    pub async fn perform_without_upgrade(&self, action: Action) -> Outcome {
        // None of these is about the upgrade itself.
        let write = action.write("");
        let done = match action {
            Action::Release { claim, uid, resource_version, finalizers } => {
                self.delete_claim(claim, uid, &resource_version, finalizers).await
            }
            Action::Uncordon { node, taints, .. } => self.uncordon(&node, taints.as_ref()).await,
            Action::Taint { node, taints } => self.taint(&node, &taints).await,
            Action::HandOver { node } => self.hand_over(&node).await,
            other => Err(Stop::Failed(format!("{other:?} needs its ClusterUpgrade"))),
        };
        done.unwrap_or_else(|stop| stop.of(write))
    }

    /// Gives back a node whose claim does not exist.
    pub async fn release_orphan(&self, node: &NodeRef, mark: &str) -> Outcome {
        self.uncordon_orphan(node, mark).await.unwrap_or_else(|stop| stop.of(None))
    }

    /// Publishes `news` of the upgrade `regarding` without waiting for it; `version` is the resourceVersion of the status that
    /// says so.
    pub fn tell(&self, regarding: ObjectReference, version: Option<String>, news: StatusNews) {
        self.events.upgrade(regarding, version, news);
    }

    /// Sends one request, if we still may.
    pub(super) async fn send<T>(
        &self,
        request: impl AsyncFnOnce(Client) -> kube::Result<T>,
    ) -> Result<T, NotDone> {
        self.authority.send(&self.effects, request).await
    }
}

pub(super) fn claims(client: Client) -> Api<DynamicObject> {
    Api::all_with(client, &ApiResource::erase::<NodeUpgrade>(&()))
}

pub(super) fn nodes(client: Client) -> Api<lean::Node> {
    Api::all(client)
}
