//! Ids of layouts: each is given out once, so that a packet in flight never means another layout than the one it was
//! written in.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::plan::{BELOW_BYTES, Plan, id_of};

/// Names a layout, in the last four bytes below a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayoutId(pub NonZeroU32);

/// What a packet's id led to.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// The plan for this packet.
    Plan(&'a Plan),
    /// The id was given out, and its layout is gone.
    Stale,
    /// The id was never given out; 0 means that nobody wrote hints.
    Unknown,
}

/// All layouts that packets may come in.
#[derive(Clone, Debug)]
pub struct Registry {
    /// The id of the first entry.
    first: u32,
    plans: VecDeque<Option<Arc<Plan>>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self { first: 1, plans: VecDeque::new() }
    }
}

impl Registry {
    /// Gives a plan an id that none ever had. `None`: all four thousand million are used up.
    pub fn add(&mut self, plan: Plan) -> Option<LayoutId> {
        let id = self.first.checked_add(u32::try_from(self.plans.len()).ok()?)?;
        // The next one must exist, too: it is what tells issued ids from others.
        id.checked_add(1)?;
        self.plans.push_back(Some(Arc::new(plan)));
        NonZeroU32::new(id).map(LayoutId)
    }

    /// Forgets a layout: no packet in it is in flight any more.
    pub fn retire(&mut self, id: LayoutId) {
        let entry = self.index(id.0.get()).and_then(|index| self.plans.get_mut(index));
        if let Some(plan) = entry {
            *plan = None;
        }
        while self.plans.front().is_some_and(Option::is_none) {
            self.plans.pop_front();
            self.first += 1;
        }
    }

    /// The plan for the packet above these bytes; packet path.
    #[inline]
    pub fn find(&self, below: &[u8; BELOW_BYTES]) -> Found<'_> {
        self.find_id(id_of(below))
    }

    fn find_id(&self, id: u32) -> Found<'_> {
        let Some(index) = self.index(id) else {
            return if id == 0 { Found::Unknown } else { Found::Stale };
        };
        match self.plans.get(index) {
            Some(Some(plan)) => Found::Plan(plan),
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
    use crate::builder::Builder;
    use crate::{Btf, Layout};

    fn plan() -> Plan {
        let mut types = Builder::new();
        let id = types.int("unsigned", 4, false);
        types.composite("forebay_hints", false, 4, &[("layout_id", id, 0, 0)]);
        Plan::compile(&Layout::find(&Btf::parse(&types.build()).unwrap()).unwrap())
    }

    fn found(registry: &Registry, id: u32) -> &'static str {
        let mut below = [0; BELOW_BYTES];
        below[252..].copy_from_slice(&id.to_ne_bytes());
        match registry.find(&below) {
            Found::Plan(_) => "plan",
            Found::Stale => "stale",
            Found::Unknown => "unknown",
        }
    }

    #[test]
    fn an_id_is_never_given_out_twice() {
        let mut registry = Registry::default();
        let mut last = 0;
        for _ in 0..100 {
            let id = registry.add(plan()).unwrap();
            assert!(id.0.get() > last);
            last = id.0.get();
            registry.retire(id);
        }
        assert!(registry.plans.is_empty(), "what was retired takes no room");
    }

    #[test]
    fn ids_of_others_and_ids_of_the_past_are_told_apart() {
        let mut registry = Registry::default();
        let ids = [(); 3].map(|()| registry.add(plan()).unwrap().0.get());
        registry.retire(LayoutId(ids[1].try_into().unwrap()));
        assert_eq!(ids.map(|id| found(&registry, id)), ["plan", "stale", "plan"]);
        registry.retire(LayoutId(ids[0].try_into().unwrap()));
        assert_eq!(ids.map(|id| found(&registry, id)), ["stale", "stale", "plan"]);
        assert_eq!([0, ids[2] + 1, u32::MAX].map(|id| found(&registry, id)), ["unknown"; 3]);
    }

    #[test]
    fn when_all_ids_are_used_up_there_is_none() {
        let mut registry = Registry { first: u32::MAX - 1, plans: VecDeque::new() };
        assert!(registry.add(plan()).is_some());
        assert!(registry.add(plan()).is_none());
    }
}
