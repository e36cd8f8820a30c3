//! `forebay run`

use std::path::PathBuf;

use clap::Args;
use forebay_control::config::LogLevel;
use forebay_control::eswitch::Offload;
use forebay_control::processors::{PROCESSOR_LIMIT, parse_list};

use super::words::word;

/// Arguments of `run`; what is given here goes before the configuration file.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Configuration file in TOML; the daemon reads it again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Number of workers, the threads that forward packets, 1 to 64
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// CPUs to pin the workers to, one CPU for each worker, as in 0,2-3
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub cpus: Option<CpuList>,
    /// Least severity of the messages to log: off, error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", value_parser = parse_log_level)]
    pub log_level: Option<LogLevel>,
    /// Allow `forebay hints set PORT --program FILE`, which loads an XDP program
    ///
    /// Such a program can read kernel memory, so with this every member of the socket's group can. The configuration
    /// file has the same setting: allow_programs in [api].
    #[arg(long)]
    pub allow_programs: bool,
    /// Address and TCP port to serve Prometheus metrics on, as in 127.0.0.1:9100 [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics_listen: Option<std::net::SocketAddr>,
    /// Let the kernel repeat decisions about flows without the daemon: on or off
    #[arg(long, value_name = "ON|OFF", value_parser = word::<Offload>)]
    pub offload: Option<Offload>,
    /// Leave ports, flows and counters to the next daemon, and take over what the last one left
    ///
    /// A daemon that serves the same socket with --handover is asked to leave by the signal SIGUSR1. A daemon that was
    /// killed has left everything, too. The kernel forwards packets of known flows until the next daemon starts. The
    /// signal SIGTERM stops the daemon and removes everything.
    #[arg(long)]
    pub handover: bool,
    /// Remove what an earlier daemon with --handover left, and take over nothing
    #[arg(long)]
    pub clean: bool,
    /// Directory on a BPF file system for the programs and tables that --handover keeps
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/forebay")]
    pub pin_dir: PathBuf,
    /// Check the configuration file and exit
    #[arg(long, requires = "config")]
    pub check: bool,
}

/// CPUs in the order they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuList(pub Vec<u32>);

fn parse_log_level(text: &str) -> Result<LogLevel, String> {
    use LogLevel::{Debug, Error, Info, Off, Trace, Warn};
    let levels = [Off, Error, Warn, Info, Debug, Trace];
    let level = levels.into_iter().find(|level| level.name() == text);
    level.ok_or_else(|| "write off, error, warn, info, debug or trace".to_owned())
}

fn parse_cpus(text: &str) -> Result<CpuList, String> {
    let wrong =
        |item| format!("`{item}` is not a CPU below {PROCESSOR_LIMIT} or a range of them, as in 0,2-3");
    parse_list(text).map(CpuList).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_may_have_ranges() {
        assert_eq!(parse_cpus("0,2-4,9"), Ok(CpuList(vec![0, 2, 3, 4, 9])));
        assert!(parse_cpus("0,,1").unwrap_err().starts_with("`` is not a CPU below 8192"));
    }
}
