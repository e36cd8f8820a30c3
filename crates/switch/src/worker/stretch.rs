//! Packets of one port in a row, which verbs take together.

use std::ops::Range;

use forebay_control::PortId;

/// Where a decision is that a packet repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found(pub(super) u32);

/// Packets of a burst, one after the other, that came from one port.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    /// `None`: a broken program wrote no origin.
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
