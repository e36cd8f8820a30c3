//! Ports with several members: PCI functions of one physical port, or netdevs that lead to the same network.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::words::words;

/// Most members of one port.
pub const MAX_MEMBERS: usize = 16;

/// Where a PCI function is. Functions are in the order of their addresses: by domain, bus, device, function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    /// The domain, also called segment.
    pub domain: u32,
    /// The bus in the domain.
    pub bus: u8,
    /// The device on the bus, up to 31.
    pub device: u8,
    /// The function of the device, up to 7.
    pub function: u8,
}

/// Text that is no PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{value}` is not a PCI address: domain, bus, device and function in hexadecimal, as in 0000:3b:00.1"
)]
pub struct PciAddressError {
    /// What was given.
    pub value: String,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> String {
        address.to_string()
    }
}

impl FromStr for PciAddress {
    type Err = PciAddressError;

    fn from_str(text: &str) -> Result<PciAddress, PciAddressError> {
        parse(text).ok_or_else(|| PciAddressError { value: text.to_owned() })
    }
}

impl TryFrom<String> for PciAddress {
    type Error = PciAddressError;

    fn try_from(text: String) -> Result<PciAddress, PciAddressError> {
        text.parse()
    }
}

/// As sysfs names functions: four digits or more of the domain, the others with as many digits as they can have.
fn parse(text: &str) -> Option<PciAddress> {
    let number = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(text, 16).ok().filter(|_| is_hex && digits.contains(&text.len()))
    };
    let mut parts = text.split(':');
    let (domain, bus, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let (device, function) = rest.split_once('.').filter(|_| parts.next().is_none())?;
    let device = u8::try_from(number(device, 2..=2)?).ok().filter(|device| *device < 32)?;
    let function = u8::try_from(number(function, 1..=1)?).ok().filter(|function| *function < 8)?;
    let bus = u8::try_from(number(bus, 2..=2)?).ok()?;
    Some(PciAddress { domain: number(domain, 4..=8)?, bus, device, function })
}

impl PartialSchema for PciAddress {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .pattern(Some("^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\\.[0-7]$"))
            .description(Some("A PCI function's address."))
            .examples(["0000:3b:00.1"])
            .into()
    }
}

impl ToSchema for PciAddress {}

/// When a port with several members carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Membership {
    /// While all members are there.
    #[default]
    Strict,
    /// While any of them is there.
    Any,
}

words!(Membership: Strict => "strict", Any => "any");

/// A word that does not say when a port with several members carries packets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("members `{value}` is not one of strict, any")]
pub struct MembershipError {
    /// What was given.
    pub value: String,
}

impl FromStr for Membership {
    type Err = MembershipError;

    fn from_str(text: &str) -> Result<Membership, MembershipError> {
        [Membership::Strict, Membership::Any]
            .into_iter()
            .find(|word| word.name() == text)
            .ok_or_else(|| MembershipError { value: text.to_owned() })
    }
}

/// A member that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberShow {
    /// Its netdev.
    pub netdev: String,
    /// The netdev's number.
    pub ifindex: crate::IfIndex,
    /// Its PCI function, if it has one.
    pub pci: Option<PciAddress>,
    /// Whether packets may leave by it: it is up and has a carrier.
    pub carries: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written_and_functions_are_in_its_order() {
        let texts =
            ["0000:3b:00.0", "0000:3b:00.1", "0000:3b:01.0", "0000:af:00.0", "0001:02:00.0", "10000:e1:00.0"];
        let addresses = texts.map(|text| text.parse::<PciAddress>().unwrap());
        assert!(addresses.is_sorted());
        assert_eq!(addresses.map(|address| address.to_string()), texts);
    }

    #[test]
    fn text_that_is_nearly_an_address_is_refused() {
        for text in [
            "",
            "3b:00.0",
            "0000:3b:00",
            "0000:3b:00.8",
            "0000:3b:20.0",
            "0000:3b:00.0:1",
            "0000:+b:00.0",
            "0:3b:00.0",
        ] {
            assert_eq!(text.parse::<PciAddress>(), Err(PciAddressError { value: text.to_owned() }));
        }
    }
}
