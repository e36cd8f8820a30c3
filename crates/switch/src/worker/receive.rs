//! First verb: packets from an RX ring into the burst.

use std::ops::Range;

use forebay_control::PortId;
use forebay_policy::Standing;
use forebay_xsk::Reads;

use super::below::Below;
use super::repeat::Found;
use super::{BUDGET, Channel, Feed, SuppliedBy, Worker};

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
    pub(super) fn receive(&mut self, channel: &mut Channel) -> Standing {
        channel.gauge.set(u64::from(channel.ring.occupancy()));
        let piece = channel.turn.piece(self.run_list.pace());
        channel.ring.set_reads(Reads {
            below: if channel.is_marked { NEAREST_BELOW } else { 0 },
            bytes: if channel.reads_headers { HEADERS } else { 0 },
        });
        channel.ring.receive(&mut self.burst, piece.packets as usize, piece.bytes);
        channel.ring.fetch_ahead(AHEAD);
        let bytes = self.burst.bytes_of(0..self.burst.len());
        let more = channel.ring.occupancy() > 0;
        let standing = channel.turn.served(self.burst.len() as u32, bytes, more);
        if channel.is_calm && standing == Standing::Over {
            self.shared.attention.call();
        }
        if let SuppliedBy::Own(supply) = &mut channel.supply {
            supply.fill.received(&self.burst);
        }
        if channel.is_marked {
            self.look_below(channel.ring.arena(), channel.feed == Feed::Shared);
        } else {
            self.below.clear();
            self.below.resize(self.burst.len(), Below::default());
        }
        self.stretches.clear();
        match channel.feed {
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
