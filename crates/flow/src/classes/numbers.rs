//! Numbers of which rules name some: each of these is a class, and all others are class 0.

use super::limit::{TooManyClasses, check};

/// The numbers that rules name, in order; the class of a number is its place, counted from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NumberClasses(Vec<u16>);

impl NumberClasses {
    pub(super) fn new(named: impl Iterator<Item = u16>) -> NumberClasses {
        let mut numbers: Vec<u16> = named.collect();
        numbers.sort_unstable();
        numbers.dedup();
        NumberClasses(numbers)
    }

    /// Itself, unless there are too many.
    pub(super) fn within(self, what: &'static str, limit: usize) -> Result<NumberClasses, TooManyClasses> {
        check(what, self.0.len(), limit).map(|()| self)
    }

    pub(super) fn of(&self, number: u16) -> u16 {
        self.0.binary_search(&number).map_or(0, |at| at as u16 + 1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, u16)> + '_ {
        self.0.iter().copied().zip(1..=u16::MAX)
    }
}
