//! `forebay hints`

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Json;
use super::words::parse_switch;

/// `forebay hints`
#[derive(Debug, Subcommand)]
pub enum HintsCommand {
    /// Show which program writes hints at which port, their layouts, and how many packets had hints
    Show(HintsShowArgs),
    /// Change which program writes the hints of a port, while it carries packets
    Set(HintsSetArgs),
}

/// Arguments of `hints show`.
#[derive(Debug, Args)]
pub struct HintsShowArgs {
    /// Show only this port
    #[arg(value_name = "PORT")]
    pub name: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub json: Json,
}

/// Arguments of `hints set`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("writer").required(true).args(["enabled", "program"]))]
pub struct HintsSetArgs {
    /// Name of the port
    #[arg(value_name = "PORT")]
    pub name: String,
    /// on: the built-in program writes the hints that the driver supports; off: no program writes hints
    #[arg(value_name = "ON|OFF", value_parser = parse_switch)]
    pub enabled: Option<bool>,
    /// Object file with an XDP program that writes hints, compiled with forebay_hints.h, as in mine.bpf.o
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}
