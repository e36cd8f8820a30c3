//! What kind of packets a netdev carries, as the kernel numbers it.

use std::fmt;

/// ARPHRD_ETHER (include/uapi/linux/if_arp.h, 6.18): packets begin with an Ethernet header.
const ETHERNET: u16 = 1;

/// Words by which `ip link` calls the other types that a host is likely to have (if_arp.h, 6.18).
const WORDS: [(u16, &str); 13] = [
    (ETHERNET, "ether"),
    (32, "infiniband"),
    (280, "can"),
    (512, "ppp"),
    (519, "rawip"),
    (768, "ipip"),
    (769, "tunnel6"),
    (772, "loopback"),
    (776, "sit"),
    (778, "gre"),
    (823, "gre6"),
    (824, "netlink"),
    (65534, "none"),
];

/// Type of a netdev's hardware: one of the kernel's ARPHRD numbers. Tunnels have one as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HardwareType(pub u16);

impl HardwareType {
    /// The type of everything with Ethernet headers: NICs, veths, taps, VLANs, bridges.
    pub const ETHERNET: Self = Self(ETHERNET);
}

/// As `ip link` shows it: `link/none`; a number where there is no word.
impl fmt::Display for HardwareType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match WORDS.iter().find(|(number, _)| *number == self.0) {
            Some((_, word)) => write!(f, "link/{word}"),
            None => write!(f, "link/[{}]", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_shown_as_ip_link_shows_it() {
        let shown = [1, 65534, 768, 4711].map(|number| HardwareType(number).to_string());
        assert_eq!(shown, ["link/ether", "link/none", "link/ipip", "link/[4711]"]);
    }
}
