//! Texts that ought to be versions: how much of one is read, why it is none, and how it is shown.
//!
//! Here belongs what holds of the text alone; what it means is read in `kube.rs` and `observed.rs`. The invariant: what
//! is shown of a text is short and cannot act on a terminal.

/// Longest version string that is read at all, in bytes and with its `v`. Node-supplied strings may be a megabyte long.
pub const MAX_VERSION_BYTES: usize = 64;

/// Why a string is not a Kubernetes version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Nothing, or only blanks.
    #[error("is empty")]
    Empty,
    /// Over [`MAX_VERSION_BYTES`].
    #[error("is longer than {MAX_VERSION_BYTES} bytes")]
    TooLong,
    /// Not `[v]MAJOR.MINOR[.PATCH][suffix]` of printable version characters.
    #[error("is not of the form v1.37.1")]
    Malformed,
    /// `v0.0.0-master+$Format:%H$` and its like: a binary built without version stamps.
    #[error("was built without a version (v0.0)")]
    Unstamped,
    /// `stable`, `latest-1.37`: what they stand for changes, and only the network knows it.
    #[error("is a label that stands for another version tomorrow")]
    Label,
}

/// `text` as it may be shown to a person or written to a status: at most [`MAX_VERSION_BYTES`] bytes, everything but
/// printable ASCII replaced by `?`. What a node reports is that node's claim and may hold escapes or markup.
pub fn escape(text: &str) -> String {
    let clean = |c: char| if c.is_ascii_graphic() && !"<>&\"'`".contains(c) { c } else { '?' };
    let mut shown: String = text.chars().take(MAX_VERSION_BYTES).map(clean).collect();
    if text.chars().nth(MAX_VERSION_BYTES).is_some() {
        shown.truncate(MAX_VERSION_BYTES - 3);
        shown.push_str("...");
    }
    shown
}
