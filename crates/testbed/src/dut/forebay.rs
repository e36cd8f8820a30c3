//! Forebay: the daemon in the switch's namespace, and its command line.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use forebay_control::hints::HintsShow;
use forebay_control::port::{PortSpec, PortState};
use forebay_control::stats::{WorkerStats, WorkersShow};
use nix::sys::signal::Signal;

use super::client::Client;
use super::{Dut, Facts, Processed};
use crate::bpffs::BpfFs;
use crate::command::{self, Background};
use crate::lab::Lab;
use crate::{LabError, Result};

const START_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Names the program to test instead of the one beside this program.
pub const BINARY_VARIABLE: &str = "FOREBAY_BIN";

/// The verb that adds a rule.
const FLOW_ADD: [&str; 2] = ["flow", "add"];

/// How to start the daemon.
#[derive(Debug, Clone, Default)]
pub struct ForebayOptions {
    /// More words for `forebay run`.
    pub arguments: Vec<String>,
    /// The configuration file's text.
    pub config: Option<String>,
    /// The socket's name in the lab's directory, when there are several daemons.
    pub socket: Option<String>,
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
    /// Directories that it sees in the place of others, which must be there.
    pub mounts: Vec<(PathBuf, String)>,
    /// Whether the kernel repeats the daemon's decisions; otherwise every packet takes the slow path.
    pub offload: bool,
}

impl ForebayOptions {
    /// With this configuration file.
    pub fn with_config(text: impl Into<String>) -> ForebayOptions {
        ForebayOptions { config: Some(text.into()), ..ForebayOptions::default() }
    }

    /// Leaves to the next daemon what goes on without one, pinned there, and takes over what the last one left.
    #[must_use]
    pub fn handing_over(mut self, pins: &BpfFs) -> ForebayOptions {
        let directory = pins.path().display().to_string();
        self.arguments.extend(["--handover".to_owned(), "--pin-dir".to_owned(), directory]);
        self
    }

    /// One worker, on this CPU.
    #[must_use]
    pub fn pinned_to(mut self, cpu: usize) -> ForebayOptions {
        self.arguments.extend(["--workers".to_owned(), "1".to_owned(), "--cpus".to_owned(), cpu.to_string()]);
        self
    }

    /// Sees `directory` where the machine has `place`.
    #[must_use]
    pub fn seeing(mut self, directory: impl Into<PathBuf>, place: &str) -> ForebayOptions {
        self.mounts.push((directory.into(), place.to_owned()));
        self
    }

    /// Takes XDP programs from clients.
    #[must_use]
    pub fn allowing_programs(mut self) -> ForebayOptions {
        self.arguments.push("--allow-programs".to_owned());
        self
    }

    /// With the fast path in the kernel.
    #[must_use]
    pub fn offloaded(mut self) -> ForebayOptions {
        self.offload = true;
        self
    }
}

/// Runs the program in a mount namespace of its own, if it is to see other directories.
fn command_in(lab: &Lab, binary: &Path, mounts: &[(PathBuf, String)]) -> Command {
    let binary = binary.display().to_string();
    if mounts.is_empty() {
        return lab.switch().command(&binary);
    }
    let mount = |(directory, place): &(PathBuf, String)| {
        format!("mount --bind '{}' '{place}' && ", directory.display())
    };
    let mounts: String = mounts.iter().map(mount).collect();
    let mut command = lab.switch().command("unshare");
    command.args(["--mount", "sh", "-c", &format!("{mounts}exec \"$@\""), "sh", &binary]);
    command
}

/// A running daemon; killed when dropped.
#[derive(Debug)]
pub struct Forebay {
    daemon: Background,
    client: Client,
    log: PathBuf,
}

impl Forebay {
    /// Starts the daemon and waits until it answers.
    ///
    /// # Errors
    /// When there is no program, or it ends or does not answer; with its log.
    pub fn start(lab: &Lab, options: ForebayOptions) -> Result<Forebay> {
        let mut forebay = Forebay::launch(lab, options)?;
        let (client, daemon) = (&forebay.client, &mut forebay.daemon);
        daemon.wait_until("its answer", START_LIMIT, |_| {
            client.socket().exists() && client.eswitch().is_ok()
        })?;
        Ok(forebay)
    }

    /// Starts the daemon and does not wait, for when it is expected to fail.
    ///
    /// # Errors
    /// When there is no program.
    pub fn launch(lab: &Lab, options: ForebayOptions) -> Result<Forebay> {
        let binary = binary()?;
        let name = options.socket.as_deref().unwrap_or("forebay");
        let (socket, log) = (lab.path(&format!("{name}.sock")), lab.path(&format!("{name}.log")));
        let mut command = command_in(lab, &binary, &options.mounts);
        command.arg("run").arg("--socket").arg(&socket);
        command.arg("--offload").arg(if options.offload { "on" } else { "off" }).args(&options.arguments);
        if let Some(text) = &options.config {
            let file = lab.path(&format!("{name}.toml"));
            std::fs::write(&file, text).map_err(|error| LabError::system("writing a config", error))?;
            command.arg("--config").arg(file);
        }
        command.envs(options.environment);
        let daemon = Background::start_appending(command, &log)?;
        Ok(Forebay { daemon, client: Client::new(&binary, &socket), log })
    }

    /// Whether the program to test knows rules; not every version does.
    pub fn has_rules() -> bool {
        let help = || {
            let mut command = Command::new(binary()?);
            command.args(FLOW_ADD).arg("--help");
            command::run_ok(command)
        };
        help().is_ok()
    }

    /// Its command line.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The daemon.
    pub fn daemon(&mut self) -> &mut Background {
        &mut self.daemon
    }

    /// What it logged, over all starts in this lab.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks it to end and waits.
    ///
    /// # Errors
    /// When it does not end in five seconds.
    pub fn stop(&mut self) -> Result<std::process::ExitStatus> {
        self.daemon.signal(Signal::SIGTERM);
        self.daemon.wait(STOP_LIMIT)
    }

    /// Kills it without notice and waits until it is gone.
    ///
    /// # Errors
    /// When the kernel does not let it go in five seconds.
    pub fn kill(&mut self) -> Result<std::process::ExitStatus> {
        self.daemon.signal(Signal::SIGKILL);
        self.daemon.wait(STOP_LIMIT)
    }
}

impl Dut for Forebay {
    fn name(&self) -> &'static str {
        "forebay"
    }

    fn add_ports(&mut self, ports: &[PortSpec]) -> Result<()> {
        for alike in group_alike(ports) {
            let netdevs: Vec<&str> = alike.iter().map(|port| port.netdev.as_str()).collect();
            let netdevs = if alike[0].is_guest() { &[][..] } else { &netdevs };
            self.client.add(alike[0], netdevs)?;
        }
        let guests = ports.iter().filter(|port| port.is_guest());
        guests.map(PortSpec::port_name).try_for_each(|name| self.client.wait_port_state(name, PortState::Up))
    }

    fn add_guest(&mut self, name: &str, socket: &Path) -> Result<()> {
        self.client.ok(&["port", "add", name, "--vhost-user", &socket.to_string_lossy()]).map(drop)
    }

    fn delete_port(&mut self, netdev: &str) -> Result<()> {
        self.client.ok(&["port", "del", netdev]).map(drop)
    }

    fn pids(&self) -> Vec<u32> {
        vec![self.daemon.pid()]
    }

    fn add_rule(&mut self, to: Ipv4Addr) -> Result<()> {
        let to = format!("{to}/32");
        let rule = ["--priority", "10", "--ip-proto", "tcp", "--dst", &to, "--dport", "80-90"];
        self.client.ok(&[&FLOW_ADD, &rule[..], &["--action", "normal"]].concat()).map(drop)
    }

    fn add_drop_rule(&mut self, to: Ipv4Addr, port: u16) -> Result<()> {
        let (to, port) = (format!("{to}/32"), port.to_string());
        let rule = ["--priority", "10", "--ip-proto", "udp", "--dst", &to, "--dport", &port];
        self.client.ok(&[&FLOW_ADD, &rule[..], &["--action", "drop"]].concat()).map(drop)
    }

    fn load_hints(&mut self, netdev: &str, object: &Path) -> Result<()> {
        self.client.ok(&["hints", "set", netdev, "--program", &object.to_string_lossy()]).map(drop)
    }

    fn write_hints(&mut self, netdev: &str) -> Result<()> {
        self.client.ok(&["hints", "set", netdev, "on"]).map(drop)
    }

    fn processed(&self) -> Result<Processed> {
        let shown: WorkersShow = self.client.json(&["stats", "--workers"])?;
        let hints: HintsShow = self.client.json(&["hints", "show"])?;
        let sum = |of: fn(&WorkerStats) -> u64| shown.workers.iter().map(of).sum();
        let facts = Facts {
            hinted: hints.layouts.iter().map(|layout| layout.packets).sum(),
            cached: sum(|worker| worker.lookups.cached),
            repeated: sum(|worker| worker.lookups.repeated),
            bursts: sum(|worker| worker.batches),
        };
        let (packets, cycles) = (sum(|worker| worker.packets), sum(|worker| worker.busy_cycles));
        Ok(Processed { packets, cycles, facts: Some(facts) })
    }
}

/// Ports that differ only in their netdev can be added by one request.
fn group_alike(ports: &[PortSpec]) -> Vec<Vec<&PortSpec>> {
    let mut groups: Vec<Vec<&PortSpec>> = Vec::new();
    for port in ports {
        let is_alike = |group: &Vec<&PortSpec>| {
            let first = group[0];
            port.name.is_none()
                && first.name.is_none()
                && (first.attach, &first.vlan, first.isolated) == (port.attach, &port.vlan, port.isolated)
        };
        match groups.iter_mut().find(|group| is_alike(group)) {
            Some(group) => group.push(port),
            None => groups.push(vec![port]),
        }
    }
    groups
}

/// The program to test: what [`BINARY_VARIABLE`] names, else `forebay` beside this program or one folder up.
///
/// # Errors
/// When neither exists.
pub fn binary() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(BINARY_VARIABLE) {
        return Ok(PathBuf::from(named));
    }
    let own = std::env::current_exe().map_err(|error| LabError::system("finding this program", error))?;
    let beside = own.ancestors().skip(1).take(2).map(|folder: &Path| folder.join("forebay"));
    let found = beside.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        let what = format!("no forebay beside {}; build it or set {BINARY_VARIABLE}", own.display());
        LabError::system(what, std::io::Error::from(std::io::ErrorKind::NotFound))
    })
}
