//! Making, changing and removing netdevs. Each call is one request; the kernel does all of it or nothing,
//! except where the call's own words say otherwise.

use std::os::fd::{AsRawFd, BorrowedFd};

use forebay_control::IfIndex;
use netlink_bindings::rt_link::{self, IfinfoFlags, Ifinfomsg, PushLinkAttrs};
use netlink_bindings::utils::{Pusher, finalize_nested_header, push_nested_header};

use super::{NetlinkError, check_name, header_of};
use crate::netlink::socket;

/// Attributes of a veth's creation that the kernel's specifications leave out (if_link.h and veth.h, 6.18).
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
/// No address is generated from the netdev's own (IN6_ADDR_GEN_MODE_NONE, if_link.h, 6.18).
const ADDR_GEN_MODE_NONE: u8 = 1;

/// Makes a veth pair, both ends down, each with `num_queues` receive and transmit queues and this MTU in bytes.
/// The second end is made in the namespace of `peer_netns`, or in this one.
///
/// Ends made in this namespace generate no IPv6 address for themselves; in another namespace that is
/// [`disable_ipv6_autoconf`]'s work, called there. If it fails after the pair was made, the pair is removed.
pub fn create_veth(
    name: &str,
    peer_name: &str,
    peer_netns: Option<BorrowedFd<'_>>,
    num_queues: u32,
    mtu: u32,
) -> Result<(), NetlinkError> {
    check_name(name)?;
    check_name(peer_name)?;
    let mut request = rt_link::Request::new().set_create().set_excl().op_newlink_do(&Ifinfomsg::new());
    let info = describe(request.encode(), name, num_queues, mtu).nested_linkinfo();
    let mut info = info.push_kind(c"veth");
    push_peer(info.as_vec_mut(), peer_name, peer_netns, num_queues, mtu);
    drop(info);
    socket::command(&request).map_err(|error| error.of("create veth", name))?;
    let quiet = quieten(name).and_then(|()| if peer_netns.is_none() { quieten(peer_name) } else { Ok(()) });
    quiet.inspect_err(|_| drop(super::by_name(name).and_then(|link| delete(link.ifindex))))
}

fn describe<P: Pusher>(end: PushLinkAttrs<P>, name: &str, num_queues: u32, mtu: u32) -> PushLinkAttrs<P> {
    end.push_ifname_bytes(name.as_bytes())
        .push_mtu(mtu)
        .push_num_tx_queues(num_queues)
        .push_num_rx_queues(num_queues)
}

/// A veth's second end lies inside the first's description: a header, then its own attributes.
fn push_peer(message: &mut Vec<u8>, name: &str, netns: Option<BorrowedFd<'_>>, num_queues: u32, mtu: u32) {
    let data = push_nested_header(message, IFLA_INFO_DATA);
    let peer = push_nested_header(message, VETH_INFO_PEER);
    message.extend(Ifinfomsg::new().as_slice());
    let end = describe(PushLinkAttrs::new(&mut *message), name, num_queues, mtu);
    if let Some(netns) = netns {
        drop(end.push_net_ns_fd(netns.as_raw_fd().unsigned_abs()));
    } else {
        drop(end);
    }
    finalize_nested_header(message, peer);
    finalize_nested_header(message, data);
}

fn quieten(name: &str) -> Result<(), NetlinkError> {
    disable_ipv6_autoconf(super::by_name(name)?.ifindex)
}

/// Lets the netdev have no IPv6 address but those it is given, so that it says nothing by itself.
/// To be called before it is switched on. A kernel, or an MTU, without IPv6 is quiet already.
pub fn disable_ipv6_autoconf(ifindex: IfIndex) -> Result<(), NetlinkError> {
    let mut request = rt_link::Request::new().op_setlink_do(&header_of(ifindex));
    drop(request.encode().nested_af_spec().nested_inet6().push_addr_gen_mode(ADDR_GEN_MODE_NONE));
    let outcome =
        socket::command(&request).map_err(|error| error.of("disable IPv6 autoconfiguration of", ifindex));
    match outcome {
        Err(error) if error.errno() == Some(libc::EAFNOSUPPORT) => Ok(()),
        outcome => outcome,
    }
}

/// Switches a netdev on or off.
pub fn set_up(ifindex: IfIndex, up: bool) -> Result<(), NetlinkError> {
    let mut header = header_of(ifindex);
    header.ifi_change = IfinfoFlags::Up as u32;
    header.ifi_flags = if up { IfinfoFlags::Up as u32 } else { 0 };
    change(&rt_link::Request::new().op_setlink_do(&header), "switch on or off", ifindex)
}

/// Sets or clears the netdev's flag for receiving everything; others may want it to be promiscuous all the same.
pub fn set_promiscuous(ifindex: IfIndex, promiscuous: bool) -> Result<(), NetlinkError> {
    let mut header = header_of(ifindex);
    header.ifi_change = IfinfoFlags::Promisc as u32;
    header.ifi_flags = if promiscuous { IfinfoFlags::Promisc as u32 } else { 0 };
    change(&rt_link::Request::new().op_setlink_do(&header), "make promiscuous or not", ifindex)
}

/// Sets the longest layer-3 packet, in bytes.
pub fn set_mtu(ifindex: IfIndex, mtu: u32) -> Result<(), NetlinkError> {
    let mut request = rt_link::Request::new().op_setlink_do(&header_of(ifindex));
    drop(request.encode().push_mtu(mtu));
    change(&request, "set the MTU of", ifindex)
}

/// Sets how many packets may wait to be sent; of a tap, how many wait to be read.
pub fn set_tx_queue_len(ifindex: IfIndex, packets: u32) -> Result<(), NetlinkError> {
    let mut request = rt_link::Request::new().op_setlink_do(&header_of(ifindex));
    drop(request.encode().push_txqlen(packets));
    change(&request, "set the length of the queue of", ifindex)
}

/// Gives a netdev another name.
pub fn rename(ifindex: IfIndex, name: &str) -> Result<(), NetlinkError> {
    check_name(name)?;
    let mut request = rt_link::Request::new().op_setlink_do(&header_of(ifindex));
    drop(request.encode().push_ifname_bytes(name.as_bytes()));
    change(&request, "rename", ifindex)
}

/// Moves a netdev into another network namespace. There it is down, and may have another number.
pub fn move_to_netns(ifindex: IfIndex, netns: BorrowedFd<'_>) -> Result<(), NetlinkError> {
    let mut request = rt_link::Request::new().op_setlink_do(&header_of(ifindex));
    drop(request.encode().push_net_ns_fd(netns.as_raw_fd().unsigned_abs()));
    change(&request, "move", ifindex)
}

/// Deletes a netdev that was made (not hardware); of a veth both ends go.
pub fn delete(ifindex: IfIndex) -> Result<(), NetlinkError> {
    let request = rt_link::Request::new().op_dellink_do(&header_of(ifindex));
    socket::command(&request).map_err(|error| error.of("delete", ifindex))
}

fn change(
    request: &rt_link::OpSetlinkDo<'_>,
    what: &'static str,
    ifindex: IfIndex,
) -> Result<(), NetlinkError> {
    socket::command(request).map_err(|error| error.of(what, ifindex))
}
