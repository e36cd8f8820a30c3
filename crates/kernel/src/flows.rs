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
#![allow(unsafe_code, reason = "promises that its values may be mapped")]

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, fence};

use forebay_control::memory::{FLOW_WAYS, FlowShape};
use forebay_flow::Class;

use crate::DatapathError;
use crate::generations::{Generations, StationSlot};
use crate::hash::Secret;
use crate::mapped::{Mapped, Shared};

const WAYS: usize = FLOW_WAYS as usize;
/// The tags' part of a key: there is an outer 802.1Q tag, and there are further tags.
const TAGGED: u64 = 0x1000;
const STACKED: u64 = 0x2000;
const TAG_SHIFT: u32 = 48;

/// Odd, and otherwise without a pattern (the golden ratio's first bits).
const DIGEST: u64 = 0x9e37_79b9_7f4a_7c15;

/// `struct flow`, bpf/forebay.h.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Flow {
    pub(crate) key: [AtomicU64; 4],
    pub(crate) decided: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) ifindex: AtomicU32,
    pub(crate) says: Says,
}

/// `struct flow_says`, bpf/forebay.h.
#[derive(Debug)]
#[repr(C, align(8))]
pub(crate) struct Says {
    pub(crate) output: AtomicU16,
    pub(crate) max_length: AtomicU16,
    pub(crate) source: AtomicU16,
    pub(crate) destination: AtomicU16,
    pub(crate) action: AtomicU8,
    pub(crate) tag: AtomicU8,
    pub(crate) vid: AtomicU16,
    pub(crate) mark: AtomicU32,
}

// SAFETY: integers only, all of them atomics.
unsafe impl Shared for Flow {}

/// `struct flow_count`, bpf/forebay.h.
type Count = [AtomicU64; 2];

/// What the packets of a flow have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey(pub(crate) [u64; 4]);

impl FlowKey {
    /// Of packets that came in at a port with these addresses, and with an outer 802.1Q tag of this VLAN or without one.
    #[inline]
    pub fn new(port_id: u16, tag: Option<u16>, src: u64, dst: u64) -> Self {
        let tag = tag.map_or(0, |vid| TAGGED | u64::from(vid));
        Self([address_word(dst) | u64::from(port_id) << 48, address_word(src) | tag << 48, 0, 0])
    }

    /// Of those among them that have further tags, or of those that have none.
    #[inline]
    #[must_use]
    pub fn stacked(mut self, is_stacked: bool) -> Self {
        let bit = STACKED << TAG_SHIFT;
        self.0[1] = if is_stacked { self.0[1] | bit } else { self.0[1] & !bit };
        self
    }

    /// Of those among them that have this class.
    #[inline]
    pub fn deeper(self, class: Class) -> Self {
        let Class { ethertype, src, dst, sport, dport, proto, tags } = class;
        let [to, from, ..] = self.0;
        let words = |low: [u16; 4]| low.iter().rev().fold(0, |word, part| word << 16 | u64::from(*part));
        Self([
            to,
            from,
            words([src, dst, sport, dport]),
            words([proto.into(), ethertype, 1, tags.bits().into()]),
        ])
    }

    /// A number that two keys seldom share, for small tables of recent ones; packet path.
    #[inline]
    pub fn digest(&self) -> u64 {
        let mixed = (self.0[0] ^ self.0[2].rotate_left(17)).wrapping_mul(DIGEST) ^ self.0[1] ^ self.0[3];
        mixed.wrapping_mul(DIGEST) ^ mixed >> 29
    }

    /// The input port.
    pub fn port_id(&self) -> u16 {
        (self.0[0] >> 48) as u16
    }

    /// The VLAN id in the packets' tag.
    pub fn tag(&self) -> Option<u16> {
        let tag = self.0[1] >> 48;
        (tag & TAGGED != 0).then_some((tag & 0xfff) as u16)
    }

    /// Whether the packets have further tags.
    pub fn is_stacked(&self) -> bool {
        self.0[1] >> TAG_SHIFT & STACKED != 0
    }

    /// The destination address.
    pub fn dst(&self) -> u64 {
        address_of(self.0[0])
    }

    /// The source address.
    pub fn src(&self) -> u64 {
        address_of(self.0[1])
    }
}

/// An address as programs read it from a packet: four bytes as one number, then two.
#[inline]
fn address_word(mac: u64) -> u64 {
    let [_, _, a, b, c, d, e, f] = mac.to_be_bytes();
    u64::from(u32::from_ne_bytes([a, b, c, d])) | u64::from(u16::from_ne_bytes([e, f])) << 32
}

fn address_of(word: u64) -> u64 {
    let ([a, b, c, d], [e, f]) = ((word as u32).to_ne_bytes(), ((word >> 32) as u16).to_ne_bytes());
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// What becomes of a packet's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowTag {
    /// It stays, or there stays none.
    Keep,
    /// It is taken off, if there is one.
    Remove,
    /// It is put on, or its VLAN id replaced.
    Set(u16),
}

/// Where packets of a flow go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowAction {
    /// To one port.
    Output {
        /// Its id.
        port_id: u16,
        /// Its netdev.
        ifindex: u32,
        /// With their tag as it shall be.
        tag: FlowTag,
        /// At once to the other end of its netdev, a veth whose other end is in another network namespace and has the
        /// packets' destination for its address; only of packets that come in by tcx.
        to_peer: bool,
        /// With this mark (`SO_MARK`); only of packets that come in by tcx.
        mark: u32,
    },
    /// Nowhere.
    Drop {
        /// The port whose settings say so, which may be the input.
        port_id: u16,
    },
    /// To user space, which is told by a hint what it decided last; only of packets that come in by XDP to a port with our
    /// hints, and without a tag.
    Tell {
        /// The port whose settings say so, which may be the input.
        port_id: u16,
        /// The hint: a number that no other flow has or had.
        flow_mark: u32,
    },
    /// That depends on the classes of what lies deeper in them; see [`ClassTable`](crate::ClassTable).
    Deeper {
        /// Which classes: a sum of `enum deeper`, bpf/forebay.h.
        classes: u16,
    },
}

impl FlowAction {
    /// The port besides the input whose settings it relies upon.
    pub fn port_id(&self) -> Option<u16> {
        match *self {
            Self::Output { port_id, .. } | Self::Drop { port_id } | Self::Tell { port_id, .. } => {
                Some(port_id)
            }
            Self::Deeper { .. } => None,
        }
    }
}

/// A decision, and what it relied upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowVerdict {
    /// What to do.
    pub action: FlowAction,
    /// Packets longer than this, as they come in, are not decided by it.
    pub max_length: u16,
    /// The source's place.
    pub source: StationSlot,
    /// The destination's place; the default, where it does not matter.
    pub destination: StationSlot,
    /// The sum of all generations that it was decided under.
    pub decided: u64,
}

impl FlowVerdict {
    /// Whether nothing has changed since that it relied upon.
    pub fn holds(&self, key: FlowKey, generations: &Generations) -> bool {
        let output = self.action.port_id().unwrap_or(key.port_id());
        self.decided == generations.sum([self.source, self.destination], [key.port_id(), output])
    }
}

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
    /// Programs' own: the epoch in which a flow was last found to hold.
    checked: Mapped<AtomicU64>,
    shape: FlowShape,
    secret: Secret,
    /// Places that were given up since the last [`FlowTable::take_left`].
    left: Vec<FlowNumber>,
}

impl FlowTable {
    pub(crate) fn map(
        [flows, counts, checked]: [BorrowedFd<'_>; 3],
        shape: FlowShape,
        secret: Secret,
    ) -> Result<Self, DatapathError> {
        Ok(Self {
            flows: Mapped::map(flows, shape.places() as usize, "map the flow table")?,
            counts: Mapped::map(counts, shape.counts() as usize, "map the flows' counters")?,
            checked: Mapped::map(checked, shape.places() as usize, "map what programs found of flows")?,
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
        self.candidates(key).find(|number| self.is_used(*number) && self.key(*number) == key)
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
        let flow = self.flow(number);
        write(flow, |flow| {
            flow.key.iter().zip(key.0).for_each(|(word, value)| word.store(value, Relaxed));
            let (action, port_id, ifindex) = match verdict.action {
                FlowAction::Output { port_id, ifindex, to_peer, .. } => {
                    (if to_peer { DELIVER } else { OUTPUT }, port_id, ifindex)
                }
                FlowAction::Drop { port_id } => (DROP, port_id, 0),
                FlowAction::Tell { port_id, .. } => (TELL, port_id, 0),
                FlowAction::Deeper { .. } => (DEEPER, key.port_id(), 0),
            };
            let (tag, vid, mark) = match verdict.action {
                FlowAction::Output { tag: FlowTag::Keep, mark, .. } => (TAG_KEEP, note.vid, mark),
                FlowAction::Output { tag: FlowTag::Remove, mark, .. } => (TAG_REMOVE, note.vid, mark),
                FlowAction::Output { tag: FlowTag::Set(vid), mark, .. } => (TAG_SET, vid, mark),
                FlowAction::Drop { .. } => (TAG_KEEP, note.vid, note.reason.into()),
                FlowAction::Tell { flow_mark, .. } => (TAG_KEEP, note.vid, flow_mark),
                FlowAction::Deeper { classes } => (TAG_KEEP, classes, note.vid.into()),
            };
            flow.decided.store(verdict.decided, Relaxed);
            flow.ifindex.store(ifindex, Relaxed);
            flow.says.output.store(port_id, Relaxed);
            flow.says.max_length.store(verdict.max_length, Relaxed);
            flow.says.source.store(verdict.source.0, Relaxed);
            flow.says.destination.store(verdict.destination.0, Relaxed);
            flow.says.mark.store(mark, Relaxed);
            flow.says.tag.store(tag, Relaxed);
            flow.says.vid.store(vid, Relaxed);
            flow.says.action.store(action, Relaxed);
        });
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
            (0..=self.shape.stripes)
                .for_each(|stripe| set(self.count_in(stripe, *number), FlowCount::default()));
            self.checked.get(number.0 as usize).store(0, Relaxed);
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
        let (port_id, ifindex) = (flow.says.output.load(Relaxed), flow.ifindex.load(Relaxed));
        let (vid, mark) = (flow.says.vid.load(Relaxed), flow.says.mark.load(Relaxed));
        let tag = match flow.says.tag.load(Relaxed) {
            TAG_REMOVE => FlowTag::Remove,
            TAG_SET => FlowTag::Set(vid),
            _ => FlowTag::Keep,
        };
        let (action, note) = match flow.says.action.load(Relaxed) {
            number @ (OUTPUT | DELIVER) => {
                let action = FlowAction::Output { port_id, ifindex, tag, to_peer: number == DELIVER, mark };
                (action, FlowNote { vid, reason: 0 })
            }
            TELL => (FlowAction::Tell { port_id, flow_mark: mark }, FlowNote { vid, reason: 0 }),
            DEEPER => (FlowAction::Deeper { classes: vid }, FlowNote { vid: mark as u16, reason: 0 }),
            _ => (FlowAction::Drop { port_id }, FlowNote { vid, reason: mark as u16 }),
        };
        let verdict = FlowVerdict {
            action,
            max_length: flow.says.max_length.load(Relaxed),
            source: StationSlot(flow.says.source.load(Relaxed)),
            destination: StationSlot(flow.says.destination.load(Relaxed)),
            decided: flow.decided.load(Relaxed),
        };
        AdoptedFlow { number, key: self.key(number), verdict, note }
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

    /// A place in the emptier of the key's buckets.
    fn free_place(&self, key: FlowKey) -> Option<FlowNumber> {
        let buckets = self.secret.buckets(key.0, self.shape.bucket_bits);
        let free = buckets.map(|bucket| places_of(bucket).filter(|number| self.is_free(*number)));
        let [first, second] = free.map(|free| (free.clone().count(), free.clone().next()));
        if second.0 > first.0 { second.1 } else { first.1 }
    }

    fn candidates(&self, key: FlowKey) -> impl Iterator<Item = FlowNumber> + use<> {
        self.secret.buckets(key.0, self.shape.bucket_bits).into_iter().flat_map(places_of)
    }

    fn flow(&self, number: FlowNumber) -> &Flow {
        self.flows.get(number.0 as usize)
    }

    fn key(&self, number: FlowNumber) -> FlowKey {
        FlowKey(std::array::from_fn(|word| self.flow(number).key[word].load(Relaxed)))
    }

    fn is_free(&self, number: FlowNumber) -> bool {
        self.flow(number).says.action.load(Relaxed) == NONE
    }

    fn is_used(&self, number: FlowNumber) -> bool {
        matches!(self.flow(number).says.action.load(Relaxed), OUTPUT | DROP | DEEPER | DELIVER | TELL)
    }
}

/// `enum flow_action` and `enum flow_tag`, bpf/forebay.h.
const NONE: u8 = 0;
const OUTPUT: u8 = 1;
const DROP: u8 = 2;
const DEEPER: u8 = 3;
const DELIVER: u8 = 4;
const TELL: u8 = 5;
/// The daemon's own: given up, and not yet free.
const LEFT: u8 = 255;
const TAG_KEEP: u8 = 0;
const TAG_REMOVE: u8 = 1;
const TAG_SET: u8 = 2;

fn get([packets, bytes]: &Count) -> FlowCount {
    FlowCount { packets: packets.load(Acquire), bytes: bytes.load(Acquire) }
}

fn set([packets, bytes]: &Count, count: FlowCount) {
    packets.store(count.packets, Relaxed);
    bytes.store(count.bytes, Relaxed);
}

fn places_of(bucket: usize) -> impl Iterator<Item = FlowNumber> + Clone {
    (0..WAYS).map(move |way| FlowNumber((bucket * WAYS + way) as u32))
}

/// Changes a flow while nobody who reads it believes what it says.
fn write(flow: &Flow, change: impl FnOnce(&Flow)) {
    // It is odd already where an earlier process was killed in here.
    let version = flow.version.load(Relaxed) | 1;
    flow.version.store(version, Relaxed);
    fence(Release);
    change(flow);
    flow.version.store(version.wrapping_add(1), Release);
}

mod detached;
#[cfg(test)]
mod tests;
