//! How many entries there are, and of whom.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::slot::Value;
use super::token::Held;

/// Ports that a `u16` can name.
const PORTS: usize = 1 << 16;

/// Counts kept by whoever holds the token, hence exact; readable by anyone, then as of a moment ago.
#[derive(Debug)]
pub(super) struct Census {
    learned: AtomicU32,
    statics: AtomicU32,
    learned_on: Box<[AtomicU32]>,
}

impl Default for Census {
    fn default() -> Self {
        let learned_on = (0..PORTS).map(|_| AtomicU32::new(0)).collect();
        Census { learned: 0.into(), statics: 0.into(), learned_on }
    }
}

impl Census {
    pub(super) fn learned(&self) -> u32 {
        self.learned.load(Relaxed)
    }

    pub(super) fn statics(&self) -> u32 {
        self.statics.load(Relaxed)
    }

    pub(super) fn learned_on(&self, port: u16) -> u32 {
        self.learned_on[usize::from(port)].load(Relaxed)
    }

    pub(super) fn add(&self, _held: &Held<'_>, value: Value) {
        self.counts(value).for_each(|count| count.store(count.load(Relaxed) + 1, Relaxed));
    }

    pub(super) fn remove(&self, _held: &Held<'_>, value: Value) {
        self.counts(value).for_each(|count| count.store(count.load(Relaxed) - 1, Relaxed));
    }

    fn counts(&self, value: Value) -> impl Iterator<Item = &AtomicU32> {
        let on_port = &self.learned_on[usize::from(value.port())];
        let pair = if value.is_static() {
            [Some(&self.statics), None]
        } else {
            [Some(&self.learned), Some(on_port)]
        };
        pair.into_iter().flatten()
    }
}
