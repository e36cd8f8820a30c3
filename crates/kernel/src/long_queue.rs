//! Long queues: taps of the switch's own, out of which packets come as their senders left them. Unsafe code.
//!
//! The transmit end of a collector has no offloads, so the kernel cuts what goes through it. A tap has them, and says in a
//! virtio-net header what is left to do (`tun_put_user`, drivers/net/tun.c, Linux 6.18). The source port's id is in the VLAN
//! tag, as in a collector.
#![allow(unsafe_code, reason = "ioctls that make a tap")]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use forebay_control::IfIndex;

use crate::netlink::{NetlinkError, link};

/// The kernel puts the first free number in.
const NAME: &str = "forebayl%d";
/// What a reader takes: unfinished checksums, and TCP that is to be cut (linux/if_tun.h).
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// The virtio-net header without a number of buffers.
pub const LONG_HEADER_BYTES: usize = 10;
/// Longer than packets that are not to be cut, and less than a tap's limit.
const MTU: u32 = 65_000;

/// Why there is no long queue.
#[derive(Debug, thiserror::Error)]
pub enum LongQueueError {
    /// No tap.
    #[error("{what}: {source}")]
    System {
        /// What was asked.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The tap cannot be switched on.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// A tap that is up. It goes when this is dropped, or the process ends.
#[derive(Debug)]
pub struct LongQueue {
    tap: OwnedFd,
    ifindex: IfIndex,
}

impl LongQueue {
    /// Makes one in the calling thread's network namespace, in which `packets` may wait.
    ///
    /// # Errors
    /// [`LongQueueError`]; nothing is left behind.
    pub fn new(packets: u32) -> Result<Self, LongQueueError> {
        let failed = |what| move |source| LongQueueError::System { what, source };
        let tap = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
        let tap = tap.map_err(failed("open /dev/net/tun"))?;
        let name = make(&tap).map_err(failed("make a tap"))?;
        set_offloads(&tap).map_err(failed("set a tap's offloads"))?;
        let ifindex = link::by_name(&name)?.ifindex;
        link::disable_ipv6_autoconf(ifindex)?;
        link::set_mtu(ifindex, MTU)?;
        link::set_tx_queue_len(ifindex, packets)?;
        link::set_up(ifindex, true)?;
        Ok(Self { tap: tap.into(), ifindex })
    }

    /// Where programs send packets.
    pub fn ifindex(&self) -> IfIndex {
        self.ifindex
    }
}

impl AsFd for LongQueue {
    /// Each read takes one packet: [`LONG_HEADER_BYTES`], then the packet.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }
}

/// Makes the netdev, and says what it is called.
fn make(tap: &File) -> io::Result<String> {
    // SAFETY: all-zero bytes are a valid ifreq, which holds integers only.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(NAME.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the descriptor is open, and TUNSETIFF reads and writes one ifreq, which outlives the call.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &mut request) })?;
    // SAFETY: the kernel ends the name with a zero (`netdev->name`, IFNAMSIZ bytes).
    let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
    Ok(name.to_string_lossy().into_owned())
}

fn set_offloads(tap: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and TUNSETOFFLOAD takes its argument by value.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(OFFLOADS)) })
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
