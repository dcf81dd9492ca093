//! The one binary: operator, command line and kubectl plugin.
//!
//! Nothing belongs here but the call; what a command does is in `evenkeel::cli`, where tests and the fuzzer reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    evenkeel::cli::main()
}
