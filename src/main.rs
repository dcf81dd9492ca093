//! The one binary: operator, command line and kubectl plugin.

use std::process::ExitCode;

fn main() -> ExitCode {
    evenkeel::cli::main()
}
