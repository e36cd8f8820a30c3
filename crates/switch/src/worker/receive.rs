//! First verb: packets from an RX ring into the burst.

use std::ops::Range;

use forebay_control::PortId;
use forebay_policy::Standing;
use forebay_xsk::Reads;

use super::below::Below;
use super::repeat::Found;
use super::{BUDGET, Feed, ServedSource, SuppliedBy, Worker};

/// Bytes of a packet that are read in any case.
const HEADERS: u16 = 64;
/// Bytes below a packet that end with its layout's id; most layouts have no more.
const NEAREST_BELOW: u16 = 64;
/// Packets of the next turn that the processor is told of during this one.
const AHEAD: u32 = BUDGET as u32;

/// Packets of a burst, one after the other, that came from one port.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    /// `None`: nobody marked them, which only a broken program would do.
    pub(super) port: Option<PortId>,
    pub(super) packets: Range<usize>,
    /// The decision that all of them repeat, if they do.
    pub(super) alike: Option<Found>,
}

impl Stretch {
    pub(super) fn new(port: Option<PortId>, packets: Range<usize>) -> Self {
        Self { port, packets, alike: None }
    }
}

impl Worker {
    /// Takes the next piece of the ring's turn.
    pub(super) fn receive(&mut self, source: &mut ServedSource) -> Standing {
        source.gauge.set(u64::from(source.ring.occupancy()));
        let piece = source.turn.piece(self.run_list.pace());
        source.ring.set_reads(Reads {
            below: if source.is_marked { NEAREST_BELOW } else { 0 },
            bytes: if source.reads_headers { HEADERS } else { 0 },
        });
        source.ring.receive(&mut self.burst, piece.packets as usize, piece.bytes);
        source.ring.fetch_ahead(AHEAD);
        let bytes = self.burst.bytes_of(0..self.burst.len());
        let more = source.ring.occupancy() > 0;
        let standing = source.turn.served(self.burst.len() as u32, bytes, more);
        if source.is_calm && standing == Standing::Over {
            self.shared.attention.call();
        }
        if let SuppliedBy::Own(supply) = &mut source.supply {
            supply.fill.received(&self.burst);
        }
        if source.is_marked {
            self.look_below(source.ring.arena(), source.feed == Feed::Shared);
        } else {
            self.below.clear();
            self.below.resize(self.burst.len(), Below::default());
        }
        self.stretches.clear();
        match source.feed {
            Feed::Port(port) => {
                self.stretches.push(Stretch::new(Some(port), 0..self.burst.len()));
            }
            Feed::Shared => self.find_stretches(),
        }
        standing
    }

    fn find_stretches(&mut self) {
        for (index, port) in self.below.iter().map(|below| below.port).enumerate() {
            match self.stretches.last_mut() {
                Some(stretch) if stretch.port == port => stretch.packets.end += 1,
                _ => self.stretches.push(Stretch::new(port, index..index + 1)),
            }
        }
    }
}
