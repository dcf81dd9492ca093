//! Which cluster a command talks to: kubeconfig, context, or the pod's service account.
//!
//! Here belongs the configuration of the client and no request. The invariants: it is the cluster that kubectl would
//! talk to, and the user agent names the command.

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::args::ClusterArgs;
use crate::clients::{named, one_line};

/// The configuration that kubectl would use, or that of the pod's service account. The user agent names `command`, so
/// that the server's audit log does.
pub(super) async fn config(args: &ClusterArgs, command: &str) -> Result<Config, String> {
    Ok(named(found(args).await?, command))
}

async fn found(args: &ClusterArgs) -> Result<Config, String> {
    let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
    if let Some(path) = &args.kubeconfig {
        let file =
            Kubeconfig::read_from(path).map_err(|error| format!("--kubeconfig: {}", one_line(&error)))?;
        let config = Config::from_custom_kubeconfig(file, &options).await;
        return config.map_err(|error| format!("kubeconfig {}: {}", path.display(), one_line(&error)));
    }
    if args.context.is_some() {
        let config = Config::from_kubeconfig(&options).await;
        return config.map_err(|error| format!("kubeconfig: {}", one_line(&error)));
    }
    Config::infer().await.map_err(|error| {
        format!("no cluster is configured; set KUBECONFIG or use --kubeconfig ({})", one_line(&error))
    })
}
