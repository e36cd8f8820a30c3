//! Frames that lie posted beyond the watermark come back to the pool.
//!
//! The kernel gives no posted frame back; it only writes packets into them. So a worker that rests sends packets to its
//! own collector, each uses one frame up, and takes the frames out of the ring where these packets end. A burst leaves
//! thousands of frames posted; taking them back costs a few milliseconds, once, when nothing else is to be done.

use forebay_pool::{Burst, Segment};
use forebay_wire::net_header::NetHeader;
use forebay_xsk::{Destination, TagEdit, Transmitter};

use super::source::Supply;
use super::{TURN, Worker};

/// `DRAIN_ETHERTYPE`, bpf/forebay.h: IEEE 802's first ethertype for local experiments.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// The shortest Ethernet packet.
const PACKET_BYTES: u16 = 60;
/// Where the packet begins in its frame; anywhere would do.
const OFFSET: u16 = 256;
/// Attempts in a row that bring nothing, after which it is left until the next burst.
const FUTILE: u32 = 4;

impl Worker {
    /// Between polls: what was used up comes home, and no fill ring stays below its watermark. Packets to ourselves may
    /// come late, and use up what a port would need; no turn of a port would follow that.
    pub(super) fn tend(&mut self) {
        let Self { supplies, burst, .. } = self;
        for supply in supplies.iter_mut().flatten() {
            supply.collect(burst);
            supply.top_up_from_pool();
        }
    }

    /// Takes a turn of posted frames back, if too many are; says whether it did.
    pub(super) fn reclaim(&mut self) -> bool {
        let Self { supplies, transmitter: Some(transmitter), burst, .. } = self else { return false };
        supplies.iter_mut().flatten().any(|supply| supply.reclaim(transmitter, burst))
    }

    /// Whether the next look should come soon although nobody may be ready: bursts end by nothing happening.
    pub(super) fn looks_again(&self) -> bool {
        self.supplies.iter().flatten().any(|supply| supply.refill.is_busy() || supply.has_too_many())
    }
}

impl Supply {
    fn excess(&self) -> usize {
        self.fill.occupancy().saturating_sub(self.refill.target()) as usize
    }

    fn has_too_many(&self) -> bool {
        self.excess() > 0 && self.drain.as_ref().is_some_and(|drain| drain.futile < FUTILE)
    }

    fn reclaim(&mut self, transmitter: &mut Transmitter, burst: &mut Burst) -> bool {
        if !self.has_too_many() {
            return false;
        }
        self.use_up(self.excess().min(TURN), transmitter, burst);
        if let Some(drain) = &mut self.drain {
            drain.futile += 1;
        }
        self.collect(burst);
        true
    }

    /// Frames of packets to ourselves, as far as they have arrived. Some come later than the turn that sent them.
    fn collect(&mut self, burst: &mut Burst) {
        let Some(drain) = &mut self.drain else { return };
        let mut has_come = false;
        while drain.ring.receive(burst, TURN, u64::MAX) > 0 {
            has_come = true;
            burst.drain().for_each(|frame| self.magazine.put(frame));
        }
        if has_come {
            drain.futile = 0;
            self.posted.set(u64::from(self.fill.occupancy()));
        }
    }

    /// Sends so many packets to the collector.
    fn use_up(&mut self, packets: usize, transmitter: &mut Transmitter, burst: &mut Burst) {
        let (Some(drain), Some(mut frame)) = (&self.drain, self.magazine.take()) else { return };
        let arena = drain.ring.arena();
        let bytes = arena.bytes_mut(&mut frame, OFFSET, PACKET_BYTES);
        bytes.fill(0);
        bytes[12..14].copy_from_slice(&ETHERTYPE);
        burst.push(Segment { frame, offset: OFFSET, len: PACKET_BYTES }, true);
        let mut batch = transmitter.batch(arena, false);
        for _ in 0..packets {
            let to = Destination { ifindex: drain.ifindex.0, mark: 0, token: 0 };
            batch.push(burst.packet(0), TagEdit::Keep, NetHeader::default(), to);
        }
        batch.flush(|_| ());
        burst.drain().for_each(|frame| self.magazine.put(frame));
    }
}
