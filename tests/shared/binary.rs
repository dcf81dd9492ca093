//! Which binary the tests run.

use std::path::PathBuf;

/// That of this build; or the one that `EVENKEEL_BINARY` names, such as the static one of the image.
pub fn binary() -> PathBuf {
    std::env::var_os("EVENKEEL_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_evenkeel").into(), PathBuf::from)
}
