//! One network namespace, gone when dropped.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{self, Finished};
use crate::{LabError, Result, wait};

/// A network namespace that this process made.
#[derive(Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// Makes the namespace, with its loopback up.
    ///
    /// # Errors
    /// When `ip netns add` fails, for want of root most likely.
    pub fn create(name: &str) -> Result<Netns> {
        ip(&["netns", "add", name])?;
        let netns = Netns { name: name.to_owned() };
        netns.ip(&["link", "set", "lo", "up"])?;
        Ok(netns)
    }

    /// The namespace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run in the namespace, with its /sys.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a program in the namespace to its successful end.
    ///
    /// # Errors
    /// As [`command::run_ok`].
    pub fn run(&self, program: &str, args: &[&str]) -> Result<Finished> {
        let mut command = self.command(program);
        command.args(args);
        command::run_ok(command)
    }

    /// Runs `ip` on the namespace.
    ///
    /// # Errors
    /// As [`command::run_ok`].
    pub fn ip(&self, args: &[&str]) -> Result<Finished> {
        ip(&[&["-n", &self.name], args].concat())
    }

    /// Runs many `ip` commands at once.
    ///
    /// # Errors
    /// When one of them fails; those before it stay done.
    pub fn ip_batch(&self, lines: &[String]) -> Result<Finished> {
        let file = tempfile::NamedTempFile::new().map_err(|error| LabError::system("a batch file", error))?;
        std::fs::write(file.path(), lines.join("\n"))
            .map_err(|error| LabError::system("writing a batch file", error))?;
        let mut command = Command::new("ip");
        command.args(["-n", &self.name, "-batch"]).arg(file.path());
        command::run(command, Duration::from_secs(120))?.success()
    }

    /// Number of programs at the tcx ingress of a netdev; older tools do not show them.
    ///
    /// # Errors
    /// When there is no such netdev, or the kernel does not say.
    pub fn tcx_programs(&self, ifname: &str) -> Result<u32> {
        let ifindex = self.ifindex(ifname)?.cast_signed();
        let counted = self.enter(|| crate::sys::tcx::count(ifindex))?;
        counted.map_err(|error| LabError::system(format!("counting the programs of {ifname}"), error))
    }

    /// Calls `inside` on a thread that is in the namespace; sockets it opens stay there.
    ///
    /// # Errors
    /// When the namespace can't be entered.
    ///
    /// # Panics
    /// With what `inside` panics with.
    pub fn enter<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> Result<T> {
        enter(&self.name, inside)
    }

    /// Writes a network setting, named as below /proc/sys/net.
    ///
    /// # Errors
    /// When the setting does not exist or refuses the value.
    pub fn set(&self, setting: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{setting}");
        let written = self.enter(|| std::fs::write(&path, value))?;
        written.map_err(|error| LabError::system(format!("writing {value} to {path}"), error))
    }

    /// The kernel's number for a netdev in the namespace.
    ///
    /// # Errors
    /// When there is no such netdev.
    pub fn ifindex(&self, ifname: &str) -> Result<u32> {
        let index = self.enter(|| nix::net::if_::if_nametoindex(ifname))?;
        index.map_err(|errno| LabError::system(format!("no netdev {ifname} in {}", self.name), errno))
    }

    /// Packets that a netdev has received since it was made.
    ///
    /// # Errors
    /// When there is no such netdev.
    pub fn received_packets(&self, ifname: &str) -> Result<u64> {
        self.statistic(ifname, 1)
    }

    /// Packets that a netdev has sent since it was made.
    ///
    /// # Errors
    /// When there is no such netdev.
    pub fn sent_packets(&self, ifname: &str) -> Result<u64> {
        self.statistic(ifname, 9)
    }

    /// What is behind a netdev's name in that column, from 0 (proc_net(5)).
    fn statistic(&self, ifname: &str, column: usize) -> Result<u64> {
        let shown = self.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?;
        let shown = shown.map_err(|error| LabError::system("reading netdevs' statistics", error))?;
        let line = shown.lines().find_map(|line| line.trim_start().strip_prefix(ifname)?.strip_prefix(':'));
        let packets = line.and_then(|numbers| numbers.split_whitespace().nth(column)?.parse().ok());
        packets.ok_or_else(|| LabError::output(format!("the statistics of {ifname}"), shown))
    }

    /// Whether the netdev is there.
    pub fn has_netdev(&self, ifname: &str) -> bool {
        self.ifindex(ifname).is_ok()
    }

    /// Switches an offload or feature of a netdev.
    ///
    /// # Errors
    /// When ethtool refuses.
    pub fn ethtool(&self, ifname: &str, args: &[&str]) -> Result<Finished> {
        self.run("ethtool", &[&["-K", ifname], args].concat())
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// As [`Netns::enter`], by the namespace's name.
pub(crate) fn enter<T: Send>(name: &str, inside: impl FnOnce() -> T + Send) -> Result<T> {
    let path = format!("/run/netns/{name}");
    let handle = File::open(&path).map_err(|error| LabError::system(format!("opening {path}"), error))?;
    let entered = || -> nix::Result<T> {
        setns(&handle, CloneFlags::CLONE_NEWNET)?;
        Ok(inside())
    };
    let outcome = std::thread::scope(|scope| scope.spawn(entered).join());
    let outcome = outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    outcome.map_err(|errno| LabError::system(format!("entering {path}"), errno))
}

/// As [`Netns::ifindex`], in the namespace of the calling thread.
pub(crate) fn ifindex(netdev: &str) -> Result<u32> {
    nix::net::if_::if_nametoindex(netdev)
        .map_err(|errno| LabError::system(format!("no netdev {netdev}"), errno))
}

/// Runs `ip` in this process's own namespace.
///
/// # Errors
/// As [`command::run_ok`].
pub fn ip(args: &[&str]) -> Result<Finished> {
    let mut command = Command::new("ip");
    command.args(args);
    command::run_ok(command)
}

/// Ends the processes in a namespace that this crate made and deletes it; quietly when it is gone already.
pub(crate) fn remove(name: &str) {
    let own = std::process::id();
    let processes_end = || {
        let pids = pids_in(name);
        for pid in pids.iter().filter(|pid| **pid != own) {
            // Fails only when the process is gone, as wanted.
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        pids.iter().all(|pid| *pid == own)
    };
    // Zombies whose parent does not wait are listed too; the namespace can be deleted all the same.
    let _ = wait::until("processes to end", Duration::from_millis(500), processes_end);
    let mut command = Command::new("ip");
    command.args(["netns", "del", name]).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = command.status();
}

fn pids_in(name: &str) -> Vec<u32> {
    let listed = ip(&["netns", "pids", name]).map(|finished| finished.stdout).unwrap_or_default();
    listed.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}
