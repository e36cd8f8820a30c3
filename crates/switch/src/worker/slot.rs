//! How a worker's sources are named.

/// Names one source of one worker while it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    #[inline]
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}
