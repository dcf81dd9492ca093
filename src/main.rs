//! The one binary: operator, command line and kubectl plugin.

use std::process::ExitCode;

/// The static binary's; elsewhere the C library's own is as good.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    evenkeel::cli::main()
}
