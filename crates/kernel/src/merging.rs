//! Netdevs whose packets the kernel merges while they are XDP ports.
//!
//! The kernel merges packets of one stream (GRO) that XDP passes on, before tcx sees them. NICs have GRO on, veths off.

use std::io;

use forebay_control::IfIndex;

use crate::pins::{Pins, Setting};

/// A netdev whose packets are merged until this is dropped. If GRO was on before, it stays on.
#[derive(Debug)]
pub struct Merging {
    ifindex: IfIndex,
    ours: Ours,
}

/// Who knows whether it is ours.
#[derive(Debug)]
enum Ours {
    /// This process, and nobody after it.
    Yes,
    No,
    /// A note among these.
    Noted(Pins),
}

impl Merging {
    pub(crate) fn begin(ifindex: IfIndex, pins: Option<&Pins>) -> io::Result<Self> {
        if let Some(pins) = pins {
            pins.keep(Setting::Gro, ifindex)?;
            return Ok(Self { ifindex, ours: Ours::Noted(pins.clone()) });
        }
        let is_set = Setting::Gro.is_set(ifindex).map_err(io::Error::other)?;
        if !is_set {
            Setting::Gro.set(ifindex, true).map_err(io::Error::other)?;
        }
        Ok(Self { ifindex, ours: if is_set { Ours::No } else { Ours::Yes } })
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        match &self.ours {
            Ours::No => {}
            Ours::Noted(pins) => pins.take_back(Setting::Gro, self.ifindex),
            // It fails for a netdev that is gone.
            Ours::Yes => _ = Setting::Gro.set(self.ifindex, false),
        }
    }
}
