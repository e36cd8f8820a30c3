//! Programs on netdevs: new ones, and those that an earlier daemon left.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{MutexGuard, PoisonError};

use forebay_control::IfIndex;

use super::{Datapath, duplicate};
use crate::DatapathError;
use crate::hints::{self, HintsError, HintsOptions};
use crate::left::LeftLinks;
use crate::link::{self, NetdevLink};
use crate::merging::Merging;
use crate::pins::{LinkKind, Setting};
use crate::promiscuous::Promiscuous;
use crate::unicast_filter::UnicastFilter;

/// Which of our XDP programs a port has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpVariant {
    /// For netdevs that leave VLAN tags in packets.
    Plain,
    /// For those that take them off, and can tell.
    Bound,
    /// With hints below each packet.
    Hinted,
}

/// A port's XDP program, loaded for one netdev.
#[derive(Debug)]
pub struct XdpProgram(OwnedFd);

impl AsFd for XdpProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Datapath {
    /// Attaches the tcx program to `ifindex`.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn attach_tcx(&self, ifindex: IfIndex, port_id: u16) -> Result<NetdevLink, DatapathError> {
        let program = self.tcx_port.as_fd();
        self.keep((LinkKind::Tcx, ifindex), port_id, program, || link::attach_tcx(program, ifindex))
    }

    /// The same for as long as this process lives: nothing is pinned.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn attach_tcx_while_running(&self, ifindex: IfIndex) -> Result<NetdevLink, DatapathError> {
        link::attach_tcx(self.tcx_port.as_fd(), ifindex)
    }

    /// The link that an earlier daemon left at this netdev, or a new one; pinned under the port's name.
    fn keep(
        &self,
        (kind, ifindex): (LinkKind, IfIndex),
        port_id: u16,
        program: BorrowedFd<'_>,
        attach: impl FnOnce() -> Result<NetdevLink, DatapathError>,
    ) -> Result<NetdevLink, DatapathError> {
        let Some(pins) = &self.pins else { return attach() };
        let name = kind.pin_name(port_id);
        match self.left_links().take(pins, (kind, ifindex), &name, program) {
            Some(link) => Ok(link),
            None => link::pinned(attach()?, pins, name),
        }
    }

    /// Looks for the links that an earlier daemon left at netdevs of the calling thread's namespace: the port and the
    /// netdev's index of each. Links elsewhere are detached. Attaching to such a netdev takes its link over, and
    /// [`Datapath::release_left_links`] ends this.
    pub fn find_left_links(&self) -> Vec<(u16, IfIndex)> {
        let Some(pins) = &self.pins else { return Vec::new() };
        let mut left = self.left_links();
        *left = LeftLinks::find(pins);
        left.ports().collect()
    }

    /// Detaches the links that no port has taken over, and removes their pins. What an earlier daemon has set on netdevs that
    /// are no ports any more is taken back.
    pub fn release_left_links(&self) {
        if let Some(pins) = &self.pins {
            self.left_links().release(pins);
        }
    }

    /// Has a netdev of the calling thread's namespace receive everything, not only what is addressed to it.
    ///
    /// # Errors
    /// What the kernel said. A device that cannot may say nothing.
    pub fn receive_everything(&self, ifindex: IfIndex) -> Result<Promiscuous, DatapathError> {
        self.left_links().keep(Setting::Promiscuous, ifindex);
        let made = Promiscuous::begin(&self.memberships, ifindex, self.pins.as_ref());
        made.map_err(|source| DatapathError::System { what: "make a netdev promiscuous", source })
    }

    /// Has a netdev of the calling thread's namespace receive what is for groups, and for stations that are to be named.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn filter_unicast(&self, ifindex: IfIndex) -> Result<UnicastFilter, DatapathError> {
        let made = UnicastFilter::begin(&self.memberships, ifindex);
        made.map_err(|source| DatapathError::System {
            what: "have a netdev receive what is for groups",
            source,
        })
    }

    /// Has the kernel merge packets of one stream that come in at a netdev of the calling thread's namespace.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn merge_packets(&self, ifindex: IfIndex) -> Result<Merging, DatapathError> {
        self.left_links().keep(Setting::Gro, ifindex);
        let made = Merging::begin(ifindex, self.pins.as_ref());
        made.map_err(|source| DatapathError::System { what: "switch a netdev's GRO on", source })
    }

    fn left_links(&self) -> MutexGuard<'_, LeftLinks> {
        self.left_links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A port's XDP program, for [`Datapath::attach_xdp`] and [`NetdevLink::replace`] on this netdev.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn xdp_program(&self, ifindex: IfIndex, variant: XdpVariant) -> Result<XdpProgram, DatapathError> {
        let program = match variant {
            XdpVariant::Plain => duplicate(&self.xdp_port)?,
            XdpVariant::Bound => self.xdp_port_bound.load_bound(c"xdp_port_bound", ifindex)?,
            XdpVariant::Hinted => self.xdp_port_hinted.load_bound(c"xdp_port_hinted", ifindex)?,
        };
        Ok(XdpProgram(program))
    }

    /// A port's XDP program whose hints `object` writes, which [`forebay_hints::program::check`] has seen.
    ///
    /// # Errors
    /// What the linker, the verifier or the kernel said.
    pub fn linked_program(&self, object: &[u8], options: HintsOptions) -> Result<XdpProgram, HintsError> {
        hints::load(object, self.settings, &self.shared_maps, options).map(XdpProgram)
    }

    /// Attaches a port's XDP program to the netdev that it was loaded for.
    ///
    /// # Errors
    /// What the kernel said; `EBUSY` when another XDP program sits there.
    pub fn attach_xdp(
        &self,
        ifindex: IfIndex,
        port_id: u16,
        program: &XdpProgram,
    ) -> Result<NetdevLink, DatapathError> {
        self.keep((LinkKind::Xdp, ifindex), port_id, program.as_fd(), || {
            link::attach_xdp(program.as_fd(), ifindex)
        })
    }
}
