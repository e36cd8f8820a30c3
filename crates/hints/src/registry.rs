//! Ids of layouts: each is given out once, so that a packet in flight never means another layout than the one it was
//! written in.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

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
    /// The id of the next one.
    next: NonZeroU32,
    entries: BTreeMap<u32, T>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { next: NonZeroU32::MIN, entries: BTreeMap::new() }
    }
}

impl<T> Registry<T> {
    /// Gives a layout an id that none ever had. `None`: all four thousand million are used up.
    pub fn add(&mut self, entry: T) -> Option<LayoutId> {
        let id = self.next;
        // The one after it must exist, too: it is what tells issued ids from others.
        self.next = id.checked_add(1)?;
        self.entries.insert(id.get(), entry);
        Some(LayoutId(id))
    }

    /// Forgets a layout: no packet in it is in flight any more.
    pub fn retire(&mut self, id: LayoutId) {
        self.entries.remove(&id.0.get());
    }

    /// What is kept for the layout of this id; packet path.
    #[inline]
    pub fn find(&self, id: u32) -> Found<&T> {
        match self.entries.get(&id) {
            Some(entry) => Found::Known(entry),
            None if id == 0 || id >= self.next.get() => Found::Unknown,
            None => Found::Stale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(registry: &Registry<char>, id: u32) -> Found<char> {
        match registry.find(id) {
            Found::Known(entry) => Found::Known(*entry),
            Found::Stale => Found::Stale,
            Found::Unknown => Found::Unknown,
        }
    }

    #[test]
    fn an_id_is_never_given_out_twice() {
        let mut registry = Registry::default();
        let mut last = registry.add('z').unwrap().0.get();
        for _ in 0..100 {
            let id = registry.add('a').unwrap();
            assert!(id.0.get() > last);
            last = id.0.get();
            registry.retire(id);
        }
        assert_eq!(registry.entries.len(), 1, "what was retired takes no room");
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
        let last = NonZeroU32::new(u32::MAX - 1).unwrap();
        let mut registry = Registry { next: last, entries: BTreeMap::new() };
        assert!(registry.add('a').is_some());
        assert!(registry.add('b').is_none());
    }
}
