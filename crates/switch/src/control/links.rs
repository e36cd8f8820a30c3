//! The programs on a port's netdev.

use forebay_kernel::{Merging, NetdevLink};

/// The programs on a port's netdev, which are detached when this is dropped: that at the XDP hook first, which passes on what
/// the one at tcx is to follow.
pub(super) struct Links {
    pub(super) xdp: Option<XdpLink>,
    _tcx: NetdevLink,
}

impl Links {
    pub(super) fn new(tcx: NetdevLink, xdp: Option<XdpLink>) -> Self {
        Self { xdp, _tcx: tcx }
    }
}

/// The program at the XDP hook.
pub(super) struct XdpLink {
    pub(super) link: NetdevLink,
    /// What it passes on is merged.
    _merging: Option<Merging>,
}

impl XdpLink {
    pub(super) fn new(link: NetdevLink, merging: Option<Merging>) -> Self {
        Self { link, _merging: merging }
    }
}
