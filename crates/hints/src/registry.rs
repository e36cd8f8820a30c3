//! Ids of layouts: each is given out once, so that a packet in flight never means another layout than the one it was
//! written in.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use crate::plan::{BELOW_BYTES, id_of};

/// Names a layout, in the last four bytes below a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayoutId(pub NonZeroU32);

/// What a packet's id led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// What is kept for this layout.
    Known(T),
    /// The id was given out, and its layout is gone.
    Stale,
    /// The id was never given out; 0 means that nobody wrote hints.
    Unknown,
}

/// All layouts that packets may come in, and what is kept for each.
#[derive(Clone, Debug)]
pub struct Registry<T> {
    /// The id of the first entry.
    first: u32,
    entries: VecDeque<Option<T>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { first: 1, entries: VecDeque::new() }
    }
}

impl<T> Registry<T> {
    /// The id that the next layout will have, which none ever had. `None`: all four thousand million are used up.
    pub fn next_id(&self) -> Option<LayoutId> {
        let id = self.first.checked_add(u32::try_from(self.entries.len()).ok()?)?;
        // The one after it must exist, too: it is what tells issued ids from others.
        id.checked_add(1)?;
        NonZeroU32::new(id).map(LayoutId)
    }

    /// Gives a layout its id.
    pub fn add(&mut self, entry: T) -> Option<LayoutId> {
        let id = self.next_id()?;
        self.entries.push_back(Some(entry));
        Some(id)
    }

    /// Forgets a layout: no packet in it is in flight any more.
    pub fn retire(&mut self, id: LayoutId) {
        let entry = self.index(id.0.get()).and_then(|index| self.entries.get_mut(index));
        if let Some(entry) = entry {
            *entry = None;
        }
        while self.entries.front().is_some_and(Option::is_none) {
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// What is kept for the layout of the packet above these bytes; packet path.
    #[inline]
    pub fn find(&self, below: &[u8; BELOW_BYTES]) -> Found<&T> {
        self.find_id(id_of(below))
    }

    /// What is kept for the layout of this id.
    #[inline]
    pub fn find_id(&self, id: u32) -> Found<&T> {
        let Some(index) = self.index(id) else {
            return if id == 0 { Found::Unknown } else { Found::Stale };
        };
        match self.entries.get(index) {
            Some(Some(entry)) => Found::Known(entry),
            Some(None) => Found::Stale,
            None => Found::Unknown,
        }
    }

    /// `None`: before the first that is kept.
    fn index(&self, id: u32) -> Option<usize> {
        id.checked_sub(self.first).map(|index| index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(registry: &Registry<char>, id: u32) -> Found<char> {
        let mut below = [0; BELOW_BYTES];
        below[252..].copy_from_slice(&id.to_ne_bytes());
        match registry.find(&below) {
            Found::Known(entry) => Found::Known(*entry),
            Found::Stale => Found::Stale,
            Found::Unknown => Found::Unknown,
        }
    }

    #[test]
    fn an_id_is_never_given_out_twice() {
        let mut registry = Registry::default();
        let mut last = 0;
        for _ in 0..100 {
            let id = registry.add('a').unwrap();
            assert!(id.0.get() > last);
            last = id.0.get();
            registry.retire(id);
        }
        assert!(registry.entries.is_empty(), "what was retired takes no room");
    }

    #[test]
    fn ids_of_others_and_ids_of_the_past_are_told_apart() {
        let mut registry = Registry::default();
        let ids = ['a', 'b', 'c'].map(|entry| registry.add(entry).unwrap().0.get());
        registry.retire(LayoutId(ids[1].try_into().unwrap()));
        assert_eq!(ids.map(|id| found(&registry, id)), [Found::Known('a'), Found::Stale, Found::Known('c')]);
        registry.retire(LayoutId(ids[0].try_into().unwrap()));
        assert_eq!(ids.map(|id| found(&registry, id)), [Found::Stale, Found::Stale, Found::Known('c')]);
        assert_eq!([0, ids[2] + 1, u32::MAX].map(|id| found(&registry, id)), [Found::Unknown; 3]);
    }

    #[test]
    fn when_all_ids_are_used_up_there_is_none() {
        let mut registry = Registry { first: u32::MAX - 1, entries: VecDeque::new() };
        assert!(registry.add('a').is_some());
        assert!(registry.add('b').is_none());
    }
}
