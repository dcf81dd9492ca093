//! `PersistentVolumes`: which claim each is bound to, and on which hosts and in which zones it can be mounted.
//!
//! Here belongs what the volume's own affinity says; whether a pod finds a node is asked in the core. The invariant: a
//! volume that no claim is bound to is kept as nothing.

use std::sync::Arc;

use evenkeel_core::cluster::VolumeZones;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::super::fold::Watched;
use super::super::interner::Interner;
use super::pod_spec::NodeAffinity;
use super::wire::{meta, text};

/// A `PersistentVolume` on the wire.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::PersistentVolume")]
pub struct PersistentVolume {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta")]
    pub metadata: ObjectMeta,
    spec: Option<VolumeSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeSpec {
    claim_ref: Option<ClaimRef>,
    node_affinity: Option<NodeAffinity>,
}

#[derive(Clone, Debug, Deserialize)]
struct ClaimRef {
    namespace: Option<String>,
    name: Option<String>,
}

/// Where the volume of a claim can be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSeen {
    /// Its own name.
    pub volume: Arc<str>,
    /// Namespace and name of the `PersistentVolumeClaim` that it is bound to.
    pub claim: (Arc<str>, Arc<str>),
    /// On these hosts only, if not empty.
    pub hosts: Vec<Arc<str>>,
    /// In these zones only, if it is tied to some.
    pub zones: Option<VolumeZones>,
}

impl Watched for PersistentVolume {
    /// `None` of a volume that nobody has claimed.
    type Kept = Option<VolumeSeen>;

    fn keep(self, names: &mut Interner) -> Self::Kept {
        let VolumeSpec { claim_ref, node_affinity } = self.spec.unwrap_or_default();
        let claim = claim_ref?;
        let affinity = node_affinity.as_ref();
        Some(VolumeSeen {
            volume: text(self.metadata.name.as_deref()),
            claim: (names.text(claim.namespace.as_deref()?), claim.name.as_deref()?.into()),
            hosts: affinity.map(NodeAffinity::hosts_of_volume).unwrap_or_default(),
            zones: affinity.and_then(NodeAffinity::zones_of_volume),
        })
    }

    /// A change of what is not kept, such as the phase of a volume, wakes nobody.
    fn wakes(before: &Self::Kept, after: &Self::Kept) -> bool {
        before != after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_tied_to_hosts_or_zones() {
        let of = |key: &str, values: &[&str]| {
            let volume = serde_json::json!({"metadata": {"name": "pv-1"}, "spec": {
                "claimRef": {"namespace": "shop", "name": "data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}}}});
            let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
            let seen = volume.keep(&mut Interner::default()).unwrap();
            let zones = seen.zones.map(|tie| [vec![tie.label], tie.zones].concat());
            (seen.hosts, zones.unwrap_or_default())
        };
        let texts = |texts: &[&str]| texts.iter().map(|text| Arc::from(*text)).collect::<Vec<Arc<str>>>();
        assert_eq!(of("kubernetes.io/hostname", &["n-1"]), (texts(&["n-1"]), vec![]));
        assert_eq!(of("topology.topolvm.io/node", &["n-1"]), (texts(&["n-1"]), vec![]));
        let label = "topology.ebs.csi.aws.com/zone";
        assert_eq!(of(label, &["b", "a"]), (vec![], texts(&[label, "a", "b"])));
        assert_eq!(of("topology.disk.csi.azure.com/zone", &[""]), (vec![], vec![]), "a disk of no zone");
        assert_eq!(of("example.com/rack", &["7"]), (vec![], vec![]));
    }

    #[test]
    fn a_volume_that_nobody_claimed_is_kept_as_nothing() {
        for spec in [serde_json::json!({}), serde_json::json!({"claimRef": {"name": "data"}})] {
            let volume: PersistentVolume =
                serde_json::from_value(serde_json::json!({"metadata": {"name": "pv-1"}, "spec": spec}))
                    .unwrap();
            assert_eq!(volume.keep(&mut Interner::default()), None);
        }
    }
}
