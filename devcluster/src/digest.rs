//! Short fingerprints of texts.
//!
//! Belongs here: one function. Never here: anything that must resist an attacker. Invariant: the same parts give
//! the same fingerprint on every machine, and parts cannot be confused by moving text between them.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The first `bytes` bytes of the SHA-256 of `parts`, in hexadecimal.
pub(crate) fn digest(parts: &[&str], bytes: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(bytes).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _written = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_kept_apart() {
        assert_eq!(digest(&["ab", "c"], 6).len(), 12);
        assert_ne!(digest(&["ab", "c"], 6), digest(&["a", "bc"], 6));
    }
}
