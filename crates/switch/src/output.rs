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
    /// A virtual machine's queues, which have one producer.
    Guest {
        /// The worker that fills them.
        owner: usize,
    },
}

impl Output {
    /// The number by which flows name it; `None`: no kernel program can send there.
    #[inline]
    pub(crate) fn ifindex(&self) -> Option<IfIndex> {
        match self {
            Output::Netdev(ifindex) | Output::Memory { ifindex, .. } => Some(*ifindex),
            Output::Guest { .. } => None,
        }
    }
}
