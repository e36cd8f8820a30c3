//! Forebay's command line as a test uses it: one socket, every verb, typed answers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use forebay_control::eswitch::EswitchShow;
use forebay_control::fdb::FdbEntry;
use forebay_control::memory::Estimate;
use forebay_control::occupancy::PoolOccupancy;
use forebay_control::page_pool::PagePool;
use forebay_control::pool::PoolShow;
use forebay_control::port::{Attach, PortShow, PortSpec, PortState, Promiscuity};
use forebay_control::stats::{StatsCheck, StatsShow};
use forebay_control::vlan::VlanMode;
use serde::de::DeserializeOwned;

use super::api::Api;
use crate::command::{self, Finished};
use crate::{LabError, Result, wait};

/// A request with a thousand ports takes seconds, not minutes.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// Calls the command line of one daemon.
#[derive(Debug, Clone)]
pub struct Client {
    binary: PathBuf,
    socket: PathBuf,
}

impl Client {
    /// A client for the daemon behind this socket.
    pub fn new(binary: &Path, socket: &Path) -> Client {
        Client { binary: binary.to_owned(), socket: socket.to_owned() }
    }

    /// The daemon's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The same daemon's API, without a process for every request.
    pub fn api(&self) -> Api {
        Api::new(&self.socket)
    }

    /// The program.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Calls the command line; a refusal is for the caller to look at.
    ///
    /// # Errors
    /// When it can't be started or doesn't end.
    pub fn call(&self, args: &[&str]) -> Result<Finished> {
        let mut command = Command::new(&self.binary);
        command.arg("--socket").arg(&self.socket).args(args);
        command::run(command, REQUEST_LIMIT)
    }

    /// Calls the command line, which must succeed.
    ///
    /// # Errors
    /// When it refuses.
    pub fn ok(&self, args: &[&str]) -> Result<Finished> {
        self.call(args)?.success()
    }

    /// Calls a reading verb and reads its JSON.
    ///
    /// # Errors
    /// When it refuses, or answers something else.
    pub fn json<T: DeserializeOwned>(&self, args: &[&str]) -> Result<T> {
        let finished = self.ok(&[args, &["--json"]].concat())?;
        serde_json::from_str(&finished.stdout).map_err(|error| {
            LabError::output(format!("`{}` ({error})", finished.command), finished.stdout.clone())
        })
    }

    /// Adds ports that differ only in their netdev, in one request.
    ///
    /// # Errors
    /// When one is refused.
    pub fn add(&self, port: &PortSpec, netdevs: &[&str]) -> Result<Finished> {
        let vlan = port.vlan.to_string();
        let mut args = vec!["port", "add"];
        args.extend(netdevs);
        if port.attach != Attach::Auto {
            args.extend(["--attach", port.attach.name()]);
        }
        if port.vlan != VlanMode::All {
            args.extend(["--vlan", &vlan]);
        }
        if port.isolated {
            args.push("--isolated");
        }
        if port.promiscuous != Promiscuity::Auto {
            args.extend(["--promiscuous", port.promiscuous.name()]);
        }
        match (&port.vhost_user, &port.name) {
            (Some(socket), _) => args.extend([port.port_name(), "--vhost-user", &socket.path]),
            (None, Some(name)) => args.extend(["--name", name]),
            (None, None) => {}
        }
        self.ok(&args)
    }

    /// All ports.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub fn ports(&self) -> Result<Vec<PortShow>> {
        self.json(&["port", "list"])
    }

    /// One port.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub fn port(&self, name: &str) -> Result<PortShow> {
        self.json(&["port", "show", name])
    }

    /// Waits until a port is in this state.
    ///
    /// # Errors
    /// When it isn't in ten seconds.
    pub fn wait_port_state(&self, name: &str, state: PortState) -> Result<()> {
        self.wait_port_state_for(name, state, Duration::from_secs(10))
    }

    /// Waits as long as this until a port is in this state.
    ///
    /// # Errors
    /// When it isn't then. The error says how it is instead.
    pub fn wait_port_state_for(&self, name: &str, state: PortState, limit: Duration) -> Result<()> {
        wait::until_ok(&format!("port {name} to be {state}"), limit, || match self.port(name) {
            Ok(port) if port.state == state => Ok(()),
            Ok(port) => Err(format!("{} {}", port.state, port.state_reason)),
            Err(error) => Err(error.to_string()),
        })
    }

    /// The forwarding database.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub fn fdb(&self) -> Result<Vec<FdbEntry>> {
        self.json(&["fdb", "list"])
    }

    /// The counters.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub fn stats(&self) -> Result<StatsShow> {
        self.json(&["stats"])
    }

    /// Whether the counters balance.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub fn stats_check(&self) -> Result<StatsCheck> {
        self.json(&["stats", "--check"])
    }

    /// The pool.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub fn pool(&self) -> Result<PoolShow> {
        self.json(&["pool", "show"])
    }

    /// A snapshot of the pool's occupancy, taken now.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub fn occupancy(&self) -> Result<PoolOccupancy> {
        self.ok(&["pool", "occupancy", "snapshot"])?;
        self.json(&["pool", "occupancy", "show"])
    }

    /// Every ring that holds frames.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub fn page_pools(&self) -> Result<Vec<PagePool>> {
        self.json(&["page-pool-get"])
    }

    /// What a configuration would cost; asks the program, not the daemon.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub fn estimate(&self, args: &[&str]) -> Result<Estimate> {
        self.json(&[&["pool", "estimate"], args].concat())
    }

    /// The switch.
    ///
    /// # Errors
    /// As [`Client::json`].
    pub fn eswitch(&self) -> Result<EswitchShow> {
        self.json(&["eswitch", "show"])
    }
}
