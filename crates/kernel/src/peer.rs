//! The other end of a veth, where packets can be put without passing the netdev on this side.

use crate::netlink::{Link, link};
use crate::probe::programs;

/// The address of the netdev's other end, if `bpf_redirect_peer` reaches it and leaves nobody out who has a say.
///
/// That helper wants a veth whose other end is in another network namespace. Its packets pass neither the netdev's
/// queueing discipline and classifiers, nor an XDP program at the other end; so there must be none. What is attached
/// later to the tcx egress is not heard of, unless something else about the netdev changes.
pub fn reachable_peer(netdev: &Link) -> Option<[u8; 6]> {
    let (ifindex, netnsid) = (netdev.peer_ifindex?, netdev.peer_netnsid?);
    if netdev.kind.as_deref() != Some("veth")
        || netdev.has_qdisc
        || link::has_egress_classifiers(netdev.ifindex).unwrap_or(true)
        || programs::has_tcx_egress(netdev.ifindex).unwrap_or(true)
    {
        return None;
    }
    let peer = link::in_netns(netnsid, ifindex).ok()?;
    peer.mac.filter(|_| peer.admin_up && peer.xdp.is_none())
}
