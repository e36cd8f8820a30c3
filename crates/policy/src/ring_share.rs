//! Sharing a guest's receive ring among the ports that send to it.
//!
//! A guest gives buffers, and every packet for it takes some. If packets come faster than the guest takes them, the ring
//! fills up, and the port that sends most gets every buffer that comes back. So half of the buffers are free for all, and
//! the other half is shared (Dynamic Threshold, as the pool is): a port may have as many of them as are free. Of *flooded*
//! copies, which most guests are not meant by, it may have an eighth as many.
//!
//! The rule it keeps: N ports that send as much as they can leave 1/(N+1) of the shared half, and N ports that flood leave
//! 8/(N+8), once each has its part. A port that comes before the others has more until the guest takes its packets; so N
//! ports that fill the ring one after the other leave 1/2ᴺ at first, or (8/9)ᴺ if they flood. Of 256 buffers eight loud
//! ports then leave none. A port that has nothing in the ring finds room in what is left.
//!
//! ```text
//!  ┌───────── most ─────────┐
//!  │ free for all │ shared  │
//!  └──────────────┴─────────┘
//!                 half      0   free buffers
//! ```
//! Nobody tells which packets a guest has taken. It takes them in order, so when it has given as many buffers as it held,
//! all that it held then are taken. What a port put in since the last such moment but one is therefore no less than what it
//! has in the ring. A guest that gives nothing for a second is believed to keep its buffers.

use crate::Nanos;
use crate::threshold::Th;

/// Senders that are told apart; those that come later have one share together.
const SENDERS: usize = 32;
/// A guest that gives fewer buffers is left alone: three quarters of them would be too few for ten packets at once. So it is
/// with guests that chain many descriptors for each buffer, for want of mergeable ones.
const FEW: u32 = 64;
/// A guest gives no buffer for this long: those that it keeps do not count any more.
const STILL: u64 = Nanos::PER_SECOND;

/// Who sends a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// Number of the port that the packet came in by.
    pub port: u16,
    /// The packet is one copy for each port of its VLAN.
    pub is_flooded: bool,
}

impl Sender {
    const fn threshold(self) -> Th {
        if self.is_flooded { Th::EIGHTH } else { Th::ONE }
    }
}

/// Buffers that one sender took.
#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    sender: Sender,
    /// Since the last turn of the ring.
    now: u32,
    /// Between that and the one before.
    before: u32,
}

/// One ring. All calls are bounded and may be made on the packet path.
#[derive(Clone, Debug, Default)]
pub struct RingShare {
    /// Buffers that the guest gives, as far as was seen.
    most: u32,
    /// Buffers that anybody may take before the ring is looked at again.
    open: u32,
    /// Buffers that were taken.
    taken: u64,
    /// As many buffers were given when all that was held at the last turn is taken.
    turns_at: u64,
    holders: [Holder; SENDERS],
    len: usize,
    /// Buffers that had been given when the guest was seen to give some last, and when that was.
    given: u64,
    given_at: Nanos,
}

impl RingShare {
    /// Whether a packet may be put in without asking [`RingShare::admits`].
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Whether a packet of this sender may take `buffers`, of which `free` are there. If the ring has too few for it, that
    /// is for the ring to say.
    pub fn admits(&mut self, sender: Sender, buffers: u32, free: u32) -> bool {
        self.most = self.most.max(free);
        if self.most < FEW {
            return true;
        }
        let half = self.most / 2;
        if free > half {
            self.open = free - half;
            self.len = 0;
            return true;
        }
        let given = self.taken + u64::from(free);
        if given >= self.turns_at {
            self.turn();
            self.turns_at = given + u64::from(self.most - free);
        }
        let used = self.holders[..self.len].iter().find(|holder| holder.sender == sender);
        let used = match used {
            None if self.len == SENDERS => Some(&self.holders[SENDERS - 1]),
            used => used,
        };
        let used = used.map_or(0, |holder| u64::from(holder.now) + u64::from(holder.before));
        buffers > free || used + u64::from(buffers) <= sender.threshold().of(free.into())
    }

    /// A packet of this sender was put in and took `buffers`.
    #[inline]
    pub fn take(&mut self, sender: Sender, buffers: u32) {
        self.taken += u64::from(buffers);
        match self.open {
            0 => self.charge(sender, buffers),
            open => self.open = open.saturating_sub(buffers),
        }
    }

    /// Looks whether the guest still gives buffers; once a turn.
    #[inline]
    pub fn look(&mut self, now: Nanos, free: impl FnOnce() -> u32) {
        if !self.is_open() {
            self.look_at(now, free());
        }
    }

    fn look_at(&mut self, now: Nanos, free: u32) {
        let given = self.taken + u64::from(free);
        if given != self.given {
            (self.given, self.given_at) = (given, now);
        } else if now.since(self.given_at) >= STILL {
            (self.most, self.len, self.given_at) = (free, 0, now);
        }
    }

    fn charge(&mut self, sender: Sender, buffers: u32) {
        let place = self.holders[..self.len].iter().position(|holder| holder.sender == sender);
        let place = place.unwrap_or_else(|| {
            if self.len < SENDERS {
                self.holders[self.len] = Holder { sender, now: 0, before: 0 };
                self.len += 1;
            }
            self.len - 1
        });
        let now = &mut self.holders[place].now;
        *now = now.saturating_add(buffers);
    }

    /// All that was held at the last turn is taken.
    fn turn(&mut self) {
        let mut kept = 0;
        for place in 0..self.len {
            let Holder { sender, now, .. } = self.holders[place];
            if now > 0 {
                self.holders[kept] = Holder { sender, now: 0, before: now };
                kept += 1;
            }
        }
        self.len = kept;
    }
}

#[cfg(test)]
mod tests;
