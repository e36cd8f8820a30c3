//! First verb: packets from a source into the burst, with what is known of them.

use forebay_control::DropReason;
use forebay_policy::{Nanos, Piece, Standing};
use forebay_xsk::Reads;

use super::facts::Facts;
use super::guest::{GuestSource, Lost, Received};
use super::long::LongSource;
use super::stretch::Stretch;
use super::{Feed, ServedSource, Source, SuppliedBy, TURN, Worker, XskSource};

/// Bytes of a packet that are read in any case.
const HEADERS: u16 = 64;
/// Bytes below a packet that end with its layout's id; most layouts have no more.
const NEAREST_BELOW: u16 = 64;
/// Packets of the next turn that the processor is told of during this one.
const AHEAD: u32 = TURN as u32;

impl Worker {
    /// Takes the next piece of the source's turn.
    pub(super) fn receive(&mut self, served: &mut ServedSource, now: Nanos) -> Standing {
        let ServedSource { feed, source, gauge, turn, is_calm, .. } = served;
        gauge.set(u64::from(source.occupancy()));
        let piece = turn.piece(self.run_list.pace());
        self.has_undone = false;
        match source {
            Source::Xsk(xsk) => self.receive_xsk(xsk, piece, *feed),
            Source::Memory(memory) => {
                memory.receive(&mut self.burst, &mut self.records, &mut self.undone, piece);
                self.see_undone();
                self.count_lost(*feed, memory.take_no_frame(), DropReason::NoFrame);
            }
            Source::Guest(guest) => self.receive_from_guest(guest, piece, *feed, now),
            Source::Long(long) => self.receive_long(long, piece),
        }
        let bytes = self.burst.bytes_of(0..self.burst.len());
        let standing = turn.served(self.burst.len() as u32, bytes, source.has_more());
        if *is_calm && standing == Standing::Over {
            self.shared.attention.call();
        }
        self.stretches.clear();
        match feed {
            Feed::Port(port) => {
                self.stretches.push(Stretch::new(Some(*port), 0..self.burst.len()));
            }
            Feed::Shared => self.find_stretches(),
        }
        standing
    }

    fn receive_xsk(&mut self, xsk: &mut XskSource, piece: Piece, feed: Feed) {
        xsk.ring.set_reads(Reads {
            below: if xsk.has_origin { NEAREST_BELOW } else { 0 },
            bytes: if xsk.reads_headers { HEADERS } else { 0 },
        });
        xsk.ring.receive(&mut self.burst, piece.packets as usize, piece.bytes);
        xsk.ring.fetch_ahead(AHEAD);
        match xsk.ring.take_bad_descriptors() {
            0 => {}
            bad => self.shared.worker_cell(self.index).bad_descriptors.add(bad),
        }
        if let SuppliedBy::Own(supply) = &mut xsk.supply {
            supply.fill.received(&self.burst);
        }
        if xsk.has_origin {
            self.look_below(xsk.ring.arena(), feed == Feed::Shared);
        } else {
            self.records[..self.burst.len()].iter_mut().for_each(|record| record.facts = Facts::default());
        }
    }

    fn receive_from_guest(&mut self, guest: &mut GuestSource, piece: Piece, feed: Feed, now: Nanos) {
        let supply = self.supplies[guest.supply()].as_deref_mut();
        let magazine = &mut supply.expect("it stays while guests draw on it").magazine;
        // A capture reads all of a packet.
        let member =
            if let Feed::Port(port) = feed { self.members[usize::from(port.0)].as_ref() } else { None };
        let may_lend = member.is_some_and(|member| member.tap.is_none());
        let packets = Received {
            burst: &mut self.burst,
            records: &mut self.records,
            undone: &mut self.undone,
            loans: may_lend.then_some(&mut self.loans),
        };
        let Lost { no_frame, too_big, bad } =
            guest.receive(packets, piece, magazine, (&mut self.moderation, now));
        self.see_undone();
        self.count_lost(feed, no_frame, DropReason::NoFrame);
        self.count_lost(feed, too_big, DropReason::RxTooBig);
        self.count_lost(feed, bad, DropReason::BadFrame);
    }

    /// The guest that sent the burst has all of its buffers back.
    pub(super) fn give_back(&mut self, served: &mut ServedSource, now: Nanos) {
        if let Source::Guest(guest) = &mut served.source
            && !self.loans.lent.is_empty()
        {
            guest.show((&mut self.moderation, now));
            self.loans.lent.clear();
        }
    }

    fn receive_long(&mut self, long: &mut LongSource, piece: Piece) {
        let supply = self.supplies[long.supply()].as_deref_mut();
        let magazine = &mut supply.expect("it stays while sources draw on it").magazine;
        let mut packets = Received {
            burst: &mut self.burst,
            records: &mut self.records,
            undone: &mut self.undone,
            loans: None,
        };
        long.receive(&mut packets, piece, magazine, self.members.len());
        self.see_undone();
        if long.is_gone() {
            // The kernel would call it ready for ever.
            self.doorbell.ignore(long.tap());
        }
        for (port, reason) in long.lost() {
            match self.members[usize::from(port.0)] {
                Some(_) => self.count_lost(Feed::Port(port), 1, reason),
                None => self.shared.worker_cell(self.index).strays.add(1),
            }
        }
    }

    fn see_undone(&mut self) {
        let records = &self.records[..self.burst.len()];
        self.has_undone = records.iter().any(|record| record.facts.is_undone);
    }

    /// Packets that the port sent and that are not in the burst. The kernel counts those of its rings.
    fn count_lost(&self, feed: Feed, packets: u64, reason: DropReason) {
        let Feed::Port(port) = feed else { return };
        if let (Some(member), 1..) = (&self.members[usize::from(port.0)], packets) {
            let cell = member.cells.of(self.index);
            cell.rx_packets.add(packets);
            cell.drop(reason, packets);
        }
    }

    fn find_stretches(&mut self) {
        for (index, record) in self.records[..self.burst.len()].iter().enumerate() {
            let port = record.facts.port;
            match self.stretches.last_mut() {
                Some(stretch) if stretch.port == port => stretch.packets.end += 1,
                _ => self.stretches.push(Stretch::new(port, index..index + 1)),
            }
        }
    }
}
