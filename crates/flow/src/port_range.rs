//! Ranges of transport ports, as in `80` or `80-90`.

use std::fmt;
use std::str::FromStr;

/// Port numbers from the first to the last, both included; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRange {
    first: u16,
    last: u16,
}

/// Why something is no range of ports: correct the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortRangeError {
    /// It has other things in it than port numbers.
    #[error("`{value}` is neither a port from 0 to 65535 nor a range of them, as in 80 or 80-90")]
    NotPorts {
        /// What was given.
        value: String,
    },
    /// It ends before it begins.
    #[error("the ports {first}-{last} end before they begin; write {last}-{first}")]
    Reversed {
        /// The port it begins with.
        first: u16,
        /// The port it ends with.
        last: u16,
    },
}

impl PortRange {
    /// All ports: a rule that asks for these asks that there be ports.
    pub const ALL: PortRange = PortRange { first: 0, last: u16::MAX };

    /// From one port to another, both included, or why not.
    pub const fn new(first: u16, last: u16) -> Result<PortRange, PortRangeError> {
        if first <= last {
            Ok(PortRange { first, last })
        } else {
            Err(PortRangeError::Reversed { first, last })
        }
    }

    /// One port.
    pub const fn single(port: u16) -> PortRange {
        PortRange { first: port, last: port }
    }

    /// The lowest port in it.
    pub const fn first(&self) -> u16 {
        self.first
    }

    /// The highest port in it.
    pub const fn last(&self) -> u16 {
        self.last
    }

    /// Whether the port is in it.
    pub const fn contains(&self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }

    /// How many ports are in it beside the first.
    pub(crate) const fn width(&self) -> u16 {
        self.last - self.first
    }

    /// The port behind the last, if there is one.
    pub(crate) const fn end(&self) -> Option<u16> {
        self.last.checked_add(1)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortRange { first, last } if first == last => write!(f, "{first}"),
            PortRange { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<PortRange, PortRangeError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (Some(first), Some(last)) = (port(first), port(last)) else {
            return Err(PortRangeError::NotPorts { value: text.to_owned() });
        };
        PortRange::new(first, last)
    }
}

/// A port number in digits; `parse` alone would take a plus sign too.
fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_and_written_alike() {
        for text in ["0", "80", "80-90", "0-65535"] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
        }
        assert_eq!("80-80".parse::<PortRange>().unwrap().to_string(), "80");
    }

    #[test]
    fn a_range_contains_both_its_ends_and_no_neighbour() {
        let range: PortRange = "80-90".parse().unwrap();
        assert_eq!((range.first(), range.last()), (80, 90));
        assert_eq!([79, 80, 85, 90, 91].map(|port| range.contains(port)), [false, true, true, true, false]);
        assert!(PortRange::ALL.contains(0) && PortRange::ALL.contains(u16::MAX));
        assert!(PortRange::single(7).contains(7) && !PortRange::single(7).contains(8));
    }

    #[test]
    fn a_reversed_range_is_refused() {
        let error = "90-80".parse::<PortRange>().unwrap_err();
        assert_eq!(error, PortRangeError::Reversed { first: 90, last: 80 });
        assert_eq!(error.to_string(), "the ports 90-80 end before they begin; write 80-90");
    }

    #[test]
    fn what_is_no_number_of_a_port_is_refused() {
        for text in ["", "-", "80-", "-80", "+80", "80-+90", "http", "65536", "80-90-100", " 80", "80,90"] {
            assert_eq!(text.parse::<PortRange>(), Err(PortRangeError::NotPorts { value: text.to_owned() }));
        }
    }
}
