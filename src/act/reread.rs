//! Reads of one node, its pods and its Job, of the attached volumes, and of who leads the controllers, by requests of their own.
//!
//! A watch may be behind, or may have lost an event, and a decision that rests on it may do harm. The invariant:
//! nothing here changes an object.

use std::sync::Arc;

use kube::Api;
use kube::api::ListParams;

use super::actions::{Hands, nodes};
use super::outcome::{JobNow, Outcome, ReadNow, Stop, is_absent, stop};
use crate::api::job_name;
use crate::observe::fold::Watched as _;
use crate::observe::interner::Interner;
use crate::observe::leaders::leaders;
use crate::observe::lean;

impl Hands {
    /// The Node of that name, if there is one, and its pods; and with them `job`, by the UID of its claim and the attempt.
    /// `known` is the UID of the Node that was known before: if there is none now, that one is gone, and nothing else is
    /// read.
    pub(super) async fn reread(
        &self,
        name: Arc<str>,
        known: Option<Arc<str>>,
        job: Option<(Arc<str>, u32)>,
    ) -> Result<Outcome, Stop> {
        let node = self.send(async |client| nodes(client).get(&name).await).await;
        let node = match (node, known) {
            (Ok(node), _) => Some(Box::new(node)),
            (Err(error), Some(uid)) if is_absent(&error, &name) => {
                return Ok(Outcome::NodeGone { name, uid });
            }
            (Err(error), None) if error.code() == Some(404) => None,
            (Err(error), _) => return Err(stop(&format!("read node {name}"), &error)),
        };
        let (pods, version) = self.pods_of(&name).await?;
        let job = match job {
            Some((claim, attempt)) => Some(self.job_of(claim, attempt).await?),
            None => None,
        };
        Ok(Outcome::Read(ReadNow::Node { name, node, pods, version, job }))
    }

    /// The Job of this attempt of the claim with that UID. A list of one says at which resourceVersion there was none.
    async fn job_of(&self, claim: Arc<str>, attempt: u32) -> Result<JobNow, Stop> {
        let (name, namespace) = (job_name(&claim, attempt), &*self.executors_namespace);
        let only = ListParams::default().fields(&format!("metadata.name={name}"));
        let found =
            self.send(async |client| Api::<lean::Job>::namespaced(client, namespace).list(&only).await).await;
        let found = found.map_err(|error| stop(&format!("read Job {namespace}/{name}"), &error))?;
        let version = found.metadata.resource_version.unwrap_or_default();
        Ok(JobNow { claim, name, found: found.items, version })
    }

    /// Every attached volume.
    pub(super) async fn read_attachments(&self) -> Result<Outcome, Stop> {
        let list =
            async |client| Api::<lean::VolumeAttachment>::all(client).list(&ListParams::default()).await;
        let found = self.send(list).await.map_err(|error| stop("list the attached volumes", &error))?;
        let version = found.metadata.resource_version.unwrap_or_default();
        Ok(Outcome::Read(ReadNow::Attachments { all: found.items, version }))
    }

    /// Who leads each controller.
    pub(super) async fn read_leases(&self) -> Result<Outcome, Stop> {
        let asked = self.clock.now();
        let list = async |client| {
            Api::<lean::Lease>::namespaced(client, "kube-system").list(&ListParams::default()).await
        };
        let found = self.send(list).await.map_err(|error| stop("list the leases of kube-system", &error))?;
        let mut interner = Interner::default();
        let leases: Vec<_> = found.items.into_iter().map(|lease| lease.keep(&mut interner)).collect();
        let leaders = leaders(&leases.iter().collect::<Vec<_>>(), &[]);
        Ok(Outcome::Read(ReadNow::Leases { asked, leaders }))
    }

    /// The pods of the node of that name, and the resourceVersion of the list.
    pub(super) async fn pods_of(&self, node: &str) -> Result<(Vec<lean::Pod>, String), Stop> {
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = self.send(async |client| Api::<lean::Pod>::all(client).list(&on_node).await).await;
        let pods = pods.map_err(|error| stop(&format!("list the pods of node {node}"), &error))?;
        Ok((pods.items, pods.metadata.resource_version.unwrap_or_default()))
    }
}
