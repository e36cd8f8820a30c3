//! Names of bound queues: a fill ring knows by the name that the socket which bound its queue is closed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tells one bound queue from another, for as long as the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueId(u64);

impl QueueId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Shows that the socket which bound a queue is closed.
#[derive(Debug)]
pub struct Closed(pub(crate) QueueId);

impl Closed {
    pub(crate) fn queue(&self) -> QueueId {
        self.0
    }
}
