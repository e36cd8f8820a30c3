//! Prints; a reader that went away (`forebay port list | head`) is no error.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

/// One or more lines on standard output.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let _ = write!(out, "{text}{newline}").and_then(|()| out.flush());
}

/// A value as JSON.
pub(crate) fn print_json(value: &impl Serialize) {
    print(&serde_json::to_string_pretty(value).expect("answers consist of strings, numbers and maps"));
}

/// A value as JSON or as what `table` makes of it.
pub(crate) fn print_as<T: Serialize>(json: bool, value: &T, table: impl FnOnce(&T) -> String) {
    if json { print_json(value) } else { print(&table(value)) }
}

/// One line on standard error.
pub(crate) fn complain(problem: impl Display) {
    let _ = writeln!(io::stderr(), "forebay: {problem}");
}
