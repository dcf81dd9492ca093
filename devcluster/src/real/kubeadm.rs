//! kubeadm on real nodes: the first control plane, then whoever joins it.
//!
//! Belongs here: kubeadm's configuration and its commands. Never here: starting nodes (see `node`) or the order in which
//! they join (see `cluster`). Invariant: kubeadm runs with its defaults but for what a machine like this makes
//! necessary; each such setting says why, in the file under `real/`.

use std::fmt::Write as _;

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::error::{Error, Result};
use crate::net;
use crate::real::etc;
use crate::real::node::Node;
use crate::release::Release;

const INIT: &str = include_str!("../../real/init.yaml");
const JOIN: &str = include_str!("../../real/join.yaml");
const JOIN_CONTROL_PLANE: &str = include_str!("../../real/join-control-plane.yaml");

/// The pods of all nodes get their addresses from here.
pub(crate) const POD_RANGE: &str = "10.244.0.0/16";

/// What all nodes of a cluster agree on.
pub(crate) struct Settings {
    pub(crate) release: Release,
    /// The address that stands for all control planes.
    endpoint: String,
    token: String,
    certificate_key: String,
}

impl Settings {
    pub(crate) fn new(release: Release) -> Result<Self> {
        let (id, secret, key) = (random()?, random()?, random()?);
        Ok(Self {
            release,
            endpoint: net::balancer().to_string(),
            token: format!("{}.{}", id.get(..6).unwrap_or_default(), secret.get(..16).unwrap_or_default()),
            certificate_key: key,
        })
    }

    fn fill(&self, text: &str, node: &Node) -> String {
        text.replace("@NAME@", &node.name)
            .replace("@ADDRESS@", &node.address.to_string())
            .replace("@VERSION@", self.release.version())
            .replace("@ENDPOINT@", &self.endpoint)
            .replace("@TOKEN@", &self.token)
            .replace("@CERTIFICATE_KEY@", &self.certificate_key)
            .replace("@SERVICES@", net::SERVICE_RANGE)
            .replace("@PODS@", POD_RANGE)
            .replace("@AUDIT_POLICY@", etc::AUDIT_POLICY)
            .replace("@AUDIT_LOG@", &format!("{}/{}", etc::AUDIT_FOLDER, etc::AUDIT_LOG))
            .replace("@AUDIT_FOLDER@", etc::AUDIT_FOLDER)
    }

    /// Makes `node` the first control plane; returns the administrator's kubeconfig.
    pub(crate) async fn init(&self, node: &Node) -> Result<String> {
        node.write("/etc/kubernetes/init.yaml", &self.fill(INIT, node)).await?;
        node.shell("kubeadm init --config /etc/kubernetes/init.yaml --upload-certs").await?;
        node.read("/etc/kubernetes/admin.conf").await
    }

    /// Makes `node` a worker, or a further control plane if that is what it is to be.
    pub(crate) async fn join(&self, node: &Node) -> Result<()> {
        let mut config = JOIN.to_owned();
        if node.control_plane {
            config.push_str(JOIN_CONTROL_PLANE);
        }
        node.write("/etc/kubernetes/join.yaml", &self.fill(&config, node)).await?;
        node.shell("kubeadm join --config /etc/kubernetes/join.yaml").await
    }
}

/// Thirty-two random bytes in hexadecimal.
fn random() -> Result<String> {
    let mut bytes = [0_u8; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| {
        Error::Usage("the system gave no random numbers; nothing can be done about it here".to_owned())
    })?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _written = write!(text, "{byte:02x}");
        text
    }))
}
