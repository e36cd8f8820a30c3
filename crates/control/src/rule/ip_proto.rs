//! Protocols of IPv4 and IPv6: the words of those that rules are made for, and numbers.

use std::fmt;
use std::str::FromStr;

/// By the IANA registry "Assigned Internet Protocol Numbers".
const WORDS: [(u8, &str); 5] = [(1, "icmp"), (6, "tcp"), (17, "udp"), (58, "icmpv6"), (132, "sctp")];

/// What an IP packet carries, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IpProto(u8);

impl IpProto {
    /// The protocol of this number.
    pub const fn new(number: u8) -> IpProto {
        IpProto(number)
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for IpProto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match WORDS.iter().find(|(number, _)| *number == self.0) {
            Some((_, word)) => f.pad(word),
            None => self.0.fmt(f),
        }
    }
}

/// Text that names no protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ip_proto `{value}` is not one of icmp, tcp, udp, icmpv6, sctp or a number from 0 to 255")]
pub struct IpProtoError {
    /// What was given.
    pub value: String,
}

impl FromStr for IpProto {
    type Err = IpProtoError;

    fn from_str(text: &str) -> Result<IpProto, IpProtoError> {
        if let Some((number, _)) = WORDS.iter().find(|(_, word)| *word == text) {
            return Ok(IpProto(*number));
        }
        let number = text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        number.map(IpProto).ok_or_else(|| IpProtoError { value: text.to_owned() })
    }
}
