//! A network device of this process for the kernel's own virtio_net, by VDUSE.
//!
//! It has one pair of queues and a control queue, whose commands it carries out as the switch does for guests. It has no
//! thread: its owner waits for [`VduseNet::descriptors`] and then calls [`VduseNet::handle`].
//!
//! ```text
//!   virtio_net ── virtio_vdpa ── vduse ─┬─ messages: status, memory ─┐
//!                                       ├─ rings and bounce buffers ─┼─► VduseNet
//!                                       └─ kicks ◄──── interrupts ───┘
//! ```
//! Linux 6.12 refuses a control queue here. So its module has to be compiled without that check ([`crate::guest::vduse`]).

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use forebay_vhost::{
    Bells, Coalescing, Control, Event, Features, GuestMemory, MAX_COMMAND_BYTES, NetConfig, RegionPlace,
    RingError, RingPlace, Virtqueue,
};
use rustix::event::{EventfdFlags, eventfd};

use crate::sys::vduse as sys;
use crate::{LabError, Result, wait};

const CONTROL_DEVICE: &str = "/dev/vduse/control";
/// A request of the kernel and the answer to it are equally long (`vduse_dev_request`, `vduse_dev_response`).
const MESSAGE_BYTES: usize = 152;
/// Where a request says more than its type and its id.
const BODY: usize = 24;
const SET_STATUS: u32 = 1;

/// The device reaches its memory by addresses that the kernel gives it; virtio-net then has to take this feature.
const ACCESS_PLATFORM: Features = Features(1 << 33);
/// What the device always offers.
const NEEDED: Features =
    Features(Features::VERSION_1.0 | ACCESS_PLATFORM.0 | Features::MAC.0 | Features::STATUS.0);

const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;
const COMMANDS: usize = 2;
const QUEUES: usize = 3;
/// Entries of each ring.
const ENTRIES: u16 = 256;
/// For errors.
const RING: &str = "a ring of virtio_net";

/// Serves a queue. Says whether the driver wants to be interrupted for that.
type Serve = fn(&mut VduseNet) -> std::result::Result<bool, RingError>;

/// A device that exists as long as this value.
#[derive(Debug)]
pub struct VduseNet {
    name: String,
    /// `None` only while it is dropped: nobody may have it open when it is removed.
    device: Option<File>,
    control_device: File,
    kicks: [Arc<OwnedFd>; QUEUES],
    /// Those that the driver has kicked.
    queues: [Option<Virtqueue>; QUEUES],
    control: Control,
    features: Features,
    /// Limits that the driver asked for, for received packets.
    asked: Vec<Coalescing>,
}

impl VduseNet {
    /// Makes a device with this name, which has no driver yet.
    ///
    /// # Errors
    /// The kernel has no VDUSE, or refuses a feature.
    pub fn new(name: &str, features: Features, mac: [u8; 6]) -> Result<Self> {
        let failed = |what: &str| {
            let what = format!("{what} the VDUSE device {name}");
            move |error| LabError::system(what, error)
        };
        let control_device = File::options().read(true).write(true).open(CONTROL_DEVICE);
        let control_device = control_device.map_err(failed("opening /dev/vduse/control for"))?;
        let config = NetConfig { mac, is_up: true, is_to_announce: false, pairs: 1, mtu: 1500 };
        let features = features.with(NEEDED);
        sys::create(&control_device, name, features.0, QUEUES as u32, &config.to_bytes())
            .map_err(failed("making"))?;
        let path = format!("/dev/vduse/{name}");
        // The file is there once the kernel's devtmpfs has made it.
        let open = || File::options().read(true).write(true).open(&path).ok();
        let device = wait::until_some(&path, Duration::from_secs(10), open)?;
        rustix::fs::fcntl_setfl(&device, rustix::fs::OFlags::NONBLOCK)
            .map_err(|error| failed("setting up")(error.into()))?;
        for index in 0..QUEUES as u32 {
            sys::set_up_queue(&device, index, ENTRIES).map_err(failed("setting up"))?;
        }
        let kick = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new);
        let kick = || kick().map_err(|error| failed("making kicks for")(error.into()));
        Ok(Self {
            name: name.to_owned(),
            device: Some(device),
            control_device,
            kicks: [kick()?, kick()?, kick()?],
            queues: [None, None, None],
            control: Control::new(1),
            features: Features::default(),
            asked: Vec::new(),
        })
    }

    /// Command that gives the device its driver. The driver asks the device while it starts, so the device has to be served
    /// meanwhile.
    pub fn driver_command(&self) -> Command {
        let mut command = Command::new("vdpa");
        command.args(["dev", "add", "name", &self.name, "mgmtdev", "vduse"]);
        command
    }

    fn device(&self) -> &File {
        self.device.as_ref().expect("it is open until it is dropped")
    }

    /// Descriptors to wait for: messages of the kernel, and kicks.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 1 + QUEUES] {
        let [receive, transmit, commands] = &self.kicks;
        [self.device().as_fd(), receive.as_fd(), transmit.as_fd(), commands.as_fd()]
    }

    /// Follows what has come: messages, commands, and packets that the driver sends, which go nowhere.
    ///
    /// # Errors
    /// The kernel refuses something, or a ring is malformed.
    pub fn handle(&mut self) -> Result<()> {
        while self.follow_message()? {}
        for index in 0..QUEUES {
            let is_kicked = rustix::io::read(&self.kicks[index], &mut [0; 8]).is_ok();
            if is_kicked && self.queues[index].is_none() {
                self.queues[index] = self.start(index)?;
            }
        }
        for (index, serve) in [(TRANSMIT, Self::serve_transmit as Serve), (COMMANDS, Self::serve_commands)] {
            let served = serve(self).map_err(|error| LabError::output(RING, error.to_string()))?;
            if served {
                self.interrupt(index)?;
            }
        }
        Ok(())
    }

    /// Queue of packets for the driver, once it has buffers.
    pub fn receive_queue(&mut self) -> Option<&mut Virtqueue> {
        self.queues[RECEIVE].as_mut()
    }

    /// Interrupts the driver for packets that it received.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn call(&self) -> Result<()> {
        self.interrupt(RECEIVE)
    }

    /// All limits that the driver asked for, for received packets, in their order.
    pub fn asked(&self) -> &[Coalescing] {
        &self.asked
    }

    fn interrupt(&self, index: usize) -> Result<()> {
        let done = sys::interrupt(self.device(), index as u32);
        done.map_err(|error| LabError::system("interrupting virtio_net", error))
    }

    /// Whether there was a message.
    fn follow_message(&mut self) -> Result<bool> {
        let mut request = [0; MESSAGE_BYTES];
        match self.device().read(&mut request) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(LabError::system("reading a message of VDUSE", error)),
        }
        let [a, b, c, d, id @ ..] = request;
        if u32::from_ne_bytes([a, b, c, d]) == SET_STATUS {
            self.set_status(request[BODY])?;
        }
        // Of other requests: no queue was ever stopped, and memory that goes was of queues that are gone. All is well, and
        // indexes are zero.
        let mut answer = [0; MESSAGE_BYTES];
        answer[..4].copy_from_slice(&id[..4]);
        let written = self.device().write(&answer);
        written.map_err(|error| LabError::system("answering a message of VDUSE", error))?;
        Ok(true)
    }

    fn set_status(&mut self, status: u8) -> Result<()> {
        let failed = |error| LabError::system("learning what virtio_net agreed to", error);
        if status == 0 {
            self.queues = [None, None, None];
            self.control.reset(|_| {});
            return Ok(());
        }
        self.features = Features(sys::features(self.device()).map_err(failed)?);
        self.control.set_features(self.features);
        for (index, kick) in self.kicks.iter().enumerate() {
            sys::set_kick(self.device(), index as u32, kick).map_err(failed)?;
        }
        Ok(())
    }

    /// A queue at its first kick: only then is all of the memory there that its buffers lie in.
    fn start(&self, index: usize) -> Result<Option<Virtqueue>> {
        let failed = |error| LabError::system("finding a queue of virtio_net", error);
        let queue = sys::queue(self.device(), index as u32).map_err(failed)?;
        if !queue.is_ready {
            return Ok(None);
        }
        let [descriptors, driver, device] = queue.addresses;
        let place = RingPlace { index, size: queue.size as u16, descriptors, driver, device, base: 0 };
        let memory = Arc::new(self.memory()?);
        let started = Virtqueue::new(memory, self.features, place, Bells::default());
        let mut started = started.map_err(|error| LabError::output(RING, error.to_string()))?;
        if index == RECEIVE {
            // Whoever has packets looks for buffers.
            started.suppress_kicks();
        }
        Ok(Some(started))
    }

    fn memory(&self) -> Result<GuestMemory> {
        let failed = |error| LabError::system("finding the memory of virtio_net", error);
        let (mut memory, mut from) = (GuestMemory::default(), 0);
        while let Some(lent) = sys::region(self.device(), from).map_err(failed)? {
            let len = lent.last - lent.start + 1;
            let place = RegionPlace { guest: lent.start, user: lent.start, len, offset: lent.offset };
            let added = memory.add_lent(place, &lent.file);
            added.map_err(|error| LabError::output("memory of virtio_net", error.to_string()))?;
            from = lent.last + 1;
        }
        Ok(memory)
    }

    fn serve_transmit(&mut self) -> std::result::Result<bool, RingError> {
        let Some(queue) = &mut self.queues[TRANSMIT] else { return Ok(false) };
        loop {
            while queue.offered()?.is_some() {
                queue.discard();
            }
            if !queue.allow_kicks() {
                return Ok(queue.publish());
            }
        }
    }

    fn serve_commands(&mut self) -> std::result::Result<bool, RingError> {
        let Some(queue) = &mut self.queues[COMMANDS] else { return Ok(false) };
        let mut command = [0; MAX_COMMAND_BYTES];
        loop {
            while let Some(len) = queue.command(&mut command)? {
                let asked = &mut self.asked;
                let answer = self.control.run(&command[..len], |event| {
                    if let Event::Coalescing { queue: 0, limits: Some(limits) } = event {
                        asked.push(limits);
                    }
                });
                queue.answer(&answer);
            }
            if !queue.allow_kicks() {
                return Ok(queue.publish());
            }
        }
    }
}

impl Drop for VduseNet {
    fn drop(&mut self) {
        // Without a device that answers, the driver would wait for ever; so its owner takes it away before.
        self.device = None;
        let _ = sys::destroy(&self.control_device, &self.name);
    }
}
