//! What happens to netdevs, as it happens.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use forebay_control::IfIndex;
use netlink_bindings::rt_link::{IterableLinkAttrs, LinkAttrs, OpGetlinkDo};
use netlink_bindings::tc::OpGetqdiscDo;
use netlink_sys::{Socket, SocketAddr};

use super::error::NetlinkError;
use super::link::{Link, text};
use super::socket::{self, ExchangeError, Message, Messages};
use super::sys;

/// Room for about 5000 descriptions of links, so that a thousand ports can change at once unheard of none.
/// The kernel counts its own overhead in, and doubles what is asked for.
const RECEIVE_BUFFER_BYTES: libc::c_int = 8 << 20;

/// Something that happened to a netdev of the namespace in which the monitor was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// It is there: new, or changed, or come from another namespace. This is how it is now.
    New(Box<Link>),
    /// It is no longer there.
    Del {
        /// The number it had; the kernel may give it to another.
        ifindex: IfIndex,
        /// The name it had.
        name: String,
        /// It lives on in another namespace.
        moved: bool,
    },
    /// What has a say about packets that leave by it has changed: its queueing discipline, or there are classifiers.
    Queueing {
        /// Its number.
        ifindex: IfIndex,
    },
    /// Events were lost: the caller has to list all netdevs and compare.
    Overrun,
}

/// A subscription to the changes of all netdevs of one network namespace.
///
/// Open it first and call [`super::link::list`] then: between the two nothing is missed, though some things
/// may be heard twice.
#[derive(Debug)]
pub struct LinkMonitor {
    socket: Socket,
    buffer: Vec<u8>,
    /// Events of a datagram that were not asked for yet; a datagram holds few.
    waiting: VecDeque<LinkEvent>,
}

impl LinkMonitor {
    /// Subscribes in the calling thread's network namespace. Needs no capability.
    pub fn open() -> Result<LinkMonitor, NetlinkError> {
        Self::open_with_buffer(RECEIVE_BUFFER_BYTES)
    }

    pub(super) fn open_with_buffer(bytes: libc::c_int) -> Result<LinkMonitor, NetlinkError> {
        let at = |what| move |source| NetlinkError::Socket { what, source };
        let mut socket = Socket::new(libc::NETLINK_ROUTE as isize).map_err(at("open a netlink socket"))?;
        sys::set_receive_buffer(socket.as_fd(), bytes).map_err(at("size a receive buffer"))?;
        socket.set_non_blocking(true).map_err(at("make a socket non-blocking"))?;
        socket.bind(&SocketAddr::new(0, 0)).map_err(at("bind a netlink socket"))?;
        socket.add_membership(libc::RTNLGRP_LINK).map_err(at("subscribe to netdev changes"))?;
        socket.add_membership(libc::RTNLGRP_TC).map_err(at("subscribe to queueing disciplines"))?;
        Ok(LinkMonitor { socket, buffer: Vec::new(), waiting: VecDeque::new() })
    }

    /// The next event, or `None` when nothing more has happened yet. Never blocks; wait on the descriptor.
    pub fn next_event(&mut self) -> Result<Option<LinkEvent>, NetlinkError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            match socket::receive(&self.socket, &mut self.buffer) {
                Ok(()) => self.take_datagram()?,
                Err(ExchangeError::Io { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(None);
                }
                Err(ExchangeError::Io { source, .. }) if source.raw_os_error() == Some(libc::ENOBUFS) => {
                    return Ok(Some(LinkEvent::Overrun));
                }
                // A datagram that did not fit is lost, and with it what it said.
                Err(ExchangeError::Malformed(_)) => return Ok(Some(LinkEvent::Overrun)),
                Err(error) => return Err(error.of("watch", "*")),
            }
        }
    }

    fn take_datagram(&mut self) -> Result<(), NetlinkError> {
        for message in Messages(&self.buffer) {
            let message = message.map_err(|error| error.of("watch", "*"))?;
            self.waiting.extend(decode(&message));
        }
        Ok(())
    }
}

impl AsFd for LinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn decode(message: &Message<'_>) -> Option<LinkEvent> {
    if is_about_queueing(message.kind) {
        let (header, _) = OpGetqdiscDo::decode_request(message.payload);
        let ifindex = u32::try_from(header.ifindex).map(IfIndex);
        return ifindex.ok().map(|ifindex| LinkEvent::Queueing { ifindex });
    }
    let (header, attributes) = OpGetlinkDo::decode_request(message.payload);
    // A bridge tells of its ports on the same group: "deleted" then means "left the bridge".
    if i32::from(header.ifi_family) != libc::AF_UNSPEC || header.ifi_index <= 0 {
        return None;
    }
    match message.kind {
        libc::RTM_NEWLINK => Some(LinkEvent::New(Box::new(Link::decode(&header, attributes)))),
        libc::RTM_DELLINK => Some(decode_deletion(IfIndex(header.ifi_index.unsigned_abs()), attributes)),
        _ => None,
    }
}

/// All of these begin with `struct tcmsg`.
fn is_about_queueing(kind: u16) -> bool {
    use libc::{RTM_DELQDISC, RTM_DELTFILTER, RTM_NEWQDISC, RTM_NEWTFILTER};
    matches!(kind, RTM_NEWQDISC | RTM_DELQDISC | RTM_NEWTFILTER | RTM_DELTFILTER)
}

fn decode_deletion(ifindex: IfIndex, attributes: IterableLinkAttrs<'_>) -> LinkEvent {
    let (mut name, mut moved) = (String::new(), false);
    for attribute in attributes.filter_map(Result::ok) {
        match attribute {
            LinkAttrs::Ifname(bytes) => name = text(bytes),
            LinkAttrs::NewNetnsid(_) => moved = true,
            _ => {}
        }
    }
    LinkEvent::Del { ifindex, name, moved }
}
