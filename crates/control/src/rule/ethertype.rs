//! EtherTypes, as in `0x0800`.

use std::fmt;
use std::str::FromStr;

/// Numbers below it are the length of an IEEE 802.3 frame (IEEE 802.3, clause 3.2.6).
const FIRST: u16 = 0x0600;

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ethertype(u16);

impl Ethertype {
    /// The EtherType of this number, or `None` below 0x0600.
    pub const fn new(number: u16) -> Option<Ethertype> {
        if number >= FIRST { Some(Ethertype(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Ethertype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// A number that is no EtherType.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "ethertype `{value}` is not a number from {} to 0xffff, as in 0x0800 for IPv4 or 0x86dd for IPv6",
    Ethertype(FIRST)
)]
pub struct EthertypeError {
    /// What was given.
    pub value: String,
}

impl FromStr for Ethertype {
    type Err = EthertypeError;

    fn from_str(text: &str) -> Result<Ethertype, EthertypeError> {
        let (digits, radix) = match text.strip_prefix("0x") {
            Some(digits) => (digits, 16),
            None => (text, 10),
        };
        // `from_str_radix` alone would take a plus sign too.
        let number =
            u16::from_str_radix(digits, radix).ok().filter(|_| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        number.and_then(Ethertype::new).ok_or_else(|| EthertypeError { value: text.to_owned() })
    }
}
