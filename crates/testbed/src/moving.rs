//! A virtual machine in QEMU that moves from one emulator to another while it runs, as in a migration on one host.
//!
//! Its memory is a file that both emulators map, so that no page is copied: the emulator of QEMU 7.2 loses some of those that
//! the machine writes meanwhile, with any NIC. Its files are those of the guests' kernel alone.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use serde_json::{Value, json};

use crate::command::{self, Background};
use crate::guest::{self, EMULATOR};
use crate::{Lab, LabError, Result, wait};

const MEMORY_MIB: u32 = 256;
/// Pairs of queues of its NIC, and processors.
pub const PAIRS: u16 = 2;
/// An emulated machine has booted, or moved, within this time.
const LIMIT: Duration = Duration::from_secs(120);
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
const READY: &str = "machine: ready";

/// How the NIC's queues lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rings {
    /// In three parts.
    Split,
    /// In one.
    Packed,
}

/// A machine that runs. It ends when this is dropped.
#[derive(Debug)]
pub struct MovingMachine<'a> {
    shared: Shared<'a>,
    /// Emulators so far.
    emulators: usize,
    runs_in: Emulator,
}

/// What all emulators of a machine share.
#[derive(Debug)]
struct Shared<'a> {
    lab: &'a Lab,
    rings: Rings,
    initrd: PathBuf,
    memory: OwnedFd,
}

/// A process that runs a machine, or waits for one.
#[derive(Debug)]
struct Emulator {
    program: Background,
    monitor: BufReader<UnixStream>,
    console: PathBuf,
}

impl<'a> MovingMachine<'a> {
    /// Boots a machine whose NIC is the front end of the vhost-user port with this socket. Its first process runs the script,
    /// in the words of busybox's `sh`, with `$b` for busybox.
    ///
    /// # Errors
    /// There is no kernel or no emulator, or the machine does not come up.
    pub fn boot(lab: &'a Lab, socket: &Path, rings: Rings, script: &str) -> Result<Self> {
        let shared = Shared { lab, rings, initrd: initrd(lab, script)?, memory: memory()? };
        let runs_in = Emulator::start(&shared, 0, socket)?;
        let machine = MovingMachine { shared, emulators: 1, runs_in };
        let is_ready =
            || std::fs::read_to_string(&machine.runs_in.console).is_ok_and(|text| text.contains(READY));
        wait::until("the machine to boot", LIMIT, is_ready)?;
        Ok(machine)
    }

    /// Moves it to a new emulator, whose NIC is the front end of the port with this socket.
    ///
    /// # Errors
    /// The machine does not run there.
    pub fn move_to(&mut self, socket: &Path) -> Result<()> {
        let mut next = Emulator::start(&self.shared, self.emulators, socket)?;
        self.emulators += 1;
        let way = format!("unix:{}", self.shared.lab.path("way").display());
        let shares = json!({ "capabilities": [{ "capability": "x-ignore-shared", "state": true }] });
        next.execute("migrate-set-capabilities", &shares)?;
        next.execute("migrate-incoming", &json!({ "uri": way }))?;
        self.runs_in.execute("migrate-set-capabilities", &shares)?;
        self.runs_in.execute("migrate", &json!({ "uri": way }))?;
        wait::until_some("the machine to run in the next emulator", LIMIT, || {
            match next.execute("query-status", &Value::Null) {
                Ok(answer) => (answer["running"] == true).then_some(Ok(())),
                Err(error) => Some(Err(error)),
            }
        })??;
        self.runs_in = next;
        Ok(())
    }
}

impl Emulator {
    /// The first one boots the machine, later ones wait for it.
    fn start(shared: &Shared<'_>, number: usize, socket: &Path) -> Result<Emulator> {
        let file = |name: &str| shared.lab.path(&format!("machine{number}.{name}"));
        let (console, monitor) = (file("console"), file("monitor"));
        let memory = format!("/proc/{}/fd/{}", std::process::id(), shared.memory.as_raw_fd());
        let packed = if shared.rings == Rings::Packed { "on" } else { "off" };
        let mut command = Command::new(EMULATOR);
        guest::add_machine(&mut command, "q35,memory-backend=memory", PAIRS, MEMORY_MIB);
        command.arg("-kernel").arg(guest::kernel()?.join("vmlinuz")).arg("-initrd").arg(&shared.initrd);
        command
            .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 rdinit=/moving"]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", monitor.display()));
        command.arg("-object");
        command.arg(format!("memory-backend-file,id=memory,size={MEMORY_MIB}M,share=on,mem-path={memory}"));
        command.arg("-chardev").arg(format!("socket,id=switch,path={},reconnect=1", socket.display()));
        let mac = guest::MAC_AT_SWITCH;
        let nic = format!("virtio-net-pci,netdev=switch,vectors=0,mq=on,packed={packed},mac={mac}");
        let netdev = format!("vhost-user,id=switch,chardev=switch,queues={PAIRS}");
        command.args(["-netdev", &netdev, "-device", &nic]);
        if number > 0 {
            command.args(["-incoming", "defer"]);
        }
        let mut program = Background::start(command, &file("log"))?;
        let connected = wait::until_some("the emulator's monitor", ANSWER_LIMIT, || {
            if program.is_running() { UnixStream::connect(&monitor).ok().map(Some) } else { Some(None) }
        })?;
        let stream = connected.ok_or_else(|| LabError::output("the emulator", program.output()))?;
        let set = stream.set_read_timeout(Some(ANSWER_LIMIT));
        set.map_err(|error| LabError::system("preparing the emulator's monitor", error))?;
        let mut emulator = Emulator { program, monitor: BufReader::new(stream), console };
        emulator.execute("qmp_capabilities", &Value::Null)?;
        Ok(emulator)
    }

    /// Asks the emulator's monitor, in the words of QMP.
    fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let lost = |error| LabError::system(format!("asking the emulator to {command}"), error);
        let question = match arguments {
            Value::Null => json!({ "execute": command }),
            arguments => json!({ "execute": command, "arguments": arguments }),
        };
        self.monitor.get_mut().write_all(format!("{question}\n").as_bytes()).map_err(lost)?;
        loop {
            let mut line = String::new();
            if self.monitor.read_line(&mut line).map_err(lost)? == 0 {
                return Err(LabError::output("the emulator", self.program.output()));
            }
            let mut said: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(answer) = said.get_mut("return") {
                return Ok(answer.take());
            }
            if said.get("error").is_some() {
                return Err(LabError::output(format!("the emulator's {command}"), line));
            }
            // A greeting, or an event.
        }
    }
}

/// A file of zeros that no directory has.
fn memory() -> Result<OwnedFd> {
    let make = || {
        let file = memfd_create("machine", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, u64::from(MEMORY_MIB) << 20)?;
        Ok(file)
    };
    make().map_err(|error: rustix::io::Errno| LabError::system("making a machine's memory", error))
}

/// The guests' files, and a first process that needs no others.
fn initrd(lab: &Lab, script: &str) -> Result<PathBuf> {
    let directory = lab.path("machine.files");
    let init = format!(
        "#!/bin/busybox sh\n\
         b=/bin/busybox\n\
         $b mount -t proc proc /proc; $b mount -t sysfs sysfs /sys; $b mount -t devtmpfs devtmpfs /dev\n\
         for module in failover net_failover virtio_net; do $b insmod /modules/$module.ko; done\n\
         $b ip link set lo up; $b ip link set eth0 up\n\
         {script}\n\
         echo '{READY}'\n\
         while $b true; do $b sleep 60; done\n"
    );
    let write = || {
        std::fs::create_dir(&directory)?;
        std::fs::write(directory.join("moving"), init)
    };
    write().map_err(|error| LabError::system("writing the machine's files", error))?;
    let initrd = lab.path("machine.initrd");
    let mut command = Command::new("sh");
    // The kernel unpacks archives that follow each other.
    let pack = "chmod +x moving && echo moving | busybox cpio -o -H newc | gzip -1 | cat \"$0\" - >\"$1\"";
    command.args(["-ec", pack]).arg(guest::kernel()?.join("initrd")).arg(&initrd).current_dir(&directory);
    command::run_ok(command)?;
    Ok(initrd)
}
