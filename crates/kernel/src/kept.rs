//! Settings of netdevs that are kept while the netdevs are ports.

use std::io;

use forebay_control::IfIndex;

use crate::pins::{Pins, Setting};

/// A netdev's setting, kept until this is dropped. If it was so before, it stays.
#[derive(Debug)]
pub struct Kept {
    setting: Setting,
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

impl Kept {
    pub(crate) fn begin(setting: Setting, ifindex: IfIndex, pins: Option<&Pins>) -> io::Result<Self> {
        if let Some(pins) = pins {
            pins.keep(setting, ifindex)?;
            return Ok(Self { setting, ifindex, ours: Ours::Noted(pins.clone()) });
        }
        let is_set = setting.is_set(ifindex).map_err(io::Error::other)?;
        if !is_set {
            setting.set(ifindex, true).map_err(io::Error::other)?;
        }
        Ok(Self { setting, ifindex, ours: if is_set { Ours::No } else { Ours::Yes } })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        match &self.ours {
            Ours::No => {}
            Ours::Noted(pins) => pins.take_back(self.setting, self.ifindex),
            // It fails for a netdev that is gone.
            Ours::Yes => _ = self.setting.set(self.ifindex, false),
        }
    }
}
