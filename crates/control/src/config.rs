//! The configuration file.
//!
//! One TOML file; a key that is not known is refused, so that a misspelt one can't be ignored silently. Every error
//! carries line and column. [`Config::parse`] returns only configurations that are valid by themselves; whether the
//! netdevs exist only the switch knows.

mod api;
mod diff;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz_check;
mod location;
#[cfg(test)]
mod tests;
mod validate;

use std::net::SocketAddr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::coalesce::CoalesceConfig;
use crate::eswitch::{Offload, SpoolMode};
use crate::fdb::FdbAdd;
use crate::pool::PoolPolicy;
use crate::port::PortSpec;
use crate::rule::RuleAdd;
use crate::rxq::RefillKind;

pub(crate) use api::mode_bits;
pub use api::{ApiConfig, read_only_socket};
pub use diff::{ConfigDiff, PortChange};

/// Where the daemon listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/forebay/forebay.sock";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `[switch]`
    pub switch: SwitchConfig,
    /// `[api]`
    pub api: ApiConfig,
    /// `[pool]`
    pub pool: PoolConfig,
    /// `[fdb]`
    pub fdb: FdbConfig,
    /// `[flood]`
    pub flood: FloodConfig,
    /// `[loop]`
    #[serde(rename = "loop")]
    pub loops: LoopConfig,
    /// `[flows]`
    pub flows: FlowsConfig,
    /// `[coalesce]`
    pub coalesce: CoalesceConfig,
    /// `[metrics]`
    pub metrics: MetricsConfig,
    /// `[log]`
    pub log: LogConfig,
    /// `[[port]]`, in the order of the file.
    #[serde(rename = "port")]
    pub ports: Vec<PortSpec>,
}

/// `[switch]`: what can change only with a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchConfig {
    /// Path of the API's unix socket.
    pub socket: String,
    /// Number of workers, 1 to 64.
    pub workers: u32,
    /// The CPUs the workers are pinned to, one each; empty: not pinned.
    pub cpus: Vec<u32>,
    /// Microseconds a worker goes on looking for packets before it sleeps, where they come in such a time; 0 to 1000, 0:
    /// it sleeps at once.
    pub linger_us: u32,
    /// Ports there may be at most, 1 to 4096.
    pub max_ports: u32,
    /// How ports share packet memory.
    pub spool_mode: SpoolMode,
    /// Whether TCP segments that follow each other leave as one packet, its checksum left to the receiver as on the
    /// kernel's own bridge. Several times faster for bulk traffic; off, packets leave as they came.
    pub join_segments: bool,
    /// Whether long TCP packets of tcx ports reach workers whole; off, the kernel cuts them on their way.
    pub long_queues: bool,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        let socket = DEFAULT_SOCKET.to_owned();
        SwitchConfig {
            socket,
            workers: 1,
            cpus: Vec::new(),
            linger_us: 100,
            max_ports: 4096,
            spool_mode: SpoolMode::Spp,
            join_segments: false,
            long_queues: true,
        }
    }
}

/// `[pool]`: what can change only with a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    /// Frames in the pool, 1024 to 1048576.
    pub frames: u32,
    /// Bytes of one frame, 2048 or 4096.
    pub frame_size: u32,
    /// Packets one port's RX ring holds, a power of two from 64 to 4096.
    pub rx_ring_depth: u32,
    /// How the pool is shared.
    pub policy: PoolPolicy,
    /// How full fill rings are kept.
    pub refill: RefillKind,
    /// Frames that adaptive refill keeps in each at rest, 1 to 4096.
    pub refill_low: u32,
}

impl Default for PoolConfig {
    fn default() -> Self {
        PoolConfig {
            frames: 16384,
            frame_size: 2048,
            rx_ring_depth: 1024,
            policy: PoolPolicy::Dt,
            refill: RefillKind::Static,
            refill_low: 128,
        }
    }
}

/// `[fdb]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FdbConfig {
    /// Seconds until a learned entry without traffic is forgotten, 1 to 1000000.
    pub ageing_seconds: u32,
    /// Entries there may be in all, 1 to 1048576.
    pub max_entries: u32,
    /// Learned entries one port may have, 1 to `max_entries`. It never has more than entries are free.
    pub max_entries_per_port: u32,
    /// Stations that may move to one port in a second, in the long run; 0 is unlimited.
    pub moves_per_second: u64,
    /// Stations that may move to one port at once; at least 1 unless `moves_per_second` is 0.
    pub burst_moves: u64,
    /// `[[fdb.static]]`
    #[serde(rename = "static")]
    pub static_entries: Vec<FdbAdd>,
}

impl Default for FdbConfig {
    fn default() -> Self {
        let static_entries = Vec::new();
        FdbConfig {
            ageing_seconds: 300,
            max_entries: 65536,
            max_entries_per_port: 8192,
            moves_per_second: 100,
            burst_moves: 1000,
            static_entries,
        }
    }
}

/// `[flood]`: the token bucket that every port has for the copies its flooded packets make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FloodConfig {
    /// Copies a second in the long run; 0 is unlimited.
    pub copies_per_second: u64,
    /// Copies at once after a quiet time; at least 1 unless `copies_per_second` is 0.
    pub burst_copies: u64,
}

impl Default for FloodConfig {
    fn default() -> Self {
        FloodConfig { copies_per_second: 100_000, burst_copies: 20_000 }
    }
}

/// `[loop]`: finding loops with probes, and blocking ports for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoopConfig {
    /// Whether probes are sent, and ports blocked where another port's probe comes in.
    pub detect: bool,
    /// Milliseconds between two probes of a port, 200 to 60000.
    pub interval_ms: u32,
    /// Names of ports that are never blocked, such as uplinks; can change only with a restart.
    pub never_block: Vec<String>,
}

impl Default for LoopConfig {
    fn default() -> Self {
        LoopConfig { detect: true, interval_ms: 1000, never_block: Vec::new() }
    }
}

/// `[flows]`: decisions that the kernel programs repeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlowsConfig {
    /// Whether they repeat any.
    pub offload: Offload,
    /// Whether packets for a container go to its end of a veth at once, without passing the switch's end; can change only
    /// with a restart.
    pub redirect_peer: bool,
    /// Flows there may be in all, 1024 to 1048576; can change only with a restart.
    pub max_entries: u32,
    /// Seconds until a flow without traffic is taken out, 1 to 3600.
    pub idle_seconds: u32,
    /// Flows a second that one port may install, 1 to 1000000.
    pub installs_per_second: u32,
    /// `[[flows.rules]]`
    pub rules: Vec<RuleAdd>,
}

impl Default for FlowsConfig {
    fn default() -> Self {
        FlowsConfig {
            offload: Offload::On,
            redirect_peer: true,
            max_entries: 65536,
            idle_seconds: 30,
            installs_per_second: 20_000,
            rules: Vec::new(),
        }
    }
}

/// `[metrics]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Address and TCP port that serve `/metrics`, read-only; none unless given.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "listen_address")]
    pub listen: Option<SocketAddr>,
}

/// The standard library's error names neither the value nor the way out.
fn listen_address<'de, D: Deserializer<'de>>(value: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(value)?;
    let wrong =
        |_| D::Error::custom(format!("`{text}` is not an IP address and a TCP port, as in 127.0.0.1:9100"));
    text.parse().map(Some).map_err(wrong)
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// How much is logged.
    pub level: LogLevel,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What needs somebody's attention.
    Error,
    /// And what might.
    Warn,
    /// And what changed.
    #[default]
    Info,
    /// And every request.
    Debug,
    /// And everything else.
    Trace,
}

impl LogLevel {
    /// The word in the file.
    pub const fn name(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

/// What can change while packets flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// As in [`FdbConfig`].
    pub ageing_seconds: u32,
    /// As in [`FdbConfig`].
    pub max_entries: u32,
    /// As in [`FdbConfig`].
    pub max_entries_per_port: u32,
    /// As in [`FdbConfig`].
    pub moves_per_second: u64,
    /// As in [`FdbConfig`].
    pub burst_moves: u64,
    /// As in [`FloodConfig`].
    pub flood_copies_per_second: u64,
    /// As in [`FloodConfig`].
    pub flood_burst_copies: u64,
    /// As in [`LoopConfig`].
    pub loop_detect: bool,
    /// As in [`LoopConfig`].
    pub loop_interval_ms: u32,
    /// As in [`FlowsConfig`].
    pub offload: Offload,
    /// As in [`FlowsConfig`].
    pub flow_idle_seconds: u32,
    /// As in [`FlowsConfig`].
    pub flow_installs_per_second: u32,
}

/// A file that is not a valid configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ConfigError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// What is wrong, with key, value, limit and way out.
    pub message: String,
}

impl Config {
    /// Reads and validates a file's text.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place; print it as `FILE:LINE:COLUMN: MESSAGE`.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|error| location::of_parse_error(text, &error))?;
        validate::check(&config).map_err(|problem| location::of_problem(text, &problem))?;
        Ok(config)
    }

    /// Validates a configuration that was changed after it was read.
    ///
    /// # Errors
    /// The first thing that is wrong, with key, value, limit and way out.
    pub fn validate(&self) -> Result<(), String> {
        validate::check(self).map_err(|problem| problem.message)
    }

    /// The part that can change while packets flow.
    pub fn settings(&self) -> Settings {
        Settings {
            ageing_seconds: self.fdb.ageing_seconds,
            max_entries: self.fdb.max_entries,
            max_entries_per_port: self.fdb.max_entries_per_port,
            moves_per_second: self.fdb.moves_per_second,
            burst_moves: self.fdb.burst_moves,
            flood_copies_per_second: self.flood.copies_per_second,
            flood_burst_copies: self.flood.burst_copies,
            loop_detect: self.loops.detect,
            loop_interval_ms: self.loops.interval_ms,
            offload: self.flows.offload,
            flow_idle_seconds: self.flows.idle_seconds,
            flow_installs_per_second: self.flows.installs_per_second,
        }
    }

    /// What has to be done to get from this configuration to `new`.
    pub fn diff(&self, new: &Config) -> ConfigDiff {
        diff::between(self, new)
    }
}
