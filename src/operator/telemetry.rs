//! The operator's log: one JSON object per line on stderr.
//!
//! Standard output stays free for what a command prints. The invariant: a bad filter is an error at the start, not
//! a silent log.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::TryInitError;

/// The environment variable that holds the filter, in the syntax of `tracing`: `info`, `evenkeel=debug,kube=warn`.
pub const FILTER_VARIABLE: &str = "EVENKEEL_LOG";

/// The filter where none is given. It silences the Kubernetes client, which logs every request that fails, sometimes
/// with the whole answer: whoever sent the request logs what the failure means, in one line.
const DEFAULT: &str = "info,kube_client=off";

/// Why the log could not begin.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The text is not a filter in the syntax of `tracing`.
    #[error("{FILTER_VARIABLE} is not a log filter such as info or evenkeel=debug: {0}")]
    Filter(#[from] ParseError),
    /// This process has a log already.
    #[error("the log was begun twice: {0}")]
    Twice(#[from] TryInitError),
}

/// Begins the log of this process. `filter` is the value of [`FILTER_VARIABLE`]; where it is missing or empty, the
/// level is `info` and the Kubernetes client is silent.
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
