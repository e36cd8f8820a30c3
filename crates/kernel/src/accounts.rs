//! What RX rings hold of the pool, in memory that the kernel programs share. Unsafe code.
//!
//! A port's program takes frames for a packet before it hands the packet over; the worker settles by what it finds
//! in the ring. So whatever happens to a packet in between, an account is right again at the next look.
#![allow(unsafe_code, reason = "promises that its values may be mapped")]

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::DatapathError;
use crate::mapped::{Mapped, Shared};

/// A side of an account that one party writes.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Taken {
    frames: AtomicU64,
    /// Of a ring: of them, for packets that took the long queue.
    long_frames: AtomicU64,
}

/// `struct ring_account`, bpf/forebay.h.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Ring {
    taken: Taken,
    pub(crate) settled: AtomicU64,
    pub(crate) depth: AtomicU32,
    pub(crate) reserve: AtomicU32,
    pub(crate) th: AtomicU32,
    pub(crate) limit: AtomicU32,
    pub(crate) long_settled: AtomicU64,
    pub(crate) reserved: [u64; 4],
}

/// `struct pool_account`, bpf/forebay.h.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Pool {
    taken: Taken,
    pub(crate) settled: AtomicU64,
    pub(crate) size: AtomicU64,
    pub(crate) headroom: AtomicU64,
    pub(crate) first_burst: AtomicU64,
    pub(crate) reserved: [u64; 4],
}

// SAFETY: integers only; what is no atomic nobody looks at.
unsafe impl Shared for Ring {}
// SAFETY: as above.
unsafe impl Shared for Pool {}

/// How much a ring may hold. The kernel programs follow it from the next packet on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingRule {
    /// Entries of the ring.
    pub depth: u32,
    /// Frames it may hold whatever its threshold says.
    pub reserve: u32,
    /// devlink-sb's `th`, 3 to 16; 0: `limit` counts.
    pub th: u32,
    /// Frames, whatever others hold.
    pub limit: u32,
}

/// The accounts of all rings and their sum.
#[derive(Debug)]
pub struct Accounts {
    rings: Mapped<Ring>,
    pool: Mapped<Pool>,
}

impl Accounts {
    pub(crate) fn map(
        rings: BorrowedFd<'_>,
        pool: BorrowedFd<'_>,
        count: u32,
    ) -> Result<Self, DatapathError> {
        Ok(Self {
            rings: Mapped::map(rings, count as usize, "map the rings' accounts")?,
            pool: Mapped::map(pool, 1, "map the pool's account")?,
        })
    }

    /// Frames that all rings may hold together.
    pub fn set_pool_size(&self, frames: u64) {
        self.pool.get(0).size.store(frames, Ordering::Relaxed);
    }

    /// Frames that all rings may hold together.
    pub fn pool_size(&self) -> u64 {
        self.pool.get(0).size.load(Ordering::Relaxed)
    }

    /// Of these, frames that thresholds leave alone, and frames up to which a ring may use them.
    pub fn set_headroom(&self, headroom: u64, first_burst: u64) {
        let pool = self.pool.get(0);
        pool.headroom.store(headroom, Ordering::Relaxed);
        pool.first_burst.store(first_burst, Ordering::Relaxed);
    }

    /// Frames that thresholds leave alone.
    pub fn headroom(&self) -> u64 {
        self.pool.get(0).headroom.load(Ordering::Relaxed)
    }

    /// Frames up to which a ring may use the headroom.
    pub fn first_burst(&self) -> u64 {
        self.pool.get(0).first_burst.load(Ordering::Relaxed)
    }

    /// Frames that all rings hold.
    pub fn pool_used(&self) -> u64 {
        let pool = self.pool.get(0);
        used(&pool.taken, &pool.settled)
    }
}

/// The account of one ring, or of what a worker holds for a port that has none. Only that worker settles it.
#[derive(Clone, Debug)]
pub struct RingAccount {
    accounts: Arc<Accounts>,
    index: usize,
}

impl RingAccount {
    pub(crate) fn new(accounts: Arc<Accounts>, index: usize) -> Self {
        Self { accounts, index }
    }

    /// Frames that the ring holds, or that are on their way to it.
    pub fn used(&self) -> u64 {
        let ring = self.ring();
        used(&ring.taken, &ring.settled)
    }

    /// Frames ever taken; it may wrap.
    pub fn taken(&self) -> u64 {
        self.ring().taken.frames.load(Ordering::Relaxed)
    }

    /// Takes frames for a packet that no kernel program sees; packet path.
    pub fn take(&self, frames: u64) {
        // The sum first, so that what is settled is in it already.
        self.accounts.pool.get(0).taken.frames.fetch_add(frames, Ordering::AcqRel);
        self.ring().taken.frames.fetch_add(frames, Ordering::AcqRel);
    }

    /// Says that of what was taken the ring holds `occupancy` frames; packet path. Frames under way to the ring are
    /// forgotten until the next look finds them in it; those in the long queue are not.
    pub fn settle(&self, occupancy: impl FnOnce() -> u64) {
        let ring = self.ring();
        // In this order: what arrives in between is counted twice and not missed.
        let taken = ring.taken.frames.load(Ordering::Acquire);
        let held = occupancy() + self.long_frames();
        self.set_settled(taken.wrapping_sub(held));
    }

    /// Gives back the frames of a packet that the worker has read from the long queue; packet path.
    pub fn settle_long(&self, frames: u64) {
        let ring = self.ring();
        let frames = frames.min(self.long_frames());
        let long_settled = ring.long_settled.load(Ordering::Relaxed).wrapping_add(frames);
        ring.long_settled.store(long_settled, Ordering::Release);
        self.set_settled(ring.settled.load(Ordering::Relaxed).wrapping_add(frames));
    }

    /// Says that the long queue is empty: what was lost in it is held no more once the ring is settled.
    pub fn forget_long(&self) {
        let ring = self.ring();
        ring.long_settled.store(ring.taken.long_frames.load(Ordering::Acquire), Ordering::Release);
    }

    /// Frames of packets in the long queue. Fewer than none, where a packet came that was given up, are none.
    fn long_frames(&self) -> u64 {
        let ring = self.ring();
        let settled = ring.long_settled.load(Ordering::Relaxed);
        let held = ring.taken.long_frames.load(Ordering::Acquire).wrapping_sub(settled);
        u64::try_from(held.cast_signed()).unwrap_or(0)
    }

    fn set_settled(&self, settled: u64) {
        let ring = self.ring();
        let before = ring.settled.load(Ordering::Relaxed);
        if settled != before {
            ring.settled.store(settled, Ordering::Release);
            self.accounts.pool.get(0).settled.fetch_add(settled.wrapping_sub(before), Ordering::AcqRel);
        }
    }

    /// Changes how much the ring may hold.
    pub fn set_rule(&self, rule: RingRule) {
        let ring = self.ring();
        ring.depth.store(rule.depth, Ordering::Relaxed);
        ring.reserve.store(rule.reserve, Ordering::Relaxed);
        ring.limit.store(rule.limit, Ordering::Relaxed);
        ring.th.store(rule.th, Ordering::Relaxed);
    }

    /// How much it may hold.
    pub fn rule(&self) -> RingRule {
        let ring = self.ring();
        RingRule {
            depth: ring.depth.load(Ordering::Relaxed),
            reserve: ring.reserve.load(Ordering::Relaxed),
            th: ring.th.load(Ordering::Relaxed),
            limit: ring.limit.load(Ordering::Relaxed),
        }
    }

    /// Those that it is one of.
    pub fn all(&self) -> &Accounts {
        &self.accounts
    }

    /// What the ring and the pool have taken and settled.
    #[cfg(test)]
    pub(crate) fn counters(&self) -> [[u64; 2]; 2] {
        let pool = self.accounts.pool.get(0);
        [(&self.ring().taken, &self.ring().settled), (&pool.taken, &pool.settled)]
            .map(|(taken, settled)| [&taken.frames, settled].map(|counter| counter.load(Ordering::Relaxed)))
    }

    /// Sets what [`RingAccount::counters`] returns.
    #[cfg(test)]
    pub(crate) fn set_counters(&self, [ring, pool]: [[u64; 2]; 2]) {
        let account = self.accounts.pool.get(0);
        self.ring().taken.frames.store(ring[0], Ordering::Relaxed);
        self.ring().settled.store(ring[1], Ordering::Relaxed);
        account.taken.frames.store(pool[0], Ordering::Relaxed);
        account.settled.store(pool[1], Ordering::Relaxed);
    }

    fn ring(&self) -> &Ring {
        self.accounts.rings.get(self.index)
    }
}

/// Settled is read first, so that it is never ahead.
fn used(taken: &Taken, settled: &AtomicU64) -> u64 {
    let settled = settled.load(Ordering::Acquire);
    taken.frames.load(Ordering::Acquire).wrapping_sub(settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rings, whose counters are about to wrap.
    fn accounts() -> Arc<Accounts> {
        let accounts = Accounts {
            rings: Mapped::anonymous(2).expect("memory can be mapped"),
            pool: Mapped::anonymous(1).expect("memory can be mapped"),
        };
        let start = u64::MAX - 3;
        let pool = accounts.pool.get(0);
        for (taken, settled) in [&accounts.rings.get(0), &accounts.rings.get(1)]
            .map(|ring| (&ring.taken, &ring.settled))
            .into_iter()
            .chain([(&pool.taken, &pool.settled)])
        {
            taken.frames.store(start, Ordering::Relaxed);
            settled.store(start, Ordering::Relaxed);
        }
        Arc::new(accounts)
    }

    /// As the kernel programs do it.
    fn take(accounts: &Accounts, ring: usize, frames: u64) {
        accounts.pool.get(0).taken.frames.fetch_add(frames, Ordering::Relaxed);
        accounts.rings.get(ring).taken.frames.fetch_add(frames, Ordering::Relaxed);
    }

    #[test]
    fn an_account_is_right_at_every_look_whatever_was_lost() {
        let accounts = accounts();
        let rings = [0, 1].map(|index| RingAccount::new(Arc::clone(&accounts), index));
        take(&accounts, 0, 10);
        take(&accounts, 1, 5);
        assert_eq!((rings[0].used(), rings[1].used(), accounts.pool_used()), (10, 5, 15));
        // Three of the ten have arrived; of the others some are lost, some under way.
        rings[0].settle(|| 3);
        assert_eq!((rings[0].used(), accounts.pool_used()), (3, 8));
        // Five of those arrived.
        rings[0].settle(|| 8);
        assert_eq!((rings[0].used(), accounts.pool_used()), (8, 13));
        rings[0].settle(|| 0);
        rings[1].settle(|| 0);
        assert_eq!((rings[0].used(), rings[1].used(), accounts.pool_used()), (0, 0, 0));
    }

    /// The same for a packet that takes the long queue.
    fn take_long(accounts: &Accounts, ring: usize, frames: u64) {
        take(accounts, ring, frames);
        accounts.rings.get(ring).taken.long_frames.fetch_add(frames, Ordering::Relaxed);
    }

    #[test]
    fn what_lies_in_the_long_queue_is_held_until_it_comes_out_or_is_given_up() {
        let accounts = accounts();
        let ring = RingAccount::new(Arc::clone(&accounts), 0);
        let used = || (ring.used(), accounts.pool_used());
        take(&accounts, 0, 2);
        take_long(&accounts, 0, 36);
        take_long(&accounts, 0, 36);
        // The ring is empty by now.
        ring.settle(|| 0);
        assert_eq!(used(), (72, 72));
        ring.settle_long(36);
        assert_eq!(used(), (36, 36));
        ring.settle(|| 3);
        assert_eq!(used(), (39, 39));
        // The other packet was lost, as far as one can tell.
        ring.forget_long();
        ring.settle(|| 0);
        assert_eq!(used(), (0, 0));
        // It comes all the same, and is not given back twice.
        ring.settle_long(36);
        assert_eq!(used(), (0, 0));
        take_long(&accounts, 0, 1);
        assert_eq!(used(), (1, 1));
        ring.settle_long(1);
        assert_eq!(used(), (0, 0));
    }
}
