//! A virtual machine's transmit queues, as the worker that owns them serves them.
//!
//! Packets stay in the guest's memory until their turn comes, so the switch holds none of them between turns. A packet is
//! copied once: into frames of the pool when it comes from the guest, into the guest's buffers when it goes there.
//!
//! The rule they keep: whatever a guest writes breaks its own port alone. A queue that breaks is served no more, and the
//! control side is told why.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use forebay_control::PortId;
use forebay_kernel::LoopProbes;
use forebay_policy::{Nanos, Piece};
use forebay_pool::{Arena, Burst, Magazine, Segment};
use forebay_vhost::{Features, Offer, RingError, Virtqueue};
use forebay_wire::cut::Uncuttable;
use forebay_wire::net_header::NetHeader;

use super::facts::Facts;
use super::loans::Loans;
use super::moderation::{ModeratedQueue, Moderation};
use super::parcel::{self, HEADROOM, Undeliverable};
use super::record::Record;
use super::undone;
use crate::attention::Attention;
use crate::counters::Counter;

/// What a worker tells the control side of a guest's queue.
pub(crate) struct GuestCells {
    /// Packets that the worker took from the guest's memory, whatever became of them.
    pub(crate) taken_packets: Counter,
    fault: OnceLock<RingError>,
    bell: Arc<Attention>,
}

impl GuestCells {
    /// Nothing was taken. `bell` rings when the queue breaks.
    pub(crate) fn new(bell: Arc<Attention>) -> Self {
        Self { taken_packets: Counter::default(), fault: OnceLock::new(), bell }
    }

    /// Why the queue is served no more.
    pub(crate) fn fault(&self) -> Option<RingError> {
        self.fault.get().copied()
    }

    #[cold]
    pub(super) fn breaks(&self, error: RingError) {
        // The first reason counts.
        let _ = self.fault.set(error);
        self.bell.call();
    }
}

/// Packets of a turn that have no place in the burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    /// There was no free frame.
    pub(super) no_frame: u64,
    /// They take more frames than a packet may have, or stand for more packets than one may.
    pub(super) too_big: u64,
    /// They have no bytes, or are not what their header says.
    pub(super) bad: u64,
}

/// Where loop probes are noted that come from a guest.
pub(crate) struct ProbeNotes {
    pub(crate) notes: Arc<LoopProbes>,
    pub(crate) port: PortId,
}

impl ProbeNotes {
    #[inline]
    fn note(&self, packet: &[u8]) -> bool {
        self.notes.note(self.port.0, packet)
    }
}

/// Where the packets of a turn go, with what is known of them.
pub(super) struct Received<'a> {
    pub(super) burst: &'a mut Burst,
    pub(super) records: &'a mut [Record],
    pub(super) undone: &'a mut [NetHeader],
    /// `None`: all of each packet is to be in frames.
    pub(super) loans: Option<&'a mut Loans>,
}

/// A guest's transmit queue.
pub(crate) struct GuestSource {
    queue: ModeratedQueue,
    /// What its worker calls the receive queue of the pair, which the guest's packets may answer.
    answers: usize,
    cells: Arc<GuestCells>,
    probes: ProbeNotes,
    arena: Arc<Arena>,
    /// The collector whose supply has free frames of the arena.
    supply: u8,
    /// What both ends agreed on.
    features: Features,
    /// The guest was asked to kick when it has packets.
    is_armed: bool,
    is_broken: bool,
}

impl GuestSource {
    /// A queue whose packets are copied into frames of `arena`, from the supply of this number. `answers` is the number of
    /// the pair's receive queue.
    pub(crate) fn new(
        (queue, answers): (ModeratedQueue, usize),
        features: Features,
        (cells, probes): (Arc<GuestCells>, ProbeNotes),
        (supply, arena): (u8, Arc<Arena>),
    ) -> Self {
        Self { queue, answers, cells, probes, arena, supply, features, is_armed: true, is_broken: false }
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

    pub(super) fn kick(&self) -> Option<BorrowedFd<'_>> {
        self.queue.virtqueue.kick()
    }

    pub(super) fn queue(&mut self) -> &mut ModeratedQueue {
        &mut self.queue
    }

    pub(super) fn into_queue(self) -> Virtqueue {
        self.queue.into_virtqueue()
    }

    /// Copies the next packets into frames, and gives their buffers back to the guest, which kicks no more. If it lends some,
    /// the guest has all of its buffers back with [`GuestSource::show`].
    pub(super) fn receive(
        &mut self,
        mut packets: Received<'_>,
        piece: Piece,
        magazine: &mut Magazine,
        (moderation, now): (&mut Moderation, Nanos),
    ) -> Lost {
        let mut lost = Lost::default();
        if self.is_broken {
            return lost;
        }
        let heard = match std::mem::take(&mut self.is_armed) {
            true => {
                self.queue.virtqueue.suppress_kicks();
                self.queue.virtqueue.hear_kicks()
            }
            false => Ok(()),
        };
        let taken = heard.and_then(|()| self.take_all(&mut packets, piece, magazine, &mut lost));
        let taken = match taken {
            // A kick that came too late for its packet.
            Ok(0) => self.queue.virtqueue.hear_kicks(),
            other => other.map(|_| ()),
        };
        let fault = self.queue.virtqueue.is_broken().then_some(RingError::MemoryFault);
        if let Some(error) = taken.err().or(fault) {
            self.is_broken = true;
            self.cells.breaks(error);
        }
        moderation.answered(self.answers, self.queue.with_data());
        if packets.loans.is_none_or(|loans| loans.lent.is_empty()) {
            self.queue.show(moderation, now);
        }
        lost
    }

    /// Shows the guest that it has its buffers back.
    pub(super) fn show(&mut self, (moderation, now): (&mut Moderation, Nanos)) {
        self.queue.show(moderation, now);
    }

    fn take_all(
        &mut self,
        packets: &mut Received<'_>,
        piece: Piece,
        magazine: &mut Magazine,
        lost: &mut Lost,
    ) -> Result<u32, RingError> {
        let (mut taken, mut bytes, mut probes) = (0, 0, 0);
        let ended = loop {
            if taken >= piece.packets || bytes >= piece.bytes || packets.burst.is_full() {
                break Ok(taken);
            }
            let offer = match self.queue.virtqueue.offered() {
                Ok(Some(offer)) => offer,
                Ok(None) => break Ok(taken),
                Err(error) => break Err(error),
            };
            taken += 1;
            bytes += u64::from(offer.len);
            let index = packets.burst.len();
            match self.take(offer, packets, magazine) {
                Ok(()) => {
                    let arena = &self.arena;
                    self.queue.count(offer.len, || match packets.burst.packet(index) {
                        [only] => Some(arena.bytes(&only.frame, only.offset, only.len)),
                        _ => None,
                    });
                    continue;
                }
                Err(Untaken::NoFrame) => lost.no_frame += 1,
                Err(Untaken::TooBig) => lost.too_big += 1,
                Err(Untaken::Bad) => lost.bad += 1,
                Err(Untaken::Probe) => probes += 1,
            }
            self.queue.count(offer.len, || None);
        };
        // A probe is no packet of the port's.
        self.cells.taken_packets.add(u64::from(taken - probes));
        ended
    }

    /// Copies the packet that is offered, or gives its buffers back.
    #[inline]
    fn take(
        &mut self,
        offer: Offer,
        packets: &mut Received<'_>,
        magazine: &mut Magazine,
    ) -> Result<(), Untaken> {
        let Offer { is_plain, len } = offer;
        let payload = self.arena.frame_size().payload();
        if is_plain
            && (1..=payload).contains(&len)
            && let Some(mut frame) = magazine.take()
        {
            let len = self.queue.virtqueue.take([self.arena.bytes_mut(&mut frame, HEADROOM, len as u16)]);
            if self.probes.note(self.arena.bytes(&frame, HEADROOM, len as u16)) {
                magazine.put(frame);
                return Err(Untaken::Probe);
            }
            packets.records[packets.burst.len()].facts = Facts::default();
            packets.burst.push(Segment { frame, offset: HEADROOM, len: len as u16 }, true);
            return Ok(());
        }
        self.take_any(offer, packets, magazine)
    }

    /// The same for packets in several frames, and those that are left undone.
    fn take_any(
        &mut self,
        Offer { is_plain, len }: Offer,
        packets: &mut Received<'_>,
        magazine: &mut Magazine,
    ) -> Result<(), Untaken> {
        let header = self.queue.virtqueue.header();
        let payload = self.arena.frame_size().payload();
        let is_right = len > 0 && (is_plain || self.features.check(&header, len).is_ok());
        if is_right
            && header.is_long()
            && let Some(lent) = self.lend(header, len, packets, magazine)
        {
            return lent;
        }
        let frames = match is_right {
            true => parcel::take_frames(magazine, (len as usize).div_ceil(payload as usize)).map_err(untaken),
            false => Err(Untaken::Bad),
        };
        let mut frames = frames.inspect_err(|_| self.queue.virtqueue.discard())?;
        let room = frames.iter_mut().map(|frame| self.arena.bytes_mut(frame, HEADROOM, payload as u16));
        self.queue.virtqueue.take(room);
        let undone = match is_plain {
            true => Ok(NetHeader::default()),
            false => {
                let front = self.arena.bytes(&frames[0], HEADROOM, len.min(payload) as u16);
                undone::compare(header, front, len).map_err(unlike)
            }
        };
        let undone = match undone {
            Ok(undone) if undone::finish_if_service_tagged(&self.arena, &undone, &mut frames, len) => {
                NetHeader::default()
            }
            Ok(undone) => undone,
            Err(reason) => {
                frames.into_iter().for_each(|frame| magazine.put(frame));
                return Err(reason);
            }
        };
        let index = packets.burst.len();
        packets.records[index].facts = Facts { is_undone: !undone.is_plain(), ..Facts::default() };
        packets.undone[index] = undone;
        let mut left = len;
        for frame in frames {
            let len = left.min(payload);
            left -= len;
            packets.burst.push(Segment { frame, offset: HEADROOM, len: len as u16 }, left == 0);
        }
        Ok(())
    }

    /// Copies the beginning of a long packet and leaves the rest where it is. `None`: it has to be copied whole, and is offered as
    /// before.
    fn lend(
        &mut self,
        header: NetHeader,
        len: u32,
        packets: &mut Received<'_>,
        magazine: &mut Magazine,
    ) -> Option<Result<(), Untaken>> {
        let loans = packets.loans.as_deref_mut()?;
        let payload = self.arena.frame_size().payload();
        let mut frame = magazine.take()?;
        let front = self.arena.bytes_mut(&mut frame, HEADROOM, payload as u16);
        let Some(lent) = self.queue.virtqueue.lend(front, &mut loans.lent, Loans::MOST) else {
            magazine.put(frame);
            return None;
        };
        let undone = match undone::compare(header, front, len) {
            Ok(undone) => undone,
            Err(error) => {
                magazine.put(frame);
                return Some(Err(unlike(error)));
            }
        };
        let index = packets.burst.len();
        loans.note(index, lent);
        packets.records[index].facts = Facts { is_undone: true, is_lent: true, ..Facts::default() };
        packets.undone[index] = undone;
        let beginning = Segment { frame, offset: HEADROOM, len: payload as u16 };
        packets.burst.push_beginning(beginning, len - payload);
        Some(Ok(()))
    }

    /// Whether packets wait.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        !self.is_broken && self.queue.virtqueue.has_waiting()
    }

    /// The guest is to kick when it has packets. Says whether it has some already, of which it may not tell.
    pub(super) fn allow_kicks(&mut self) -> bool {
        self.is_armed = true;
        !self.is_broken && self.queue.virtqueue.allow_kicks()
    }
}

/// Why a packet is lost that a guest sent.
enum Untaken {
    NoFrame,
    TooBig,
    Bad,
    /// It is no packet, but a loop probe.
    Probe,
}

fn untaken(error: Undeliverable) -> Untaken {
    match error {
        Undeliverable::Full | Undeliverable::OverShare | Undeliverable::Down => Untaken::NoFrame,
        Undeliverable::TooLong => Untaken::TooBig,
    }
}

fn unlike(error: Uncuttable) -> Untaken {
    match error {
        Uncuttable::Mismatch => Untaken::Bad,
        Uncuttable::TooMany => Untaken::TooBig,
    }
}
