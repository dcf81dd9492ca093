//! The operator's log: one JSON object per line on stderr.
//!
//! Standard output stays free for what a command prints. The invariant: a bad filter is an error at the start, not
//! a silent log.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::TryInitError;

/// The environment variable that holds the filter, in the syntax of `tracing`: `info`, `evenkeel=debug,kube=warn`.
pub const FILTER_VARIABLE: &str = "EVENKEEL_LOG";

/// Without a filter. The client tells of every request that fails, sometimes with the whole answer; whoever sent it tells
/// what it means, in one line.
const DEFAULT: &str = "info,kube_client=off";

/// The log cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is none.
    #[error("{FILTER_VARIABLE} is not a log filter such as info or evenkeel=debug: {0}")]
    Filter(#[from] ParseError),
    /// A log was begun before.
    #[error("the log was begun twice: {0}")]
    Twice(#[from] TryInitError),
}

/// Begins the log of this process. `filter` is the value of [`FILTER_VARIABLE`]; without one it is `info`, and the client
/// itself is silent.
///
/// # Errors
/// When the filter is invalid, or the log was begun before.
pub fn begin(filter: Option<&str>) -> Result<(), TelemetryError> {
    use tracing_subscriber::util::SubscriberInitExt as _;
    let filter = EnvFilter::builder().parse(filter.filter(|filter| !filter.is_empty()).unwrap_or(DEFAULT))?;
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_writer(std::io::stderr)
        .with_env_filter(filter)
        .finish();
    Ok(subscriber.try_init()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_filter_is_refused() {
        assert!(matches!(begin(Some("evenkeel=loud")), Err(TelemetryError::Filter(_))));
    }
}
