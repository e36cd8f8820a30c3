//! `forebay capture`

use std::path::PathBuf;

use clap::Args;

/// Arguments of `capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// Name of the port
    #[arg(value_name = "PORT")]
    pub name: String,
    /// File to write to, as in web.pcapng [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Number of packets after which the capture ends; 0: no limit
    #[arg(short = 'c', long, default_value_t = 0)]
    pub packets: u64,
    /// Number of seconds after which the capture ends, 1 to 100
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub seconds: u32,
    /// Number of bytes to keep of each packet, 1 to 65535
    #[arg(short, long, value_name = "BYTES", default_value_t = 65_535, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub snaplen: u32,
}
