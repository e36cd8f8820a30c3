//! A service manager of a lab's own: systemd, started in namespaces where it is the first process, with Forebay
//! installed as `make install` does.
//!
//! It shares the switch's network namespace, the machine's files (what it writes stays in memory) and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cgroup::Cgroup;
use crate::command::{self, Background, Finished};
use crate::dut::{Client, forebay};
use crate::lab::Lab;
use crate::{LabError, Result};

const NAME: &str = "systemd";
const BOOT_LIMIT: Duration = Duration::from_secs(30);
/// The manager gives a service 90 seconds to start.
const REQUEST_LIMIT: Duration = Duration::from_secs(120);
const END_LIMIT: Duration = Duration::from_secs(5);

/// The running manager; killed with all it started when dropped.
#[derive(Debug)]
pub struct Systemd {
    namespaces: Background,
    /// The manager, as those outside number it.
    manager: u32,
    // Removed after the manager is gone.
    _cgroup: Cgroup,
}

impl Systemd {
    /// Boots it, with this configuration of Forebay, which is installed and not started.
    ///
    /// # Errors
    /// Without systemd or cgroup2; with what was written meanwhile.
    pub fn boot(lab: &Lab, config: &str) -> Result<Systemd> {
        let directory = lab.path(NAME);
        let prepare = || {
            std::fs::create_dir(&directory)?;
            std::fs::write(directory.join("forebay.toml"), config)
        };
        prepare().map_err(|error| LabError::system("preparing a service manager", error))?;
        let cgroup = Cgroup::create(lab.prefix())?;
        let lab_source = Path::new(env!("CARGO_MANIFEST_DIR"));
        // Not `ip netns exec`: over its own /sys there are no control groups.
        let mut boot = Command::new("nsenter");
        boot.arg(format!("--net=/run/netns/{}", lab.switch().name()));
        boot.arg(lab_source.join("src/systemd/boot.sh")).arg(lab_source.join("../.."));
        boot.arg(forebay::binary()?).arg(&directory).arg(&cgroup.path);
        let mut namespaces = Background::start(boot, &lab.path("systemd.log"))?;
        let unshare = namespaces.pid();
        let manager = std::cell::Cell::new(0);
        namespaces.wait_until("a service manager", BOOT_LIMIT, |_| {
            only_child(unshare).is_some_and(|child| {
                manager.set(child);
                systemctl_of(child, &["is-active", "fb.target"]).is_ok_and(|asked| asked.status.success())
            })
        })?;
        Ok(Systemd { namespaces, manager: manager.get(), _cgroup: cgroup })
    }

    /// Runs `systemctl` to its successful end.
    ///
    /// # Errors
    /// As [`command::run`], and when it refuses; with what the daemon logged.
    pub fn systemctl(&self, args: &[&str]) -> Result<Finished> {
        let asked = systemctl_of(self.manager, args)?;
        if asked.status.success() {
            return Ok(asked);
        }
        let status = systemctl_of(self.manager, &["status", "--no-pager", "forebay"])?.stdout;
        Finished { stderr: format!("{}{status}{}", asked.stderr, self.log()), ..asked }.success()
    }

    /// A property of the unit, as `systemctl show` says it.
    ///
    /// # Errors
    /// As [`Systemd::systemctl`].
    pub fn property(&self, name: &str) -> Result<String> {
        let shown = self.systemctl(&["show", "--value", "--property", name, "forebay"])?;
        Ok(shown.stdout.trim().to_owned())
    }

    /// Runs a program among the manager's services to its successful end.
    ///
    /// # Errors
    /// As [`command::run_ok`].
    pub fn run(&self, program: &str, args: &[&str]) -> Result<Finished> {
        let mut command = inside(self.manager, program);
        command.args(args);
        command::run_ok(command)
    }

    /// Writes one of its files, named below the root.
    ///
    /// # Errors
    /// When the folder is not there.
    pub fn write(&self, below_root: &str, text: &str) -> Result<()> {
        std::fs::write(self.path(below_root), text)
            .map_err(|error| LabError::system(format!("writing /{below_root}"), error))
    }

    /// Reads one of its files, named below the root; an empty text when there is none.
    pub fn read(&self, below_root: &str) -> String {
        std::fs::read_to_string(self.path(below_root)).unwrap_or_default()
    }

    /// A path among its files, which are its own as far as it has changed them.
    fn path(&self, below_root: &str) -> PathBuf {
        Path::new("/proc").join(self.manager.to_string()).join("root").join(below_root)
    }

    /// What the daemon logged, over all its starts.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("run/forebay.log")).unwrap_or_default()
    }

    /// The daemon's command line.
    ///
    /// # Errors
    /// When there is no program.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::new(&forebay::binary()?, &self.path("run/forebay/forebay.sock")))
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        // Its namespaces end with it. Fails only when it is gone.
        let _ = kill(Pid::from_raw(self.manager.cast_signed()), Signal::SIGKILL);
        let _ = self.namespaces.wait(END_LIMIT);
    }
}

/// A command in the manager's namespaces.
fn inside(manager: u32, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--all", "--target", &manager.to_string(), program]);
    command
}

fn systemctl_of(manager: u32, args: &[&str]) -> Result<Finished> {
    let mut command = inside(manager, "systemctl");
    command.args(args);
    command::run(command, REQUEST_LIMIT)
}

/// The process that this one forked, once it has.
fn only_child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}
