//! A place of the table, as the kernel programs read it.
#![allow(unsafe_code, reason = "promises that its values may be mapped")]

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, fence};

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
/// The daemon's own: given up, and not yet free.
pub(super) const LEFT: u8 = 255;
pub(super) const TAG_KEEP: u8 = 0;
pub(super) const TAG_REMOVE: u8 = 1;
pub(super) const TAG_SET: u8 = 2;

/// Changes a flow while nobody who reads it believes what it says.
pub(super) fn write(flow: &Flow, change: impl FnOnce(&Flow)) {
    // It is odd already where an earlier process was killed in here.
    let version = flow.version.load(Relaxed) | 1;
    flow.version.store(version, Relaxed);
    fence(Release);
    change(flow);
    flow.version.store(version.wrapping_add(1), Release);
}
