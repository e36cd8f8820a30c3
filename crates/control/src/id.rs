//! Identifiers: small types, so that a port can't be passed where a queue is meant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, ToSchema)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id! {
    /// A port's number inside one switch: stable while the port exists, reused after it is deleted.
    PortId(u16)
}
number_id! {
    /// A receive or transmit queue of one netdev, counted from 0.
    QueueId(u32)
}
number_id! {
    /// The kernel's number for a netdev, unique within one network namespace; 0 never names one.
    IfIndex(u32)
}

/// A VLAN's number, 0 to 4094; 0 is the VLAN of untagged packets on transparent ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Vid(u16);

impl Vid {
    /// The VLAN of untagged packets on transparent ports.
    pub const UNTAGGED: Vid = Vid(0);
    /// The largest number there is: 4095 is reserved by IEEE 802.1Q.
    pub const MAX: u16 = 4094;

    /// The VLAN of this number, or `None` above [`Vid::MAX`].
    pub const fn new(number: u16) -> Option<Vid> {
        if number <= Vid::MAX { Some(Vid(number)) } else { None }
    }

    /// The number, 0 to 4094.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Vid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Vid> for u16 {
    fn from(vid: Vid) -> u16 {
        vid.0
    }
}

/// A VLAN number that isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("VLAN {value} is not a number from 0 to {}", Vid::MAX)]
pub struct VidError {
    /// What was given.
    pub value: String,
}

impl TryFrom<u16> for Vid {
    type Error = VidError;

    fn try_from(number: u16) -> Result<Vid, VidError> {
        Vid::new(number).ok_or_else(|| VidError { value: number.to_string() })
    }
}

impl FromStr for Vid {
    type Err = VidError;

    fn from_str(text: &str) -> Result<Vid, VidError> {
        let number = text.parse::<u16>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        number.and_then(Vid::new).ok_or_else(|| VidError { value: text.to_owned() })
    }
}

/// A 48-bit Ethernet address, in the order it has on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The address of everybody.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// Whether this is a group address (multicast or broadcast), which no single station has.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether all six bytes are 0, which no station has.
    pub const fn is_zero(self) -> bool {
        matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> String {
        mac.to_string()
    }
}

/// Text that isn't an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{value}` is not an Ethernet address: six bytes in hexadecimal with colons, as in 02:00:00:00:00:01"
)]
pub struct MacAddrError {
    /// What was given.
    pub value: String,
}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    fn from_str(text: &str) -> Result<MacAddr, MacAddrError> {
        parse_mac(text).ok_or_else(|| MacAddrError { value: text.to_owned() })
    }
}

impl TryFrom<String> for MacAddr {
    type Error = MacAddrError;

    fn try_from(text: String) -> Result<MacAddr, MacAddrError> {
        text.parse()
    }
}

fn parse_mac(text: &str) -> Option<MacAddr> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next()?;
        let is_hex = part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_hex)?;
    }
    parts.next().is_none().then_some(MacAddr(bytes))
}

impl PartialSchema for Vid {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(0))
            .maximum(Some(Vid::MAX))
            .description(Some("A VLAN's number; 0 is the VLAN of untagged packets on transparent ports."))
            .into()
    }
}

impl ToSchema for Vid {}

impl PartialSchema for MacAddr {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"))
            .description(Some("A 48-bit Ethernet address."))
            .examples(["02:00:00:00:00:01"])
            .into()
    }
}

impl ToSchema for MacAddr {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let mac: MacAddr = "02:aB:00:ff:10:01".parse().unwrap();
        assert_eq!(mac, MacAddr([2, 0xab, 0, 0xff, 0x10, 1]));
        assert_eq!(mac.to_string(), "02:ab:00:ff:10:01");
    }

    #[test]
    fn text_that_is_nearly_an_address_is_refused() {
        for text in [
            "",
            "02",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
            "02:00:00:00:00:+1",
            "gg:00:00:00:00:01",
        ] {
            assert_eq!(text.parse::<MacAddr>(), Err(MacAddrError { value: text.to_owned() }));
        }
    }

    #[test]
    fn a_vlan_ends_at_4094() {
        assert_eq!("4094".parse::<Vid>().unwrap().get(), 4094);
        for text in ["4095", "65536", "-1", "+1", "", "x"] {
            assert!(text.parse::<Vid>().is_err(), "{text} was taken");
        }
        assert!(serde_json::from_str::<Vid>("4095").unwrap_err().to_string().contains("4095"));
    }
}
