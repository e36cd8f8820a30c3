//! Ranges of ports to classes: two ports are of one class exactly if the same ranges cover them.
//!
//! The line of ports is cut where a range begins or ends, and the pieces are walked from left to right. A piece may
//! be covered by the same ranges as one further left, when all that began in between also ended. That one is
//! recognised without comparing sets: let the latest of the ranges that cover this piece begin at port *b*. All of
//! them cover every piece from *b* up to here, so a piece there has the same ranges if it has as many; and no piece
//! left of *b* is covered by that latest range.

use std::collections::{BTreeMap, HashMap};

use super::limit::{MAX_CLASSES, TooManyClasses, check};
use crate::PortRange;

/// Runs of ports of one class, in order and without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PortClasses {
    runs: Vec<(PortRange, u16)>,
}

impl Default for PortClasses {
    fn default() -> Self {
        PortClasses { runs: vec![(PortRange::ALL, 0)] }
    }
}

impl PortClasses {
    pub(super) fn new(
        named: impl Iterator<Item = PortRange>,
        what: &'static str,
    ) -> Result<PortClasses, TooManyClasses> {
        let mut walk = Walk::default();
        let pieces: Vec<(u16, usize)> = cuts(named).map(|(at, cut)| (at, walk.step(at, &cut))).collect();
        check(what, walk.classes, MAX_CLASSES)?;
        let ends = pieces.iter().skip(1).map(|(first, _)| first - 1).chain([u16::MAX]);
        let run = |(&(first, class), last)| PortRange::new(first, last).map(|range| (range, class as u16));
        Ok(PortClasses { runs: pieces.iter().zip(ends).filter_map(|piece| run(piece).ok()).collect() })
    }

    pub(super) fn of(&self, port: u16) -> u16 {
        let at = self.runs.partition_point(|(range, _)| range.last() < port);
        self.runs.get(at).map_or(0, |(_, class)| *class)
    }

    pub(super) fn runs(&self) -> &[(PortRange, u16)] {
        &self.runs
    }
}

/// What happens between two pieces.
#[derive(Default)]
struct Cut {
    /// How many ranges begin.
    begin: usize,
    /// Where the ranges began that end.
    end: Vec<u16>,
}

/// The places where ranges begin or end, in order; port 0 is one.
fn cuts(ranges: impl Iterator<Item = PortRange>) -> impl Iterator<Item = (u16, Cut)> {
    let mut cuts = BTreeMap::from([(0, Cut::default())]);
    for range in ranges {
        cuts.entry(range.first()).or_default().begin += 1;
        if let Some(end) = range.end() {
            cuts.entry(end).or_default().end.push(range.first());
        }
    }
    cuts.into_iter()
}

/// Where the walk from left to right stands.
#[derive(Default)]
struct Walk {
    /// Where the ranges began that cover the piece, and how many at each place.
    begun: BTreeMap<u16, usize>,
    /// How many that are together.
    cover: usize,
    /// By number of ranges, the last piece that had so many: where it began, and its class.
    last: HashMap<usize, (u16, usize)>,
    /// Classes given out, class 0 aside.
    classes: usize,
}

impl Walk {
    /// Goes over a cut, to the piece that begins `at` it; gives that piece's class.
    fn step(&mut self, at: u16, cut: &Cut) -> usize {
        for begin in &cut.end {
            self.ends(*begin);
        }
        if cut.begin > 0 {
            *self.begun.entry(at).or_default() += cut.begin;
        }
        self.cover = self.cover + cut.begin - cut.end.len();
        let class = self.class();
        self.last.insert(self.cover, (at, class));
        class
    }

    fn ends(&mut self, begin: u16) {
        if let Some(ranges) = self.begun.get_mut(&begin) {
            *ranges -= 1;
            if *ranges == 0 {
                self.begun.remove(&begin);
            }
        }
    }

    /// The class of a piece that had the same ranges, or a new one.
    fn class(&mut self) -> usize {
        let Some((latest, _)) = self.begun.last_key_value() else { return 0 };
        match self.last.get(&self.cover) {
            Some((at, class)) if at >= latest => *class,
            _ => {
                self.classes += 1;
                self.classes
            }
        }
    }
}
