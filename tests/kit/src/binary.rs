//! Which binary the tests run.

use std::path::PathBuf;

/// The one that `EVENKEEL_BINARY` names, such as the static one of the image; else that of this build, which only the test
/// itself knows: `built` is its `CARGO_BIN_EXE_evenkeel`.
pub fn binary(built: &str) -> PathBuf {
    std::env::var_os("EVENKEEL_BINARY").map_or_else(|| built.into(), PathBuf::from)
}
