//! Colour and width of the terminal, for output that a person reads.
//!
//! Here belongs what a colour means and whether there is one; words never belong here. The invariant: a file or a pipe
//! gets neither colour nor a width by itself.

use std::env::var_os;
use std::io::{IsTerminal as _, stdout};

use clap::ValueEnum;

/// When there is colour, as a person asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in super::super) enum Color {
    Auto,
    Always,
    Never,
}

/// The meaning of a colour. The words always say the same, for output without colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Ink {
    Plain,
    Bold,
    Good,
    Care,
    Bad,
}

/// Whether there is colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Paint(pub(super) bool);

/// How wide the terminal is, in columns; `None` for a file or a pipe, so that piped output is the same everywhere.
pub(in super::super) fn width() -> Option<usize> {
    let (width, _) = stdout().is_terminal().then(terminal_size::terminal_size)??;
    Some(width.0.into())
}

/// What `when` means for standard output. See no-color.org.
pub(in super::super) fn paint(when: Color) -> Paint {
    let set = |name| var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = || var_os("TERM").is_some_and(|term| term == "dumb");
    Paint(match when {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => stdout().is_terminal() && !set("NO_COLOR") && !dumb(),
    })
}

impl Paint {
    pub(in super::super) fn on(self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Plain => return text.to_owned(),
            Ink::Bold => "1",
            Ink::Good => "32",
            Ink::Care => "33",
            Ink::Bad => "1;31",
        };
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}
