//! Which rule a packet falls under.
//!
//! Rules lie in groups by what they ask for ([`crate::group`]); a lookup asks the groups in the order of their best
//! rule and stops when no further group can have a better one. So it costs a table lookup for each *kind* of rule,
//! not for each rule.
//!
//! The rule it keeps: the answer is the first match of all rules in order of priority and, of equal priorities, of
//! id. A classifier is a value: to change one that others read, clone it, change the clone and publish that.

use std::cmp::Reverse;

use crate::group::Group;
use crate::hash::Table;
use crate::key::{Asked, Key, L2Key};
use crate::l2::{L2Found, L2Index};
use crate::rank::{Rank, Ranks};
use crate::{Fields, Match, MatchError};

/// A rule in a [`Classifier`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<A> {
    /// What the caller calls it; unique in its classifier.
    pub id: u64,
    /// Of two rules that match, the one with the higher number wins; of equal ones, the one with the lower id.
    pub priority: u32,
    /// What it asks of a packet.
    pub matching: Match,
    /// What the caller does with such packets.
    pub action: A,
}

/// Why a rule was not taken in; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// A rule asks for the same at the same priority, so that one of the two could never win: change or remove that
    /// one.
    #[error("rule {id} matches the same at priority {priority}")]
    SameMatch {
        /// The rule that is there.
        id: u64,
        /// Both rules' priority.
        priority: u32,
    },
    /// A rule has this id: choose another.
    #[error("there is a rule {id} already")]
    SameId {
        /// The id.
        id: u64,
    },
    /// No packet can match: correct the rule.
    #[error(transparent)]
    Match(#[from] MatchError),
}

/// What layer 2 (port, VLAN, addresses) says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L2Outcome<'a, A> {
    /// This rule, or none, whatever lies deeper in the packet.
    Decided(Option<&'a Rule<A>>),
    /// It takes the EtherType or what follows it to say.
    Deeper,
}

/// A set of rules. Cloning, inserting and removing allocate, and cloning is linear in the rules; the lookups may be
/// called on the packet path.
#[derive(Clone, Debug)]
pub struct Classifier<A> {
    rules: Table<u64, Rule<A>>,
    /// Which rule asks for what, to refuse a second one.
    by_match: Table<(u32, Match), u64>,
    order: Ranks,
    /// Each with a rule in it, the one with the best rule first.
    groups: Vec<Group>,
    l2: L2Index,
}

impl<A> Default for Classifier<A> {
    fn default() -> Self {
        Classifier {
            rules: Table::default(),
            by_match: Table::default(),
            order: Ranks::default(),
            groups: Vec::new(),
            l2: L2Index::default(),
        }
    }
}

impl<A> Classifier<A> {
    /// Without a rule.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule, or says why not.
    pub fn insert(&mut self, id: u64, priority: u32, matching: Match, action: A) -> Result<(), InsertError> {
        matching.check()?;
        if self.rules.contains_key(&id) {
            return Err(InsertError::SameId { id });
        }
        if let Some(&id) = self.by_match.get(&(priority, matching)) {
            return Err(InsertError::SameMatch { id, priority });
        }
        self.by_match.insert((priority, matching), id);
        self.index(Rank::new(priority, id), &matching);
        self.rules.insert(id, Rule { id, priority, matching, action });
        Ok(())
    }

    /// Takes a rule out and gives its action back, if there is one of this id.
    pub fn remove(&mut self, id: u64) -> Option<A> {
        let Rule { priority, matching, action, .. } = self.rules.remove(&id)?;
        self.by_match.remove(&(priority, matching));
        self.unindex(Rank::new(priority, id), &matching);
        Some(action)
    }

    fn index(&mut self, rank: Rank, rule: &Match) {
        self.order.insert(rank);
        self.l2.insert(rank, rule);
        let mask = Asked::by(rule).mask;
        let at = self.groups.iter().position(|group| *group.mask() == mask).unwrap_or_else(|| {
            self.groups.push(Group::new(mask));
            self.groups.len() - 1
        });
        self.groups[at].insert(rank, rule);
        self.sort_groups();
    }

    fn unindex(&mut self, rank: Rank, rule: &Match) {
        self.order.remove(rank);
        self.l2.remove(rank, rule);
        let mask = Asked::by(rule).mask;
        if let Some(group) = self.groups.iter_mut().find(|group| *group.mask() == mask) {
            group.remove(rank, rule);
        }
        self.groups.retain(|group| !group.is_empty());
        self.sort_groups();
    }

    fn sort_groups(&mut self) {
        self.groups.sort_by_key(|group| Reverse(group.best()));
    }

    /// The rule that the packet falls under, if any.
    #[inline]
    pub fn classify(&self, fields: &Fields) -> Option<&Rule<A>> {
        let (best, _) = self.find(&Key::of(fields), fields.ports());
        self.rule(best)
    }

    /// The best rule that matches, and how many groups were asked.
    fn find(&self, key: &Key, ports: Option<(u16, u16)>) -> (Option<Rank>, usize) {
        let mut best = None;
        for (asked, group) in self.groups.iter().enumerate() {
            if best > group.best() {
                return (best, asked);
            }
            best = best.max(group.find(key, ports));
        }
        (best, self.groups.len())
    }

    /// What can be said of the packet by its port, VLAN and addresses; the other fields are not looked at.
    #[inline]
    pub fn classify_l2(&self, fields: &Fields) -> L2Outcome<'_, A> {
        let L2Found { l2_only, deeper } = self.l2.find(&L2Key::of(fields));
        if deeper > l2_only { L2Outcome::Deeper } else { L2Outcome::Decided(self.rule(l2_only)) }
    }

    #[inline]
    fn rule(&self, rank: Option<Rank>) -> Option<&Rule<A>> {
        self.rules.get(&rank?.id())
    }

    /// The rule of this id.
    pub fn get(&self, id: u64) -> Option<&Rule<A>> {
        self.rules.get(&id)
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// All rules, in the order in which they win.
    pub fn iter(&self) -> impl Iterator<Item = &Rule<A>> {
        self.order.iter().filter_map(|rank| self.rule(Some(rank)))
    }
}

#[cfg(test)]
mod tests;
