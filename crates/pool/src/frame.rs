//! The move-only token for one frame.

/// The right to use one frame of one [`Arena`](crate::Arena).
///
/// There is one `Frame` value for every frame of an arena, for as long as the arena lives. It is neither
/// `Clone` nor `Copy`; whoever holds it may read and write the frame's bytes. Handing it to the kernel
/// consumes it ([`Frame::into_address`]); the kernel giving the frame back re-creates it.
///
/// Dropping a frame leaks it until its arena goes: there is no destructor because a frame does not know
/// its pool. The pool's count of free frames shows such a leak.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped frame is lost to its pool"]
pub struct Frame {
    index: u32,
    arena: u32,
}

impl Frame {
    pub(crate) const fn new(arena: u32, index: u32) -> Self {
        Self { index, arena }
    }

    /// Position of the frame in its arena, counted in frames.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The arena that the frame belongs to.
    pub const fn arena(&self) -> u32 {
        self.arena
    }

    /// Gives the frame up, for a ring: its offset in the arena in bytes.
    pub const fn into_address(self, frame_size: u32) -> u64 {
        self.index as u64 * frame_size as u64
    }
}
