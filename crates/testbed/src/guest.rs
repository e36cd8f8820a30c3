//! A guest: another kernel and other NICs, in an emulated machine whose files are this machine's, read-only.
//!
//! What runs in the guest is an ordinary program of this machine. What it writes to files is lost with the guest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::dut::bridge;
use crate::lab::Lab;
use crate::{LabError, Result, clean, command};

/// A kernel has been found and made ready within this time, also when it must be downloaded.
const KERNEL_LIMIT: Duration = Duration::from_secs(300);
/// So has a module, also when its sources must be downloaded, unpacked and compiled.
const MODULE_LIMIT: Duration = Duration::from_secs(900);
pub(crate) const EMULATOR: &str = "qemu-system-x86_64";
/// Address of a NIC that is the front end of a port of the switch.
pub(crate) const MAC_AT_SWITCH: &str = "02:fe:ff:00:00:01";
/// What taps and bridges carry, so that the NICs decide.
const LONGEST_MTU: &str = "9000";
/// NUMA nodes of a guest that has some.
const NODES: u32 = 2;
/// Number of the first bus on a node; the next is twice as far.
const FIRST_BUS: usize = 32;
/// The last line that a guest writes.
const ENDED: &str = "guest: ended with ";
/// NICs of one cable.
const ENDS: usize = 2;

/// A model of an emulated NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nic {
    /// Paravirtual, with native XDP and a filter of addresses.
    VirtioNet,
    /// The same, which puts each frame into one buffer.
    VirtioNetUnmerged,
    /// The same with two queues each way, between which its packets are spread by their flows.
    VirtioNetQueues,
    /// VMware's, with native XDP that leaves no room for metadata.
    Vmxnet3,
    /// Intel's gigabit NIC, without native XDP.
    E1000e,
}

impl Nic {
    /// Every model, in its usual form.
    pub const ALL: [Nic; 3] = [Nic::VirtioNet, Nic::Vmxnet3, Nic::E1000e];

    /// Its name in tests and tables, which begins with its driver's.
    pub const fn name(self) -> &'static str {
        match self {
            Nic::VirtioNet => "virtio_net",
            Nic::VirtioNetUnmerged => "virtio_net-unmerged",
            Nic::VirtioNetQueues => "virtio_net-queues",
            Nic::Vmxnet3 => "vmxnet3",
            Nic::E1000e => "e1000e",
        }
    }

    const fn device(self) -> &'static str {
        match self {
            Nic::VirtioNet => "virtio-net-pci",
            Nic::VirtioNetUnmerged => "virtio-net-pci,mrg_rxbuf=off",
            // A vector for each queue and way, one for changes, one for commands.
            Nic::VirtioNetQueues => "virtio-net-pci,mq=on,vectors=6",
            Nic::Vmxnet3 => "vmxnet3",
            Nic::E1000e => "e1000e",
        }
    }

    /// Queues each way.
    const fn queues(self) -> u32 {
        match self {
            Nic::VirtioNetQueues => 2,
            Nic::VirtioNet | Nic::VirtioNetUnmerged | Nic::Vmxnet3 | Nic::E1000e => 1,
        }
    }
}

/// A guest that is not started yet.
#[derive(Debug, Clone)]
pub struct Guest {
    cables: Vec<[Nic; ENDS]>,
    modules: Vec<PathBuf>,
    memory_mib: u32,
    has_nodes: bool,
    switch: Option<PathBuf>,
}

impl Default for Guest {
    fn default() -> Self {
        Self { cables: Vec::new(), modules: Vec::new(), memory_mib: 1024, has_nodes: false, switch: None }
    }
}

impl Guest {
    /// With two more NICs, joined by a cable; [`ends`] finds them in the guest.
    #[must_use]
    pub fn with_cable(mut self, ends: [Nic; ENDS]) -> Guest {
        self.cables.push(ends);
        self
    }

    /// With a kernel module that is not of the kernel's package; it is loaded after the drivers, before the script runs.
    /// `path` is absolute, without spaces and commas.
    #[must_use]
    pub fn with_module(mut self, path: &Path) -> Guest {
        self.modules.push(path.to_owned());
        self
    }

    /// With so much memory, where also the files lie that it writes.
    #[must_use]
    pub fn with_memory(mut self, mib: u32) -> Guest {
        self.memory_mib = mib;
        self
    }

    /// With two NUMA nodes of two processors each, and each cable's first NIC on another node, behind a bus of its own.
    #[must_use]
    pub fn with_nodes(mut self) -> Guest {
        self.has_nodes = true;
        self
    }

    /// With a NIC `eth0` that is the front end of the vhost-user port with this socket, before those of cables. The emulator
    /// connects again whenever the switch was gone. Not with nodes.
    #[must_use]
    pub fn with_switch(mut self, socket: &Path) -> Guest {
        self.switch = Some(socket.to_owned());
        self
    }

    /// Starts the guest, runs the script in it with bash, and waits for its end. Returns what the script wrote.
    ///
    /// # Errors
    /// There is no kernel or no emulator, the guest took longer than `limit`, or the script failed; with the guest's
    /// output.
    pub fn run(&self, script: &str, limit: Duration) -> Result<String> {
        let kernel = kernel()?;
        // Named as a lab's, so that the next lab removes what a killed one left.
        let prefix = format!("{}{}-guest-", clean::PREFIX, std::process::id());
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir();
        let directory = directory.map_err(|error| LabError::system("making the guest's directory", error))?;
        let file = |name: &str| directory.path().join(name);
        std::fs::write(file("run"), script)
            .map_err(|error| LabError::system("writing the guest's script", error))?;
        let wires = if self.has_queues() { Some(self.wires()?) } else { None };
        let emulator = match &wires {
            None => Command::new(EMULATOR),
            Some(lab) => lab.switch().command(EMULATOR),
        };
        let emulator = self.emulator(emulator, kernel, directory.path());
        let ended = command::run(emulator, limit).and_then(command::Finished::success);
        let read = |name: &str| {
            String::from_utf8_lossy(&std::fs::read(file(name)).unwrap_or_default()).replace('\r', "")
        };
        let output = read("output");
        let failed = |status: String, output: String| LabError::Failed {
            command: "the guest's script".to_owned(),
            status,
            output,
        };
        let with_console = || format!("{}\n{output}", read("console"));
        ended.map_err(|error| failed(error.to_string(), with_console()))?;
        match output.trim_end().rsplit_once(ENDED) {
            Some((written, "0")) => Ok(written.to_owned()),
            Some((written, status)) => Err(failed(format!("exit status {status}"), written.to_owned())),
            None => Err(failed("no exit status; the guest stopped".to_owned(), with_console())),
        }
    }

    /// Whether there is a NIC with several queues, which the emulator's own cables do not have.
    fn has_queues(&self) -> bool {
        self.cables.iter().flatten().any(|nic| nic.queues() > 1)
    }

    /// A namespace with a tap for each NIC. Each cable is a bridge.
    fn wires(&self) -> Result<Lab> {
        let lab = Lab::new("wires")?;
        bridge::call_netfilter(&lab, false)?;
        let netns = lab.switch();
        for (cable, ends) in self.cables.iter().enumerate() {
            let bridge = format!("cable{cable}");
            netns.ip(&["link", "add", &bridge, "up", "type", "bridge", "mcast_snooping", "0"])?;
            for (end, nic) in ends.iter().enumerate() {
                let tap = end_id(cable, end);
                let queues: &[&str] = if nic.queues() > 1 { &["multi_queue"] } else { &[] };
                netns.ip(&[&["tuntap", "add", &tap, "mode", "tap"], queues].concat())?;
                netns.ip(&["link", "set", &tap, "mtu", LONGEST_MTU, "master", &bridge, "up"])?;
            }
        }
        Ok(lab)
    }

    /// Where the NICs' packets go: to the emulator's own cables, or to taps.
    fn network(&self, cable: usize, end: usize, nic: Nic) -> String {
        let id = end_id(cable, end);
        if !self.has_queues() {
            return format!("hubport,id={id},hubid={cable}");
        }
        let queues = if nic.queues() > 1 { format!(",queues={}", nic.queues()) } else { String::new() };
        format!("tap,id={id},ifname={id},script=no,downscript=no{queues}")
    }

    /// Nodes, and for each cable a bus on one of them with a slot.
    fn add_nodes(&self, command: &mut Command) {
        for node in 0..NODES {
            let (size, first) = (self.memory_mib / NODES, node * 2);
            let memory = format!("memory-backend-ram,id=node{node},size={size}M");
            let processors = format!("node,nodeid={node},cpus={first}-{},memdev=node{node}", first + 1);
            command.args(["-object", &memory, "-numa", &processors]);
        }
        for cable in 0..self.cables.len() {
            let (node, number) = (cable as u32 % NODES, FIRST_BUS * (cable + 1));
            let bus = format!("pxb-pcie,id=bus{cable},bus=pcie.0,bus_nr={number},numa_node={node}");
            let slot = format!("pcie-root-port,id={},bus=bus{cable},chassis={}", port_of(cable), cable + 1);
            command.args(["-device", &bus, "-device", &slot]);
        }
    }

    /// Memory that the switch maps too, and the NIC. QEMU 7.2 without KVM ends with SIGSEGV if such a NIC has vectors.
    fn add_switch(&self, command: &mut Command, socket: &Path) {
        let memory = format!("memory-backend-memfd,id=memory,size={}M,share=on", self.memory_mib);
        let connection = format!("socket,id=switch,path={},reconnect=1", socket.display());
        let nic = format!("virtio-net-pci,netdev=switch,vectors=0,mac={MAC_AT_SWITCH}");
        command.args(["-object", &memory, "-chardev", &connection]);
        command.args(["-netdev", "vhost-user,id=switch,chardev=switch", "-device", &nic]);
    }

    fn emulator(&self, mut command: Command, kernel: &Path, directory: &Path) -> Command {
        let path = |name: &str| directory.join(name).display().to_string();
        let processors = if self.has_nodes { 4 } else { 2 };
        let machine = if self.switch.is_some() { "q35,memory-backend=memory" } else { "q35" };
        add_machine(&mut command, machine, processors, self.memory_mib);
        command.arg("-kernel").arg(kernel.join("vmlinuz")).arg("-initrd").arg(kernel.join("initrd"));
        let modules: Vec<_> = self.modules.iter().map(|module| module.display().to_string()).collect();
        command.arg("-append").arg(format!(
            "console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 FOREBAY_RUN={} FOREBAY_MODULES={}",
            path("run"),
            modules.join(",")
        ));
        for name in ["console", "output"] {
            command.arg("-serial").arg(format!("file:{}", path(name)));
        }
        let files = "local,path=/,mount_tag=machine,security_model=none,readonly=on,multidevs=remap";
        command.args(["-virtfs", files]);
        if self.has_nodes {
            self.add_nodes(&mut command);
        }
        if let Some(socket) = &self.switch {
            self.add_switch(&mut command, socket);
        }
        for (cable, ends) in self.cables.iter().enumerate() {
            for (end, nic) in ends.iter().enumerate() {
                let (id, mac) = (end_id(cable, end), end_mac(cable, end));
                let bus = match (self.has_nodes, end) {
                    (false, _) => String::new(),
                    (true, 0) => format!(",bus={}", port_of(cable)),
                    (true, _) => ",bus=pcie.0".to_owned(),
                };
                command.arg("-netdev").arg(self.network(cable, end, *nic));
                command.arg("-device").arg(format!("{},netdev={id},mac={mac}{bus}", nic.device()));
            }
        }
        command
    }
}

/// A machine without devices.
pub(crate) fn add_machine(command: &mut Command, machine: &str, processors: u16, memory_mib: u32) {
    command.args(["-machine", machine, "-cpu", "max", "-smp", &processors.to_string()]);
    command.args(["-m", &memory_mib.to_string(), "-nodefaults", "-no-reboot", "-display", "none"]);
    // Not KVM: where the machine is a guest itself, it may be there and hang. And one thread: with one for each processor,
    // one of them may run an instruction that another is changing (seen as a panic in a static branch).
    command.args(["-accel", "tcg,thread=single"]);
}

/// The emulator's name of the slot that a cable's first NIC is in, where there are nodes.
fn port_of(cable: usize) -> String {
    format!("port{cable}")
}

/// The name of a NIC for the emulator, and of its tap.
fn end_id(cable: usize, end: usize) -> String {
    format!("c{cable}e{end}")
}

/// The Ethernet address of a NIC, by its cable and the cable's end.
fn end_mac(cable: usize, end: usize) -> String {
    format!("02:fe:00:00:{cable:02x}:{end:02x}")
}

/// In the guest: the netdevs at both ends of a cable. Their names depend on which driver was loaded first.
///
/// # Errors
/// When one of them is not there.
pub fn ends(cable: usize) -> Result<[String; ENDS]> {
    Ok([end(cable, 0)?, end(cable, 1)?])
}

/// In the guest: the netdev at one end of a cable, as long as it is in the first namespace.
///
/// # Errors
/// When it is not there.
pub fn end(cable: usize, end: usize) -> Result<String> {
    let netdevs = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mac = end_mac(cable, end);
    let has_mac =
        |path: &Path| std::fs::read_to_string(path.join("address")).is_ok_and(|is| is.trim() == mac);
    let found = netdevs.map(|netdev| netdev.path()).find(|path| has_mac(path));
    let name = found.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    name.ok_or_else(|| LabError::output("looking for a NIC", format!("there is none with the address {mac}")))
}

/// Path of the module netdevsim for the guests' kernel, which is compiled once.
///
/// # Errors
/// There is no kernel, the package sources lack something, or the module does not compile; in one line.
pub fn netdevsim() -> Result<PathBuf> {
    module("netdevsim")
}

/// Path of the module vduse for the guests' kernel, which is compiled once, without its check that network devices have no
/// control queue.
///
/// # Errors
/// As [`netdevsim`].
pub fn vduse() -> Result<PathBuf> {
    module("vduse")
}

fn module(name: &str) -> Result<PathBuf> {
    let directory = kernel()?;
    let mut command = of_project("guest-module.sh", directory);
    command.arg(name);
    let finished = command::run(command, MODULE_LIMIT)?;
    if !finished.status.success() {
        let why = finished.stderr.trim_end().lines().last().unwrap_or_default().to_owned();
        let (command, status) = (finished.command, finished.status.to_string());
        return Err(LabError::Failed { command, status, output: why });
    }
    Ok(PathBuf::from(finished.stdout.trim_end()))
}

/// The directory with the guests' kernel, which is made ready once.
pub(crate) fn kernel() -> Result<&'static Path> {
    static READY: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    let made = READY.get_or_init(|| make_kernel_ready().map_err(|error| error.to_string()));
    made.as_deref().map_err(|error| LabError::output("making the guests' kernel ready", error.clone()))
}

fn make_kernel_ready() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| project().join("target"), PathBuf::from);
    let directory = target.join("guest");
    command::run(of_project("guest-kernel.sh", &directory), KERNEL_LIMIT)?.success()?;
    std::fs::canonicalize(&directory).map_err(|error| LabError::system("finding the guests' kernel", error))
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A script of the project that makes something in a directory.
fn of_project(script: &str, directory: &Path) -> Command {
    let mut command = Command::new(project().join("scripts").join(script));
    command.arg(directory);
    command
}
