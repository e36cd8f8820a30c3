//! Sixth verb: the burst's frames go back to where the kernel finds them.

use forebay_policy::{Nanos, Poll, Refill, Standing};

use super::source::{SuppliedBy, Supply};
use super::{ServedSource, Source, TURN, Worker, XskSource};

/// Frames that one call takes from the pool at most, besides those of the burst.
const TOP_UP: u32 = TURN as u32;

impl Worker {
    /// Gives the burst's frames back to where the source takes them from.
    pub(super) fn refill(&mut self, served: &mut ServedSource, standing: Standing, now: Nanos) {
        match &mut served.source {
            Source::Xsk(xsk) => self.refill_supply(xsk, served.turn.packets(), standing, now),
            Source::Memory(memory) => memory.put_back(&mut self.burst),
            Source::Guest(guest) => self.put_back(guest.supply()),
            Source::Long(long) => self.put_back(long.supply()),
        }
    }

    fn put_back(&mut self, supply: usize) {
        let supply = self.supplies[supply].as_deref_mut();
        let magazine = &mut supply.expect("it stays while sources draw on it").magazine;
        self.burst.drain().for_each(|frame| magazine.put(frame));
    }

    /// Posts the burst's frames up to the fill ring's watermark, the rest go to the magazine; then tops the ring up
    /// from the pool.
    fn refill_supply(&mut self, xsk: &mut XskSource, packets: u32, standing: Standing, now: Nanos) {
        let supply = match &mut xsk.supply {
            SuppliedBy::Collector(number) => {
                let supply =
                    self.supplies[usize::from(*number)].as_deref_mut().expect("retired after its rings");
                supply.polled += self.burst.len() as u32;
                supply
            }
            SuppliedBy::Own(supply) => {
                if standing != Standing::Interrupted {
                    supply.observe(packets, standing == Standing::Empty, now);
                }
                &mut **supply
            }
        };
        let mut room = supply.room();
        for frame in self.burst.drain() {
            if room == 0 {
                supply.magazine.put(frame);
            } else if let Err(frame) = supply.fill.post(frame) {
                supply.magazine.put(frame);
            } else {
                room -= 1;
            }
        }
        supply.top_up(room.min(TOP_UP));
    }

    /// What the last look at who is ready means to the collectors' fill rings.
    pub(super) fn observe_poll(&mut self, complete: bool, now: Nanos) {
        for supply in self.supplies.iter_mut().flatten() {
            let packets = std::mem::take(&mut supply.polled);
            supply.observe(packets, complete || packets == 0, now);
        }
    }
}

impl Supply {
    /// Fills the ring before the first packet.
    pub(crate) fn prime(&mut self) {
        self.top_up(self.refill.target());
    }

    fn observe(&mut self, packets: u32, complete: bool, now: Nanos) {
        let poll = Poll { packets, budget: Refill::NAPI_BUDGET, complete, posted: self.fill.occupancy() };
        self.refill.observe(poll, now);
        if let (true, Some(drain)) = (self.refill.is_busy(), &mut self.drain) {
            drain.try_again();
        }
    }

    /// Frames that may be posted now.
    fn room(&mut self) -> u32 {
        self.refill.target().saturating_sub(self.fill.occupancy()).min(self.fill.free_slots())
    }

    /// Fills the ring up to its watermark, as far as one call may.
    pub(super) fn top_up_from_pool(&mut self) {
        let room = self.room().min(TOP_UP);
        if room > 0 {
            self.top_up(room);
        }
    }

    fn top_up(&mut self, most: u32) {
        for _ in 0..most {
            let Some(frame) = self.magazine.take() else { break };
            if let Err(frame) = self.fill.post(frame) {
                self.magazine.put(frame);
                break;
            }
        }
        self.fill.publish();
        self.posted.set(u64::from(self.fill.occupancy()));
    }
}
