//! A virtual machine: Debian's Linux as an ordinary process (user-mode Linux), whose NIC is a vhost-user front end.
//!
//! Its kernel and its `virtio_net` driver are those of the distribution, unchanged. Its files are this machine's, read-only.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use forebay_uml::EMULATOR;
use nix::sys::signal::Signal;

use crate::command::{self, Background};
use crate::{Lab, LabError, Result};

/// A machine has booted within this time, on a machine that is busy with others.
const BOOT_LIMIT: Duration = Duration::from_secs(60);
const END_LIMIT: Duration = Duration::from_secs(20);
const CHANGE_LIMIT: Duration = Duration::from_secs(10);
/// So often the machine looks whether its starter is still there. It ends by itself when not.
const LOOK_SECONDS: u32 = 2;
/// What a machine has if nothing else is asked for.
pub const MEMORY_MB: u32 = 128;
const READY: &str = "machine: ready";
const ENDED: &str = "machine: ended";

/// One machine that runs; killed when dropped.
#[derive(Debug)]
pub struct Machine {
    program: Background,
}

/// A machine to be.
#[derive(Debug, Clone)]
pub struct MachineOptions<'a> {
    /// Tells machines of one lab apart.
    pub name: &'a str,
    /// The switch's socket, which must listen already. A machine on a tap has none.
    pub socket: &'a Path,
    /// Address of its NIC, in 10.66.0.0/16.
    pub v4: Ipv4Addr,
    /// Pairs of queues that its driver is told to use.
    pub pairs: u16,
    /// Its memory. Linux lets the windows of its TCP sockets grow to what it has: up to half of 1/128 of it.
    pub memory_mb: u32,
    /// What it does once its NIC is there, in the words of `sh`. Then it ends.
    pub script: &'a str,
}

impl<'a> MachineOptions<'a> {
    /// A machine with a pair of queues and [`MEMORY_MB`].
    pub fn new(name: &'a str, socket: &'a Path, v4: Ipv4Addr, script: &'a str) -> Self {
        Self { name, socket, v4, pairs: 1, memory_mb: MEMORY_MB, script }
    }
}

impl Machine {
    /// Whether machines can be booted here.
    pub fn is_installed() -> bool {
        Path::new("/usr/bin").join(EMULATOR).exists()
    }

    /// Boots a machine, and returns when its NIC has its address.
    ///
    /// # Errors
    /// It does not come up.
    pub fn boot(lab: &Lab, options: &MachineOptions<'_>) -> Result<Machine> {
        let nic = format!("virtio_uml.device={}:1", options.socket.display());
        Machine::boot_with(lab, Command::new(EMULATOR), &nic, options)
    }

    /// Boots a machine whose NIC is a tap in the switch's namespace, by its kernel's own driver and with its offloads. The
    /// tap has the virtio header.
    ///
    /// # Errors
    /// As [`Machine::boot`].
    pub fn boot_on_tap(lab: &Lab, tap: &str, options: &MachineOptions<'_>) -> Result<Machine> {
        let nic = format!("vec0:transport=tap,ifname={tap},depth=128,gro=1");
        Machine::boot_with(lab, lab.switch().command(EMULATOR), &nic, options)
    }

    fn boot_with(
        lab: &Lab,
        mut command: Command,
        nic: &str,
        options: &MachineOptions<'_>,
    ) -> Result<Machine> {
        let name = options.name;
        let init = lab.path(&format!("{name}.init"));
        let write = || {
            std::fs::write(&init, script(options))?;
            std::fs::set_permissions(&init, std::fs::Permissions::from_mode(0o755))
        };
        write().map_err(|error| LabError::system(format!("writing {}", init.display()), error))?;
        command.arg(format!("mem={}M", options.memory_mb));
        command.args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"]);
        command.args(["con=null", "con0=null,fd:1", "ssl=null"]);
        command.arg(format!("init={}", init.display()));
        command.arg(format!("uml_dir={}", lab.path("uml").display())).arg(format!("umid={name}"));
        command.arg(nic);
        // Its memory is a file there, which both ends map.
        command.env("TMPDIR", "/dev/shm");
        forebay_uml::run_on_any_processor(&mut command, lab.directory())
            .map_err(|error| LabError::system("preparing a virtual machine", error))?;
        let program = Background::start(command, &lab.path(&format!("{name}.log")))?;
        // From here on all of its processes end with it, also if it does not come up.
        let mut machine = Machine { program };
        machine.program.wait_for_output(READY, BOOT_LIMIT)?;
        Ok(machine)
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.program.is_running()
    }

    /// What it wrote so far.
    pub fn output(&self) -> String {
        self.program.output()
    }

    /// Its processes: it is the first of a group of its own.
    pub fn pids(&self) -> Vec<u32> {
        let group = self.program.pid();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // Behind the name, which may contain anything: state, parent, group (proc_pid_stat(5)).
            let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
            behind.split_whitespace().nth(2).and_then(|word| word.parse().ok()) == Some(group)
        })
        .collect()
    }

    /// Runs it before all ordinary programs from now on (SCHED_FIFO), as if it had a processor of its own.
    ///
    /// # Errors
    /// When the kernel refuses that.
    pub fn run_before_others(&self) -> Result<()> {
        for pid in self.pids() {
            let mut command = Command::new("chrt");
            command.args(["--all-tasks", "--fifo", "--pid", "1", &pid.to_string()]);
            command::run(command, CHANGE_LIMIT)?.success()?;
        }
        Ok(())
    }

    /// Waits until it has written this.
    ///
    /// # Errors
    /// It does not, or has ended.
    pub fn wait_for_output(&mut self, text: &str) -> Result<()> {
        self.program.wait_for_output(text, BOOT_LIMIT)
    }

    /// Waits until its script is done and it has gone; what it wrote.
    ///
    /// # Errors
    /// It goes on.
    pub fn wait(mut self) -> Result<String> {
        self.program.wait_for_output(ENDED, BOOT_LIMIT)?;
        self.program.wait(END_LIMIT)?;
        Ok(self.program.output())
    }

    /// Kills it in the middle of whatever it does, as `kill -9` does.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It is the first of a session of its own; its processes and helpers are in its group.
        let group = nix::unistd::Pid::from_raw(-self.program.pid().cast_signed());
        let _ = nix::sys::signal::kill(group, Signal::SIGKILL);
    }
}

fn script(options: &MachineOptions<'_>) -> String {
    let MachineOptions { v4, pairs, script, .. } = options;
    let starter = std::process::id();
    format!(
        "#!/bin/sh\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /run\n\
         export TMPDIR=/run\n\
         modules=/usr/lib/uml/modules/$(uname -r)/kernel\n\
         for module in net/core/failover drivers/net/net_failover drivers/net/virtio_net; do\n\
             insmod $modules/$module.ko\n\
         done\n\
         mkdir /run/starter; mount -t hostfs -o /proc/{starter} none /run/starter\n\
         (while true </run/starter/stat; do sleep {LOOK_SECONDS}; done; poweroff -f) </dev/null >/dev/null 2>&1 &\n\
         ip link set lo up\n\
         [ -e /sys/class/net/eth0 ] || ip link set vec0 name eth0\n\
         [ {pairs} = 1 ] || ethtool -L eth0 combined {pairs}\n\
         ip link set eth0 up && ip addr add {v4}/16 dev eth0 && echo '{READY}'\n\
         {script}\n\
         echo '{ENDED}'\n\
         poweroff -f\n"
    )
}
