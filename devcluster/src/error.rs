//! What can go wrong while a development cluster is built, started or driven.
//!
//! Belongs here: the error type of this crate and the result type of tests. Never here: decisions about
//! retrying. Invariant: every message says what happened, to what, and what to do next, so that a person who
//! sees only the last line of a failed test run knows where to look.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The result of a test body; `?` works on every error type.
pub type TestResult = std::result::Result<(), Failure>;

/// Why a development cluster could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Binaries that a cluster needs were never built on this machine.
    #[error("not built yet: {}; run `make binaries` (or `devcluster build`) once, then try again", .0.join(", "))]
    MissingBinaries(Vec<String>),

    /// Neither a binary nor the means to build it is there.
    #[error(
        "cannot build {what}: no `go` on PATH; install Go {go} or newer, or set KUBEBUILDER_ASSETS to a folder with the binaries"
    )]
    NoGo {
        /// What was to be built.
        what: String,
        /// The oldest Go release that can build it.
        go: String,
    },

    /// `go build` ran and failed.
    #[error("building {what} failed ({status}); the last lines of go's output:\n{tail}")]
    Build {
        /// What was to be built.
        what: String,
        /// How go ended.
        status: String,
        /// The end of its output.
        tail: String,
    },

    /// A command line tool of the host is missing or refused.
    #[error("`{command}` failed: {reason}; {hint}")]
    Tool {
        /// The command as it was run.
        command: String,
        /// What it said.
        reason: String,
        /// What to do about it.
        hint: String,
    },

    /// The caller is not in a namespace of its own.
    #[error(
        "a cluster must not start in the host's network; call it inside `in_namespace` (tests) or `enter` (programs)"
    )]
    NotInNamespace,

    /// The test run inside the namespace failed, or never ran.
    #[error("{0}")]
    Namespace(String),

    /// A component of the control plane ended or never became ready.
    #[error("{name} {what}; the last lines of its log:\n{tail}")]
    Component {
        /// Which component, for instance `kube-apiserver-cp-1`.
        name: String,
        /// What happened to it.
        what: String,
        /// The end of its log.
        tail: String,
    },

    /// Something did not come true in time.
    #[error("waited {:.1} s for {what}, in vain; last seen: {last}", .waited.as_secs_f64())]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        waited: Duration,
        /// What was there instead.
        last: String,
    },

    /// An API request failed.
    #[error("{doing}: {}", chain(.source))]
    Kube {
        /// What the request was for.
        doing: String,
        /// The client's error.
        source: Box<kube::Error>,
    },

    /// kubectl ran and failed.
    #[error("kubectl {args} failed ({status}): {stderr}")]
    Kubectl {
        /// Its arguments.
        args: String,
        /// How it ended.
        status: String,
        /// What it said.
        stderr: String,
    },

    /// A file or process operation failed.
    #[error("{doing} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file or program.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },

    /// A certificate or key could not be made.
    #[error("making certificates: {0}")]
    Pki(#[from] rcgen::Error),

    /// A request that makes no sense for this cluster.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::Io { doing, path, source }
    }

    pub(crate) fn kube(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Kube { doing, source: Box::new(source) }
    }
}

/// The whole chain of causes in one line: the client's outermost message alone hides the TLS or TCP reason.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

/// Any error of a test, printed as a person wants to read it.
///
/// It is not itself an `Error`, which is what lets `?` convert every error into it.
pub struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(chain(&error))
    }
}

impl Failure {
    /// A failure in the test's own words.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_binary_is_one_clear_line() {
        let text = Error::MissingBinaries(vec!["etcd".into(), "kwok".into()]).to_string();
        assert_eq!(
            text,
            "not built yet: etcd, kwok; run `make binaries` (or `devcluster build`) once, then try again"
        );
    }

    #[test]
    fn a_failure_prints_the_whole_chain() {
        let io = std::io::Error::new(std::io::ErrorKind::NotFound, "gone");
        let failure = Failure::from(Error::io("reading", "/x")(io));
        assert_eq!(format!("{failure:?}"), "reading /x: gone");
    }
}
