//! What netdevs receive besides what is addressed to them: a packet socket's memberships. Unsafe code.
//!
//! The kernel counts who wants what of a netdev. A packet socket's membership is one wish, and ends with the process
//! (packet(7)), as it should.
#![allow(unsafe_code, reason = "a socket option without a safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};

use forebay_control::{IfIndex, MacAddr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// The socket whose memberships count; it receives nothing. Clones are of the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memberships(Arc<OnceLock<OwnedFd>>);

/// What a netdev is to receive too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// All packets.
    Everything,
    /// Packets for all groups.
    Groups,
    /// Packets for this station.
    Station(MacAddr),
}

impl Memberships {
    /// A wish for a netdev of the calling thread's namespace.
    pub(crate) fn add(&self, ifindex: IfIndex, wish: Wish) -> io::Result<()> {
        self.change(libc::PACKET_ADD_MEMBERSHIP, ifindex, wish)
    }

    /// It fails if the netdev is gone. The kernel has dropped the membership then.
    pub(crate) fn drop(&self, ifindex: IfIndex, wish: Wish) {
        let _ = self.change(libc::PACKET_DROP_MEMBERSHIP, ifindex, wish);
    }

    /// In the namespace of the thread that calls first.
    fn socket(&self) -> io::Result<&OwnedFd> {
        if let Some(socket) = self.0.get() {
            return Ok(socket);
        }
        let made = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(self.0.get_or_init(|| made))
    }

    fn change(&self, option: libc::c_int, ifindex: IfIndex, wish: Wish) -> io::Result<()> {
        let socket = self.socket()?;
        let request = wish.request(ifindex);
        // SAFETY: pointer and length describe `request`, which the kernel only reads.
        let failed = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                option,
                (&raw const request).cast(),
                size_of_val(&request) as libc::socklen_t,
            )
        };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// A further address of the netdev (include/uapi/linux/if_packet.h, 6.18); packet(7) does not have it.
const PACKET_MR_UNICAST: libc::c_int = 3;

impl Wish {
    fn request(self, ifindex: IfIndex) -> libc::packet_mreq {
        let mut request = libc::packet_mreq {
            mr_ifindex: ifindex.0.cast_signed(),
            mr_type: 0,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let kind = match self {
            Self::Everything => libc::PACKET_MR_PROMISC,
            Self::Groups => libc::PACKET_MR_ALLMULTI,
            Self::Station(address) => {
                request.mr_address[..address.0.len()].copy_from_slice(&address.0);
                request.mr_alen = address.0.len() as libc::c_ushort;
                PACKET_MR_UNICAST
            }
        };
        request.mr_type = kind as libc::c_ushort;
        request
    }
}
