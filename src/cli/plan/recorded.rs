//! What the operator recorded of an upgrade that is under way: where it came from, and the versions on its way. They
//! are part of what was approved, and a cluster that has gone on does not show them any more.
//!
//! Here belongs only the reading of the status; the plan itself is made anew. The invariant: the record counts only for
//! the same target, which `upgrade::progress` sees to.

use kube::{Api, Client};

use crate::api::{ClusterUpgrade, upgrade};
use crate::clients::{one_line, within};
use evenkeel_core::upgrade::{Progress, Upgrade};

use super::times::PATIENCE;

/// The status that the cluster has for the upgrade called `name`; `None` where it has no such object.
///
/// # Errors
/// Why it cannot be read, in one line.
pub(super) async fn of_cluster(client: &Client, name: &str) -> Result<Option<ClusterUpgrade>, String> {
    let all: Api<ClusterUpgrade> = Api::all(client.clone());
    // Where the kind is not installed, the answer is the same: there is none.
    within(PATIENCE, all.get_opt(name)).await.map_err(|error| {
        format!(
            "cannot read ClusterUpgrade {name}: {}; the hash is that of an upgrade that begins now",
            one_line(&error)
        )
    })
}

/// What `object` remembers of `requested`, the same upgrade as it lies in git.
pub(super) fn progress(object: ClusterUpgrade, mut requested: ClusterUpgrade, upgrade: &Upgrade) -> Progress {
    requested.status = object.status;
    upgrade::progress(&requested, upgrade)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::Executors;

    /// The file in git has no status; the hash of an upgrade under way is that of where it came from.
    #[test]
    fn what_the_cluster_recorded_is_of_the_object_in_git() {
        let object = |to: &str, status: serde_json::Value| -> ClusterUpgrade {
            serde_json::from_value(json!({
                "apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": {"name": "up"},
                "spec": {"version": to, "controlPlane": {"executor": "x"}, "nodeGroups": []},
                "status": status,
            }))
            .unwrap()
        };
        let plan =
            json!({"hash": "0", "from": "v1.36.4", "to": "v1.38.1", "via": ["v1.37.2"], "hop": "v1.38.1"});
        let status = json!({"progress": {}, "waitingFor": [], "parked": [], "conditions": [], "plan": plan});
        let live = object("v1.38.1", status);
        let read = |requested: ClusterUpgrade| {
            let upgrade = upgrade::validate(&requested, &Executors::default()).unwrap();
            let progress = progress(live.clone(), requested, &upgrade);
            (progress.from.map(|from| from.to_string()), progress.via.len())
        };
        assert_eq!(read(object("v1.38.1", json!(null))), (Some("v1.36.4".to_owned()), 1));
        assert_eq!(read(object("v1.37.9", json!(null))), (None, 0), "another target is another upgrade");
    }
}
