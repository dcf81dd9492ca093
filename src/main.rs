//! The one binary: operator, command line and kubectl plugin.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    evenkeel::cli::main()
}
