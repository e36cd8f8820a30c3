//! The pump of a host that is a guest: a tap in the host's namespace, a guest's virtqueues, and a thread that carries packets
//! between them, header for header.
//!
//! It stands where a guest's kernel stands between its virtio-net device and its programs. Packets keep their virtio-net
//! header, so that long packets cross whole and checksums stay unfinished. Whenever the switch is gone, the pump tries to
//! connect until there is one again; queues go on where they were.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use forebay_vhost::Features;
use forebay_vhost::driver::{FrontEnd, FrontEndOptions};
use forebay_wire::net_header::{MAX_HEADER_BYTES, NetHeader};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rustix::fs::{OFlags, fcntl_setfl};

use crate::netns::Netns;
use crate::sys::tap;
use crate::{LabError, Result};

/// The longest GSO packet, with its Ethernet and virtio-net header; whole pages, as a guest's buffers are.
const BUFFER_BYTES: u32 = 17 * 4096;
/// Entries of each ring, as QEMU's guests have them.
const RING: u16 = 256;
/// Packets in one direction before it is the other's turn.
const TURN: usize = 64;
/// Between two attempts to connect, in milliseconds.
const PAUSE_MS: u16 = 10;

/// What Linux guests agree to.
const FEATURES: [Features; 13] = [
    Features::CSUM,
    Features::GUEST_CSUM,
    Features::GUEST_TSO4,
    Features::GUEST_TSO6,
    Features::GUEST_ECN,
    Features::GUEST_USO4,
    Features::GUEST_USO6,
    Features::HOST_TSO4,
    Features::HOST_TSO6,
    Features::HOST_ECN,
    Features::HOST_USO,
    Features::MRG_RXBUF,
    Features::EVENT_IDX,
];

/// A tap and a guest with one pair of queues. Dropping it takes both away.
#[derive(Debug)]
pub struct GuestPump {
    handle: Handle,
    carried: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Order {
    /// Tells the switch the guest's MTU, now and whenever it connects. Answers when the switch knows.
    SetMtu(u16, Sender<()>),
    /// Answers when nothing is under way, or when there is no switch.
    Settle(Sender<()>),
    Stop,
}

/// How a pump is asked for something.
#[derive(Debug, Clone)]
struct Handle {
    orders: Sender<Order>,
    bell: Arc<EventFd>,
}

impl Handle {
    /// Waits until the pump has answered. One that has ended answers nothing.
    fn ask(&self, order: impl FnOnce(Sender<()>) -> Order) {
        let (done, is_done) = channel();
        self.send(order(done));
        let _ = is_done.recv();
    }

    fn send(&self, order: Order) {
        let _ = self.orders.send(order);
        let _ = self.bell.write(1);
    }
}

/// The pumps of one lab.
#[derive(Debug, Default)]
pub(crate) struct GuestPumps(Mutex<Vec<Handle>>);

impl GuestPumps {
    pub(crate) fn add(&self, pump: &GuestPump) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(pump.handle.clone());
    }

    /// Waits until no packet is under way between hosts and the switch. With a switch that stands still that may be never.
    pub(crate) fn settle(&self) {
        let pumps = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        pumps.iter().for_each(|pump| pump.ask(Order::Settle));
    }
}

impl GuestPump {
    /// Makes the tap `eth0` and begins to look for the switch at `socket`. Packed rings if so asked, split rings otherwise.
    ///
    /// # Errors
    /// The kernel refuses the tap, or memory for the guest.
    pub fn start(netns: &Netns, socket: &Path, is_packed: bool) -> Result<GuestPump> {
        let tap = netns.enter(|| tap::open("eth0"))?;
        let tap = tap.map_err(|error| LabError::system("making a guest's tap", error))?;
        fcntl_setfl(&tap, OFlags::NONBLOCK)
            .map_err(|errno| LabError::system("setting up a guest's tap", errno))?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| LabError::system("making an eventfd", errno))?;
        let (bell, (orders, received)) = (Arc::new(bell), channel());
        let guest = guest(is_packed)?;
        let carried = Arc::<AtomicU64>::default();
        let carrier = Carrier {
            carried: Arc::clone(&carried),
            tap,
            guest,
            socket: socket.to_owned(),
            mtu: None,
            waiting: None,
            settling: Vec::new(),
            orders: received,
            bell: Arc::clone(&bell),
            buffer: vec![0; BUFFER_BYTES as usize],
        };
        let thread = Some(std::thread::spawn(move || carrier.run()));
        Ok(GuestPump { handle: Handle { orders, bell }, carried, thread })
    }

    /// Packets that were put into the guest's transmit queue.
    pub fn carried(&self) -> u64 {
        self.carried.load(Ordering::Acquire)
    }

    /// Has the switch know the guest's MTU; returns when it does, or when there is none.
    pub fn set_mtu(&self, mtu: u16) {
        self.handle.ask(|done| Order::SetMtu(mtu, done));
    }
}

impl Drop for GuestPump {
    fn drop(&mut self) {
        self.handle.send(Order::Stop);
        self.thread.take().map(JoinHandle::join);
    }
}

fn guest(is_packed: bool) -> Result<FrontEnd> {
    let features = FEATURES.into_iter().fold(Features::default(), Features::with);
    let features = if is_packed { features.with(Features::RING_PACKED) } else { features };
    // A packed ring goes on after the switch was killed only where the front end keeps its notes.
    let options =
        FrontEndOptions { features, size: RING, buffer_bytes: BUFFER_BYTES, keeps_notes: is_packed };
    FrontEnd::new(options).map_err(|error| LabError::system("making a guest", io::Error::other(error)))
}

/// What the thread has.
struct Carrier {
    tap: File,
    guest: FrontEnd,
    socket: PathBuf,
    mtu: Option<u16>,
    /// A packet of the host's for which the guest's ring had no room.
    waiting: Option<(NetHeader, Vec<u8>)>,
    /// Who waits until nothing is under way.
    settling: Vec<Sender<()>>,
    orders: Receiver<Order>,
    bell: Arc<EventFd>,
    buffer: Vec<u8>,
    /// Packets that were put into the transmit queue.
    carried: Arc<AtomicU64>,
}

impl Carrier {
    fn run(mut self) {
        while self.obey() {
            if self.guest.connection().is_none() && !self.connect() {
                self.settle();
                wait(&[&self.bell], PAUSE_MS.into());
                continue;
            }
            let received = self.carry_to_host();
            let sent = self.carry_to_switch();
            // Takes back what the switch has used, so that no call is due for it.
            let backlog = self.guest.transmit_backlog();
            if received + sent > 0 || self.guest.want_all_calls() {
                continue;
            }
            if self.waiting.is_none() && backlog == 0 {
                self.settle();
            }
            self.wait();
        }
    }

    fn settle(&mut self) {
        for done in self.settling.drain(..) {
            let _ = done.send(());
        }
    }

    /// Does what was asked. `false`: stop.
    fn obey(&mut self) -> bool {
        let _ = self.bell.read();
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::SetMtu(mtu, done) => {
                    self.mtu = Some(mtu);
                    if self.guest.connection().is_some() && self.guest.set_mtu(mtu).is_err() {
                        self.guest.disconnect();
                    }
                    let _ = done.send(());
                }
                Order::Settle(done) => self.settling.push(done),
                Order::Stop => return false,
            }
        }
        true
    }

    fn connect(&mut self) -> bool {
        let Ok(stream) = UnixStream::connect(&self.socket) else { return false };
        let connected = self.guest.connect(stream);
        let told = connected.and_then(|()| self.mtu.map_or(Ok(()), |mtu| self.guest.set_mtu(mtu)));
        if told.is_err() {
            self.guest.disconnect();
        }
        told.is_ok()
    }

    /// Says how many packets that was.
    fn carry_to_host(&mut self) -> usize {
        for count in 0..TURN {
            let Some((header, packet)) = self.guest.receive_undone() else { return count };
            let bytes = [&header.to_bytes(1)[..tap::VNET_HEADER_BYTES], &packet].concat();
            // A tap that is down refuses packets, as a cable that is pulled loses them.
            let _ = (&self.tap).write(&bytes);
        }
        TURN
    }

    /// Says how many packets that was.
    fn carry_to_switch(&mut self) -> usize {
        for count in 0..TURN {
            let Some((header, packet)) = self.waiting.take().or_else(|| self.read()) else { return count };
            if !self.guest.transmit_undone(header, &packet) {
                self.waiting = Some((header, packet));
                return count;
            }
            self.carried.fetch_add(1, Ordering::Release);
        }
        TURN
    }

    /// The next packet of the host's.
    fn read(&mut self) -> Option<(NetHeader, Vec<u8>)> {
        let length = (&self.tap).read(&mut self.buffer).ok()?;
        let (header, packet) = self.buffer[..length].split_at_checked(tap::VNET_HEADER_BYTES)?;
        let mut bytes = [0; MAX_HEADER_BYTES];
        bytes[..header.len()].copy_from_slice(header);
        Some((NetHeader::from_bytes(&bytes), packet.to_vec()))
    }

    /// Waits until there is something to carry, or to do. Notices when the switch has gone.
    fn wait(&mut self) {
        let Some(connection) = self.guest.connection() else { return };
        let (call, transmit_call) = (self.guest.call(), self.guest.transmit_call());
        let mut sources: Vec<&dyn AsFd> = vec![connection, &call, &transmit_call, &self.bell];
        // Nothing more comes out of the tap until the ring has room.
        if self.waiting.is_none() {
            sources.push(&self.tap);
        }
        let is_gone = wait(&sources, PollTimeout::NONE);
        if is_gone {
            self.guest.disconnect();
        }
    }
}

/// Waits for the first of these, and says whether it was the one that is listed first.
fn wait(sources: &[&dyn AsFd], limit: PollTimeout) -> bool {
    let mut sources: Vec<PollFd<'_>> =
        sources.iter().map(|source| PollFd::new(source.as_fd(), PollFlags::POLLIN)).collect();
    // An interrupted wait is followed by another look.
    let _ = poll(&mut sources, limit);
    sources[0].revents().is_some_and(|events| !events.is_empty())
}
