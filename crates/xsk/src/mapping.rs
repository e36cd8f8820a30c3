//! The mapping of one ring of a socket.
#![allow(unsafe_code, reason = "maps memory that the kernel shares")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::XskError;
use crate::ring::RingMemory;

/// Which ring of a socket: its page offset for mmap, and its name in errors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Rx,
    Tx,
    Fill,
    Completion,
}

impl Which {
    fn page_offset(self) -> i64 {
        match self {
            Self::Rx => libc::XDP_PGOFF_RX_RING,
            Self::Tx => libc::XDP_PGOFF_TX_RING,
            Self::Fill => libc::XDP_UMEM_PGOFF_FILL_RING as i64,
            Self::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64,
        }
    }

    pub(crate) fn option(self) -> i32 {
        match self {
            Self::Rx => libc::XDP_RX_RING,
            Self::Tx => libc::XDP_TX_RING,
            Self::Fill => libc::XDP_UMEM_FILL_RING,
            Self::Completion => libc::XDP_UMEM_COMPLETION_RING,
        }
    }

    fn offsets(self, all: &libc::xdp_mmap_offsets) -> libc::xdp_ring_offset {
        match self {
            Self::Rx => all.rx,
            Self::Tx => all.tx,
            Self::Fill => all.fr,
            Self::Completion => all.cr,
        }
    }
}

struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is not tied to a thread.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by mmap in `map` with this length, unmapped once.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// Maps ring `which` of `socket`, whose entries are `T`s. The mapping lives as long as what is returned.
pub(crate) fn map<T>(
    socket: BorrowedFd<'_>,
    which: Which,
    entries: u32,
    offsets: &libc::xdp_mmap_offsets,
) -> Result<RingMemory<T>, XskError> {
    let offsets = which.offsets(offsets);
    let bytes = offsets.desc as usize + entries as usize * size_of::<T>();
    // SAFETY: a shared mapping of a socket's ring at an address of the kernel's choice touches no existing memory.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            socket.as_raw_fd(),
            which.page_offset(),
        )
    };
    if address == libc::MAP_FAILED {
        return Err(XskError::last(format!("map the {which:?} ring of {entries} entries")));
    }
    let address = NonNull::new(address.cast::<u8>()).expect("mmap never returns the null page unasked");
    // SAFETY: the kernel gave these offsets for this mapping and aligns each for its type
    // (struct xdp_ring in net/xdp/xsk_queue.h, Linux 6.12).
    let at = |offset: u64| unsafe { address.add(offset as usize) };
    Ok(RingMemory {
        producer: at(offsets.producer).cast(),
        consumer: at(offsets.consumer).cast(),
        flags: at(offsets.flags).cast(),
        entries: at(offsets.desc).cast(),
        size: entries,
        _owner: Box::new(Mapping { address, bytes }),
    })
}
