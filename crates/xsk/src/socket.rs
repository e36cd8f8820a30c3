//! AF_XDP sockets: the one that owns a queue's fill and completion ring, and those that share it.
//!
//! Every port has a socket of its own, bound to the same (netdev, queue) with `XDP_SHARED_UMEM`: its own RX ring and
//! drop counters, at the cost of one ring. Sockets look their netdev up in the network namespace they were opened
//! in, so these functions run in the collector's.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use forebay_pool::Arena;

use crate::mapping::{self, Which};
use crate::queue_id::{Closed, QueueId};
use crate::ring::{Consumer, Producer};
use crate::rings::{CompletionRing, FillRing, RxRing, TxRing};
use crate::{XskError, sys};

/// A queue that was just left stays busy until the kernel's deferred teardown has run: measured about 45 ms.
const BIND_TRIES: u32 = 50;
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// What a queue is bound with.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Interface index of the netdev, in the namespace of the calling thread.
    pub ifindex: u32,
    /// Queue of that netdev.
    pub queue: u32,
    /// Entries of the fill ring; a power of two.
    pub fill_entries: u32,
    /// Entries of the queue socket's own RX ring; a power of two.
    pub rx_entries: u32,
    /// Entries of the TX and the completion ring, where packets are to be sent; a power of two.
    pub tx_entries: Option<u32>,
}

/// One bound (netdev, queue): what later sockets share.
#[derive(Debug)]
pub struct Queue {
    socket: OwnedFd,
    arena: Arc<Arena>,
    options: QueueOptions,
    id: QueueId,
}

/// The rings of a [`Queue`]; one worker owns them.
pub struct QueueRings {
    /// Frames to receive into, for every socket on the queue.
    pub fill: FillRing,
    /// The queue socket's own RX ring.
    pub rx: RxRing,
    /// Where packets are sent from, if asked for.
    pub tx: Option<TxRing>,
    /// Sent frames.
    pub completion: CompletionRing,
}

impl Queue {
    /// Registers `arena` as a UMEM and binds the first queue to it.
    ///
    /// # Errors
    /// [`XskError`]; a busy queue is tried again for half a second.
    pub fn bind_first(arena: Arc<Arena>, options: QueueOptions) -> Result<(Self, QueueRings), XskError> {
        let socket = open()?;
        register(socket.as_fd(), &arena)?;
        Self::bind(socket, arena, options, None)
    }

    /// Binds a further queue to the UMEM of `first`. It gets a fill and a completion ring of its own.
    ///
    /// # Errors
    /// As [`Queue::bind_first`].
    pub fn bind_further(first: &Self, options: QueueOptions) -> Result<(Self, QueueRings), XskError> {
        Self::bind(open()?, Arc::clone(&first.arena), options, Some(first.socket.as_fd()))
    }

    fn bind(
        socket: OwnedFd,
        arena: Arc<Arena>,
        options: QueueOptions,
        shared: Option<BorrowedFd<'_>>,
    ) -> Result<(Self, QueueRings), XskError> {
        let fd = socket.as_fd();
        let (id, completions) = (QueueId::next(), options.tx_entries.unwrap_or(2));
        set_ring(fd, Which::Fill, options.fill_entries)?;
        set_ring(fd, Which::Completion, completions)?;
        set_ring(fd, Which::Rx, options.rx_entries)?;
        if let Some(entries) = options.tx_entries {
            set_ring(fd, Which::Tx, entries)?;
        }
        let offsets = sys::xdp_option(fd, libc::XDP_MMAP_OFFSETS, "read the ring offsets")?;
        let map_tx = |entries| mapping::map(fd, Which::Tx, entries, &offsets);
        let rings = QueueRings {
            fill: FillRing::new(
                Producer::new(mapping::map(fd, Which::Fill, options.fill_entries, &offsets)?),
                Arc::clone(&arena),
                id,
            ),
            rx: RxRing::new(
                Consumer::new(mapping::map(fd, Which::Rx, options.rx_entries, &offsets)?),
                Arc::clone(&arena),
            ),
            tx: options
                .tx_entries
                .map(map_tx)
                .transpose()?
                .map(|memory| TxRing::new(Producer::new(memory), Arc::clone(&arena))),
            completion: CompletionRing::new(
                Consumer::new(mapping::map(fd, Which::Completion, completions, &offsets)?),
                Arc::clone(&arena),
            ),
        };
        bind_with_patience(fd, options.ifindex, options.queue, shared)?;
        Ok((Self { socket, arena, options, id }, rings))
    }

    /// What the queue was bound with.
    pub fn options(&self) -> &QueueOptions {
        &self.options
    }

    /// The kernel's drop counters of the queue's own socket.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn statistics(&self) -> Result<Statistics, XskError> {
        statistics(self.socket.as_fd())
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A port's socket on a shared queue. Closing it waits for the kernel's readers (tens of milliseconds).
#[derive(Debug)]
pub struct PortSocket {
    socket: OwnedFd,
    /// The queue that it bound itself; `None`: it shares one.
    queue: Option<QueueId>,
}

impl PortSocket {
    /// Opens a socket with an RX ring of `rx_entries` on `queue`.
    ///
    /// # Errors
    /// [`XskError::RingSize`] or what the kernel said.
    pub fn bind(queue: &Queue, rx_entries: u32) -> Result<(Self, RxRing), XskError> {
        let socket = open()?;
        let fd = socket.as_fd();
        set_ring(fd, Which::Rx, rx_entries)?;
        let offsets = sys::xdp_option(fd, libc::XDP_MMAP_OFFSETS, "read the ring offsets")?;
        let ring = Consumer::new(mapping::map(fd, Which::Rx, rx_entries, &offsets)?);
        let QueueOptions { ifindex, queue: number, .. } = queue.options;
        bind_with_patience(fd, ifindex, number, Some(queue.as_fd()))?;
        Ok((Self { socket, queue: None }, RxRing::new(ring, Arc::clone(&queue.arena))))
    }

    /// Closes it. What it had bound is free then; `None`: it shared a queue.
    pub fn close(self) -> Option<Closed> {
        let Self { socket, queue } = self;
        drop(socket);
        queue.map(Closed)
    }

    /// The kernel's drop counters of this socket.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn statistics(&self) -> Result<Statistics, XskError> {
        statistics(self.socket.as_fd())
    }
}

impl From<Queue> for PortSocket {
    /// The queue's own socket, with its own RX ring. What shared the queue with it goes on.
    fn from(queue: Queue) -> Self {
        Self { socket: queue.socket, queue: Some(queue.id) }
    }
}

impl AsFd for PortSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Packets that the kernel could not deliver to a socket, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// No frame was in the fill ring (or, without multi-buffer, the packet was too long for one).
    pub rx_dropped: u64,
    /// The RX ring was full.
    pub rx_ring_full: u64,
}

fn statistics(socket: BorrowedFd<'_>) -> Result<Statistics, XskError> {
    let raw: libc::xdp_statistics =
        sys::xdp_option(socket, libc::XDP_STATISTICS, "read the socket's counters")?;
    Ok(Statistics { rx_dropped: raw.rx_dropped, rx_ring_full: raw.rx_ring_full })
}

fn open() -> Result<OwnedFd, XskError> {
    sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0)
}

fn register(socket: BorrowedFd<'_>, arena: &Arena) -> Result<(), XskError> {
    let registration = libc::xdp_umem_reg {
        addr: arena.base().as_ptr() as u64,
        len: arena.len_bytes() as u64,
        chunk_size: arena.frame_size().bytes(),
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    sys::set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration, || {
        format!("register {} bytes of packet memory (RLIMIT_MEMLOCK or CAP_IPC_LOCK)", arena.len_bytes())
    })
}

fn set_ring(socket: BorrowedFd<'_>, which: Which, entries: u32) -> Result<(), XskError> {
    if !entries.is_power_of_two() || !(2..=65536).contains(&entries) {
        return Err(XskError::RingSize { entries });
    }
    sys::set_option(socket, libc::SOL_XDP, which.option(), &entries, || {
        format!("make a {which:?} ring of {entries} entries")
    })
}

fn bind_with_patience(
    socket: BorrowedFd<'_>,
    ifindex: u32,
    queue: u32,
    shared: Option<BorrowedFd<'_>>,
) -> Result<(), XskError> {
    // A socket that shares inherits mode and wake-up from the first; the kernel refuses further flags (EINVAL).
    let flags = match shared {
        Some(_) => libc::XDP_SHARED_UMEM,
        None => libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG,
    };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
    };
    for _ in 0..BIND_TRIES {
        match sys::bind_xdp(socket, &address) {
            Ok(()) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(BIND_PAUSE),
            Err(source) => {
                let what = format!("bind an AF_XDP socket to queue {queue} of interface {ifindex}");
                return Err(XskError::System { what, source });
            }
        }
    }
    Err(XskError::QueueBusy { ifindex, queue })
}
