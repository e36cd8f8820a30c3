//! Open vSwitch with AF_XDP ports, or with DPDK and ports of virtual machines: an instance of its own, all its files in the lab's directory.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use forebay_control::port::PortSpec;
use forebay_control::vlan::VlanMode;

use super::bridge::not_offered;
use super::{Dut, Processed};
use crate::command::{self, Background};
use crate::lab::Lab;
use crate::measure::cpu;
use crate::measure::huge_pages::HugePages;
use crate::{LabError, Result};

/// Debian's build with AF_XDP, in openvswitch-switch-dpdk.
const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const NAME: &str = "br0";
/// The control socket, in the instance's directory.
const CONTROL: &str = "vswitchd.ctl";
const START_LIMIT: Duration = Duration::from_secs(20);
/// Adding a hundred ports binds a hundred UMEMs of 64 MB.
const CONFIGURE_LIMIT: Duration = Duration::from_secs(120);

/// Of 2 MB: what DPDK takes below, and some more.
const HUGE_PAGES: u64 = 640;
/// How it starts with DPDK. Its main threads are on processor 0.
const DPDK: [&str; 4] = [
    "other_config:dpdk-init=true",
    "other_config:dpdk-socket-mem=1024",
    "other_config:dpdk-lcore-mask=0x1",
    "other_config:dpdk-extra=\"--no-pci --no-telemetry --iova-mode=va\"",
];

/// Ports of netdevs are then packet sockets, and long packets pass them and virtual machines whole.
const WHOLE_PACKETS: &str = "other_config:userspace-tso-enable=true";

/// What it is started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    AfXdp,
    Dpdk,
    DpdkWhole,
}

/// A running Open vSwitch. Its daemons end with this value.
#[derive(Debug)]
pub struct Ovs {
    // In this order: the switch before its database.
    vswitchd: Background,
    _database: Background,
    directory: PathBuf,
    queues: u32,
    kind: Kind,
    /// Given back after its end.
    _huge_pages: Option<HugePages>,
}

impl Ovs {
    /// Whether the package is installed.
    pub fn is_installed() -> bool {
        Path::new(VSWITCHD).exists()
    }

    /// Starts the database and the switch, its packet thread on `cpu`.
    ///
    /// # Errors
    /// When the package is missing or a daemon does not start.
    pub fn start(lab: &Lab, cpu: usize) -> Result<Ovs> {
        if !Ovs::is_installed() {
            return Err(not_offered("ovs-afxdp", "start: install openvswitch-switch-dpdk"));
        }
        Ovs::start_in(lab, cpu, Kind::AfXdp, None)
    }

    /// The same with DPDK, which has ports of virtual machines. It takes huge pages from the machine until it ends.
    ///
    /// # Errors
    /// As [`Ovs::start`], and when there are too few huge pages.
    pub fn start_with_dpdk(lab: &Lab, cpu: usize) -> Result<Ovs> {
        Ovs::start_dpdk(lab, cpu, Kind::Dpdk)
    }

    /// The same, and long packets pass whole between virtual machines and netdevs. Netdevs are ports by packet sockets then,
    /// because those of AF_XDP take no long packets.
    ///
    /// # Errors
    /// As [`Ovs::start_with_dpdk`].
    pub fn start_with_dpdk_and_whole_packets(lab: &Lab, cpu: usize) -> Result<Ovs> {
        Ovs::start_dpdk(lab, cpu, Kind::DpdkWhole)
    }

    fn start_dpdk(lab: &Lab, cpu: usize, kind: Kind) -> Result<Ovs> {
        if !Ovs::is_installed() {
            return Err(not_offered("ovs-dpdk", "start: install openvswitch-switch-dpdk"));
        }
        Ovs::start_in(lab, cpu, kind, Some(HugePages::take(HUGE_PAGES)?))
    }

    fn start_in(lab: &Lab, cpu: usize, kind: Kind, huge_pages: Option<HugePages>) -> Result<Ovs> {
        let directory = lab.path("ovs");
        std::fs::create_dir_all(&directory).map_err(|error| LabError::system("OVS's directory", error))?;
        let database = start_database(lab, &directory)?;
        let set = ["--no-wait", "set", "Open_vSwitch", "."];
        if kind != Kind::AfXdp {
            vsctl(&directory, &[&set, &DPDK[..]].concat())?;
        }
        if kind == Kind::DpdkWhole {
            vsctl(&directory, &[&set[..], &[WHOLE_PACKETS]].concat())?;
        }
        let mut vswitchd = with_directories(lab.switch().command(VSWITCHD), &directory);
        vswitchd.arg("--no-chdir").arg("--pidfile").arg("--unixctl").arg(directory.join(CONTROL));
        vswitchd.arg(database_address(&directory));
        let vswitchd = Background::start(vswitchd, &directory.join("vswitchd.output"))?;
        let ovs = Ovs { vswitchd, _database: database, directory, queues: 1, kind, _huge_pages: huge_pages };
        ovs.configure(cpu)?;
        Ok(ovs)
    }

    /// Gives the ports it adds from now on so many receive queues.
    #[must_use]
    pub fn of_queues(mut self, queues: u32) -> Ovs {
        self.queues = queues;
        self
    }

    fn configure(&self, cpu: usize) -> Result<()> {
        let mask = format!("other_config:pmd-cpu-mask={:#x}", 1u64 << cpu);
        self.vsctl(&["set", "Open_vSwitch", ".", &mask])?;
        self.vsctl(&["add-br", NAME, "--", "set", "bridge", NAME, "datapath_type=netdev"])
    }

    fn vsctl(&self, args: &[&str]) -> Result<()> {
        vsctl(&self.directory, args)
    }

    /// Asks the switch itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn appctl(&self, args: &[&str]) -> Result<String> {
        let mut command = with_directories(Command::new("ovs-appctl"), &self.directory);
        command.arg("-t").arg(self.directory.join(CONTROL)).args(args);
        Ok(command::run_ok(command)?.stdout)
    }
}

fn vsctl(directory: &Path, args: &[&str]) -> Result<()> {
    let mut command = with_directories(Command::new("ovs-vsctl"), directory);
    command.arg(format!("--db=unix:{}", socket(directory).display())).args(args);
    command::run(command, CONFIGURE_LIMIT)?.success().map(drop)
}

fn start_database(lab: &Lab, directory: &Path) -> Result<Background> {
    let mut create = Command::new("ovsdb-tool");
    create.arg("create").arg(directory.join("conf.db")).arg(SCHEMA);
    command::run_ok(create)?;
    let mut server = with_directories(lab.switch().command("ovsdb-server"), directory);
    server.arg(directory.join("conf.db")).arg("--no-chdir").arg("--pidfile");
    server.arg(format!("--remote=punix:{}", socket(directory).display()));
    let mut server = Background::start(server, &directory.join("ovsdb.output"))?;
    server.wait_until("the database's socket", START_LIMIT, |_| socket(directory).exists())?;
    let mut init = with_directories(Command::new("ovs-vsctl"), directory);
    init.arg(format!("--db=unix:{}", socket(directory).display())).args(["--no-wait", "init"]);
    command::run_ok(init)?;
    Ok(server)
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("db.sock")
}

fn database_address(directory: &Path) -> String {
    format!("unix:{}", socket(directory).display())
}

fn with_directories(mut command: Command, directory: &Path) -> Command {
    for variable in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, directory);
    }
    command
}

impl Dut for Ovs {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::AfXdp => "ovs-afxdp",
            Kind::Dpdk => "ovs-dpdk",
            Kind::DpdkWhole => "ovs-dpdk (tso)",
        }
    }

    fn add_ports(&mut self, ports: &[PortSpec]) -> Result<()> {
        let queues = format!("options:n_rxq={}", self.queues);
        let mut args: Vec<&str> = Vec::new();
        for port in ports {
            if port.vlan != VlanMode::All || port.isolated {
                return Err(not_offered(
                    "ovs-afxdp",
                    format!("give {} VLANs or isolate it here", port.netdev),
                ));
            }
            let separator: &[&str] = if args.is_empty() { &[] } else { &["--"] };
            args.extend(separator);
            args.extend(["add-port", NAME, &port.netdev, "--", "set", "interface", &port.netdev]);
            args.extend(match self.kind {
                Kind::AfXdp | Kind::Dpdk => ["type=afxdp", "options:xdp-mode=native", &queues],
                Kind::DpdkWhole => ["type=system", "mtu_request=1500", &queues],
            });
        }
        self.vsctl(&args)
    }

    fn add_guest(&mut self, name: &str, socket: &Path) -> Result<()> {
        if self.kind == Kind::AfXdp {
            return Err(not_offered(self.name(), format!("be the back end of {name}")));
        }
        let socket = format!("options:vhost-server-path={}", socket.display());
        let port = ["add-port", NAME, name, "--", "set", "interface", name];
        self.vsctl(&[&port[..], &["type=dpdkvhostuserclient", &socket]].concat())
    }

    fn connects_to_guests(&self) -> bool {
        true
    }

    fn delete_port(&mut self, netdev: &str) -> Result<()> {
        self.vsctl(&["del-port", NAME, netdev])
    }

    fn pids(&self) -> Vec<u32> {
        vec![self.vswitchd.pid()]
    }

    /// The packet threads spin; the switch itself says how many of their cycles went into packets.
    fn work_time(&self) -> Result<Duration> {
        let cycles = self.processed()?.cycles;
        Ok(Duration::from_secs_f64(cycles as f64 / cpu::cycles_per_second()?))
    }

    fn add_drop_rule(&mut self, to: Ipv4Addr, port: u16) -> Result<()> {
        let mut command = with_directories(Command::new("ovs-ofctl"), &self.directory);
        let flow = format!("priority=10,udp,nw_dst={to},tp_dst={port},actions=drop");
        command.args(["add-flow", NAME, &flow]);
        command::run_ok(command).map(drop)
    }

    fn processed(&self) -> Result<Processed> {
        let text = self.appctl(&["dpif-netdev/pmd-stats-show"])?;
        let sum = |name: &str| sum_of(&text, name);
        Ok(Processed { packets: sum("packets received:"), cycles: sum("processing cycles:"), facts: None })
    }

    /// TCP passes through its AF_XDP ports only with finished checksums.
    fn settings_of_hosts(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::AfXdp | Kind::Dpdk => &["tx", "off"],
            Kind::DpdkWhole => &[],
        }
    }
}

/// All threads' numbers of this name.
fn sum_of(text: &str, name: &str) -> u64 {
    let fields = text.lines().filter_map(|line| line.trim().strip_prefix(name));
    fields.filter_map(|field| field.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_threads_are_added() {
        let text = "pmd thread numa_id 0 core_id 1:\n  packets received: 7\n  processing cycles: 12 (40.00%)\n\
                    main thread:\n  packets received: 1\n  processing cycles: 3 (1%)\n";
        assert_eq!((sum_of(text, "packets received:"), sum_of(text, "processing cycles:")), (8, 15));
    }
}
