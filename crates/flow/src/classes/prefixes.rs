//! Networks to classes: an address is of the class of the longest network that it is in.
//!
//! Of two networks, either one lies in the other or they are apart. So all networks that an address is in follow
//! from the longest of them, and the class of that one says which rules' networks match.

use super::limit::{MAX_CLASSES, TooManyClasses, check};
use crate::{Family, Prefix};

/// The networks that rules name, a network before those within it; a network's class is its place, counted from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PrefixClasses {
    networks: Vec<Network>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    prefix: Prefix,
    /// The class of the longest network around it, 0 if there is none.
    pub(super) around: u16,
}

impl PrefixClasses {
    pub(super) fn new(
        named: impl Iterator<Item = Prefix>,
        what: &'static str,
    ) -> Result<PrefixClasses, TooManyClasses> {
        let mut prefixes: Vec<Prefix> = named.collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        check(what, prefixes.len(), MAX_CLASSES)?;
        let mut classes = PrefixClasses { networks: Vec::with_capacity(prefixes.len()) };
        for prefix in prefixes {
            // All networks around it come before it, and so are there.
            let around = classes.of(prefix.family(), prefix.number());
            classes.networks.push(Network { prefix, around });
        }
        Ok(classes)
    }

    /// The class of an address: from the last network that does not begin behind it, outwards to the first that it
    /// is in. At most one step for each bit of the address.
    pub(super) fn of(&self, family: Family, number: u128) -> u16 {
        let begins =
            |network: &Network| (network.prefix.family(), network.prefix.number()) <= (family, number);
        let mut class = self.networks.partition_point(begins) as u16;
        while let Some(network) = self.network(class)
            && !network.prefix.covers(family, number)
        {
            class = network.around;
        }
        class
    }

    /// The network of a class; class 0 has none.
    pub(super) fn network(&self, class: u16) -> Option<&Network> {
        self.networks.get(usize::from(class).checked_sub(1)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Prefix, u16)> + '_ {
        self.networks.iter().map(|network| network.prefix).zip(1..=u16::MAX)
    }
}
