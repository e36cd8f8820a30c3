//! What layer 2 alone says: whether what lies deeper in a packet can matter.
//!
//! For every set of layer 2 fields that rules ask for (port, VLAN, two addresses: at most sixteen sets) there is a
//! table, and for every key in it the best rule that asks for nothing else, and the best of those that ask for
//! more.
//!
//! The rule it keeps: it says "deeper" exactly when a rule that asks for more could win. A rule below one that
//! layer 2 decides for does not matter, however much it asks.

use crate::Match;
use crate::hash::Table;
use crate::key::{Asked, L2Key};
use crate::rank::{Rank, Ranks};

/// Rules by their layer 2 fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct L2Index {
    groups: Vec<L2Group>,
}

#[derive(Clone, Debug)]
struct L2Group {
    mask: L2Key,
    buckets: Table<L2Key, L2Ranks>,
}

#[derive(Clone, Debug, Default)]
struct L2Ranks {
    l2_only: Ranks,
    deeper: Ranks,
}

/// The best rules of those that match on layer 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct L2Found {
    /// Of those that ask for nothing deeper.
    pub(crate) l2_only: Option<Rank>,
    /// Of those that do.
    pub(crate) deeper: Option<Rank>,
}

impl L2Index {
    #[inline]
    pub(crate) fn find(&self, key: &L2Key) -> L2Found {
        let mut found = L2Found { l2_only: None, deeper: None };
        for group in &self.groups {
            if let Some(ranks) = group.buckets.get(&key.under(&group.mask)) {
                found.l2_only = found.l2_only.max(ranks.l2_only.best());
                found.deeper = found.deeper.max(ranks.deeper.best());
            }
        }
        found
    }

    /// Adds a rule that is not in it.
    pub(crate) fn insert(&mut self, rank: Rank, rule: &Match) {
        let Asked { mask, key } = Asked::by(rule);
        let mask = mask.l2();
        let at = self.groups.iter().position(|group| group.mask == mask).unwrap_or_else(|| {
            self.groups.push(L2Group { mask, buckets: Table::default() });
            self.groups.len() - 1
        });
        self.groups[at].buckets.entry(key.l2()).or_default().of(rule).insert(rank);
    }

    /// Takes a rule out that was inserted.
    pub(crate) fn remove(&mut self, rank: Rank, rule: &Match) {
        let Asked { mask, key } = Asked::by(rule);
        let (mask, key) = (mask.l2(), key.l2());
        let Some(at) = self.groups.iter().position(|group| group.mask == mask) else { return };
        let buckets = &mut self.groups[at].buckets;
        if let Some(ranks) = buckets.get_mut(&key) {
            ranks.of(rule).remove(rank);
            if ranks.is_empty() {
                buckets.remove(&key);
            }
        }
        if buckets.is_empty() {
            self.groups.swap_remove(at);
        }
    }

    /// Tables, and keys in all of them.
    #[cfg(test)]
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.groups.len(), self.groups.iter().map(|group| group.buckets.len()).sum())
    }
}

impl L2Ranks {
    /// The set that the rule belongs to.
    fn of(&mut self, rule: &Match) -> &mut Ranks {
        if rule.is_l2_only() { &mut self.l2_only } else { &mut self.deeper }
    }

    fn is_empty(&self) -> bool {
        self.l2_only.is_empty() && self.deeper.is_empty()
    }
}
