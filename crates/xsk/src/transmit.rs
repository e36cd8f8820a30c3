//! Sending to any port through one packet socket, many packets a system call.
//!
//! Measured to be the better way out for a switch of many ports (docs/transmit.md): the kernel copies while it is
//! called, so a frame is free as soon as the call returns, one socket serves every netdev, and a flooded packet is
//! one frame however many ports it goes to.
//!
//! A [`TxBatch`] borrows the burst whose frames it points into, so they cannot change or go before they are sent.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use forebay_pool::{Arena, MAX_SEGMENTS_PER_PACKET, PacketSegments};

use crate::{XskError, sys};

/// Packets that one system call sends.
const BATCH: usize = 64;
/// Pieces of one packet: its frames, with the addresses and a tag put apart in front.
const PIECES: usize = MAX_SEGMENTS_PER_PACKET + 2;
/// Destination and source address of an Ethernet header.
const ADDRESSES: usize = 12;
/// An 802.1Q tag.
const TAG: usize = 4;

/// What happens to the outer VLAN tag on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagEdit {
    /// The packet leaves as it lies in its frames.
    Keep,
    /// These four bytes (tag protocol and tag control) go in behind the addresses.
    Push([u8; TAG]),
    /// These four bytes take the place of the four behind the addresses.
    Replace([u8; TAG]),
    /// The four bytes behind the addresses are left out.
    Pop,
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxError {
    /// Queue or socket buffer full (`EAGAIN`, `ENOBUFS`).
    Full,
    /// Longer than the port's MTU (`EMSGSIZE`).
    TooBig,
    /// The netdev is down or gone (`ENETDOWN`, `ENXIO`, `ENODEV`).
    PortDown,
    /// Anything else.
    Other,
}

impl TxError {
    fn from_errno(errno: Option<i32>) -> Self {
        match errno {
            Some(libc::EAGAIN | libc::ENOBUFS) => Self::Full,
            Some(libc::EMSGSIZE) => Self::TooBig,
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Self::PortDown,
            _ => Self::Other,
        }
    }
}

/// What became of one packet that was pushed.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The caller's own mark for it.
    pub token: u32,
    /// Bytes on the wire.
    pub len_bytes: u32,
    /// Sent, or why not.
    pub result: Result<(), TxError>,
}

/// A packet socket, and the arrays that describe a batch to the kernel. Allocates only when it is made.
pub struct Transmitter {
    socket: OwnedFd,
    arrays: Box<Arrays>,
}

struct Arrays {
    messages: [libc::mmsghdr; BATCH],
    addresses: [libc::sockaddr_ll; BATCH],
    pieces: [[libc::iovec; PIECES]; BATCH],
    tags: [[u8; TAG]; BATCH],
    sent: [Sent; BATCH],
}

#[derive(Clone, Copy)]
struct Sent {
    token: u32,
    len_bytes: u32,
}

// SAFETY: the raw pointers in the arrays are written and used within one `TxBatch`, which borrows the transmitter
// mutably and what they point at; between batches they are dead values.
unsafe impl Send for Transmitter {}

impl Transmitter {
    /// Opens the socket in the calling thread's network namespace. It receives nothing.
    ///
    /// # Errors
    /// [`XskError::System`], usually for want of CAP_NET_RAW.
    pub fn open() -> Result<Self, XskError> {
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        let on: libc::c_int = 1;
        sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &on, || {
            "bypass the queueing disciplines".into()
        })?;
        // A batch to one slow port must not eat the room of the others. Without CAP_NET_ADMIN the default stays.
        let room: libc::c_int = 8 << 20;
        let _ = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &room, String::new);
        // SAFETY: all-zero bytes are valid for these C structs of integers and pointers, and for our own integers.
        let mut arrays: Box<Arrays> = unsafe { Box::new(std::mem::zeroed()) };
        for address in &mut arrays.addresses {
            address.sll_family = libc::AF_PACKET as u16;
        }
        Ok(Self { socket, arrays })
    }

    /// Begins a batch of packets whose frames lie in `arena`; packet path.
    pub fn batch<'a>(&'a mut self, arena: &'a Arena) -> TxBatch<'a> {
        TxBatch { transmitter: self, arena, queued: 0, lives: PhantomData }
    }
}

impl AsFd for Transmitter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Packets on their way out. What was not flushed when it is dropped was not sent.
pub struct TxBatch<'a> {
    transmitter: &'a mut Transmitter,
    arena: &'a Arena,
    queued: usize,
    lives: PhantomData<&'a [u8]>,
}

impl<'a> TxBatch<'a> {
    /// Whether the next packet needs a [`TxBatch::flush`] first.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.queued == BATCH
    }

    /// Queues `packet` for the netdev `ifindex`; packet path. `token` comes back with the [`Outcome`].
    ///
    /// # Panics
    /// When the batch is full, or a tag is to be edited in a packet whose first segment has no Ethernet header:
    /// both are bugs of the caller.
    #[inline]
    pub fn push(&mut self, packet: PacketSegments<'a>, edit: TagEdit, ifindex: u32, token: u32) {
        assert!(self.queued < BATCH, "the batch is full");
        let index = self.queued;
        let arrays = &mut *self.transmitter.arrays;
        let mut pieces = Pieces { list: &mut arrays.pieces[index], used: 0, len_bytes: 0 };
        let (first, rest) = packet.split_first().expect("a packet has a segment");
        let head = self.arena.bytes(&first.frame, first.offset, first.len);
        let (tag, rest_from) = match edit {
            TagEdit::Keep => (None, 0),
            TagEdit::Push(tag) => (Some(tag), ADDRESSES),
            TagEdit::Replace(tag) => (Some(tag), ADDRESSES + TAG),
            TagEdit::Pop => (None, ADDRESSES + TAG),
        };
        if rest_from > 0 {
            pieces.add(&head[..ADDRESSES]);
        }
        if let Some(tag) = tag {
            arrays.tags[index] = tag;
            pieces.add(&arrays.tags[index]);
        }
        pieces.add(&head[rest_from..]);
        for segment in rest {
            pieces.add(self.arena.bytes(&segment.frame, segment.offset, segment.len));
        }
        let (used, len_bytes) = (pieces.used, pieces.len_bytes);
        arrays.sent[index] = Sent { token, len_bytes };
        arrays.addresses[index].sll_ifindex = ifindex as i32;
        let header = &mut arrays.messages[index].msg_hdr;
        header.msg_name = std::ptr::from_mut(&mut arrays.addresses[index]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
        header.msg_iov = arrays.pieces[index].as_mut_ptr();
        header.msg_iovlen = used;
        self.queued += 1;
    }

    /// Sends everything queued and reports each packet once; packet path. Never blocks.
    pub fn flush(&mut self, mut report: impl FnMut(Outcome)) {
        let mut next = 0;
        while next < self.queued {
            let (sent, error) = self.send_from(next);
            for index in next..next + sent {
                report(self.outcome(index, Ok(())));
            }
            next += sent;
            if let Some(error) = error {
                report(self.outcome(next, Err(error)));
                next += 1;
            }
        }
        self.queued = 0;
    }

    /// One system call. The kernel stops at the first packet it cannot send and says why only when that packet is
    /// the first of the call; so an error belongs to packet `next` and comes alone.
    fn send_from(&mut self, next: usize) -> (usize, Option<TxError>) {
        let fd = self.transmitter.socket.as_raw_fd();
        let messages = &mut self.transmitter.arrays.messages[next..self.queued];
        // SAFETY: every message in the slice was filled by `push` since the last flush: its name, pieces and tag lie
        // in the boxed arrays, which do not move, and its bytes in frames that stay borrowed for 'a.
        let sent =
            unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), messages.len() as u32, libc::MSG_DONTWAIT) };
        match usize::try_from(sent) {
            Ok(sent) if sent > 0 => (sent, None),
            _ => (0, Some(TxError::from_errno(std::io::Error::last_os_error().raw_os_error()))),
        }
    }

    fn outcome(&self, index: usize, result: Result<(), TxError>) -> Outcome {
        let Sent { token, len_bytes } = self.transmitter.arrays.sent[index];
        Outcome { token, len_bytes, result }
    }
}

/// The pieces of one packet as they are collected.
struct Pieces<'a> {
    list: &'a mut [libc::iovec; PIECES],
    used: usize,
    len_bytes: u32,
}

impl Pieces<'_> {
    #[inline]
    fn add(&mut self, bytes: &[u8]) {
        self.list[self.used] =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        self.used += 1;
        self.len_bytes += bytes.len() as u32;
    }
}
