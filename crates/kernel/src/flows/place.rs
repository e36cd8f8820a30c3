//! A place of the table, as the kernel programs read it.
#![allow(unsafe_code, reason = "promises that its values may be mapped")]

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, fence};

use forebay_control::IfIndex;

use super::{FlowAction, FlowKey, FlowNote, FlowPath, FlowTag, FlowVerdict};
use crate::generations::StationSlot;
use crate::mapped::Shared;

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

/// `enum flow_action` and `enum flow_tag`, bpf/forebay.h.
pub(super) const NONE: u8 = 0;
pub(super) const OUTPUT: u8 = 1;
pub(super) const DROP: u8 = 2;
pub(super) const DEEPER: u8 = 3;
pub(super) const DELIVER: u8 = 4;
pub(super) const TELL: u8 = 5;
pub(super) const PASS: u8 = 6;
pub(super) const STEER: u8 = 7;
/// The daemon's own: given up, and not yet free.
pub(super) const LEFT: u8 = 255;
const TAG_KEEP: u8 = 0;
const TAG_REMOVE: u8 = 1;
const TAG_SET: u8 = 2;

impl Flow {
    /// The key that is there.
    pub(super) fn key(&self) -> FlowKey {
        FlowKey(std::array::from_fn(|word| self.key[word].load(Relaxed)))
    }

    /// Puts a flow there; inside [`write`].
    pub(super) fn store(&self, key: FlowKey, verdict: &FlowVerdict, note: FlowNote) {
        self.key.iter().zip(key.0).for_each(|(word, value)| word.store(value, Relaxed));
        let (action, port_id, ifindex) = match verdict.action {
            FlowAction::Output { port_id, ifindex, path, .. } => (number_of(path), port_id, ifindex.0),
            FlowAction::Drop { port_id } => (DROP, port_id, 0),
            FlowAction::Tell { port_id, .. } => (TELL, port_id, 0),
            FlowAction::Steer { port_id, .. } => (STEER, port_id, 0),
            FlowAction::Deeper { .. } => (DEEPER, key.port_id(), 0),
        };
        let (tag, vid, mark) = match verdict.action {
            FlowAction::Output { tag: FlowTag::Keep, mark, .. } => (TAG_KEEP, note.vid, mark),
            FlowAction::Output { tag: FlowTag::Remove, mark, .. } => (TAG_REMOVE, note.vid, mark),
            FlowAction::Output { tag: FlowTag::Set(vid), mark, .. } => (TAG_SET, vid, mark),
            FlowAction::Drop { .. } => (TAG_KEEP, note.vid, note.reason.into()),
            FlowAction::Tell { flow_id, .. } => (TAG_KEEP, note.vid, flow_id),
            FlowAction::Steer { queue, .. } => (TAG_KEEP, note.vid, queue.into()),
            FlowAction::Deeper { classes } => (TAG_KEEP, classes, note.vid.into()),
        };
        self.decided.store(verdict.decided, Relaxed);
        self.ifindex.store(ifindex, Relaxed);
        self.says.output.store(port_id, Relaxed);
        self.says.max_length.store(verdict.max_length, Relaxed);
        self.says.source.store(verdict.source.0, Relaxed);
        self.says.destination.store(verdict.destination.0, Relaxed);
        self.says.mark.store(mark, Relaxed);
        self.says.tag.store(tag, Relaxed);
        self.says.vid.store(vid, Relaxed);
        self.says.action.store(action, Relaxed);
    }

    /// What is decided there, and the note.
    pub(super) fn load(&self) -> (FlowVerdict, FlowNote) {
        let (port_id, ifindex) = (self.says.output.load(Relaxed), IfIndex(self.ifindex.load(Relaxed)));
        let (vid, mark) = (self.says.vid.load(Relaxed), self.says.mark.load(Relaxed));
        let tag = match self.says.tag.load(Relaxed) {
            TAG_REMOVE => FlowTag::Remove,
            TAG_SET => FlowTag::Set(vid),
            _ => FlowTag::Keep,
        };
        let (action, note) = match self.says.action.load(Relaxed) {
            number @ (OUTPUT | PASS | DELIVER) => {
                let action = FlowAction::Output { port_id, ifindex, tag, path: path_of(number), mark };
                (action, FlowNote { vid, reason: 0 })
            }
            TELL => (FlowAction::Tell { port_id, flow_id: mark }, FlowNote { vid, reason: 0 }),
            STEER => (FlowAction::Steer { port_id, queue: mark as u16 }, FlowNote { vid, reason: 0 }),
            DEEPER => (FlowAction::Deeper { classes: vid }, FlowNote { vid: mark as u16, reason: 0 }),
            _ => (FlowAction::Drop { port_id }, FlowNote { vid, reason: mark as u16 }),
        };
        let verdict = FlowVerdict {
            action,
            max_length: self.says.max_length.load(Relaxed),
            source: StationSlot(self.says.source.load(Relaxed)),
            destination: StationSlot(self.says.destination.load(Relaxed)),
            decided: self.decided.load(Relaxed),
        };
        (verdict, note)
    }
}

/// What such packets' action is called.
fn number_of(path: FlowPath) -> u8 {
    match path {
        FlowPath::Frames => OUTPUT,
        FlowPath::Packets => PASS,
        FlowPath::Peer => DELIVER,
    }
}

fn path_of(action: u8) -> FlowPath {
    match action {
        PASS => FlowPath::Packets,
        DELIVER => FlowPath::Peer,
        _ => FlowPath::Frames,
    }
}

/// Changes a flow while nobody who reads it believes what it says.
pub(super) fn write(flow: &Flow, change: impl FnOnce(&Flow)) {
    // It is odd already where an earlier process was killed in here.
    let version = flow.version.load(Relaxed) | 1;
    flow.version.store(version, Relaxed);
    fence(Release);
    change(flow);
    flow.version.store(version.wrapping_add(1), Release);
}
