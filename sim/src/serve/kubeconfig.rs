//! The kubeconfig of a served cluster.
//!
//! Here belongs the text alone; certificates are made in `pki`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::endpoint::Endpoint;
use super::pki::Pki;

/// A context for each endpoint, in JSON, which every reader of YAML reads.
pub(super) fn text(endpoints: &[Endpoint], pki: &Pki) -> String {
    let authority = STANDARD.encode(pki.authority_pem());
    let name = |at: usize| if at == 0 { "virtual".to_owned() } else { format!("virtual-{}", at + 1) };
    let cluster = |(at, endpoint): (usize, &Endpoint)| {
        let server = format!("https://{}", endpoint.address);
        json!({"name": name(at), "cluster": {"server": server, "certificate-authority-data": authority}})
    };
    let clusters: Vec<Value> = endpoints.iter().enumerate().map(cluster).collect();
    let context = |at| json!({"name": name(at), "context": {"cluster": name(at), "user": "admin"}});
    let contexts: Vec<Value> = (0..endpoints.len()).map(context).collect();
    let config = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": clusters, "contexts": contexts, "current-context": name(0),
        "users": [{"name": "admin", "user": {
            "client-certificate-data": STANDARD.encode(pki.admin.certificate_pem()),
            "client-key-data": STANDARD.encode(pki.admin.key_pem()),
        }}],
    });
    format!("{config:#}\n")
}
