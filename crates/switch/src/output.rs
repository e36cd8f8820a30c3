//! Where packets for a port leave.

use forebay_control::IfIndex;

/// One port's way out, asked once for each copy that leaves there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// A netdev. The kernel keeps apart the workers that send to it.
    Netdev(IfIndex),
    /// A queue in this process's memory, which has one producer: other workers hand their packets to the owner.
    Memory {
        /// The worker that fills it.
        owner: usize,
        /// Stands for the queue where flows name their output.
        ifindex: IfIndex,
    },
}

impl Output {
    /// The number by which flows name it.
    #[inline]
    pub(crate) fn ifindex(&self) -> IfIndex {
        match self {
            Output::Netdev(ifindex) | Output::Memory { ifindex, .. } => *ifindex,
        }
    }
}
