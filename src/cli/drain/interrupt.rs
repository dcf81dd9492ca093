//! The signals that make a drain end early: SIGINT (Ctrl-C) and SIGTERM.
//!
//! Here belongs only that somebody wants an end; what the first and the second mean is in `draining`. The invariant:
//! from the first time that this is asked, no such signal ends the process by itself.

use futures::{Stream, stream};

/// Each time that somebody wants this command to end.
pub(super) fn interrupts() -> impl Stream<Item = ()> {
    stream::unfold((), async |()| Some((interrupt().await, ())))
}

/// Resolves when somebody wants this command to end: Ctrl-C, or SIGTERM.
async fn interrupt() {
    use tokio::signal::unix::{SignalKind, signal};
    // Without a handler, a signal ends the process at once.
    let Ok(mut ended) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        Ok(()) = tokio::signal::ctrl_c() => {}
        _ = ended.recv() => {}
    }
}
