//! A worker's long queue, out of which packets of tcx ports come whole that a collector would cut. Each is read by one
//! system call, straight into frames of the pool.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use forebay_control::{DropReason, PortId};
use forebay_kernel::{Datapath, LONG_HEADER_BYTES, LongQueue, QueueAccounts};
use forebay_policy::Piece;
use forebay_pool::{Arena, MAX_SEGMENTS_PER_PACKET, Magazine, Segment};
use forebay_wire::cut::Uncuttable;
use forebay_wire::net_header::{MAX_HEADER_BYTES, NetHeader};
use rustix::io::Errno;

use super::TURN;
use super::facts::Facts;
use super::guest::Received;
use super::parcel::{Frames, HEADROOM};
use super::undone;

const ADDRESSES: usize = 12;
const TAG: usize = 4;
/// What each read begins with: the header, the packet's addresses, the tag with its port.
const HEAD: usize = LONG_HEADER_BYTES + ADDRESSES + TAG;

/// The worker's end of a long queue.
pub(crate) struct LongSource {
    queue: LongQueue,
    accounts: QueueAccounts,
    arena: Arc<Arena>,
    /// The collector whose supply has free frames of the arena.
    supply: u8,
    /// The last look found no packet.
    is_drained: bool,
    /// The tap was deleted, and the kernel's programs know.
    is_gone: bool,
    datapath: Arc<Datapath>,
    worker: u32,
    lost: Vec<(PortId, DropReason)>,
}

/// The first bytes of a read.
struct Head([u8; HEAD]);

impl Head {
    fn header(&self) -> NetHeader {
        let mut bytes = [0; MAX_HEADER_BYTES];
        bytes[..LONG_HEADER_BYTES].copy_from_slice(&self.0[..LONG_HEADER_BYTES]);
        // The kernel counted the tag.
        NetHeader::from_bytes(&bytes).moved_by(-(TAG as i16))
    }

    fn addresses(&self) -> &[u8] {
        &self.0[LONG_HEADER_BYTES..LONG_HEADER_BYTES + ADDRESSES]
    }

    /// The port, and whether the packet is in the account of its own ring. `None`: no port's program sent it, but somebody
    /// who may send out of the host's netdevs.
    fn origin(&self) -> Option<(PortId, bool)> {
        let [.., high, low, id_high, id_low] = self.0;
        let port = PortId(u16::from_be_bytes([id_high, id_low]));
        match u16::from_be_bytes([high, low]) {
            0x8100 => Some((port, true)),
            0x88a8 => Some((port, false)),
            _ => None,
        }
    }
}

impl LongSource {
    /// The queue of `worker`, whose packets are copied into frames of `arena`, from the supply of this number.
    pub(crate) fn new(
        queue: LongQueue,
        worker: u32,
        datapath: &Arc<Datapath>,
        (supply, arena): (u8, Arc<Arena>),
    ) -> Self {
        Self {
            queue,
            accounts: datapath.queue_accounts(worker),
            arena,
            supply,
            is_drained: true,
            is_gone: false,
            datapath: Arc::clone(datapath),
            worker,
            lost: Vec::with_capacity(TURN),
        }
    }

    /// Takes frames of another pool from now on.
    pub(super) fn move_to(&mut self, supply: u8, arena: Arc<Arena>) {
        (self.supply, self.arena) = (supply, arena);
    }

    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(super) fn supply(&self) -> usize {
        self.supply.into()
    }

    pub(super) fn tap(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    pub(super) fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Whether nothing comes any more.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// What the kernel says instead of a packet: there is none, or no tap any more (drivers/net/tun.c, Linux 6.18).
    fn fails(&mut self, error: Errno) {
        if error == Errno::BADFD {
            self.is_gone = true;
            // If that fails too, long packets are lost, as all are whose collector is deleted.
            let _ = self.datapath.connect_long_queue(self.worker, None);
        }
    }

    /// Packets of the last piece that are not in the burst, and why.
    pub(super) fn lost(&mut self) -> impl Iterator<Item = (PortId, DropReason)> {
        self.lost.drain(..)
    }

    /// Reads the next packets into frames. There are so many `ports`; what comes from another is none's.
    pub(super) fn receive(
        &mut self,
        packets: &mut Received<'_>,
        piece: Piece,
        magazine: &mut Magazine,
        ports: usize,
    ) {
        let mut frames = Frames::new();
        let (mut taken, mut bytes) = (0, 0);
        self.is_drained = false;
        while taken < piece.packets && bytes < piece.bytes && !packets.burst.is_full() {
            while !frames.is_full()
                && let Some(frame) = magazine.take()
            {
                frames.push(frame);
            }
            let mut head = Head([0; HEAD]);
            let len = match self.read(&mut head, &mut frames) {
                Ok(len) => len,
                Err(error) => {
                    self.is_drained = true;
                    self.fails(error);
                    break;
                }
            };
            taken += 1;
            bytes += u64::from(len);
            let Some((port, has_own)) = head.origin().filter(|(port, _)| usize::from(port.0) < ports) else {
                continue;
            };
            let used = (len as usize).div_ceil(self.arena.frame_size().payload() as usize);
            self.accounts.settle_long(has_own.then_some(port.0), used as u64);
            if let Err(reason) = self.push(packets, &head, port, &mut frames, (used, len)) {
                self.lost.push((port, reason));
            }
        }
        frames.into_iter().for_each(|frame| magazine.put(frame));
    }

    /// Reads one packet; returns the packet's length, without the tag.
    fn read(&self, head: &mut Head, frames: &mut Frames) -> Result<u32, Errno> {
        let payload = self.arena.frame_size().payload();
        let mut room = ArrayVec::<IoSliceMut<'_>, { MAX_SEGMENTS_PER_PACKET + 1 }>::new();
        room.push(IoSliceMut::new(&mut head.0));
        let mut skip = ADDRESSES as u16;
        for frame in frames {
            room.push(IoSliceMut::new(self.arena.bytes_mut(frame, HEADROOM + skip, payload as u16 - skip)));
            skip = 0;
        }
        let read = rustix::io::readv(&self.queue, &mut room)?;
        Ok(read.saturating_sub(LONG_HEADER_BYTES + TAG) as u32)
    }

    /// Puts the packet that was read into the burst.
    fn push(
        &self,
        packets: &mut Received<'_>,
        head: &Head,
        port: PortId,
        frames: &mut Frames,
        (used, len): (usize, u32),
    ) -> Result<(), DropReason> {
        if used > frames.len() {
            return Err(if used > frames.capacity() { DropReason::RxTooBig } else { DropReason::NoFrame });
        }
        if (len as usize) < ADDRESSES {
            return Err(DropReason::BadFrame);
        }
        let payload = self.arena.frame_size().payload();
        self.arena.bytes_mut(&mut frames[0], HEADROOM, ADDRESSES as u16).copy_from_slice(head.addresses());
        let header = head.header();
        let undone = match header.is_plain() {
            true => NetHeader::default(),
            false => {
                let front = self.arena.bytes(&frames[0], HEADROOM, len.min(payload) as u16);
                undone::compare(header, front, len).map_err(|error| match error {
                    Uncuttable::Mismatch => DropReason::BadFrame,
                    Uncuttable::TooMany => DropReason::RxTooBig,
                })?
            }
        };
        let index = packets.burst.len();
        packets.records[index].facts =
            Facts { port: Some(port), is_undone: !undone.is_plain(), ..Facts::default() };
        packets.undone[index] = undone;
        let mut left = len;
        for frame in frames.drain(..used) {
            let len = left.min(payload);
            left -= len;
            packets.burst.push(Segment { frame, offset: HEADROOM, len: len as u16 }, left == 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use forebay_wire::net_header::{NEEDS_CSUM, gso};

    use super::*;

    fn head(tag: [u8; TAG]) -> Head {
        let undone =
            NetHeader { flags: NEEDS_CSUM, gso_type: gso::TCPV4, csum_start: 38, ..NetHeader::default() };
        let mut bytes = [0; HEAD];
        bytes[..LONG_HEADER_BYTES].copy_from_slice(&undone.to_bytes(0)[..LONG_HEADER_BYTES]);
        bytes[LONG_HEADER_BYTES..HEAD - TAG].copy_from_slice(&[7; ADDRESSES]);
        bytes[HEAD - TAG..].copy_from_slice(&tag);
        Head(bytes)
    }

    #[test]
    fn the_tag_in_front_names_the_port_and_whose_account_it_is() {
        assert_eq!(head([0x81, 0, 0x12, 0x34]).origin(), Some((PortId(0x1234), true)));
        assert_eq!(head([0x88, 0xa8, 0xff, 0xff]).origin(), Some((PortId(0xffff), false)));
        assert_eq!(head([0x86, 0xdd, 0x60, 0]).origin(), None, "somebody else's packet");
    }

    #[test]
    fn the_header_is_that_of_the_packet_without_the_tag() {
        let head = head([0x81, 0, 0, 1]);
        assert_eq!((head.header().csum_start, head.addresses()), (34, &[7; ADDRESSES][..]));
    }
}
