//! IP networks, as in `10.0.0.0/8`.
//!
//! The rule it keeps: a network has one spelling. Bits behind the prefix are zero, and a text in which they are not
//! is refused with the right spelling, because nobody can say which half of it was meant.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::Family;

/// An IPv4 or IPv6 network; a single address is one of 32 or 128 bits.
///
/// In order: IPv4 before IPv6, by address, and a network before those within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    family: Family,
    number: u128,
    len: u8,
}

/// Why something is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// There is no address before the slash: correct the text.
    #[error("`{value}` does not begin with an IPv4 or IPv6 address, as in 10.0.0.0/8 or fd00::/8")]
    Address {
        /// What was given.
        value: String,
    },
    /// What follows the slash is no number: correct the text.
    #[error("`{value}` does not end with a prefix length, as in 10.0.0.0/8")]
    Length {
        /// What was given.
        value: String,
    },
    /// The prefix is longer than an address of its family: correct the length.
    #[error("the prefix length of `{value}` is over {limit}")]
    TooLong {
        /// What was given.
        value: String,
        /// The longest there is: 32 for IPv4, 128 for IPv6.
        limit: u8,
    },
    /// Bits are set that the prefix does not cover: say the network, or the address alone.
    #[error("`{value}` sets bits behind its prefix; the network is {network}")]
    HostBits {
        /// What was given.
        value: String,
        /// The network that the address is in.
        network: Prefix,
    },
}

impl Prefix {
    /// The network of this address and prefix length in bits, or why there is none.
    pub fn new(address: IpAddr, len: u8) -> Result<Prefix, PrefixError> {
        let value = || format!("{address}/{len}");
        let (family, number) = Family::split(address);
        if len > family.bits() {
            return Err(PrefixError::TooLong { value: value(), limit: family.bits() });
        }
        let network = Prefix { family, number: number & mask(len), len };
        if network.number != number {
            return Err(PrefixError::HostBits { value: value(), network });
        }
        Ok(network)
    }

    /// The network that is one address.
    pub fn host(address: IpAddr) -> Prefix {
        let (family, number) = Family::split(address);
        Prefix { family, number, len: family.bits() }
    }

    /// Bits that all its addresses share, 0 to 32 or 128.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a network is never empty; its length is that of the prefix"
    )]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Its first address.
    pub fn address(&self) -> IpAddr {
        self.family.address(self.number)
    }

    /// Its version of IP.
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Whether it is of IPv4.
    pub const fn is_ipv4(&self) -> bool {
        matches!(self.family, Family::V4)
    }

    /// Its first address as bytes for a map's key: IPv4 in the first four, the rest zero. It does not say the family.
    pub const fn key(&self) -> [u8; 16] {
        self.number.to_be_bytes()
    }

    /// Whether the address is in it; never, for an address of the other family.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (family, number) = Family::split(address);
        self.covers(family, number)
    }

    pub(crate) const fn number(&self) -> u128 {
        self.number
    }

    /// The bits of an address that it asks for.
    pub(crate) const fn mask(&self) -> u128 {
        mask(self.len)
    }

    pub(crate) fn covers(&self, family: Family, number: u128) -> bool {
        self.family == family && number & self.mask() == self.number
    }
}

/// The first `len` of 128 bits.
const fn mask(len: u8) -> u128 {
    match len {
        0 => 0,
        _ => u128::MAX << (128 - len),
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.len)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let value = || text.to_owned();
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Address { value: value() })?;
        let Some(len) = len else { return Ok(Prefix::host(address)) };
        if len.is_empty() || !len.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PrefixError::Length { value: value() });
        }
        // More digits than a u8 holds are too long for any family; `new` knows each one's limit.
        Prefix::new(address, len.parse().unwrap_or(u8::MAX)).map_err(|error| error.about(text))
    }
}

impl PrefixError {
    /// The same error about the text as it was given.
    fn about(mut self, text: &str) -> PrefixError {
        let (PrefixError::Address { value }
        | PrefixError::Length { value }
        | PrefixError::TooLong { value, .. }
        | PrefixError::HostBits { value, .. }) = &mut self;
        text.clone_into(value);
        self
    }
}

#[cfg(test)]
mod tests;
