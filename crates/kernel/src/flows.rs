//! The flow table: what was decided once, where the kernel programs find it.
//!
//! It lies in memory that both sides have. One thread writes, and tells readers by a version that is odd meanwhile; no
//! system call is needed for a flow. Each program counts what it carried into the flow's counters.
//!
//! The rule it keeps: a place that was given up is not used again before [`FlowTable::reclaim`], which wants a grace
//! period in between. So whatever a program counted for a flow, or found of it, is that flow's.
//!
//! ```text
//!   key ─► hash ─┬─► bucket ─► 4 ways        free ─ insert ─► used ─ remove ─► left ─ reclaim ─► free
//!                └─► bucket ─► 4 ways
//! ```

mod detached;
mod key;
mod place;
#[cfg(test)]
mod tests;
mod verdict;

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use forebay_control::memory::{FLOW_WAYS, FlowShape};

use crate::DatapathError;
use crate::hash::Secret;
use crate::mapped::Mapped;

pub use key::FlowKey;
pub(crate) use place::Flow;
#[cfg(test)]
pub(crate) use place::Says;
pub use verdict::{FlowAction, FlowPath, FlowTag, FlowVerdict};

use place::{DEEPER, DELIVER, DROP, LEFT, NONE, OUTPUT, PASS, STEER, TELL, write};

const WAYS: usize = FLOW_WAYS as usize;
/// `struct flow_count`, bpf/forebay.h: packets, bytes, the epoch in which a program last found that the flow holds.
type Count = [AtomicU64; 4];

/// Where in the table a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowNumber(pub(crate) u32);

/// What whoever adopts the table is to know of a flow besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowNote {
    /// The VLAN.
    pub vid: u16,
    /// The daemon's own, of flows that go nowhere.
    pub reason: u16,
}

/// A flow that an earlier process put in.
#[derive(Clone, Copy, Debug)]
pub struct AdoptedFlow {
    /// Where it is.
    pub number: FlowNumber,
    /// What its packets have in common.
    pub key: FlowKey,
    /// What is done with them.
    pub verdict: FlowVerdict,
    /// What [`FlowTable::insert`] was given.
    pub note: FlowNote,
}

/// What a flow has carried. Both only grow, and may wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// Packets on the wire.
    pub packets: u64,
    /// Their bytes, as they came in.
    pub bytes: u64,
}

/// A flow's key has no free place left: both of its buckets are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("both places that the flow could have are taken")]
pub struct NoPlace;

/// The table, for its one writer.
#[derive(Debug)]
pub struct FlowTable {
    flows: Mapped<Flow>,
    counts: Mapped<Count>,
    shape: FlowShape,
    secret: Secret,
    /// Places that were given up since the last [`FlowTable::take_left`].
    left: Vec<FlowNumber>,
}

impl FlowTable {
    pub(crate) fn map(
        [flows, counts]: [BorrowedFd<'_>; 2],
        shape: FlowShape,
        secret: Secret,
    ) -> Result<Self, DatapathError> {
        Ok(Self {
            flows: Mapped::map(flows, shape.places() as usize, "map the flow table")?,
            counts: Mapped::map(counts, shape.counts() as usize, "map the flows' counters")?,
            shape,
            secret,
            left: Vec::new(),
        })
    }

    /// Bytes of kernel memory that it has.
    pub fn bytes(&self) -> u64 {
        self.shape.bytes()
    }

    /// The flow with this key.
    pub fn find(&self, key: FlowKey) -> Option<FlowNumber> {
        self.candidates(key).find(|number| self.is_used(*number) && self.flow(*number).key() == key)
    }

    /// Puts in a flow whose key is not in the table, with what whoever adopts it is to know.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub fn insert(
        &mut self,
        key: FlowKey,
        verdict: &FlowVerdict,
        note: FlowNote,
    ) -> Result<FlowNumber, NoPlace> {
        let number = self.free_place(key).ok_or(NoPlace)?;
        write(self.flow(number), |flow| flow.store(key, verdict, note));
        Ok(number)
    }

    /// Takes a flow out. Programs that run now may still follow it; its counters are its own until
    /// [`FlowTable::reclaim`].
    pub fn remove(&mut self, number: FlowNumber) {
        write(self.flow(number), |flow| {
            // No key of a packet has this: a port id, and nothing else.
            flow.key.iter().for_each(|word| word.store(u64::MAX, Relaxed));
            flow.says.action.store(LEFT, Relaxed);
        });
        self.left.push(number);
    }

    /// Whether [`FlowTable::take_left`] has any.
    pub fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Places that were given up since the last call. They are to be reclaimed after a grace period.
    pub fn take_left(&mut self) -> Vec<FlowNumber> {
        std::mem::take(&mut self.left)
    }

    /// Makes places free that were given up: after [`grace_period`](crate::grace_period), and after their counters were
    /// read for the last time.
    pub fn reclaim(&mut self, left: &[FlowNumber]) {
        for number in left {
            let counts = (0..=self.shape.stripes).map(|stripe| self.count_in(stripe, *number));
            counts.flatten().for_each(|word| word.store(0, Relaxed));
            write(self.flow(*number), |flow| flow.says.action.store(NONE, Relaxed));
        }
    }

    /// All flows of a table that an earlier process wrote, with their notes. Places that it had given up are given up
    /// once more; so is the place that it was writing when it was killed, of which no program believes anything.
    pub fn adopt(&mut self) -> Vec<AdoptedFlow> {
        let numbers = (0..self.shape.places()).map(FlowNumber);
        let (torn, whole): (Vec<_>, Vec<_>) = numbers.partition(|number| self.is_torn(*number));
        let (used, other): (Vec<_>, Vec<_>) = whole.into_iter().partition(|number| self.is_used(*number));
        let left: Vec<_> = other.into_iter().filter(|number| !self.is_free(*number)).collect();
        self.left.extend(left);
        torn.into_iter().for_each(|number| self.remove(number));
        used.into_iter().map(|number| self.read(number)).collect()
    }

    /// A process was killed while it wrote this place.
    fn is_torn(&self, number: FlowNumber) -> bool {
        self.flow(number).version.load(Relaxed) % 2 == 1
    }

    fn read(&self, number: FlowNumber) -> AdoptedFlow {
        let flow = self.flow(number);
        let (verdict, note) = flow.load();
        AdoptedFlow { number, key: flow.key(), verdict, note }
    }

    /// What was counted for ports of what was carried under this number, as it was last noted.
    pub fn settled(&self, number: FlowNumber) -> FlowCount {
        get(self.count_in(self.shape.stripes, number))
    }

    /// Notes how far it was, for whoever adopts the table.
    pub fn note_settled(&self, number: FlowNumber, count: FlowCount) {
        set(self.count_in(self.shape.stripes, number), count);
    }

    /// What was carried under this number.
    pub fn count(&self, number: FlowNumber) -> FlowCount {
        let mut sum = FlowCount::default();
        for stripe in 0..self.shape.stripes {
            let count = get(self.count_in(stripe, number));
            sum.packets = sum.packets.wrapping_add(count.packets);
            sum.bytes = sum.bytes.wrapping_add(count.bytes);
        }
        sum
    }

    fn count_in(&self, stripe: u32, number: FlowNumber) -> &Count {
        self.counts.get((stripe * self.shape.places() + number.0) as usize)
    }

    /// A place in the key's first bucket, where programs look first; when that is half full, in the emptier one.
    fn free_place(&self, key: FlowKey) -> Option<FlowNumber> {
        let buckets = self.secret.buckets(key.0, self.shape.buckets);
        let free = buckets.map(|bucket| places_of(bucket).filter(|number| self.is_free(*number)));
        let [first, second] = free.map(|free| (free.clone().count(), free.clone().next()));
        if first.0 < WAYS / 2 && second.0 > first.0 { second.1 } else { first.1 }
    }

    fn candidates(&self, key: FlowKey) -> impl Iterator<Item = FlowNumber> + use<> {
        self.secret.buckets(key.0, self.shape.buckets).into_iter().flat_map(places_of)
    }

    fn flow(&self, number: FlowNumber) -> &Flow {
        self.flows.get(number.0 as usize)
    }

    fn is_free(&self, number: FlowNumber) -> bool {
        self.flow(number).says.action.load(Relaxed) == NONE
    }

    fn is_used(&self, number: FlowNumber) -> bool {
        let action = self.flow(number).says.action.load(Relaxed);
        matches!(action, OUTPUT | DROP | DEEPER | DELIVER | TELL | PASS | STEER)
    }
}

fn get([packets, bytes, ..]: &Count) -> FlowCount {
    FlowCount { packets: packets.load(Acquire), bytes: bytes.load(Acquire) }
}

fn set([packets, bytes, ..]: &Count, count: FlowCount) {
    packets.store(count.packets, Relaxed);
    bytes.store(count.bytes, Relaxed);
}

/// Places of a bucket in the order in which programs look.
fn places_of((bucket, first): (usize, usize)) -> impl Iterator<Item = FlowNumber> + Clone {
    (0..WAYS).map(move |step| FlowNumber((bucket * WAYS + (first + step) % WAYS) as u32))
}
