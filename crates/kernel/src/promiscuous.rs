//! Netdevs that receive everything while they are ports. Unsafe code.
//!
//! A NIC drops packets that are addressed to others, and containers behind the switch are others. The kernel counts who
//! wants a netdev to be promiscuous. A packet socket's membership is one of those, and ends with the process (packet(7)),
//! as it should. A port that outlives the process needs more: the netdev's own flag, as `ip link set promisc on` sets it.
//! A folder among the pins says that the flag is ours.
#![allow(unsafe_code, reason = "a socket option without a safe wrapper")]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use forebay_control::IfIndex;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::pins::{Pins, Setting};

/// The socket whose memberships count; it receives nothing.
#[derive(Debug, Default)]
pub(crate) struct Memberships(OnceLock<Arc<OwnedFd>>);

/// A netdev that receives everything until this is dropped.
#[derive(Debug)]
pub struct Promiscuous {
    socket: Arc<OwnedFd>,
    ifindex: IfIndex,
    pins: Option<Pins>,
}

impl Drop for Promiscuous {
    fn drop(&mut self) {
        // It fails if the netdev is gone. The kernel has dropped the membership then.
        let _ = change(self.socket.as_fd(), libc::PACKET_DROP_MEMBERSHIP, self.ifindex);
        if let Some(pins) = &self.pins {
            pins.take_back(Setting::Promiscuous, self.ifindex);
        }
    }
}

impl Memberships {
    /// Has a netdev of the calling thread's namespace receive everything; with `pins`, also after the process.
    pub(crate) fn join(&self, ifindex: IfIndex, pins: Option<&Pins>) -> io::Result<Promiscuous> {
        let socket = self.socket()?;
        change(socket.as_fd(), libc::PACKET_ADD_MEMBERSHIP, ifindex)?;
        let promiscuous = Promiscuous { socket, ifindex, pins: pins.cloned() };
        pins.map_or(Ok(()), |pins| pins.keep(Setting::Promiscuous, ifindex))?;
        Ok(promiscuous)
    }

    /// In the namespace of the thread that calls first.
    fn socket(&self) -> io::Result<Arc<OwnedFd>> {
        if let Some(socket) = self.0.get() {
            return Ok(Arc::clone(socket));
        }
        let made = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Arc::clone(self.0.get_or_init(|| Arc::new(made))))
    }
}

fn change(socket: BorrowedFd<'_>, option: libc::c_int, ifindex: IfIndex) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: ifindex.0.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
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
