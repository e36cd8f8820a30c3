//! The run list: whose turn it is among the sources that have packets.
//!
//! A source with packets is *old* when a turn of its lately left some, and *new* otherwise; new sources go before old
//! ones. So a source with few packets waits for the turn under way and not for every source that is flooded (the two
//! lists of FQ-CoDel, RFC 8290 section 4.2). Old sources do not starve: they get every seventeenth turn.
//!
//! Sources are named by small numbers that the caller gives out. The list allocates only when it is made.

use std::collections::VecDeque;

use crate::{Pace, Served, Standing};

/// Turns that new sources get before one that has waited since its last turn.
const NEW_BEFORE_OLD: u32 = 16;
/// Turns after one that left packets, during which a source stays old.
const HEAVY_TURNS: u64 = 64;

/// The run list of one worker.
#[derive(Clone, Debug)]
pub struct RunList {
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    new_in_a_row: u32,
    pace: Pace,
    /// Nobody had a turn since the worker last looked who is ready.
    looked: bool,
    /// By source: whether it is in one of the lists.
    listed: Vec<bool>,
    turns: u64,
    /// By source: the turn until which it is old.
    heavy: Vec<u64>,
}

impl RunList {
    /// An empty list for sources numbered below `sources`.
    pub fn new(sources: usize) -> Self {
        Self {
            new: VecDeque::with_capacity(sources),
            old: VecDeque::with_capacity(sources),
            new_in_a_row: 0,
            pace: Pace::default(),
            looked: false,
            listed: vec![false; sources],
            turns: 0,
            heavy: vec![0; sources],
        }
    }

    /// Whether the worker should look who is ready before [`RunList::pop`]: in a hurry, an old source goes on only after
    /// such a look. Packet path.
    #[inline]
    pub fn wants_look(&self) -> bool {
        self.new.is_empty() && !self.old.is_empty() && !self.looked && self.pace.is_hurried()
    }

    /// The worker has looked who is ready, and told the list by [`RunList::wake`]. Packet path.
    #[inline]
    pub fn looked(&mut self) {
        self.looked = true;
    }

    /// Takes the source whose turn it is off the list; packet path.
    pub fn pop(&mut self) -> Option<u32> {
        self.looked = false;
        let old_first = self.new_in_a_row >= NEW_BEFORE_OLD && !self.old.is_empty();
        let new = if old_first { None } else { self.new.pop_front() };
        self.new_in_a_row = if new.is_some() { self.new_in_a_row + 1 } else { 0 };
        let source = new.or_else(|| self.old.pop_front())?;
        self.listed[source as usize] = false;
        Some(source)
    }

    /// When turns are interrupted.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Learns that the source whose turn it was had this many packets. A source with more goes on when new sources had
    /// their turn, or has another turn when all others had theirs. Packet path.
    pub fn served(&mut self, source: u32, packets: usize, standing: Standing) {
        let more = standing != Standing::Empty;
        self.pace.observe(Served { packets: packets as u32, more, new: self.new_in_a_row > 0 });
        self.turns += 1;
        if more {
            self.heavy[source as usize] = self.turns + HEAVY_TURNS;
        }
        match standing {
            Standing::Empty => {}
            Standing::Interrupted if self.list(source) => self.old.push_front(source),
            Standing::Over if self.list(source) => self.old.push_back(source),
            Standing::Interrupted | Standing::Over => {}
        }
    }

    /// The source may have packets; packet path.
    pub fn wake(&mut self, source: u32) {
        let is_heavy = self.turns < self.heavy[source as usize];
        if self.list(source) {
            if is_heavy { &mut self.old } else { &mut self.new }.push_back(source);
        }
    }

    /// Whether nobody waits for a turn.
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.old.is_empty()
    }

    /// Whether `source` was in neither list, and is now about to be in one.
    fn list(&mut self, source: u32) -> bool {
        !std::mem::replace(&mut self.listed[source as usize], true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(list: &mut RunList, turns: usize) -> Vec<u32> {
        (0..turns).filter_map(|_| list.pop()).collect()
    }

    #[test]
    fn a_source_is_listed_once() {
        let mut list = RunList::new(64);
        [1, 2, 1].into_iter().for_each(|source| list.wake(source));
        list.served(2, 64, Standing::Over);
        assert_eq!(order(&mut list, 9), [1, 2]);
        assert!(list.is_empty());
    }

    #[test]
    fn a_quiet_source_goes_before_one_that_has_more() {
        let mut list = RunList::new(64);
        [1, 2].into_iter().for_each(|source| list.served(source, 64, Standing::Over));
        [3, 4].into_iter().for_each(|source| list.wake(source));
        assert_eq!(order(&mut list, 9), [3, 4, 1, 2]);
    }

    #[test]
    fn an_interrupted_source_goes_on_after_the_new_and_before_the_old() {
        let mut list = RunList::new(64);
        list.served(1, 64, Standing::Over);
        list.served(2, 16, Standing::Interrupted);
        list.wake(3);
        assert_eq!(order(&mut list, 9), [3, 2, 1]);
    }

    #[test]
    fn a_source_that_left_packets_lately_is_not_new_when_it_comes_again() {
        let mut list = RunList::new(64);
        let turn = |list: &mut RunList, source, standing| {
            list.pop();
            list.served(source, 16, standing);
        };
        [Standing::Over, Standing::Empty].into_iter().for_each(|standing| turn(&mut list, 1, standing));
        [1, 2].into_iter().for_each(|source| list.wake(source));
        assert_eq!(order(&mut list, 9), [2, 1]);
        (0..HEAVY_TURNS).for_each(|_| turn(&mut list, 3, Standing::Empty));
        [1, 2].into_iter().for_each(|source| list.wake(source));
        assert_eq!(order(&mut list, 9), [1, 2]);
    }

    #[test]
    fn a_source_that_left_packets_is_old_for_64_turns() {
        let order_after = |turns| {
            let mut list = RunList::new(4);
            list.served(1, 16, Standing::Over);
            list.pop();
            (0..turns).for_each(|_| list.served(3, 16, Standing::Empty));
            [1, 2].into_iter().for_each(|source| list.wake(source));
            order(&mut list, 9)
        };
        assert_eq!([63, 64].map(order_after), [[2, 1], [1, 2]]);
    }

    #[test]
    fn a_source_that_wakes_during_its_own_turn_is_listed_once() {
        for standing in [Standing::Interrupted, Standing::Over] {
            let mut list = RunList::new(4);
            list.wake(1);
            list.served(1, 16, standing);
            assert_eq!(order(&mut list, 9), [1], "{standing:?}");
        }
    }

    #[test]
    fn a_list_with_new_or_old_sources_is_not_empty() {
        let mut list = RunList::new(4);
        assert!(list.is_empty());
        list.wake(1);
        assert!(!list.is_empty(), "a new one");
        list.pop();
        list.served(1, 16, Standing::Over);
        assert!(!list.is_empty(), "an old one");
    }

    #[test]
    fn only_a_new_source_with_few_packets_makes_the_worker_hurry() {
        let hurried = |standing| {
            let mut list = RunList::new(4);
            list.wake(1);
            list.pop();
            list.served(1, 16, standing);
            list.pop();
            list.served(1, 1, Standing::Empty);
            list.pace().is_hurried()
        };
        assert!(!hurried(Standing::Over), "the old one had a few packets left");
        assert!(hurried(Standing::Empty), "a new one came with a few");
    }

    #[test]
    fn many_quiet_sources_do_not_starve_one_that_has_more() {
        let mut list = RunList::new(64);
        list.served(0, 64, Standing::Over);
        (1..=40).for_each(|source| list.wake(source));
        let order = order(&mut list, 41);
        assert_eq!(order.iter().position(|source| *source == 0), Some(NEW_BEFORE_OLD as usize));
        assert_eq!(order.len(), 41);
    }

    #[test]
    fn in_a_hurry_an_old_source_goes_on_only_after_a_look() {
        let mut list = RunList::new(4);
        list.served(1, 16, Standing::Interrupted);
        assert!(!list.wants_look(), "nobody is in a hurry");
        list.wake(2);
        assert_eq!(list.pop(), Some(2));
        list.served(2, 1, Standing::Empty);
        assert!(list.wants_look());
        list.looked();
        assert!(!list.wants_look(), "it has looked");
        assert_eq!(list.pop(), Some(1));
        list.served(1, 16, Standing::Interrupted);
        assert!(list.wants_look(), "that was a turn ago");
        list.wake(3);
        assert!(!list.wants_look(), "a new source goes first anyway");
    }
}
