//! What is decided about packets of a flow.

use forebay_control::IfIndex;

use super::FlowKey;
use crate::generations::{Generations, StationSlot};

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

/// How packets of a flow get to their output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowPath {
    /// From driver to driver, by XDP, and those with an unfinished checksum as [`FlowPath::Packets`]; only from ports that
    /// have XDP, to such that take its frames, and without a mark.
    Frames,
    /// Through the output's queue, by tcx, with all that the kernel knows of them.
    Packets,
    /// By tcx, at once to the other end of the output's netdev, a veth whose other end is in another network namespace and
    /// has the packets' destination for its address.
    Peer,
}

/// Where packets of a flow go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowAction {
    /// To one port.
    Output {
        /// Its id.
        port_id: u16,
        /// Its netdev.
        ifindex: IfIndex,
        /// With their tag as it shall be.
        tag: FlowTag,
        /// How.
        path: FlowPath,
        /// With this mark (`SO_MARK`).
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
        flow_id: u32,
    },
    /// To user space, to the worker of this queue of the collector; only of tcx ports that have rings at all workers.
    Steer {
        /// The port whose settings say so, which may be the input.
        port_id: u16,
        /// The queue.
        queue: u16,
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
            Self::Output { port_id, .. }
            | Self::Drop { port_id }
            | Self::Tell { port_id, .. }
            | Self::Steer { port_id, .. } => Some(port_id),
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
