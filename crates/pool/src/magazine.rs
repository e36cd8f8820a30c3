//! A worker's own free frames, so that the shared store is touched once in many packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Frame, Pool};

/// Frames that one move between magazine and store carries: one NAPI budget.
const MOVE: usize = 64;
/// Most frames that lie in a magazine: two moves, so that a worker which takes and gives in turn does not thrash.
const CAPACITY: usize = 2 * MOVE;

/// A private stack of free frames in front of a [`Pool`]. It gives its frames back when dropped.
#[derive(Debug)]
pub struct Magazine {
    pool: Arc<Pool>,
    frames: Vec<Frame>,
    level: Arc<AtomicU32>,
}

impl Magazine {
    /// Most frames that lie in one.
    pub const FRAMES: u32 = CAPACITY as u32;

    /// An empty magazine on `pool`.
    pub fn new(pool: Arc<Pool>) -> Self {
        Self { pool, frames: Vec::with_capacity(CAPACITY), level: Arc::default() }
    }

    /// A view of how many frames the magazine holds, for whoever counts all free frames.
    pub fn level(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.level)
    }

    /// Takes a free frame; packet path. `None`: the pool is empty.
    pub fn take(&mut self) -> Option<Frame> {
        if self.frames.is_empty() {
            let pool = &self.pool;
            self.frames.extend(std::iter::from_fn(|| pool.take()).take(MOVE));
        }
        let frame = self.frames.pop();
        self.publish();
        frame
    }

    /// Puts a free frame in; packet path.
    pub fn put(&mut self, frame: Frame) {
        if self.frames.len() == CAPACITY {
            for frame in self.frames.drain(MOVE..) {
                self.pool.put(frame);
            }
        }
        self.frames.push(frame);
        self.publish();
    }

    fn publish(&self) {
        self.level.store(self.frames.len() as u32, Ordering::Relaxed);
    }
}

impl Drop for Magazine {
    fn drop(&mut self) {
        for frame in self.frames.drain(..) {
            self.pool.put(frame);
        }
        self.publish();
    }
}

#[cfg(test)]
mod instances;
#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;
    use crate::{Arena, FrameSize};

    fn pool(frames: u32) -> (Arena, Arc<Pool>) {
        let frames = NonZeroU32::new(frames).expect("not zero");
        let (arena, frames) = Arena::new(frames, FrameSize::B2048).expect("some memory");
        (arena, Arc::new(Pool::new(frames)))
    }

    #[test]
    fn an_empty_pool_says_so_and_recovers() {
        let (_arena, pool) = pool(3);
        let mut magazine = Magazine::new(Arc::clone(&pool));
        let held: Vec<_> = std::iter::from_fn(|| magazine.take()).collect();
        assert_eq!(held.len(), 3);
        assert!(magazine.take().is_none());
        held.into_iter().for_each(|frame| magazine.put(frame));
        assert!(magazine.take().is_some_and(|frame| frame.index() < 3));
    }

    #[test]
    fn a_dropped_magazine_leaves_nothing_behind() {
        let (_arena, pool) = pool(500);
        let mut magazine = Magazine::new(Arc::clone(&pool));
        let frame = magazine.take().expect("500 free");
        magazine.put(frame);
        assert!(pool.free() < 500);
        drop(magazine);
        assert_eq!(pool.free(), 500);
    }

    #[test]
    fn its_level_is_known_to_whoever_counts_free_frames() {
        let (_arena, pool) = pool(500);
        let mut magazine = Magazine::new(Arc::clone(&pool));
        let level = magazine.level();
        let all = |level: &AtomicU32| pool.free() + level.load(Ordering::Relaxed);
        assert_eq!((all(&level), pool.total()), (500, 500));
        let frame = magazine.take().expect("500 free");
        assert_eq!(all(&level), 499);
        magazine.put(frame);
        assert_eq!(all(&level), 500);
        drop(magazine);
        assert_eq!(level.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn it_takes_64_frames_at_once_and_holds_128_at_most() {
        let (_arena, pool) = pool(500);
        let mut magazine = Magazine::new(Arc::clone(&pool));
        magazine.take().into_iter().for_each(|frame| magazine.put(frame));
        assert_eq!((magazine.frames.len(), pool.free()), (64, 500 - 64));
        let held: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        let most = held.into_iter().map(|frame| {
            magazine.put(frame);
            magazine.frames.len()
        });
        assert_eq!((most.max(), Magazine::FRAMES), (Some(128), 128));
        assert_eq!(pool.free() as usize + magazine.frames.len(), 500);
    }

    proptest! {
        /// Two magazines take and put at random; after each step every frame is in exactly one place.
        #[test]
        fn no_frame_is_lost_or_twice(steps in prop::collection::vec((0..2usize, 0..4u8, 1..200usize), 1..60)) {
            let (_arena, pool) = pool(300);
            let mut magazines = [Magazine::new(Arc::clone(&pool)), Magazine::new(Arc::clone(&pool))];
            let mut held = Vec::new();
            for (who, what, count) in steps {
                for _ in 0..count {
                    if what == 0 {
                        if let Some(frame) = held.pop() { magazines[who].put(frame) }
                    } else {
                        held.extend(magazines[who].take());
                    }
                }
                let mut seen: Vec<_> = held.iter().map(Frame::index).collect();
                for magazine in &magazines { seen.extend(magazine.frames.iter().map(Frame::index)) }
                let count = seen.len();
                seen.sort_unstable();
                seen.dedup();
                prop_assert_eq!(seen.len(), count, "a frame is in two places");
                prop_assert_eq!(count as u32 + pool.free(), 300);
            }
            for frame in held.drain(..) { pool.put(frame) }
        }
    }
}
