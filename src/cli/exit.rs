//! How every command ends: its exit code, and the data that it prints.
//!
//! The invariant: standard output carries data only, and a reader that went away is no error.

/// The command succeeded, and everything that it found is as it should be.
pub(super) const EXIT_OK: u8 = 0;
/// The command could not do its work; standard error says why.
pub(super) const EXIT_FAILED: u8 = 1;
/// The command did its work, and what it found is not as it should be.
pub(super) const EXIT_FINDINGS: u8 = 2;
/// The arguments were wrong; clap's own 2 would read as findings.
pub(super) const EXIT_USAGE: u8 = 64;

/// Interrupted, as a shell says it of SIGINT.
pub(super) const EXIT_INTERRUPTED: u8 = 130;

/// Says `line` of arguments that are wrong, and returns the exit code for that.
pub(super) fn wrong_arguments(line: &str) -> u8 {
    eprintln!("error: {line}");
    EXIT_USAGE
}

/// Writes data to standard output; a reader that went away is no error.
pub(super) fn print(text: &str) -> Result<(), String> {
    print_to(&mut std::io::stdout(), text)
}

pub(super) fn print_to(out: &mut dyn std::io::Write, text: &str) -> Result<(), String> {
    match out.write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(()),
    }
}
