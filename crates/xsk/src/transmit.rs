//! Sending to any port through one packet socket, many packets a system call.
//!
//! Measured to be the better way out for a switch of many ports (docs/transmit.md): the kernel copies while it is
//! called, so a frame is free as soon as the call returns, one socket serves every netdev, and a flooded packet is
//! one frame however many ports it goes to.
//!
//! A second socket takes packets that the kernel is to cut: runs of TCP segments that leave as one ([`Joint`]). The
//! first bypasses queueing disciplines, where the kernel cannot cut for a netdev that does not; the second does not.
//!
//! A [`TxBatch`] borrows the burst whose frames it points into, so they cannot change or go before they are sent.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use forebay_pool::{Arena, MAX_SEGMENTS_PER_PACKET, PacketSegments};

use crate::{XskError, sys};

/// Packets that one system call sends.
const BATCH: usize = 64;
/// Pieces of one packet at most: its frames, with the addresses and a tag put apart in front, or a joint header.
const PIECES_PER_PACKET: usize = 64;
const _: () = assert!(PIECES_PER_PACKET > MAX_SEGMENTS_PER_PACKET + 2);
/// Pieces of one batch.
const PIECES: usize = BATCH * 8;
/// Headers of a joint packet.
const HEADER: usize = 160;
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

/// A packet that the kernel is to cut into TCP segments, as `struct virtio_net_hdr` describes it
/// (include/uapi/linux/virtio_net.h).
#[derive(Clone, Copy, Debug)]
pub struct Joint<'a> {
    /// All headers, with the TCP checksum unfinished; at most 160 bytes.
    pub header: &'a [u8],
    /// Where the TCP header starts in it.
    pub tcp_at: usize,
    /// Whether it is IPv6.
    pub is_v6: bool,
    /// Payload of each segment but the last.
    pub segment_bytes: u32,
    /// Bytes of all segments on the wire.
    pub wire_bytes: u32,
    /// How long the headers of each segment are, which its frames still begin with.
    pub skip_bytes: usize,
}

/// A packet socket, and the arrays that describe a batch to the kernel. Allocates only when it is made.
pub struct Transmitter {
    socket: OwnedFd,
    cutting: OwnedFd,
    arrays: Box<Arrays>,
}

struct Arrays {
    messages: [libc::mmsghdr; BATCH],
    addresses: [libc::sockaddr_ll; BATCH],
    pieces: [libc::iovec; PIECES],
    tags: [[u8; TAG]; BATCH],
    offloads: [Offload; BATCH],
    headers: [[u8; HEADER]; BATCH],
    sent: [Sent; BATCH],
}

/// `struct virtio_net_hdr`, include/uapi/linux/virtio_net.h; all zero for a packet as it is.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Offload {
    flags: u8,
    gso_type: u8,
    header_len: u16,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
/// Where the checksum lies in a TCP header.
const TCP_CHECKSUM: u16 = 16;

#[derive(Clone, Copy)]
struct Sent {
    token: u32,
    len_bytes: u32,
}

// SAFETY: the raw pointers in the arrays are written and used within one `TxBatch`, which borrows the transmitter
// mutably and what they point at; between batches they are dead values.
unsafe impl Send for Transmitter {}

impl Transmitter {
    /// Opens the sockets in the calling thread's network namespace. They receive nothing.
    ///
    /// # Errors
    /// [`XskError::System`], usually for want of CAP_NET_RAW.
    pub fn open() -> Result<Self, XskError> {
        let (socket, cutting) = (open()?, open()?);
        let on: libc::c_int = 1;
        sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &on, || {
            "bypass the queueing disciplines".into()
        })?;
        sys::set_option(cutting.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on, || {
            "send packets for the kernel to cut".into()
        })?;
        // SAFETY: all-zero bytes are valid for these C structs of integers and pointers, and for our own integers.
        let mut arrays: Box<Arrays> = unsafe { Box::new(std::mem::zeroed()) };
        for address in &mut arrays.addresses {
            address.sll_family = libc::AF_PACKET as u16;
        }
        Ok(Self { socket, cutting, arrays })
    }

    /// Begins a batch of packets whose frames lie in `arena`; packet path. Only a batch that says `with_joints` takes
    /// joint packets; it is a little slower for the others.
    pub fn batch<'a>(&'a mut self, arena: &'a Arena, with_joints: bool) -> TxBatch<'a> {
        TxBatch { transmitter: self, arena, with_joints, queued: 0, pieces: 0, lives: PhantomData }
    }
}

fn open() -> Result<OwnedFd, XskError> {
    let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    // A batch to one slow port must not eat the room of the others. Without CAP_NET_ADMIN the default stays.
    let room: libc::c_int = 8 << 20;
    let _ = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &room, String::new);
    Ok(socket)
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
    with_joints: bool,
    queued: usize,
    pieces: usize,
    lives: PhantomData<&'a [u8]>,
}

impl<'a> TxBatch<'a> {
    /// Whether the next packet needs a [`TxBatch::flush`] first.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.queued == BATCH || self.pieces + PIECES_PER_PACKET > PIECES
    }

    /// Queues `packet` for the netdev `ifindex`; packet path. `token` comes back with the [`Outcome`].
    ///
    /// # Panics
    /// When the batch is full, or a tag is to be edited in a packet whose first segment has no Ethernet header:
    /// both are bugs of the caller.
    #[inline]
    pub fn push(&mut self, packet: PacketSegments<'a>, edit: TagEdit, ifindex: u32, token: u32) {
        let mut message = self.begin(Offload::default());
        let (first, rest) = packet.split_first().expect("a packet has a segment");
        let head = message.arena.bytes(&first.frame, first.offset, first.len);
        let (tag, rest_from) = match edit {
            TagEdit::Keep => (None, 0),
            TagEdit::Push(tag) => (Some(tag), ADDRESSES),
            TagEdit::Replace(tag) => (Some(tag), ADDRESSES + TAG),
            TagEdit::Pop => (None, ADDRESSES + TAG),
        };
        if rest_from > 0 {
            message.add(&head[..ADDRESSES]);
        }
        if let Some(tag) = tag {
            message.add_tag(tag);
        }
        message.add(&head[rest_from..]);
        for segment in rest {
            message.add(message.arena.bytes(&segment.frame, segment.offset, segment.len));
        }
        let len_bytes = message.len_bytes;
        self.end(ifindex, Sent { token, len_bytes });
    }

    /// Queues the payloads of `packets` behind one header, for the kernel to cut; packet path.
    ///
    /// # Panics
    /// When the batch is full or takes no joint packets, or the packets have more pieces than
    /// [`TxBatch::fits`] allows: bugs of the caller.
    pub fn push_joint(
        &mut self,
        joint: Joint<'_>,
        packets: impl Iterator<Item = PacketSegments<'a>>,
        ifindex: u32,
        token: u32,
    ) {
        assert!(self.with_joints, "the batch takes no joint packets");
        let mut message = self.begin(Offload {
            flags: NEEDS_CHECKSUM,
            gso_type: if joint.is_v6 { GSO_TCPV6 } else { GSO_TCPV4 },
            header_len: joint.header.len() as u16,
            gso_size: joint.segment_bytes as u16,
            checksum_start: joint.tcp_at as u16,
            checksum_offset: TCP_CHECKSUM,
        });
        message.add_header(joint.header);
        for packet in packets {
            let mut skip = joint.skip_bytes as u16;
            for segment in packet {
                message.add(message.arena.bytes(&segment.frame, segment.offset + skip, segment.len - skip));
                skip = 0;
            }
        }
        self.end(ifindex, Sent { token, len_bytes: joint.wire_bytes });
    }

    /// Whether packets of `segments` frames in all fit into one joint packet.
    #[inline]
    pub fn fits(segments: usize) -> bool {
        segments + 2 <= PIECES_PER_PACKET
    }

    #[inline]
    fn begin(&mut self, offload: Offload) -> Message<'_, 'a> {
        assert!(!self.is_full(), "the batch is full");
        let arrays = &mut *self.transmitter.arrays;
        let mut message =
            Message { arena: self.arena, arrays, index: self.queued, pieces: &mut self.pieces, len_bytes: 0 };
        message.start(offload, self.with_joints);
        message
    }

    #[inline]
    fn end(&mut self, ifindex: u32, sent: Sent) {
        let arrays = &mut *self.transmitter.arrays;
        arrays.sent[self.queued] = sent;
        arrays.addresses[self.queued].sll_ifindex = ifindex as i32;
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
        (self.queued, self.pieces) = (0, 0);
    }

    /// One system call. The kernel stops at the first packet it cannot send and says why only when that packet is
    /// the first of the call; so an error belongs to packet `next` and comes alone.
    fn send_from(&mut self, next: usize) -> (usize, Option<TxError>) {
        let Transmitter { socket, cutting, .. } = &*self.transmitter;
        let fd = if self.with_joints { cutting } else { socket }.as_raw_fd();
        let messages = &mut self.transmitter.arrays.messages[next..self.queued];
        // SAFETY: every message in the slice was filled since the last flush: its name, pieces, tag and headers lie in the
        // boxed arrays, which do not move, and its bytes in frames that stay borrowed for 'a.
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

/// One message as its pieces are collected.
struct Message<'m, 'a> {
    arena: &'a Arena,
    arrays: &'m mut Arrays,
    index: usize,
    pieces: &'m mut usize,
    len_bytes: u32,
}

impl Message<'_, '_> {
    #[inline]
    fn start(&mut self, offload: Offload, with_joints: bool) {
        let arrays = &mut *self.arrays;
        let header = &mut arrays.messages[self.index].msg_hdr;
        header.msg_name = std::ptr::from_mut(&mut arrays.addresses[self.index]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
        header.msg_iov = std::ptr::from_mut(&mut arrays.pieces[*self.pieces]);
        header.msg_iovlen = 0;
        if with_joints {
            arrays.offloads[self.index] = offload;
            let start = std::ptr::from_ref(&arrays.offloads[self.index]).cast();
            self.add_at(start, size_of::<Offload>());
        }
    }

    #[inline]
    fn add(&mut self, bytes: &[u8]) {
        self.add_at(bytes.as_ptr(), bytes.len());
        self.len_bytes += bytes.len() as u32;
    }

    #[inline]
    fn add_tag(&mut self, tag: [u8; TAG]) {
        self.arrays.tags[self.index] = tag;
        self.add_at(self.arrays.tags[self.index].as_ptr(), TAG);
        self.len_bytes += TAG as u32;
    }

    fn add_header(&mut self, header: &[u8]) {
        self.arrays.headers[self.index][..header.len()].copy_from_slice(header);
        self.add_at(self.arrays.headers[self.index].as_ptr(), header.len());
    }

    #[inline]
    fn add_at(&mut self, start: *const u8, len: usize) {
        self.arrays.pieces[*self.pieces] = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len };
        *self.pieces += 1;
        self.arrays.messages[self.index].msg_hdr.msg_iovlen += 1;
    }
}
