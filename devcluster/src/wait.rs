//! Waiting for something to become true, and showing why it did not.
//!
//! Belongs here: polling with a limit, and the end of a log for an error message. Never here: what is waited
//! for. Invariant: no wait is endless, and one that ends in vain says what it saw last.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Polls `probe` until it says done, or fails with what was last seen.
pub(crate) async fn wait_for<T, F>(what: &str, limit: Duration, mut probe: F) -> Result<T>
where
    F: AsyncFnMut() -> std::result::Result<T, String>,
{
    let started = Instant::now();
    loop {
        let last = match probe().await {
            Ok(value) => return Ok(value),
            Err(last) => last,
        };
        if started.elapsed() > limit {
            return Err(Error::Timeout { what: what.to_owned(), waited: started.elapsed(), last });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The last lines of a log, for an error message.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    // A log may hold bytes that are not UTF-8, and those must not hide the rest of it.
    let bytes = fs::read(path).unwrap_or_default();
    if bytes.is_empty() {
        return format!("(nothing in {})", path.display());
    }
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<_> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}
