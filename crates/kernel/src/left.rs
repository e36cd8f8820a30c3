//! Links that an earlier daemon left: which netdev of this namespace each one is attached to. Unsafe code.
//!
//! A netdev's name may change, and its index may be given to another netdev or mean another netdev in another namespace.
//! A link stays with its netdev. So a link says which netdev a port had, once the netdev of that index in *this* namespace
//! confirms that it carries the link.
//!
//! The rule it keeps: a link that is left is either taken by [`LeftLinks::take`] or detached with its pin removed.
#![allow(unsafe_code, reason = "libbpf calls")]

use std::os::fd::BorrowedFd;

use forebay_control::IfIndex;
use libbpf_sys as sys;

use crate::link::{self, NetdevLink};
use crate::pins::{LinkKind, Pins, Setting};

/// Most programs at one place of a netdev (`BPF_MPROG_MAX`, include/linux/bpf_mprog.h, 6.18).
const MOST_PROGRAMS: usize = 64;

/// A link that no port of this daemon has taken so far.
#[derive(Debug)]
struct LeftLink {
    link: NetdevLink,
    port_id: u16,
    kind: LinkKind,
    ifindex: IfIndex,
}

/// The links that an earlier daemon left, and what it has set on netdevs.
#[derive(Debug, Default)]
pub(crate) struct LeftLinks {
    links: Vec<LeftLink>,
    settings: Vec<(Setting, IfIndex)>,
}

impl LeftLinks {
    /// Opens all pinned links. Those that are attached to no netdev of the calling thread's network namespace are removed.
    pub(crate) fn find(pins: &Pins) -> Self {
        let mut found = Vec::new();
        for (name, kind, port_id) in pins.links() {
            match link::open(pins, &name) {
                Some(link) => found.extend(here(&link, kind).map(|ifindex| (link, port_id, kind, ifindex))),
                // Something else lies under this name, and has no owner either.
                None => pins.forget(&name),
            }
        }
        let found = found.into_iter();
        let links = found.map(|(link, port_id, kind, ifindex)| LeftLink { link, port_id, kind, ifindex });
        Self { links: links.collect(), settings: pins.settings() }
    }

    /// The port and the netdev of each link.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (u16, IfIndex)> + '_ {
        self.links.iter().map(|left| (left.port_id, left.ifindex))
    }

    /// A port of this daemon keeps what was set on the netdev.
    pub(crate) fn keep(&mut self, setting: Setting, ifindex: IfIndex) {
        self.settings.retain(|left| *left != (setting, ifindex));
    }

    /// Detaches what nobody has taken, and lets netdevs be as they were.
    pub(crate) fn release(&mut self, pins: &Pins) {
        self.links.clear();
        self.settings.drain(..).for_each(|(setting, ifindex)| pins.take_back(setting, ifindex));
    }

    /// The link to this netdev, pinned under `name` from now on, with `program` in the place of its program. Nothing where
    /// there is none, or the kernel refuses the program: then the link is detached.
    pub(crate) fn take(
        &mut self,
        pins: &Pins,
        (kind, ifindex): (LinkKind, IfIndex),
        name: &str,
        program: BorrowedFd<'_>,
    ) -> Option<NetdevLink> {
        let at = self.links.iter().position(|left| (left.kind, left.ifindex) == (kind, ifindex))?;
        let LeftLink { mut link, .. } = self.links.swap_remove(at);
        // A port that was given another id: nobody that is saved has this name's.
        self.links.retain(|left| left.link.pinned_as() != Some(name));
        let renamed = link.pinned_as() == Some(name) || link.rename_pin(pins, name).is_ok();
        (renamed && link.replace(program).is_ok()).then_some(link)
    }
}

/// The netdev of this namespace that a link is attached to.
fn here(link: &NetdevLink, kind: LinkKind) -> Option<IfIndex> {
    let info = link.info()?;
    // SAFETY: the kernel has said which of the members it filled.
    let ifindex = IfIndex(unsafe {
        match (kind, info.type_) {
            (LinkKind::Tcx, sys::BPF_LINK_TYPE_TCX) => info.__bindgen_anon_1.tcx.ifindex,
            (LinkKind::Xdp, sys::BPF_LINK_TYPE_XDP) => info.__bindgen_anon_1.xdp.ifindex,
            _ => 0,
        }
    });
    let confirms = match kind {
        LinkKind::Tcx => tcx_links(ifindex).contains(&info.id),
        LinkKind::Xdp => xdp_program(ifindex) == Some(info.prog_id),
    };
    // Without a netdev the index is 0.
    (ifindex.0 != 0 && confirms).then_some(ifindex)
}

/// Ids of the links at a netdev's tcx ingress.
fn tcx_links(ifindex: IfIndex) -> Vec<u32> {
    let (mut programs, mut links) = ([0u32; MOST_PROGRAMS], [0u32; MOST_PROGRAMS]);
    // SAFETY: all-zero bytes are a valid value of this C struct.
    let mut options: sys::bpf_prog_query_opts = unsafe { std::mem::zeroed() };
    options.sz = size_of::<sys::bpf_prog_query_opts>() as u64;
    options.prog_ids = programs.as_mut_ptr();
    options.link_ids = links.as_mut_ptr();
    options.__bindgen_anon_1.count = MOST_PROGRAMS as u32;
    // SAFETY: both lists have `count` entries and outlive the call.
    let failed =
        unsafe { sys::bpf_prog_query_opts(ifindex.0.cast_signed(), link::TCX_INGRESS, &mut options) };
    if failed < 0 {
        return Vec::new();
    }
    // SAFETY: both members are the same number.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    links[..count.min(MOST_PROGRAMS)].to_vec()
}

/// Id of a netdev's XDP program.
fn xdp_program(ifindex: IfIndex) -> Option<u32> {
    let mut id = 0;
    // SAFETY: the id outlives the call.
    let failed = unsafe { sys::bpf_xdp_query_id(ifindex.0.cast_signed(), 0, &mut id) };
    (failed == 0 && id != 0).then_some(id)
}
