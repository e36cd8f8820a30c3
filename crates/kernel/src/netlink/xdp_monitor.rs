//! Drivers change what they can do with XDP: a veth takes frames of XDP programs only while its other end is ready
//! for them.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use forebay_control::IfIndex;
use netlink_bindings::netdev::Dev;
use netlink_bindings::nlctrl;
use netlink_sys::{Socket, SocketAddr};

use super::error::NetlinkError;
use super::socket::{self, ExchangeError, Messages};
use super::sys;

const FAMILY: &[u8] = b"netdev";
/// Where the family tells of netdevs (Documentation/netlink/specs/netdev.yaml, 6.6).
const GROUP: &[u8] = b"mgmt";
/// `struct genlmsghdr` in front of a message's attributes.
const GENERIC_HEADER_BYTES: usize = 4;

/// Room for some thousand messages, which the kernel counts as a page or less each, and doubles what is asked for.
const RECEIVE_BUFFER_BYTES: libc::c_int = 1 << 20;

/// A subscription to what drivers declare about XDP, in one network namespace.
#[derive(Debug)]
pub struct XdpMonitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl XdpMonitor {
    /// Subscribes in the calling thread's network namespace. Needs no capability.
    ///
    /// # Errors
    /// A kernel before 6.3.
    pub fn open() -> Result<XdpMonitor, NetlinkError> {
        let at = |what| move |source| NetlinkError::Socket { what, source };
        let group = group().map_err(|error| error.of("subscribe to XDP features", "*"))?;
        let mut socket = Socket::new(libc::NETLINK_GENERIC as isize).map_err(at("open a netlink socket"))?;
        sys::set_receive_buffer(socket.as_fd(), RECEIVE_BUFFER_BYTES).map_err(at("size a receive buffer"))?;
        socket.set_non_blocking(true).map_err(at("make a socket non-blocking"))?;
        socket.bind(&SocketAddr::new(0, 0)).map_err(at("bind a netlink socket"))?;
        socket.add_membership(group).map_err(at("subscribe to XDP features"))?;
        Ok(XdpMonitor { socket, buffer: Vec::new() })
    }

    /// Whose features may have changed; `None`: more than there was room to tell of. Never blocks; wait on the
    /// descriptor.
    pub fn changed(&mut self) -> Option<BTreeSet<IfIndex>> {
        let mut changed = BTreeSet::new();
        loop {
            match socket::receive(&self.socket, &mut self.buffer) {
                Ok(()) => changed.extend(Messages(&self.buffer).filter_map(Result::ok).filter_map(ifindex)),
                Err(ExchangeError::Io { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
                    return Some(changed);
                }
                Err(_) => return None,
            }
        }
    }
}

impl AsFd for XdpMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn ifindex(message: socket::Message<'_>) -> Option<IfIndex> {
    Dev::new(message.payload.get(GENERIC_HEADER_BYTES..)?).get_ifindex().ok().map(IfIndex)
}

fn group() -> Result<u32, ExchangeError> {
    let mut request = nlctrl::Request::new().op_getfamily_do();
    request.encode().push_family_name_bytes(FAMILY);
    let mut id = None;
    socket::exchange(&request, |reply| {
        let groups = reply.get_mcast_groups().into_iter().flatten();
        let found = groups.filter(|group| group.get_name().is_ok_and(|name| name.to_bytes() == GROUP));
        id = found.filter_map(|group| group.get_id().ok()).next();
    })?;
    id.ok_or_else(|| ExchangeError::NoFamily(String::from_utf8_lossy(FAMILY).into_owned()))
}
