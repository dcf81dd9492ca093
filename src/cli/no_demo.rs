//! `evenkeel demo` in a program that was built without the virtual cluster, as the image is.
//!
//! Here belongs only the error that says where to get one with it. The invariant: it takes every argument of the real
//! command, so that nobody is told of a wrong argument instead.

use clap::Args;

pub(super) const EXAMPLES: &str = "";

#[derive(Args)]
pub(super) struct DemoArgs {
    /// Takes the arguments of the real command, so that they get the error that says what to do.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true, value_name = "ARGUMENT")]
    _all: Vec<String>,
}

pub(super) fn run(_: &DemoArgs) -> Result<u8, String> {
    let project = env!("CARGO_PKG_REPOSITORY");
    Err(format!(
        "this evenkeel was built without the virtual cluster, as the image is; \
         cargo install --git {project} evenkeel builds one with it"
    ))
}
