//! Netdevs that receive everything while they are ports.
//!
//! A NIC drops packets that are addressed to others, and containers behind the switch are others. A port that outlives the
//! process needs more than a membership: the netdev's own flag, as `ip link set promisc on` sets it. A folder among the
//! pins says that the flag is ours.

use std::io;

use forebay_control::IfIndex;

use crate::memberships::{Memberships, Wish};
use crate::pins::{Pins, Setting};

/// A netdev that receives everything until this is dropped.
#[derive(Debug)]
pub struct Promiscuous {
    memberships: Memberships,
    ifindex: IfIndex,
    pins: Option<Pins>,
}

impl Promiscuous {
    /// Has a netdev of the calling thread's namespace receive everything; with `pins`, also after the process.
    pub(crate) fn begin(
        memberships: &Memberships,
        ifindex: IfIndex,
        pins: Option<&Pins>,
    ) -> io::Result<Self> {
        memberships.add(ifindex, Wish::Everything)?;
        let promiscuous = Self { memberships: memberships.clone(), ifindex, pins: pins.cloned() };
        pins.map_or(Ok(()), |pins| pins.keep(Setting::Promiscuous, ifindex))?;
        Ok(promiscuous)
    }
}

impl Drop for Promiscuous {
    fn drop(&mut self) {
        self.memberships.drop(self.ifindex, Wish::Everything);
        if let Some(pins) = &self.pins {
            pins.take_back(Setting::Promiscuous, self.ifindex);
        }
    }
}
