//! The classes by which kernel programs tell packets apart that rules tell apart.
//!
//! They change while no flow is followed: [`Generations::set_switch`](crate::Generations::set_switch) with an even
//! generation before, with a new odd one afterwards. A program that read them meanwhile finds another epoch than at first,
//! and leaves its packet to user space.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;

use forebay_flow::{Classes, Prefix, TagKinds};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use crate::DatapathError;
use crate::mapped::Mapped;

/// `struct number_classes`, bpf/forebay.h: of source port, destination port, EtherType and protocol.
type NumberClasses = [AtomicU16; 4];
const SOURCE_PORT: usize = 0;
const DESTINATION_PORT: usize = 1;
const ETHERTYPE: usize = 2;
const PROTOCOL: usize = 3;

const NUMBERS: usize = 1 << 16;
/// Entries of the map of networks.
const MAX_PREFIXES: usize = 16_384;

/// `enum deeper`, bpf/forebay.h.
const ASKS_ETHERTYPE: u16 = 1;
const ASKS_PROTOCOL: u16 = 2;
const ASKS_SOURCE: u16 = 4;
const ASKS_DESTINATION: u16 = 8;
const ASKS_PORTS: u16 = 16;
const ASKS_CUSTOMER_TAG: u16 = 32;
const ASKS_SERVICE_TAG: u16 = 64;

/// `struct prefix_key`, bpf/forebay.h.
type PrefixKey = [u8; 24];
const BITS_OF_WHICH: u32 = 32;

/// The classes as the programs have them.
#[derive(Debug)]
pub struct ClassTable {
    numbers: Mapped<NumberClasses>,
    prefixes: MapHandle,
    /// What is in the map of networks.
    entered: BTreeMap<PrefixKey, u16>,
}

impl ClassTable {
    pub(crate) fn map(numbers: &MapHandle, prefixes: MapHandle) -> Result<Self, DatapathError> {
        let numbers = Mapped::map(numbers.as_fd(), NUMBERS, "map the classes of numbers")?;
        // Those of an earlier process, if the map is adopted: no class is theirs, so they are replaced or go.
        let left = prefixes.keys().filter_map(|key| PrefixKey::try_from(key).ok());
        let entered = left.map(|key| (key, 0)).collect();
        Ok(Self { numbers, prefixes, entered })
    }

    /// Puts these classes in the place of those before; while no flow is followed.
    ///
    /// # Errors
    /// More networks than the map has room for, or no memory; then no flow must be followed.
    pub fn set(&mut self, classes: &Classes) -> Result<(), DatapathError> {
        self.set_numbers(classes);
        self.set_prefixes(classes)
    }

    fn set_numbers(&self, classes: &Classes) {
        for (ranges, place) in [(classes.src_ports(), SOURCE_PORT), (classes.dst_ports(), DESTINATION_PORT)] {
            for (range, class) in ranges {
                for port in range.first()..=range.last() {
                    self.number(port)[place].store(*class, Relaxed);
                }
            }
        }
        for (protocol, class) in (0..).zip(classes.protos()) {
            self.number(protocol)[PROTOCOL].store(class.into(), Relaxed);
        }
        for number in 0..=u16::MAX {
            self.number(number)[ETHERTYPE].store(0, Relaxed);
        }
        for (ethertype, class) in classes.ethertypes() {
            self.number(ethertype)[ETHERTYPE].store(class, Relaxed);
        }
    }

    fn set_prefixes(&mut self, classes: &Classes) -> Result<(), DatapathError> {
        let source = classes.src_prefixes().map(|(prefix, class)| (prefix_key(prefix, Side::Source), class));
        let destination =
            classes.dst_prefixes().map(|(prefix, class)| (prefix_key(prefix, Side::Destination), class));
        let wanted: BTreeMap<PrefixKey, u16> = source.chain(destination).collect();
        if wanted.len() > MAX_PREFIXES {
            let what = "enter the rules' networks into the kernel's table";
            let error = format!("{} networks, and {MAX_PREFIXES} is the limit", wanted.len());
            return Err(DatapathError::System { what, source: std::io::Error::other(error) });
        }
        let bpf = || DatapathError::bpf("enter a rule's network into the kernel's table");
        let gone: Vec<PrefixKey> =
            self.entered.keys().filter(|key| !wanted.contains_key(*key)).copied().collect();
        for key in gone {
            self.prefixes.delete(&key).map_err(bpf())?;
            self.entered.remove(&key);
        }
        for (key, class) in wanted {
            if self.entered.get(&key) != Some(&class) {
                self.prefixes.update(&key, &u32::from(class).to_ne_bytes(), MapFlags::ANY).map_err(bpf())?;
                self.entered.insert(key, class);
            }
        }
        Ok(())
    }

    fn number(&self, number: u16) -> &NumberClasses {
        self.numbers.get(number.into())
    }
}

/// Which classes rules ask for; a sum of `enum deeper`.
pub fn asked_classes(classes: &Classes) -> u16 {
    // A range of all ports is one run, and tells packets with ports from those without.
    let has_ranges = |ranges: &[(_, u16)]| ranges.iter().any(|(_, class)| *class != 0);
    let has_tag = |kind: TagKinds| !classes.tags().among(kind).is_empty();
    let asks = [
        (ASKS_ETHERTYPE, classes.ethertypes().next().is_some()),
        (ASKS_PROTOCOL, classes.protos().iter().any(|class| *class != 0)),
        (ASKS_SOURCE, classes.src_prefixes().next().is_some()),
        (ASKS_DESTINATION, classes.dst_prefixes().next().is_some()),
        (ASKS_PORTS, has_ranges(classes.src_ports()) || has_ranges(classes.dst_ports())),
        (ASKS_CUSTOMER_TAG, has_tag(TagKinds::CUSTOMER)),
        (ASKS_SERVICE_TAG, has_tag(TagKinds::SERVICE)),
    ];
    asks.iter().filter(|(_, is_asked)| *is_asked).map(|(bit, _)| bit).sum()
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Source,
    Destination,
}

fn prefix_key(prefix: Prefix, side: Side) -> PrefixKey {
    // `enum prefix_of`
    let which: u32 = match (side, prefix.address()) {
        (Side::Source, IpAddr::V4(_)) => 0,
        (Side::Source, IpAddr::V6(_)) => 1,
        (Side::Destination, IpAddr::V4(_)) => 2,
        (Side::Destination, IpAddr::V6(_)) => 3,
    };
    let mut key = [0; 24];
    key[..4].copy_from_slice(&(BITS_OF_WHICH + u32::from(prefix.len())).to_ne_bytes());
    key[4..8].copy_from_slice(&which.to_ne_bytes());
    key[8..].copy_from_slice(&prefix.key());
    key
}
