//! A guest that has moved here: its station is learned, and switches beyond the ports are told.

use forebay_control::IfIndex;
use forebay_wire::mac;
use forebay_xsk::TagEdit;

use super::Control;
use crate::fdb::Learned;
use crate::guests::GuestKey;

/// A reverse ARP request (RFC 903): EtherType, then hardware Ethernet, protocol IPv4, lengths of addresses, operation.
const REVERSE_ARP: [u8; 10] = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
/// Bytes of the shortest frame on a wire, less its check sequence.
const SHORTEST: usize = 60;

impl Control {
    /// Learns the guest's station at its port, and returns frames that tell others: each with the netdev to send it from.
    /// They go where a packet of the guest would be flooded, but for other guests, which nobody is behind.
    pub(crate) fn announce_guest(&mut self, key: GuestKey, address: [u8; 6]) -> Vec<(IfIndex, Vec<u8>)> {
        if self.guest_mut(key).is_none() {
            return Vec::new();
        }
        let topology = self.shared.topology.load();
        let Some(port) = topology.port(key.id) else { return Vec::new() };
        let Ok(vid) = port.vlans.ingress(None, false) else { return Vec::new() };
        let learned = self.shared.fdb.learn(vid, mac::from_bytes(address), key.id.0, self.shared.now_s());
        if matches!(learned, Learned::Multicast | Learned::Static) {
            return Vec::new();
        }
        let hears = |other: &&crate::topology::PortEntry| {
            other.id != key.id
                && !other.is_blocked
                && !(other.isolated && port.isolated)
                && other.vlans.carries(vid)
        };
        let frame = |other: &crate::topology::PortEntry| {
            let ifindex = other.output?.ifindex()?;
            let tag = match other.vlans.egress(vid, None, false) {
                TagEdit::Push(tag) => Some(tag),
                _ => None,
            };
            Some((ifindex, reverse_arp(address, tag)))
        };
        topology.ports().filter(hears).filter_map(frame).collect()
    }
}

/// A frame by which a station makes itself known.
fn reverse_arp(address: [u8; 6], tag: Option<[u8; 4]>) -> Vec<u8> {
    let tag = tag.as_ref().map_or(&[][..], |tag| tag);
    let mut frame = [&[0xff; 6][..], &address, tag, &REVERSE_ARP].concat();
    for _ in ["sender", "target"] {
        frame.extend(address);
        frame.extend([0; 4]);
    }
    frame.resize(frame.len().max(SHORTEST), 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_names_the_station_three_times_and_is_not_too_short() {
        let station = [2, 0, 0, 0, 0, 7];
        let plain = reverse_arp(station, None);
        assert_eq!((plain.len(), &plain[..6], &plain[6..12]), (60, &[0xff; 6][..], &station[..]));
        assert_eq!(plain[12..22], [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
        assert_eq!((&plain[22..28], &plain[32..38]), (&station[..], &station[..]));
        let tagged = reverse_arp(station, Some([0x81, 0, 0, 10]));
        assert_eq!((&tagged[12..18], tagged.len()), (&[0x81, 0, 0, 10, 0x80, 0x35][..], 60));
    }
}
