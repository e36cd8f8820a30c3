//! AF_XDP sockets, opened and set up as far as a feature shows. Unsafe code.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use forebay_control::IfIndex;

/// `XDP_MAX_TX_SKB_BUDGET` of include/uapi/linux/if_xdp.h, 6.18; libc does not have it.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// A small memory for a few packets: what is tried does not depend on its size.
const CHUNK_BYTES: usize = 4096;
const CHUNKS: usize = 16;
const RING_ENTRIES: u32 = 8;
const TX_BUDGET: u32 = 64;

/// Opens an AF_XDP socket.
pub(super) fn open() -> io::Result<OwnedFd> {
    // SAFETY: socket takes no pointer.
    let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    cvt(socket)?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Binds a socket to queue 0 of a netdev so that packets may span several chunks.
pub(super) fn bind_multi_buffer(ifindex: IfIndex) -> io::Result<()> {
    let socket = open()?;
    let memory = Memory::new()?;
    register(&socket, &memory, 0)?;
    for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
        set_option(&socket, ring, &RING_ENTRIES)?;
    }
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY | libc::XDP_USE_SG,
        sxdp_ifindex: ifindex.0,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: pointer and length describe `address`, which outlives the call.
    cvt(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })
}

/// Registers memory with the flag that came together with metadata for packets to be sent: before 6.8 the
/// metadata's length itself was passed over in silence, but an unknown flag never was.
pub(super) fn register_tx_metadata() -> io::Result<()> {
    register(&open()?, &Memory::new()?, libc::XDP_UMEM_TX_SW_CSUM)
}

/// Lets one call send more than 32 packets, on a socket whose TX ring holds as many; with a smaller ring, or none,
/// Linux 6.18 answers EACCES.
pub(super) fn set_tx_budget() -> io::Result<()> {
    let socket = open()?;
    set_option(&socket, libc::XDP_TX_RING, &TX_BUDGET)?;
    set_option(&socket, XDP_MAX_TX_SKB_BUDGET, &TX_BUDGET)
}

fn register(socket: &OwnedFd, memory: &Memory, flags: u32) -> io::Result<()> {
    let registration = libc::xdp_umem_reg {
        addr: memory.address as u64,
        len: (CHUNKS * CHUNK_BYTES) as u64,
        chunk_size: CHUNK_BYTES as u32,
        headroom: 0,
        flags,
        tx_metadata_len: 0,
    };
    set_option(socket, libc::XDP_UMEM_REG, &registration)
}

/// `T` must be what the kernel expects for this option: plain numbers without padding.
fn set_option<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, which outlives the call; the kernel only reads it. The memory
    // that a registration names outlives the socket in every caller here.
    cvt(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, (&raw const *value).cast(), length)
    })
}

fn cvt(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Anonymous pages that nobody but the kernel touches.
struct Memory {
    address: *mut libc::c_void,
}

impl Memory {
    fn new() -> io::Result<Memory> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), CHUNKS * CHUNK_BYTES, access, kind, -1, 0) };
        if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Memory { address }) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and no reference into it was ever made. A UMEM keeps its
        // own hold on the pages.
        unsafe { libc::munmap(self.address, CHUNKS * CHUNK_BYTES) };
    }
}
