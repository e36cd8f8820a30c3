//! Which rule comes first.
//!
//! The order is total, so that a lookup has one answer whatever order it looks in: higher priority first, and of
//! equal priorities the lower id, which is the older rule where ids count up.

use std::cmp::Reverse;

/// A rule's place among all; the greater one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    priority: u32,
    id: Reverse<u64>,
}

impl Rank {
    pub(crate) fn new(priority: u32, id: u64) -> Rank {
        Rank { priority, id: Reverse(id) }
    }

    pub(crate) fn id(self) -> u64 {
        self.id.0
    }
}

/// A set of rules of which the best matters most: read in one step, changed in a search and a move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranks(Vec<Rank>);

impl Ranks {
    #[inline]
    pub(crate) fn best(&self) -> Option<Rank> {
        self.0.last().copied()
    }

    /// Adds a rule that is not in it.
    pub(crate) fn insert(&mut self, rank: Rank) {
        let at = self.0.partition_point(|other| *other < rank);
        self.0.insert(at, rank);
    }

    /// Takes a rule out; says whether it was in it.
    pub(crate) fn remove(&mut self, rank: Rank) -> bool {
        let found = self.0.binary_search(&rank);
        if let Ok(at) = found {
            self.0.remove(at);
        }
        found.is_ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The best first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.0.iter().rev().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_higher_priority_wins_and_of_equal_ones_the_lower_id() {
        let ranks = [Rank::new(7, 1), Rank::new(7, 9), Rank::new(3, 0), Rank::new(0, 0)];
        assert!(ranks.is_sorted_by(|a, b| a > b));
        assert_eq!(ranks[1].id(), 9);
    }

    #[test]
    fn the_best_of_a_set_is_known_whatever_the_order_of_changes() {
        let [low, middle, high] = [Rank::new(1, 1), Rank::new(2, 1), Rank::new(2, 0)];
        let mut ranks = Ranks::default();
        for rank in [middle, high, low] {
            ranks.insert(rank);
        }
        assert_eq!(ranks.iter().collect::<Vec<_>>(), [high, middle, low]);
        assert!(ranks.remove(high) && !ranks.remove(high));
        assert_eq!((ranks.best(), ranks.len()), (Some(middle), 2));
        assert!(ranks.remove(low) && ranks.remove(middle) && ranks.is_empty());
        assert_eq!(ranks.best(), None);
    }
}
