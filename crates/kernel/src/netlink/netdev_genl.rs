//! What a netdev's driver can do with XDP, as the driver itself declares, and its queues (netlink family `netdev`, 6.3
//! and later).

use forebay_control::IfIndex;
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
    let mut request = netdev::Request::new().op_queue_get_dump();
    drop(request.encode().push_ifindex(ifindex.0));
    let rx = |queue: netdev::IterableQueue<'_>| {
        let is_rx = queue.get_type().is_ok_and(|kind| kind == netdev::QueueType::Rx as u32);
        queue.get_id().ok().filter(|_| is_rx).map(|id| (id, queue.get_napi_id().ok()))
    };
    socket::dump(&request, rx).map_err(|error| error.of("list the queues of", ifindex))
}

/// NAPI instances of this netdev whose interrupt the driver tells, with that (6.8 and later).
pub fn napi_irqs(ifindex: IfIndex) -> Result<Vec<(u32, u32)>, NetlinkError> {
    let mut request = netdev::Request::new().op_napi_get_dump();
    drop(request.encode().push_ifindex(ifindex.0));
    let told = |napi: netdev::IterableNapi<'_>| Some((napi.get_id().ok()?, napi.get_irq().ok()?));
    socket::dump(&request, told).map_err(|error| error.of("list the NAPI instances of", ifindex))
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
