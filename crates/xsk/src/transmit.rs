//! Sending to any port, many packets a system call.
//!
//! A batch leaves by the cheapest of three ways (docs/transmit.md). In each the kernel copies while it is called, so a
//! frame is free as soon as the call returns, all ports share the way, and a flooded packet is one frame however many
//! ports it goes to.
//!
//! - Many packets of one protocol: one run of a BPF program, [`Departures`].
//! - Few packets, or long ones: a packet socket and `sendmmsg`.
//! - Runs of TCP segments for the kernel to cut ([`Joint`]): a second packet socket, whose packets carry offload headers.
//!
//! None goes around the ports' queueing disciplines: packets of one flow take now this way, now that, and must not
//! overtake each other in a queue. Going around was measured to save nothing.
//!
//! A [`TxBatch`] borrows the burst whose frames it points into, so they cannot change or go before they are sent. Memory of
//! others, which may change, it borrows as atomics.
#![allow(unsafe_code, reason = "gives the kernel pointers into frames")]

mod departures;
mod message;
mod single;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU8;

use forebay_pool::{Arena, MAX_SEGMENTS_PER_PACKET, PacketSegments};
use forebay_wire::net_header::{NEEDS_CSUM, NetHeader, gso};

use crate::{XskError, sys};

pub use departures::Departures;
use departures::bits;
use message::{ADDRESSES, Arrays, BATCH, Message, PIECES, Packet};
use message::{TAG, TCP_CHECKSUM};
pub use single::FrameSender;

/// Pieces of one packet at most: its frames, with the addresses and a tag put apart in front, or a joint header.
const PIECES_PER_PACKET: usize = 64;
const _: () = assert!(PIECES_PER_PACKET > MAX_SEGMENTS_PER_PACKET + 2);
/// Pieces of memory of others that a packet may have ([`TxBatch::push_lent`]).
pub const MAX_LENT_PIECES: usize = 40;
const _: () = assert!(PIECES_PER_PACKET >= MAX_LENT_PIECES + 4);

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

impl TagEdit {
    /// Bytes that a packet grows by.
    #[inline]
    pub const fn growth(self) -> i16 {
        match self {
            TagEdit::Keep | TagEdit::Replace(_) => 0,
            TagEdit::Push(_) => TAG as i16,
            TagEdit::Pop => -(TAG as i16),
        }
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The netdev.
    pub ifindex: u32,
    /// What its queueing discipline and filters see as the packet's mark (`SO_MARK`).
    pub mark: u32,
    /// The caller's own, which comes back with the [`Outcome`].
    pub token: u32,
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxError {
    /// Queue, socket buffer or memory full (`EAGAIN`, `ENOBUFS`, `ENOMEM`).
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
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Self::Full,
            Some(libc::EMSGSIZE) => Self::TooBig,
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Self::PortDown,
            _ => Self::Other,
        }
    }
}

/// What became of one packet that was pushed.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// As in its [`Destination`].
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

impl Joint<'_> {
    /// What the kernel, or another receiver, is to do with it.
    pub fn undone(&self) -> NetHeader {
        NetHeader {
            flags: NEEDS_CSUM,
            gso_type: if self.is_v6 { gso::TCPV6 } else { gso::TCPV4 },
            hdr_len: self.header.len() as u16,
            gso_size: self.segment_bytes as u16,
            csum_start: self.tcp_at as u16,
            csum_offset: TCP_CHECKSUM,
        }
    }
}

/// The ways out, and the arrays that describe a batch to the kernel. Allocates only when it is made.
pub struct Transmitter {
    socket: OwnedFd,
    cutting: OwnedFd,
    departures: Option<Departures>,
    arrays: Box<Arrays>,
}

// SAFETY: the raw pointers in the arrays are written and used within one `TxBatch`, which borrows the transmitter
// mutably and what they point at; between batches they are dead values.
unsafe impl Send for Transmitter {}

impl Transmitter {
    /// Opens the sockets in the calling thread's network namespace. They receive nothing. Without `departures` every
    /// packet goes through a socket.
    ///
    /// # Errors
    /// [`XskError::System`], usually for want of CAP_NET_RAW.
    pub fn open(departures: Option<Departures>) -> Result<Self, XskError> {
        let (socket, cutting) = (open()?, open()?);
        let on: libc::c_int = 1;
        sys::set_option(cutting.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on, || {
            "send packets for the kernel to cut".into()
        })?;
        Ok(Self { socket, cutting, departures, arrays: Arrays::new() })
    }

    /// Begins a batch of packets whose frames lie in `arena`; packet path. Only a batch that says `with_joints` takes
    /// joint packets and others that the kernel is to cut or finish; it is a little slower for the rest.
    pub fn batch<'a>(&'a mut self, arena: &'a Arena, with_joints: bool) -> TxBatch<'a> {
        TxBatch { transmitter: self, arena, with_joints, queued: 0, pieces: 0, last: None }
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
    /// What was pushed last, to see that the next is the same for another port.
    last: Option<(PacketSegments<'a>, TagEdit)>,
}

impl<'a> TxBatch<'a> {
    /// Whether the next packet needs a [`TxBatch::flush`] first.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.queued == BATCH || self.pieces + PIECES_PER_PACKET > PIECES
    }

    /// Queues `packet`, of which the kernel is to do what `undone` says; packet path.
    ///
    /// # Panics
    /// When the batch is full, something is undone and it takes no such packets, or a tag is to be edited in a packet
    /// whose first segment has no Ethernet header: bugs of the caller.
    #[inline]
    pub fn push(&mut self, packet: PacketSegments<'a>, edit: TagEdit, undone: NetHeader, to: Destination) {
        self.push_with(packet, std::iter::empty(), edit, undone, to);
    }

    /// The same for a packet with at most [`MAX_LENT_PIECES`] pieces behind its only segment, which others may change meanwhile. Only
    /// a batch that says `with_joints` takes such packets.
    ///
    /// # Panics
    /// As [`TxBatch::push`], and when there are more pieces: a bug of the caller.
    pub fn push_lent(
        &mut self,
        packet: PacketSegments<'a>,
        behind: impl Iterator<Item = &'a [AtomicU8]> + Clone,
        edit: TagEdit,
        (undone, to): (NetHeader, Destination),
    ) {
        let fits = packet.len() == 1 && behind.clone().count() <= MAX_LENT_PIECES;
        assert!(self.with_joints && fits, "the batch does not take what was lent");
        self.push_with(packet, behind, edit, undone, to);
    }

    #[inline]
    fn push_with(
        &mut self,
        packet: PacketSegments<'a>,
        behind: impl Iterator<Item = &'a [AtomicU8]>,
        edit: TagEdit,
        undone: NetHeader,
        to: Destination,
    ) {
        assert!(self.with_joints || undone.is_plain(), "the batch takes no packets that are left undone");
        let again = self.last.is_some_and(|(last, kept)| std::ptr::eq(last, packet) && kept == edit);
        self.last = Some((packet, edit));
        let mut message = self.begin(undone.moved_by(edit.growth()));
        let (first, rest) = packet.split_first().expect("a packet has a segment");
        let head = message.arena.bytes(&first.frame, first.offset, first.len);
        let (tag, rest_from) = match edit {
            TagEdit::Keep => (None, 0),
            TagEdit::Push(tag) => (Some(tag), ADDRESSES),
            TagEdit::Replace(tag) => (Some(tag), ADDRESSES + TAG),
            TagEdit::Pop => (None, ADDRESSES + TAG),
        };
        let ethertype = match tag {
            Some([first, second, ..]) => [first, second],
            None => ethertype(&head[rest_from.saturating_sub(ADDRESSES)..]),
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
        let mut is_plain = undone.is_plain();
        for piece in behind {
            message.add_shared(piece);
            is_plain = false;
        }
        let len_bytes = message.len_bytes;
        self.end(to, Packet { token: to.token, len_bytes, ethertype, again, is_plain });
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
        to: Destination,
    ) {
        assert!(self.with_joints, "the batch takes no joint packets");
        let mut message = self.begin(joint.undone());
        message.add_header(joint.header);
        for packet in packets {
            let mut skip = joint.skip_bytes as u16;
            for segment in packet {
                message.add(message.arena.bytes(&segment.frame, segment.offset + skip, segment.len - skip));
                skip = 0;
            }
        }
        self.last = None;
        let len_bytes = joint.wire_bytes;
        let packet = Packet { token: to.token, len_bytes, ethertype: [0, 0], again: false, is_plain: false };
        self.end(to, packet);
    }

    /// Whether packets of `segments` frames in all fit into one joint packet.
    #[inline]
    pub fn fits(segments: usize) -> bool {
        segments + 2 <= PIECES_PER_PACKET
    }

    #[inline]
    fn begin(&mut self, undone: NetHeader) -> Message<'_, 'a> {
        assert!(!self.is_full(), "the batch is full");
        let arrays = &mut *self.transmitter.arrays;
        let mut message =
            Message { arena: self.arena, arrays, index: self.queued, pieces: &mut self.pieces, len_bytes: 0 };
        message.start(undone, self.with_joints);
        message
    }

    #[inline]
    fn end(&mut self, to: Destination, packet: Packet) {
        let arrays = &mut *self.transmitter.arrays;
        arrays.packets[self.queued] = packet;
        arrays.address(self.queued, to);
        self.queued += 1;
    }

    /// Sends everything queued and reports each packet once; packet path. Never blocks.
    ///
    /// Packets of one protocol, and so those of one flow, leave in the order in which they were pushed. Says how many
    /// were [`Departures`].
    pub fn flush(&mut self, mut report: impl FnMut(Outcome)) -> u32 {
        let queued = first_bits(self.queued);
        let mut left = if self.with_joints { queued } else { self.depart(queued, &mut report) };
        let departed = (queued & !left).count_ones();
        while left != 0 {
            let (start, run) =
                (left.trailing_zeros() as usize, (left >> left.trailing_zeros()).trailing_ones());
            self.send(start, start + run as usize, &mut report);
            left &= !(first_bits(run as usize) << start);
        }
        (self.queued, self.pieces, self.last) = (0, 0, None);
        departed
    }

    /// Sends by the departure program what is worth it: many packets of one protocol, as its carrier has one protocol
    /// in a run. Says which packets are left.
    fn depart(&mut self, queued: u128, report: &mut impl FnMut(Outcome)) -> u128 {
        let Transmitter { departures: Some(departures), arrays, .. } = &mut *self.transmitter else {
            return queued;
        };
        let (mut left, mut unseen) = (queued, queued);
        while unseen != 0 {
            let ethertype = arrays.packets[unseen.trailing_zeros() as usize].ethertype;
            let alike = bits(unseen).filter(|index| arrays.packets[*index].ethertype == ethertype);
            let group = alike.fold(0, |group, index| group | 1 << index);
            unseen &= !group;
            let is_worth = group.count_ones() >= departures::WORTH || ethertype == departures::SERVICE_TAG;
            let fits = || bits(group).all(|index| Departures::takes(arrays.packets[index].len_bytes));
            if !is_worth || !fits() || departures.send(arrays, group, ethertype).is_err() {
                continue;
            }
            left &= !group;
            for index in bits(group) {
                report(arrays.packets[index].outcome(departures.result(index)));
            }
        }
        left
    }

    /// Sends the messages from `next` up to `end` through the socket.
    fn send(&mut self, mut next: usize, end: usize, report: &mut impl FnMut(Outcome)) {
        while next < end {
            let (sent, error) = self.send_some(next, end);
            let packets = &self.transmitter.arrays.packets;
            for packet in &packets[next..next + sent] {
                report(packet.outcome(Ok(())));
            }
            next += sent;
            if let Some(error) = error {
                let result = if error == TxError::TooBig { self.depart_alone(next) } else { Err(error) };
                report(self.transmitter.arrays.packets[next].outcome(result));
                next += 1;
            }
        }
    }

    /// Sends a packet by the departure program that is too long for the socket, which counts a service tag as part of the
    /// packet.
    fn depart_alone(&mut self, index: usize) -> Result<(), TxError> {
        let Transmitter { departures: Some(departures), arrays, .. } = &mut *self.transmitter else {
            return Err(TxError::TooBig);
        };
        let packet = &mut arrays.packets[index];
        let fits = packet.is_plain && Departures::takes(packet.len_bytes);
        if packet.ethertype != departures::SERVICE_TAG || !fits {
            return Err(TxError::TooBig);
        }
        packet.again = false;
        match departures.send(arrays, 1 << index, departures::SERVICE_TAG) {
            Ok(()) => departures.result(index),
            Err(_) => Err(TxError::TooBig),
        }
    }

    /// One system call. The kernel stops at the first packet it cannot send and says why only when that packet is
    /// the first of the call; so an error belongs to packet `next` and comes alone.
    fn send_some(&mut self, next: usize, end: usize) -> (usize, Option<TxError>) {
        let Transmitter { socket, cutting, .. } = &*self.transmitter;
        let fd = if self.with_joints { cutting } else { socket }.as_raw_fd();
        let messages = &mut self.transmitter.arrays.messages[next..end];
        // SAFETY: every message in the slice was filled since the last flush: its name, pieces, tag and headers lie in the
        // boxed arrays, which do not move, and its bytes in frames or memory of others that stay borrowed for 'a. Of the
        // latter the kernel makes a copy, too, and answers EFAULT where a page has gone.
        let sent =
            unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), messages.len() as u32, libc::MSG_DONTWAIT) };
        match usize::try_from(sent) {
            Ok(sent) if sent > 0 => (sent, None),
            _ => (0, Some(TxError::from_errno(std::io::Error::last_os_error().raw_os_error()))),
        }
    }
}

/// The two bytes behind the addresses; zero where a packet is too short to have them.
fn ethertype(head: &[u8]) -> [u8; 2] {
    head.get(ADDRESSES..ADDRESSES + 2).map_or([0, 0], |bytes| [bytes[0], bytes[1]])
}

/// A set of the numbers below `count`, of which there are at most 128.
fn first_bits(count: usize) -> u128 {
    u128::MAX.checked_shr(u128::BITS - count as u32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bits_are_as_many_as_asked_for() {
        assert_eq!([0, 1, 5, 128].map(first_bits), [0, 1, 0b11111, u128::MAX]);
    }
}
