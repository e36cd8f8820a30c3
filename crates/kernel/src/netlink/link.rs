//! What a netdev is: one dump tells of all, one request of one.

mod change;
mod hardware;
mod traffic;

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use forebay_control::group::PciAddress;
use forebay_control::{IfIndex, MacAddr};
use netlink_bindings::rt_link::{self, IfinfoFlags, Ifinfomsg, IterableLinkAttrs, LinkAttrs, XdpAttrs};
use netlink_bindings::tc::{self, Tcmsg};

use super::error::NetlinkError;
use super::socket;
use crate::machine;

pub use change::{
    create_veth, delete, disable_ipv6_autoconf, move_to_netns, rename, set_mtu, set_promiscuous,
    set_tx_queue_len, set_up,
};
pub use hardware::HardwareType;
pub use traffic::{Traffic, traffic};

/// The longest name of a netdev in bytes (IFNAMSIZ without its NUL).
pub const NAME_MAX_BYTES: usize = libc::IFNAMSIZ - 1;

/// Leave the traffic counters out of answers: they are half of each (RTEXT_FILTER_SKIP_STATS, rtnetlink.h, 6.18).
const EXT_MASK_SKIP_STATS: u32 = 1 << 3;

/// Where classifiers hang that look at what leaves (TC_H_CLSACT with TC_H_MIN_EGRESS, pkt_sched.h, 6.18).
const TC_H_EGRESS: u32 = 0xffff_fff3;

/// A device that a netdev hangs on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Device {
    /// Its bus: `pci`, `virtio`, `usb`, …
    pub bus: String,
    /// Its name there, such as `0000:00:03.0`.
    pub name: String,
}

impl Device {
    /// Whether it is a virtual function of another device (SR-IOV), which decides what it may receive.
    pub fn is_virtual_function(&self) -> bool {
        self.path().join("physfn").exists()
    }

    /// The PCI function that it is or hangs on, as a virtio device does.
    pub fn function(&self) -> Option<PciAddress> {
        machine::function_of(&self.path())
    }

    fn path(&self) -> PathBuf {
        Path::new("/sys/bus").join(&self.bus).join("devices").join(&self.name)
    }
}

/// What a driver tells of the physical port that a netdev is on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhysicalPort {
    /// Its id.
    pub id: Option<Vec<u8>>,
    /// The id of the eswitch that the netdev belongs to.
    pub switch_id: Option<Vec<u8>>,
    /// The netdev's name in the eswitch.
    pub name: Option<String>,
}

/// A netdev as the kernel described it at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// The kernel's number for it, unique in its network namespace; it changes when the netdev moves.
    pub ifindex: IfIndex,
    /// Its name, at most [`NAME_MAX_BYTES`].
    pub name: String,
    /// What made it: `veth`, `tun`, `vlan`, `bridge`, `dummy`, …; nothing for most hardware and for loopback.
    pub kind: Option<String>,
    /// What its packets begin with.
    pub hardware: HardwareType,
    /// The longest layer-3 packet in bytes.
    pub mtu: u32,
    /// Its Ethernet address; `None` for a netdev that has another kind of address, or none.
    pub mac: Option<[u8; 6]>,
    /// Somebody switched it on.
    pub admin_up: bool,
    /// It is switched on and can carry packets (IFF_RUNNING).
    pub running: bool,
    /// The layer below is connected, as far as the driver knows.
    pub carrier: bool,
    /// It leads back to this machine.
    pub is_loopback: bool,
    /// The XDP program on it, if there is one.
    pub xdp: Option<XdpAttachment>,
    /// The netdev at its other end (veth) or below it (vlan, macvlan); a number in `peer_netnsid`'s namespace.
    pub peer_ifindex: Option<IfIndex>,
    /// The number, as this namespace counts, of the namespace that `peer_ifindex` is in; `None`: this one.
    pub peer_netnsid: Option<i32>,
    /// The bridge, bond or other netdev that it belongs to.
    pub master: Option<IfIndex>,
    /// Its own flag for all packets is set, as an administrator sets it.
    pub is_promiscuous: bool,
    /// How many parties want all packets, not only those addressed to it.
    pub promiscuity: u32,
    /// Receive queues.
    pub num_rx_queues: u32,
    /// Transmit queues.
    pub num_tx_queues: u32,
    /// The device behind it; none: it is purely virtual.
    pub parent: Option<Device>,
    /// The physical port that it is on, as far as its driver tells.
    pub physical: PhysicalPort,
    /// A queueing discipline has a say about what leaves by it.
    pub has_qdisc: bool,
}

/// An XDP program on a netdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpAttachment {
    /// The program's id, as `bpftool prog show` lists it; 0 if the kernel did not say.
    pub prog_id: u32,
    /// Where in the receive path it runs.
    pub mode: XdpMode,
}

/// Where in the receive path an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// After the driver, on an skb.
    Generic,
    /// In the device.
    Offloaded,
    /// Several programs in several of these places; the id is of the one in the driver, if there.
    Several,
}

/// All netdevs of this network namespace, in one dump.
pub fn list() -> Result<Vec<Link>, NetlinkError> {
    let mut request = rt_link::Request::new().op_getlink_dump(&Ifinfomsg::new());
    request.encode().push_ext_mask(EXT_MASK_SKIP_STATS);
    socket::dump(&request, |(header, attributes)| Some(Link::decode(&header, attributes)))
        .map_err(|error| error.of("list", "*"))
}

/// The netdev of this name.
pub fn by_name(name: &str) -> Result<Link, NetlinkError> {
    check_name(name)?;
    let mut request = rt_link::Request::new().op_getlink_do(&Ifinfomsg::new());
    request.encode().push_ext_mask(EXT_MASK_SKIP_STATS).push_ifname_bytes(name.as_bytes());
    get(&request, name)
}

/// The netdev of this number.
pub fn by_index(ifindex: IfIndex) -> Result<Link, NetlinkError> {
    let mut request = rt_link::Request::new().op_getlink_do(&header_of(ifindex));
    request.encode().push_ext_mask(EXT_MASK_SKIP_STATS);
    get(&request, &ifindex.to_string())
}

/// The netdev of this number in another network namespace, by that one's number in this one.
pub fn in_netns(netnsid: i32, ifindex: IfIndex) -> Result<Link, NetlinkError> {
    let mut request = rt_link::Request::new().op_getlink_do(&header_of(ifindex));
    request.encode().push_ext_mask(EXT_MASK_SKIP_STATS).push_target_netnsid(netnsid);
    get(&request, &ifindex.to_string())
}

/// Whether tc's classifiers look at what leaves by the netdev.
pub fn has_egress_classifiers(ifindex: IfIndex) -> Result<bool, NetlinkError> {
    let header = Tcmsg { ifindex: header_of(ifindex).ifi_index, parent: TC_H_EGRESS, ..Tcmsg::default() };
    let mut found = false;
    socket::exchange(&tc::Request::new().op_gettfilter_dump(&header), |_| found = true)
        .map(|()| found)
        .map_err(|error| error.of("look up the classifiers of", ifindex))
}

fn get(request: &rt_link::OpGetlinkDo<'_>, netdev: &str) -> Result<Link, NetlinkError> {
    let mut found = None;
    socket::exchange(request, |(header, attributes)| found = Some(Link::decode(&header, attributes)))
        .map_err(|error| error.of("look up", netdev))?;
    found.ok_or_else(|| NetlinkError::NoSuchNetdev { netdev: netdev.to_owned() })
}

/// Refuses what the kernel would refuse, in clearer words than "numerical result out of range".
pub(super) fn check_name(name: &str) -> Result<(), NetlinkError> {
    let is_allowed =
        |byte: u8| byte != b'/' && byte != b':' && byte != 0 && !byte.is_ascii_whitespace() && byte != 0x0b;
    let is_good = (1..=NAME_MAX_BYTES).contains(&name.len()) && name.bytes().all(is_allowed);
    if is_good && name != "." && name != ".." {
        return Ok(());
    }
    Err(NetlinkError::BadName { name: name.to_owned(), limit: NAME_MAX_BYTES })
}

/// The fixed header of a message about this netdev. The kernel's number is signed; one past it names no netdev.
fn header_of(ifindex: IfIndex) -> Ifinfomsg {
    Ifinfomsg { ifi_index: i32::try_from(ifindex.0).unwrap_or(i32::MAX), ..Ifinfomsg::new() }
}

impl Link {
    /// Whether a device is behind it (PCI, virtio, USB): it isn't purely virtual.
    pub fn has_parent_device(&self) -> bool {
        self.parent.is_some()
    }

    /// The PCI function that it is on: that of its device, or the one that sysfs says where netlink knows no device.
    pub fn function(&self) -> Option<PciAddress> {
        match &self.parent {
            Some(device) => device.function(),
            None => machine::function_of(&self.directory()?.join("device")),
        }
    }

    /// Its directory in sysfs. `None`: sysfs is not of the network namespace that it is in, where another netdev may have
    /// its name.
    pub fn directory(&self) -> Option<PathBuf> {
        let directory = Path::new("/sys/class/net").join(&self.name);
        let says = |name: &str, value: &str| {
            std::fs::read_to_string(directory.join(name)).is_ok_and(|text| text.trim() == value)
        };
        let address = self.mac.map(|mac| MacAddr(mac).to_string()).unwrap_or_default();
        let is_same = says("ifindex", &self.ifindex.to_string()) && says("address", &address);
        is_same.then_some(directory)
    }

    /// Reads a description. An attribute that can't be read is left at its default: a newer kernel may say more.
    pub(super) fn decode(header: &Ifinfomsg, attributes: IterableLinkAttrs<'_>) -> Link {
        let hardware = HardwareType(header.ifi_type);
        let ifindex = IfIndex(header.ifi_index.unsigned_abs());
        let mut link = Link { ifindex, hardware, ..Link::default() };
        link.take_flags(header.ifi_flags);
        for attribute in attributes.filter_map(Result::ok) {
            link.take(attribute);
        }
        // IFLA_LINK names the netdev itself where there is nothing else to name.
        if link.peer_netnsid.is_none() && link.peer_ifindex == Some(link.ifindex) {
            link.peer_ifindex = None;
        }
        link
    }

    fn take_flags(&mut self, flags: u32) {
        let has = |flag: IfinfoFlags| flags & flag as u32 != 0;
        self.admin_up = has(IfinfoFlags::Up);
        self.is_promiscuous = has(IfinfoFlags::Promisc);
        self.running = has(IfinfoFlags::Running);
        self.is_loopback = has(IfinfoFlags::Loopback);
    }

    fn take(&mut self, attribute: LinkAttrs<'_>) {
        match attribute {
            LinkAttrs::Ifname(name) => self.name = text(name),
            LinkAttrs::Mtu(bytes) => self.mtu = bytes,
            LinkAttrs::Address(address) => self.mac = address.try_into().ok(),
            LinkAttrs::Carrier(carrier) => self.carrier = carrier != 0,
            LinkAttrs::Linkinfo(info) => self.kind = info.get_kind().ok().map(text),
            LinkAttrs::Link(ifindex) => self.peer_ifindex = (ifindex != 0).then_some(IfIndex(ifindex)),
            LinkAttrs::LinkNetnsid(id) => self.peer_netnsid = Some(id),
            LinkAttrs::Master(ifindex) => self.master = (ifindex != 0).then_some(IfIndex(ifindex)),
            LinkAttrs::Promiscuity(parties) => self.promiscuity = parties,
            LinkAttrs::NumRxQueues(queues) => self.num_rx_queues = queues,
            LinkAttrs::NumTxQueues(queues) => self.num_tx_queues = queues,
            LinkAttrs::ParentDevName(name) => self.parent.get_or_insert_default().name = text(name),
            LinkAttrs::ParentDevBusName(bus) => self.parent.get_or_insert_default().bus = text(bus),
            LinkAttrs::PhysPortId(id) => self.physical.id = Some(id.to_vec()),
            LinkAttrs::PhysSwitchId(id) => self.physical.switch_id = Some(id.to_vec()),
            LinkAttrs::PhysPortName(name) => self.physical.name = Some(text(name)),
            LinkAttrs::Qdisc(name) => self.has_qdisc = name != c"noqueue",
            LinkAttrs::Xdp(xdp) => self.xdp = decode_xdp(xdp.filter_map(Result::ok)),
            _ => {}
        }
    }
}

fn decode_xdp(attributes: impl Iterator<Item = XdpAttrs>) -> Option<XdpAttachment> {
    let (mut attached, mut prog_id, mut driver_id) = (0, None, None);
    for attribute in attributes {
        match attribute {
            XdpAttrs::Attached(mode) => attached = mode,
            XdpAttrs::ProgId(id) => prog_id = Some(id),
            XdpAttrs::DrvProgId(id) => driver_id = Some(id),
            _ => {}
        }
    }
    // XDP_ATTACHED_* of include/uapi/linux/if_link.h, 6.18; 0 is XDP_ATTACHED_NONE.
    let mode = match attached {
        0 => return None,
        1 => XdpMode::Native,
        2 => XdpMode::Generic,
        3 => XdpMode::Offloaded,
        _ => XdpMode::Several,
    };
    Some(XdpAttachment { prog_id: prog_id.or(driver_id).unwrap_or(0), mode })
}

/// A name as text. The kernel lets names be any bytes; those that aren't UTF-8 are shown, not matched.
pub(super) fn text(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_the_kernel_would_refuse_is_refused_before_it_is_sent() {
        for name in ["", ".", "..", "a/b", "a b", "a:b", "a\tb", "sixteen-letters-", "a\0"] {
            assert!(
                matches!(check_name(name), Err(NetlinkError::BadName { limit: 15, .. })),
                "{name:?} was taken"
            );
        }
        for name in ["lo", "fifteen-letters", "veth0@x", "ü"] {
            assert!(check_name(name).is_ok(), "{name:?} was refused");
        }
    }

    #[test]
    fn random_bytes_where_a_link_is_described_cost_nothing_but_the_description() {
        // A walk over lengths and contents from a fixed generator: what matters is that nothing panics.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for length in 0..2000 {
            let bytes: Vec<u8> = (0..length % 300)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    (state & if state & 0x100 == 0 { 0x3f } else { 0xff }) as u8
                })
                .collect();
            let (header, attributes) = rt_link::OpGetlinkDo::decode_request(&bytes);
            let link = Link::decode(&header, attributes);
            assert!(link.name.len() <= bytes.len() * 3);
        }
    }
}
