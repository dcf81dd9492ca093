//! Leases of kube-system, and the candidates for those that are elected in a coordinated way.
//!
//! Here belongs which fields are kept; what a lease tells of a controller is in `leaders`, of a kube-apiserver in
//! `apiservers`. The invariant: a renewal alone wakes nobody, unless its holder was thought dead.

use std::net::SocketAddr;
use std::sync::Arc;

use evenkeel_core::version::{Effective, Floors, Observed};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::super::fold::Watched;
use super::super::interner::Interner;
use super::wire::{HOSTNAME_LABEL, PEER_ADDRESS, meta, text, time};

/// The labels of a kube-apiserver's identity lease, with the value `kube-apiserver`: since 1.27, and in 1.26.
const IDENTITY_LABELS: [&str; 2] = ["apiserver.kubernetes.io/identity", "k8s.io/component"];

/// A living holder renews its lease at least this often; an older lease tells of a holder that died.
pub const LEASE_FRESH: SignedDuration = SignedDuration::from_secs(60);

/// A Lease on the wire.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::coordination::v1::Lease")]
pub struct Lease {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta")]
    pub metadata: ObjectMeta,
    spec: Option<LeaseSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    holder_identity: Option<String>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
}

/// What is kept of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSeen {
    /// `metadata.name`: one per host for a kube-apiserver's identity, the component's name for a leader's.
    pub name: Arc<str>,
    /// It is the identity of a kube-apiserver, and no election.
    pub identity: bool,
    /// Label `kubernetes.io/hostname`; empty for a leader's.
    pub hostname: Arc<str>,
    /// `spec.holderIdentity`: another one for each start of the process.
    pub holder: Arc<str>,
    /// `spec.acquireTime`: since when it has been its holder's.
    pub acquired: Option<Timestamp>,
    /// `spec.renewTime`, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// The address that a kube-apiserver tells its peers, where it does (since 1.36); that of its endpoint by default.
    pub address: Option<SocketAddr>,
}

impl LeaseSeen {
    /// Whether its holder was alive a moment ago.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.renewed.is_some_and(|renewed| now.duration_since(renewed) <= LEASE_FRESH)
    }
}

impl Watched for Lease {
    type Kept = LeaseSeen;

    fn keep(self, _: &mut Interner) -> Self::Kept {
        let spec = self.spec.unwrap_or_default();
        let labels = self.metadata.labels.unwrap_or_default();
        let annotations = self.metadata.annotations.unwrap_or_default();
        let identity = |label: &str| labels.get(label).is_some_and(|value| value == "kube-apiserver");
        LeaseSeen {
            name: text(self.metadata.name.as_deref()),
            identity: IDENTITY_LABELS.iter().any(|label| identity(label)),
            hostname: text(labels.get(HOSTNAME_LABEL).map(String::as_str)),
            holder: text(spec.holder_identity.as_deref()),
            acquired: spec.acquire_time.as_deref().and_then(time),
            renewed: spec.renew_time.as_deref().and_then(time),
            address: annotations.get(PEER_ADDRESS).and_then(|address| address.parse().ok()),
        }
    }

    /// Wakes for another holder or address, and for a holder that renews again after it was thought dead.
    fn wakes(before: &Self::Kept, after: &Self::Kept) -> bool {
        let back = match (before.renewed, after.renewed) {
            (Some(before), Some(after)) => after.duration_since(before) > LEASE_FRESH,
            (before, after) => before.is_some() != after.is_some(),
        };
        (&before.hostname, &before.holder, before.address) != (&after.hostname, &after.holder, after.address)
            || back
    }
}

/// A `LeaseCandidate` on the wire: there is one where leaders are elected in a coordinated way (KEP-4355).
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "k8s_openapi::api::coordination::v1beta1::LeaseCandidate")]
pub struct LeaseCandidate {
    /// Only the metadata that some decision reads: see the module `wire`.
    #[serde(default, deserialize_with = "meta")]
    pub metadata: ObjectMeta,
    spec: Option<CandidateSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CandidateSpec {
    lease_name: Option<String>,
    binary_version: Option<String>,
    emulation_version: Option<String>,
}

/// What is kept of a `LeaseCandidate`. The object outlives its process by half an hour, so it tells something only
/// while its candidate holds the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateSeen {
    /// `metadata.name`: the holder that the lease names when it is elected.
    pub name: Arc<str>,
    /// `spec.leaseName`: the component's name.
    pub lease: Arc<str>,
    /// `spec.binaryVersion`; unknown where it is absent or cannot be read.
    pub version: Observed,
    /// `spec.emulationVersion`; `None` where it is absent, or where a binary of that version cannot emulate it.
    pub effective: Option<Effective>,
}

impl Watched for LeaseCandidate {
    type Kept = CandidateSeen;

    fn keep(self, _: &mut Interner) -> Self::Kept {
        let spec = self.spec.unwrap_or_default();
        let version = Observed::from_report(spec.binary_version.as_deref().unwrap_or_default());
        let emulation = spec.emulation_version.as_deref().map(Observed::from_report);
        let emulation = emulation.and_then(|emulation| emulation.minor());
        CandidateSeen {
            name: text(self.metadata.name.as_deref()),
            lease: text(spec.lease_name.as_deref()),
            effective: version
                .minor()
                .zip(emulation)
                .and_then(|(binary, emulation)| Effective::new(binary, emulation, None, Floors::NONE)),
            version,
        }
    }

    fn wakes(before: &Self::Kept, after: &Self::Kept) -> bool {
        before != after
    }
}
