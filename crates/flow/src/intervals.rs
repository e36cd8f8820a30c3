//! Rules that differ in a range of ports only, found by a port.
//!
//! The line of port numbers is cut where a rule's range begins or ends. Every piece lists the rules whose range
//! covers it, the best first, as far as they can win: a rule that asks for nothing but this port ends the list. So
//! a lookup is one binary search, and rules that ask for both ports are tried one by one only where their ranges
//! overlap in this one. (They are listed in each piece that they cover: *n* rules that all overlap in both ports
//! take memory as *n*².)
//!
//! The rule it keeps: there is a cut exactly where a rule begins or ends, so that whatever order rules came and
//! went in, the pieces are the same.
//!
//! ```text
//!   rule A  priority 9      ├────────┤
//!   rule B  priority 5  ├────────────────┤
//!   pieces            │   │ A      │ B   │         B is below A and does not show there
//! ```

use std::cmp::Reverse;
use std::ops::Range;

use crate::PortRange;
use crate::rank::Rank;

/// A rule as far as its ports go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ported {
    pub(crate) rank: Rank,
    /// What it asks of the port that it is found by.
    pub(crate) range: PortRange,
    /// What it asks of the other port.
    pub(crate) other: Option<PortRange>,
}

/// Rules by the range of one of their ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    /// All rules, the best first.
    rules: Vec<Ported>,
    /// From port 0 on, each up to the next; empty if there are no rules.
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    first: u16,
    /// The rules that can win, the best first: none below one that asks nothing of the other port.
    rules: Vec<Ported>,
}

impl Intervals {
    /// The best rule that covers the port and whose other range, if it has one, covers the other.
    #[inline]
    pub(crate) fn find(&self, port: u16, other: u16) -> Option<Rank> {
        let at = self.pieces.partition_point(|piece| piece.first <= port).checked_sub(1)?;
        let covers = |rule: &&Ported| rule.other.is_none_or(|range| range.contains(other));
        self.pieces[at].rules.iter().find(covers).map(|rule| rule.rank)
    }

    /// How many rules a lookup may have to try.
    #[cfg(test)]
    pub(crate) fn longest_list(&self) -> usize {
        self.pieces.iter().map(|piece| piece.rules.len()).max().unwrap_or(0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Adds a rule that is not in it.
    pub(crate) fn insert(&mut self, rule: Ported) {
        insert_by_rank(&mut self.rules, rule);
        for at in cuts(&rule).into_iter().flatten() {
            self.cut(at);
        }
        let covered = self.covered(rule.range);
        for piece in &mut self.pieces[covered] {
            piece.add(rule);
        }
    }

    /// Takes a rule out; says whether it was in it.
    pub(crate) fn remove(&mut self, rank: Rank) -> bool {
        let Ok(at) = self.rules.binary_search_by_key(&Reverse(rank), |rule| Reverse(rule.rank)) else {
            return false;
        };
        let rule = self.rules.remove(at);
        let covered = self.covered(rule.range);
        for piece in &mut self.pieces[covered] {
            piece.remove(&rule, &self.rules);
        }
        for at in cuts(&rule).into_iter().flatten() {
            self.mend(at);
        }
        true
    }

    /// The pieces that begin within a range.
    fn covered(&self, range: PortRange) -> Range<usize> {
        let before = |first| self.pieces.partition_point(|piece| piece.first < first);
        before(range.first())..range.end().map_or(self.pieces.len(), before)
    }

    /// Makes a piece begin here.
    fn cut(&mut self, at: u16) {
        if let Err(next) = self.pieces.binary_search_by_key(&at, |piece| piece.first) {
            let rules =
                next.checked_sub(1).map(|before| self.pieces[before].rules.clone()).unwrap_or_default();
            self.pieces.insert(next, Piece { first: at, rules });
        }
    }

    /// Joins the piece that begins here to the one before, unless another rule needs the cut.
    fn mend(&mut self, at: u16) {
        let is_needed = self.rules.iter().any(|rule| cuts(rule).contains(&Some(at)));
        let found = self.pieces.binary_search_by_key(&at, |piece| piece.first);
        if let (false, Ok(piece)) = (is_needed, found) {
            self.pieces.remove(piece);
        }
    }
}

/// Where a rule needs a piece to begin: at the start of the line, of its range, and behind it.
fn cuts(rule: &Ported) -> [Option<u16>; 3] {
    [Some(0), Some(rule.range.first()), rule.range.end()]
}

fn insert_by_rank(rules: &mut Vec<Ported>, rule: Ported) {
    let at = rules.partition_point(|other| other.rank > rule.rank);
    rules.insert(at, rule);
}

impl Piece {
    /// Adds a rule that covers it.
    fn add(&mut self, rule: Ported) {
        insert_by_rank(&mut self.rules, rule);
        if let Some(last) = self.rules.iter().position(ends_list) {
            self.rules.truncate(last + 1);
        }
    }

    /// Takes a rule out; `rest` is all rules but this one. If it ended the list, those below it can win now.
    fn remove(&mut self, rule: &Ported, rest: &[Ported]) {
        let Ok(at) = self.rules.binary_search_by_key(&Reverse(rule.rank), |other| Reverse(other.rank)) else {
            return;
        };
        self.rules.remove(at);
        if ends_list(rule) {
            self.list_below(rule.rank, rest);
        }
    }

    /// Adds those of the rules that lie below a rank and cover it, as far as they can win.
    fn list_below(&mut self, rank: Rank, rules: &[Ported]) {
        let below = rules.partition_point(|rule| rule.rank > rank);
        for rule in rules[below..].iter().filter(|rule| rule.range.contains(self.first)) {
            self.rules.push(*rule);
            if ends_list(rule) {
                break;
            }
        }
    }
}

/// Whether no rule below it can win where it covers.
fn ends_list(rule: &Ported) -> bool {
    rule.other.is_none()
}

#[cfg(test)]
mod tests;
