//! A node's pods, read by a request of their own.
//!
//! Here belongs only that read; what follows from it is decided in the core. The invariant: it asks the server, because
//! a watch may not show a pod yet, or may have lost its end.

use evenkeel_core::cluster::Surroundings;
use evenkeel_core::disruption::{Rules, may_stay};
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::clients::{EFFECT_TIMEOUT, one_line, within};
use crate::observe::fold::Watched as _;
use crate::observe::interner::Interner;
use crate::observe::lean;

/// The pods of one node, as the server listed them.
pub(super) struct PodsRead {
    pub(super) pods: Vec<lean::Pod>,
    /// The resourceVersion of the list.
    pub(super) version: String,
}

impl PodsRead {
    /// Lists the pods of `node`, at most `chunk` with one request (0: all). The error is one line.
    pub(super) async fn of(client: &Client, node: &str, chunk: u32) -> Result<Self, String> {
        let api: Api<lean::Pod> = Api::all(client.clone());
        let mut params = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(chunk);
        let mut pods = Vec::new();
        loop {
            let page = within(EFFECT_TIMEOUT, api.list(&params)).await.map_err(|error| one_line(&error))?;
            pods.extend(page.items);
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(Self { pods, version: page.metadata.resource_version.unwrap_or_default() });
            }
        }
    }

    /// Whether none of them has to leave at `now`.
    pub(super) fn may_stay(&self, rules: &Rules, surroundings: &Surroundings, now: Timestamp) -> bool {
        let mut names = Interner::default();
        self.pods.iter().all(|pod| may_stay(&pod.clone().keep(&mut names).pod, rules, surroundings, now))
    }
}
