//! The shared store of free frames.

use crate::Frame;
use crate::sync::ArrayQueue;

/// All free frames of one arena that no worker holds; lock-free and bounded by the arena's size.
///
/// Workers reach it through a [`Magazine`](crate::Magazine), which moves frames many at a time.
#[derive(Debug)]
pub struct Pool {
    free: ArrayQueue<Frame>,
    total: u32,
}

impl Pool {
    /// A pool of exactly these frames.
    pub fn new(frames: Vec<Frame>) -> Self {
        let total = u32::try_from(frames.len()).expect("frame indices are 32 bits");
        let free = ArrayQueue::new(frames.len().max(1));
        for frame in frames {
            free.push(frame).expect("the queue is as large as the arena");
        }
        Self { free, total }
    }

    /// Frames that belong to the pool, free or not.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Frames in the store now; magazines not counted.
    pub fn free(&self) -> u32 {
        u32::try_from(self.free.len()).expect("no more than `total`")
    }

    /// Takes a free frame; packet path.
    pub fn take(&self) -> Option<Frame> {
        self.free.pop()
    }

    /// Puts a frame back; packet path.
    ///
    /// # Panics
    /// When more frames come back than there are, which only a frame of another pool can cause.
    pub fn put(&self, frame: Frame) {
        assert!(self.free.push(frame).is_ok(), "a frame of another pool came back");
    }
}
