//! The last look at a node before it is called drained.
//!
//! Here belongs only that look; what may stay is decided in the core. The invariant: it reads from the server, because a
//! watch may not show a pod yet.

use evenkeel_core::cluster::Surroundings;
use evenkeel_core::disruption::{Rules, may_stay};
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::clients::{EFFECT_TIMEOUT, one_line, within};
use crate::observe::fold::Watched as _;
use crate::observe::interner::Interner;
use crate::observe::lean;

/// The first pod on `node` that has to leave, by a list from the server instead of the watch.
pub(super) async fn left_on(
    client: &Client,
    node: &str,
    rules: &Rules,
    surroundings: &Surroundings,
    chunk: u32,
    now: Timestamp,
) -> Result<Option<String>, String> {
    let pods: Api<lean::Pod> = Api::all(client.clone());
    let mut names = Interner::default();
    let mut params = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(chunk);
    loop {
        let page = within(EFFECT_TIMEOUT, pods.list(&params)).await.map_err(|error| one_line(&error))?;
        for pod in page.items {
            let pod = pod.keep(&mut names).pod;
            if !may_stay(&pod, rules, surroundings, now) {
                return Ok(Some(pod.full_name()));
            }
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(None);
        }
    }
}
