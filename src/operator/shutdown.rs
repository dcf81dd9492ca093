//! How the program is told to stop: one token that SIGTERM or SIGINT cancels.
//!
//! Everything that runs takes a clone or a child of the token. The invariant: the first signal begins an orderly end,
//! and a second signal changes nothing; a process that does not end is left to the kubelet's SIGKILL.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that the first SIGTERM or SIGINT cancels. Must be called inside a tokio runtime.
///
/// # Errors
/// When a signal handler cannot be installed.
pub fn on_signal() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        stop.cancel();
    });
    Ok(token)
}
