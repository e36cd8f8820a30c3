//! A batch as the kernel is told of it: messages, addresses, and the pieces that each packet is made of. Unsafe code.
#![allow(unsafe_code, reason = "describes frames to the kernel by pointers")]

use std::sync::atomic::AtomicU8;

use forebay_pool::Arena;
use forebay_wire::net_header::NetHeader;

use super::{Destination, Outcome, TxError};

/// Packets that are sent together.
pub(super) const BATCH: usize = 128;
/// Pieces of one batch.
pub(super) const PIECES: usize = BATCH * 8;
/// Headers of a joint packet.
const HEADER: usize = 160;
/// Destination and source address of an Ethernet header.
pub(super) const ADDRESSES: usize = 12;
/// An 802.1Q tag.
pub(super) const TAG: usize = 4;

/// Allocated once; the pointers in it are dead between two batches.
pub(super) struct Arrays {
    pub(super) messages: [libc::mmsghdr; BATCH],
    pub(super) addresses: [libc::sockaddr_ll; BATCH],
    pub(super) packets: [Packet; BATCH],
    pieces: [libc::iovec; PIECES],
    /// Where the pieces of each message begin.
    first_pieces: [usize; BATCH],
    tags: [[u8; TAG]; BATCH],
    marks: [Mark; BATCH],
    offloads: [Offload; BATCH],
    headers: [[u8; HEADER]; BATCH],
}

/// What is said of one message besides.
#[derive(Clone, Copy)]
pub(super) struct Packet {
    pub(super) token: u32,
    pub(super) len_bytes: u32,
    /// The two bytes behind the addresses as they leave; zero if there are none.
    pub(super) ethertype: [u8; 2],
    /// Byte for byte the packet before it, for another port.
    pub(super) again: bool,
    /// Nothing is left undone, and all of it lies in frames.
    pub(super) is_plain: bool,
}

impl Packet {
    pub(super) fn outcome(&self, result: Result<(), TxError>) -> Outcome {
        Outcome { token: self.token, len_bytes: self.len_bytes, result }
    }
}

impl Arrays {
    pub(super) fn new() -> Box<Self> {
        // SAFETY: all-zero bytes are valid for these C structs of integers and pointers, and for our own integers.
        let mut arrays: Box<Arrays> = unsafe { Box::new(std::mem::zeroed()) };
        for address in &mut arrays.addresses {
            address.sll_family = libc::AF_PACKET as u16;
        }
        for mark in &mut arrays.marks {
            mark.header.cmsg_len = size_of::<libc::cmsghdr>() + size_of::<u32>();
            mark.header.cmsg_level = libc::SOL_SOCKET;
            mark.header.cmsg_type = libc::SO_MARK;
        }
        arrays
    }

    /// Says where a message goes.
    #[inline]
    pub(super) fn address(&mut self, index: usize, to: Destination) {
        self.addresses[index].sll_ifindex = to.ifindex as i32;
        self.marks[index].mark = to.mark;
        let header = &mut self.messages[index].msg_hdr;
        (header.msg_control, header.msg_controllen) = match to.mark {
            0 => (std::ptr::null_mut(), 0),
            _ => (std::ptr::from_mut(&mut self.marks[index]).cast(), size_of::<Mark>()),
        };
    }

    pub(super) fn ifindex(&self, index: usize) -> u32 {
        self.addresses[index].sll_ifindex as u32
    }

    pub(super) fn mark(&self, index: usize) -> u32 {
        self.marks[index].mark
    }

    /// The pieces of a message's packet.
    pub(super) fn pieces(&self, index: usize) -> &[libc::iovec] {
        let first = self.first_pieces[index];
        let all = &self.pieces[first..first + self.messages[index].msg_hdr.msg_iovlen];
        let header = std::ptr::from_ref(&self.offloads[index]).cast();
        match all {
            [first, packet @ ..] if std::ptr::eq(first.iov_base, header) => packet,
            packet => packet,
        }
    }
}

/// A control message with which a packet leaves with a mark of its own.
#[repr(C)]
struct Mark {
    header: libc::cmsghdr,
    mark: u32,
    padding: u32,
}

/// `struct virtio_net_hdr`, include/uapi/linux/virtio_net.h, in the machine's byte order; all zero for a packet as it is.
#[derive(Clone, Copy)]
#[repr(C)]
struct Offload {
    flags: u8,
    gso_type: u8,
    header_len: u16,
    gso_size: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl From<NetHeader> for Offload {
    #[inline]
    fn from(header: NetHeader) -> Self {
        let NetHeader { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset } = header;
        Self {
            flags,
            gso_type,
            header_len: hdr_len,
            gso_size,
            checksum_start: csum_start,
            checksum_offset: csum_offset,
        }
    }
}

/// Where the checksum lies in a TCP header.
pub(super) const TCP_CHECKSUM: u16 = 16;

/// One message as its pieces are collected.
pub(super) struct Message<'m, 'a> {
    pub(super) arena: &'a Arena,
    pub(super) arrays: &'m mut Arrays,
    pub(super) index: usize,
    pub(super) pieces: &'m mut usize,
    pub(super) len_bytes: u32,
}

impl Message<'_, '_> {
    #[inline]
    pub(super) fn start(&mut self, undone: NetHeader, with_joints: bool) {
        let arrays = &mut *self.arrays;
        let header = &mut arrays.messages[self.index].msg_hdr;
        header.msg_name = std::ptr::from_mut(&mut arrays.addresses[self.index]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
        header.msg_iov = std::ptr::from_mut(&mut arrays.pieces[*self.pieces]);
        header.msg_iovlen = 0;
        arrays.first_pieces[self.index] = *self.pieces;
        if with_joints {
            arrays.offloads[self.index] = undone.into();
            let start = std::ptr::from_ref(&arrays.offloads[self.index]).cast();
            self.add_at(start, size_of::<Offload>());
        }
    }

    #[inline]
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.add_at(bytes.as_ptr(), bytes.len());
        self.len_bytes += bytes.len() as u32;
    }

    #[inline]
    pub(super) fn add_shared(&mut self, bytes: &[AtomicU8]) {
        self.add_at(bytes.as_ptr().cast(), bytes.len());
        self.len_bytes += bytes.len() as u32;
    }

    #[inline]
    pub(super) fn add_tag(&mut self, tag: [u8; TAG]) {
        self.arrays.tags[self.index] = tag;
        self.add_at(self.arrays.tags[self.index].as_ptr(), TAG);
        self.len_bytes += TAG as u32;
    }

    pub(super) fn add_header(&mut self, header: &[u8]) {
        self.arrays.headers[self.index][..header.len()].copy_from_slice(header);
        self.add_at(self.arrays.headers[self.index].as_ptr(), header.len());
    }

    #[inline]
    fn add_at(&mut self, start: *const u8, len: usize) {
        self.arrays.pieces[*self.pieces] = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len };
        *self.pieces += 1;
        self.arrays.messages[self.index].msg_hdr.msg_iovlen += 1;
    }
}
