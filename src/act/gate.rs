//! Reads of the objects that gates look at.
//!
//! Any kind may be named, and nothing of an object but its conditions is used. The invariants: nothing here changes an
//! object; and what cannot be read is told apart from what is not there.

use std::sync::Arc;

use evenkeel_core::rollout::GateFound;
use evenkeel_core::upgrade::GateObject;
use kube::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersion, GroupVersionKind};

use super::actions::Hands;
use super::authority::NotDone;
use super::outcome::{Outcome, ReadNow, Stop, refusal, stop};

/// How many conditions of an object are looked at.
const MAX_CONDITIONS: usize = 100;

impl Hands {
    /// What the object of a gate is like.
    pub(super) async fn read_gate(&self, object: GateObject) -> Result<Outcome, Stop> {
        let found = match self.found(&object).await {
            Ok(found) => found,
            Err(error @ NotDone::NotLeading(_)) => return Err(stop("read the object of a gate", &error)),
            Err(error) if matches!(error.code(), Some(401 | 403)) => GateFound::Forbidden(error.line()),
            Err(error) => refusal(&error).map_or_else(|| GateFound::Failed(error.line()), GateFound::Refused),
        };
        Ok(Outcome::Read(ReadNow::Gate { object, found }))
    }

    async fn found(&self, object: &GateObject) -> Result<GateFound, NotDone> {
        let Some((resource, namespaced)) = self.resource(object).await? else { return Ok(GateFound::NoKind) };
        if namespaced == object.namespace.is_empty() {
            let what = if namespaced {
                "is in a namespace, and the gate names none"
            } else {
                "is in no namespace, and the gate names one"
            };
            return Ok(GateFound::Refused(format!("the kind {what}")));
        }
        let read = self.send(async |client| {
            let api: Api<DynamicObject> = if namespaced {
                Api::namespaced_with(client, &object.namespace, &resource)
            } else {
                Api::all_with(client, &resource)
            };
            api.get_opt(&object.name).await
        });
        Ok(read.await?.map_or(GateFound::NoObject, |object| GateFound::Conditions(conditions(&object))))
    }

    /// Where the kind is served, and whether its objects are in namespaces.
    async fn resource(&self, object: &GateObject) -> Result<Option<(ApiResource, bool)>, NotDone> {
        let Ok(version) = object.api_version.parse::<GroupVersion>() else { return Ok(None) };
        let list = self
            .send(async |client| {
                if version.group.is_empty() {
                    client.list_core_api_resources(&version.version).await
                } else {
                    client.list_api_group_resources(&object.api_version).await
                }
            })
            .await;
        let list = match list {
            Ok(list) => list,
            Err(error) if error.code() == Some(404) => return Ok(None),
            Err(error) => return Err(error),
        };
        let served = list.resources.iter().find(|of| *of.kind == *object.kind && !of.name.contains('/'));
        Ok(served.map(|of| {
            let kind = GroupVersionKind::gvk(&version.group, &version.version, &object.kind);
            (ApiResource::from_gvk_with_plural(&kind, &of.name), of.namespaced)
        }))
    }
}

/// The type and the status of each condition of `object`.
fn conditions(object: &DynamicObject) -> Vec<(Arc<str>, Arc<str>)> {
    let all = object.data["status"]["conditions"].as_array().into_iter().flatten();
    let one = |of: &serde_json::Value| Some((of["type"].as_str()?.into(), of["status"].as_str()?.into()));
    all.take(MAX_CONDITIONS).filter_map(one).collect()
}
