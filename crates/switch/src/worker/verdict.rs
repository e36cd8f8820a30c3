//! Where a packet goes.

use forebay_control::{DropReason, PortId};

/// Where one packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// To one port.
    Forward(PortId),
    /// To every other port of its VLAN.
    Flood,
    /// Nowhere.
    Drop(DropReason),
    /// Nowhere, for what the port is where it would go.
    Refused(DropReason, PortId),
}

impl Verdict {
    #[inline]
    pub(super) fn leaves(&self) -> bool {
        matches!(self, Verdict::Forward(_) | Verdict::Flood)
    }
}
