//! What makes a drain end before its time.

use futures::{Stream, stream};

/// Each time that somebody wants this command to end.
pub(super) fn interrupts() -> impl Stream<Item = ()> {
    stream::unfold((), async |()| Some((interrupt().await, ())))
}

/// Resolves when somebody wants this command to end: Ctrl-C, or SIGTERM.
async fn interrupt() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut ended) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        // Without a handler the signal ends the process, which is what was wanted.
        _ = tokio::signal::ctrl_c() => {}
        _ = ended.recv() => {}
    }
}
