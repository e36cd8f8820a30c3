//! What is generated from the definitions: completions, man pages, the OpenAPI document.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Failure, Outcome};
use crate::api::openapi::document_text;
use crate::cli::Cli;
use crate::output::print;

pub(super) fn completions(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "forebay", &mut script);
    print(&String::from_utf8_lossy(&script));
    Ok(())
}

/// One page per command: forebay.1, forebay-port.1, forebay-port-add.1 and so on.
pub(super) fn man(out: &Path) -> Outcome {
    let failed = |error| Failure::Refused(format!("can't write man pages to {}: {error}", out.display()));
    fs::create_dir_all(out).and_then(|()| clap_mangen::generate_to(Cli::command(), out)).map_err(failed)
}

pub(super) fn openapi() -> Outcome {
    print(&document_text());
    Ok(())
}
