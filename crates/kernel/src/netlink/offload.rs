//! Which work a netdev takes off the kernel's hands, and taking it back.
//!
//! A netdev whose transmit offloads are off gets packets that are finished: segmented, in one piece, with their
//! checksums filled in. The kernel does that on the way, wherever the packets come from.

use std::collections::BTreeSet;

use forebay_control::IfIndex;
use netlink_bindings::ethtool::{self, IterableBitset, IterableFeatures};

use super::error::NetlinkError;
use super::{link, socket};

/// Commands of the `ethtool` family (include/uapi/linux/ethtool_netlink_generated.h, 6.18). The generated bindings
/// number everything after LINKINFO_SET differently, and what they call "get features" would be another command.
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;

/// A netdev's features by the names that `ethtool -k` shows in its source form, such as `tx-tcp-segmentation`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Features {
    /// In effect.
    pub active: BTreeSet<String>,
    /// Can be switched.
    pub changeable: BTreeSet<String>,
    /// Asked for, in effect or not.
    pub wanted: BTreeSet<String>,
}

/// A VLAN tag is taken off a packet before anybody sees it, and lies beside it then.
const RX_VLAN: &str = "rx-vlan-hw-parse";

impl Features {
    /// Whether packets come in without the VLAN tags that they had.
    pub fn strips_tags(&self) -> bool {
        self.active.contains(RX_VLAN)
    }

    /// The transmit offloads among the features in effect: none after [`set_tx_offloads`] with `false`.
    pub fn active_tx_offloads(&self) -> impl Iterator<Item = &str> {
        self.active.iter().map(String::as_str).filter(|name| is_tx_offload(name))
    }
}

/// Whether a feature of this name lets an unfinished packet reach the netdev. Inserting a VLAN tag isn't one of
/// them: the tag travels beside a packet that is finished.
fn is_tx_offload(name: &str) -> bool {
    let works = ["checksum", "segmentation", "scatter-gather", "gso"];
    name.starts_with("tx-") && works.iter().any(|work| name.contains(work))
}

/// The features of the netdev of this name.
pub fn features(name: &str) -> Result<Features, NetlinkError> {
    link::check_name(name)?;
    let mut request = ethtool::Request::new().op_features_get_do();
    request.header_mut().cmd = ETHTOOL_MSG_FEATURES_GET;
    drop(request.encode().nested_header().push_dev_name_bytes(name.as_bytes()));
    let mut found = Features::default();
    socket::exchange(&request, |reply| found = decode(&reply))
        .map_err(|error| error.of("read the features of", name))?;
    Ok(found)
}

/// The kernel merges packets of one stream as they come in.
const GRO: &str = "rx-gro";

/// Whether the kernel merges packets of one stream that come in at the netdev (GRO).
pub fn merges(ifindex: IfIndex) -> Result<bool, NetlinkError> {
    let mut request = ethtool::Request::new().op_features_get_do();
    request.header_mut().cmd = ETHTOOL_MSG_FEATURES_GET;
    drop(request.encode().nested_header().push_dev_index(ifindex.0));
    let mut found = Features::default();
    socket::exchange(&request, |reply| found = decode(&reply))
        .map_err(|error| error.of("read the features of", ifindex))?;
    Ok(found.active.contains(GRO))
}

/// Switches that on or off.
pub fn set_merges(ifindex: IfIndex, on: bool) -> Result<(), NetlinkError> {
    let mut request = ethtool::Request::new().op_features_set_do();
    request.header_mut().cmd = ETHTOOL_MSG_FEATURES_SET;
    let message = request.encode().nested_header().push_dev_index(ifindex.0).end_nested();
    let bit = message.nested_wanted().nested_bits().nested_bit().push_name_bytes(GRO.as_bytes());
    drop(if on { bit.push_value(()) } else { bit });
    socket::command(&request).map_err(|error| error.of("switch GRO of", ifindex))
}

/// Switches every transmit offload of the netdev off, or on as far as it has them. VLAN tag insertion is left alone.
/// It is an error when one that should be off stays on; the rest are off then all the same.
pub fn set_tx_offloads(name: &str, on: bool) -> Result<(), NetlinkError> {
    let before = features(name)?;
    let to_switch: Vec<_> = before.changeable.iter().filter(|feature| is_tx_offload(feature)).collect();
    let mut request = ethtool::Request::new().op_features_set_do();
    request.header_mut().cmd = ETHTOOL_MSG_FEATURES_SET;
    let message = request.encode().nested_header().push_dev_name_bytes(name.as_bytes()).end_nested();
    let mut bits = message.nested_wanted().nested_bits();
    for feature in to_switch {
        let bit = bits.nested_bit().push_name_bytes(feature.as_bytes());
        bits = if on { bit.push_value(()).end_nested() } else { bit.end_nested() };
    }
    drop(bits);
    socket::command(&request).map_err(|error| error.of("switch the offloads of", name))?;
    if on { Ok(()) } else { check_all_off(name) }
}

fn check_all_off(name: &str) -> Result<(), NetlinkError> {
    let after = features(name)?;
    let still_on: Vec<_> = after.active_tx_offloads().collect();
    if still_on.is_empty() {
        return Ok(());
    }
    Err(NetlinkError::Refused {
        what: "switch off all offloads of",
        netdev: name.to_owned(),
        hint: format!("still on: {}", still_on.join(", ")),
        source: std::io::Error::from_raw_os_error(libc::EOPNOTSUPP),
    })
}

fn decode(reply: &IterableFeatures<'_>) -> Features {
    Features {
        active: reply.get_active().map(names).unwrap_or_default(),
        changeable: reply.get_hw().map(names).unwrap_or_default(),
        wanted: reply.get_wanted().map(names).unwrap_or_default(),
    }
}

/// The names of the bits that are set. The kernel lists only these, without a mask, when it answers.
fn names(set: IterableBitset<'_>) -> BTreeSet<String> {
    let Ok(bits) = set.get_bits() else { return BTreeSet::new() };
    bits.get_bit().filter_map(|bit| bit.get_name().ok().map(link::text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_insertion_and_receive_offloads_are_not_transmit_offloads() {
        for name in [
            "tx-checksum-ip-generic",
            "tx-scatter-gather",
            "tx-tcp6-segmentation",
            "tx-gso-partial",
            "tx-gso-list",
        ] {
            assert!(is_tx_offload(name), "{name}");
        }
        for name in
            ["tx-vlan-hw-insert", "tx-vlan-stag-hw-insert", "rx-checksum", "rx-gro", "highdma", "tx-lockless"]
        {
            assert!(!is_tx_offload(name), "{name}");
        }
    }
}
