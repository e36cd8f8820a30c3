//! What a netdev's driver can do with XDP, as the driver itself declares, and its queues (netlink family `netdev`, 6.3
//! and later).

use forebay_control::IfIndex;
use forebay_control::netdev_queue::{NetdevNapi, NetdevQueue, QueueType};
use netlink_bindings::netdev::{self, Dev, XdpAct, XdpRxMetadata};

use super::error::NetlinkError;
use super::socket;

/// What a netdev's driver declares about XDP. All `false`: no XDP in the driver, only the generic kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpFeatures {
    /// Programs run in the driver and may abort, drop, pass and send back.
    pub basic: bool,
    /// Programs may redirect.
    pub redirect: bool,
    /// Other netdevs' programs may redirect to this one.
    pub ndo_xmit: bool,
    /// AF_XDP without copies.
    pub xsk_zerocopy: bool,
    /// Programs may be run by the device.
    pub hw_offload: bool,
    /// Programs get packets that lie in several buffers.
    pub rx_sg: bool,
    /// Packets in several buffers may be redirected to this one.
    pub ndo_xmit_sg: bool,
    /// How many buffers a packet may have without copies; `None` if the driver does not say.
    pub xdp_zc_max_segs: Option<u32>,
    /// What the driver tells a program about a packet (6.8 and later; before that the kernel says nothing).
    pub rx_metadata: RxMetadata,
    /// What can be asked of the driver for a packet sent by AF_XDP.
    pub tx_metadata: TxMetadata,
}

/// The facts about a received packet that a program can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxMetadata {
    /// When it arrived.
    pub timestamp: bool,
    /// The hash by which a queue was chosen for it.
    pub hash: bool,
    /// The VLAN tag that was taken out of it.
    pub vlan_tag: bool,
}

/// What can be asked for with a packet sent by AF_XDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TxMetadata {
    /// The time at which it was sent.
    pub timestamp: bool,
    /// A layer-4 checksum to be filled in.
    pub checksum: bool,
    /// A time before which it must not be sent.
    pub launch_time: bool,
}

/// What the driver of this netdev declares.
pub fn xdp_features(ifindex: IfIndex) -> Result<XdpFeatures, NetlinkError> {
    let mut request = netdev::Request::new().op_dev_get_do();
    drop(request.encode().push_ifindex(ifindex.0));
    let mut features = None;
    socket::exchange(&request, |attributes| {
        let declared = features.get_or_insert_default();
        attributes.filter_map(Result::ok).for_each(|attribute| take(declared, attribute));
    })
    .map_err(|error| error.of("read the XDP features of", ifindex))?;
    features.ok_or_else(|| NetlinkError::NoSuchNetdev { netdev: ifindex.to_string() })
}

/// Number of receive queues that are in use on this netdev (6.8 and later).
pub fn rx_queues(ifindex: IfIndex) -> Result<u32, NetlinkError> {
    queue_napis(ifindex).map(|queues| queues.len() as u32)
}

/// Receive queues that are in use on this netdev, each with its NAPI instance if the driver tells (6.8 and later).
pub fn queue_napis(ifindex: IfIndex) -> Result<Vec<(u32, Option<u32>)>, NetlinkError> {
    let rx = queues(ifindex)?.into_iter().filter(|queue| queue.kind == QueueType::Rx);
    Ok(rx.map(|queue| (queue.id, queue.napi_id)).collect())
}

/// NAPI instances of this netdev whose interrupt the driver tells, with that (6.8 and later).
pub fn napi_irqs(ifindex: IfIndex) -> Result<Vec<(u32, u32)>, NetlinkError> {
    Ok(napis(ifindex)?.into_iter().filter_map(|napi| Some((napi.id, napi.irq?))).collect())
}

/// Queues that are in use on this netdev (6.8 and later).
pub fn queues(ifindex: IfIndex) -> Result<Vec<NetdevQueue>, NetlinkError> {
    let mut request = netdev::Request::new().op_queue_get_dump();
    drop(request.encode().push_ifindex(ifindex.0));
    let queue = |queue: netdev::IterableQueue<'_>| {
        let kind = match queue.get_type().ok()? {
            kind if kind == netdev::QueueType::Rx as u32 => QueueType::Rx,
            kind if kind == netdev::QueueType::Tx as u32 => QueueType::Tx,
            _ => return None,
        };
        Some(NetdevQueue { id: queue.get_id().ok()?, ifindex, kind, napi_id: queue.get_napi_id().ok() })
    };
    socket::dump(&request, queue).map_err(|error| error.of("list the queues of", ifindex))
}

/// NAPI instances of this netdev (6.8 and later).
pub fn napis(ifindex: IfIndex) -> Result<Vec<NetdevNapi>, NetlinkError> {
    /// `NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT` and `NETDEV_A_NAPI_IRQ_SUSPEND_TIMEOUT`, include/uapi/linux/netdev.h.
    const GRO_FLUSH_TIMEOUT: u16 = 6;
    const IRQ_SUSPEND_TIMEOUT: u16 = 7;
    let mut request = netdev::Request::new().op_napi_get_dump();
    drop(request.encode().push_ifindex(ifindex.0));
    let napi = |napi: netdev::IterableNapi<'_>| {
        let uint = |wanted| uint(napi.get_buf(), wanted);
        Some(NetdevNapi {
            id: napi.get_id().ok()?,
            ifindex,
            irq: napi.get_irq().ok(),
            pid: napi.get_pid().ok(),
            defer_hard_irqs: napi.get_defer_hard_irqs().ok(),
            gro_flush_timeout: uint(GRO_FLUSH_TIMEOUT),
            irq_suspend_timeout: uint(IRQ_SUSPEND_TIMEOUT),
        })
    };
    socket::dump(&request, napi).map_err(|error| error.of("list the NAPI instances of", ifindex))
}

/// Packets that each receive queue of this netdev has had (6.10 and later); nothing where the driver does not count them.
pub fn received_by_queue(ifindex: IfIndex) -> Result<Vec<(u32, u64)>, NetlinkError> {
    /// `NETDEV_A_QSTATS_RX_PACKETS`, include/uapi/linux/netdev.h.
    const RX_PACKETS: u16 = 8;
    let mut request = netdev::Request::new().op_qstats_get_dump();
    drop(request.encode().push_ifindex(ifindex.0).push_scope(netdev::QstatsScope::Queue as u32));
    let rx = |queue: netdev::IterableQstats<'_>| {
        let is_rx = queue.get_queue_type().is_ok_and(|kind| kind == netdev::QueueType::Rx as u32);
        let id = queue.get_queue_id().ok().filter(|_| is_rx)?;
        Some((id, uint(queue.get_buf(), RX_PACKETS)?))
    };
    socket::dump(&request, rx).map_err(|error| error.of("read the statistics of the queues of", ifindex))
}

/// An attribute that has four bytes, or eight where its value needs them (`nla_put_uint`, include/net/netlink.h). The
/// generated code reads four.
fn uint(mut attributes: &[u8], wanted: u16) -> Option<u64> {
    const HEADER: usize = 4;
    loop {
        let [length, kind] = [0, 2].map(|at| {
            let bytes = attributes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u16::from_ne_bytes)
        });
        let length = usize::from(length?);
        let value = attributes.get(HEADER..length)?;
        if kind? == wanted {
            let short = value.try_into().map(u32::from_ne_bytes).map(u64::from);
            return short.or_else(|_| value.try_into().map(u64::from_ne_bytes)).ok();
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn take(features: &mut XdpFeatures, attribute: Dev<'_>) {
    match attribute {
        Dev::XdpFeatures(bits) => take_acts(features, bits),
        Dev::XdpZcMaxSegs(buffers) => features.xdp_zc_max_segs = Some(buffers),
        Dev::XdpRxMetadataFeatures(bits) => {
            let has = |fact: XdpRxMetadata| bits & fact as u64 != 0;
            features.rx_metadata = RxMetadata {
                timestamp: has(XdpRxMetadata::Timestamp),
                hash: has(XdpRxMetadata::Hash),
                vlan_tag: has(XdpRxMetadata::VlanTag),
            };
        }
        Dev::XskFeatures(bits) => {
            let has = |flag: netdev::XskFlags| bits & flag as u64 != 0;
            features.tx_metadata = TxMetadata {
                timestamp: has(netdev::XskFlags::TxTimestamp),
                checksum: has(netdev::XskFlags::TxChecksum),
                launch_time: has(netdev::XskFlags::TxLaunchTimeFifo),
            };
        }
        _ => {}
    }
}

fn take_acts(features: &mut XdpFeatures, bits: u64) {
    let has = |act: XdpAct| bits & act as u64 != 0;
    features.basic = has(XdpAct::Basic);
    features.redirect = has(XdpAct::Redirect);
    features.ndo_xmit = has(XdpAct::NdoXmit);
    features.xsk_zerocopy = has(XdpAct::XskZerocopy);
    features.hw_offload = has(XdpAct::HwOffload);
    features.rx_sg = has(XdpAct::RxSg);
    features.ndo_xmit_sg = has(XdpAct::NdoXmitSg);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let header = [(value.len() as u16 + 4).to_ne_bytes(), kind.to_ne_bytes()].concat();
        [&header[..], value, &[0; 3][..value.len().next_multiple_of(4) - value.len()]].concat()
    }

    #[test]
    fn a_number_is_read_with_four_bytes_and_with_eight() {
        let large = 1u64 << 40;
        let all = [attribute(1, &[1]), attribute(8, &7u32.to_ne_bytes()), attribute(9, &large.to_ne_bytes())];
        let all = all.concat();
        assert_eq!((uint(&all, 8), uint(&all, 9)), (Some(7), Some(large)));
        assert_eq!((uint(&all, 1), uint(&all, 2), uint(&[], 8)), (None, None, None));
        for end in 0..all.len() {
            // Cut off anywhere, it is a value or none.
            let _ = uint(&all[..end], 9);
        }
        assert_eq!(uint(&[0; 8], 8), None, "of no length");
    }
}
