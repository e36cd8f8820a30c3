//! MAC addresses as 48-bit values in a `u64`, the first byte on the wire being the most significant.
//!
//! A `u64` compares, hashes and packs into an FDB key in one instruction, which six bytes do not.

/// The broadcast address.
pub const BROADCAST: u64 = 0xffff_ffff_ffff;

/// The individual/group bit of the first byte (IEEE 802-2014, 8.2.2).
const GROUP: u64 = 1 << 40;

/// First of the sixteen addresses 01:80:C2:00:00:00 to 0F that a bridge must not forward (IEEE 802.1Q-2018, table 8-1).
const LINK_LOCAL: u64 = 0x0180_c200_0000;

/// The 48-bit value of six bytes in wire order.
pub const fn from_bytes(b: [u8; 6]) -> u64 {
    u64::from_be_bytes([0, 0, b[0], b[1], b[2], b[3], b[4], b[5]])
}

/// The six bytes in wire order of a 48-bit value; bits above 48 are ignored.
pub const fn to_bytes(mac: u64) -> [u8; 6] {
    let [_, _, b @ ..] = mac.to_be_bytes();
    b
}

/// Whether the address names a group; true for broadcast too.
pub const fn is_multicast(mac: u64) -> bool {
    mac & GROUP != 0
}

/// Whether a bridge must keep frames to this address to itself (spanning tree, LACP, LLDP and their kin).
pub const fn is_link_local(mac: u64) -> bool {
    mac & !0xf == LINK_LOCAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_way_through_the_value() {
        let bytes = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
        assert_eq!(from_bytes(bytes), 0x0211_2233_4455);
        assert_eq!(to_bytes(from_bytes(bytes)), bytes);
    }

    #[test]
    fn only_the_group_bit_makes_an_address_multicast() {
        assert!(is_multicast(BROADCAST));
        assert!(is_multicast(0x0100_5e00_0001));
        assert!(!is_multicast(0xfeff_ffff_ffff));
        assert!(!is_multicast(0));
    }

    #[test]
    fn exactly_sixteen_addresses_are_link_local() {
        assert!(!is_link_local(0x0180_c1ff_ffff));
        assert!((0x0180_c200_0000..=0x0180_c200_000f).all(is_link_local));
        assert!(!is_link_local(0x0180_c200_0010));
    }
}
