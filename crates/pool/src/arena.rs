//! The memory that frames are cut from. One of the files of this crate's unsafe code.
#![allow(unsafe_code, reason = "maps packet memory and hands out slices of it")]

use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Frame;
use crate::prefetch::prefetch_bytes;

/// Size of a frame in bytes; what the kernel calls a chunk.
///
/// AF_XDP in aligned mode takes powers of two from 2048 to the page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSize(u32);

impl FrameSize {
    /// Half a page: a standard Ethernet packet fits in one frame.
    pub const B2048: Self = Self(2048);
    /// A page.
    pub const B4096: Self = Self(4096);

    /// Checks `bytes`.
    ///
    /// # Errors
    /// [`ArenaError::FrameSize`] for anything but 2048 and 4096.
    pub const fn new(bytes: u32) -> Result<Self, ArenaError> {
        match bytes {
            2048 => Ok(Self::B2048),
            4096 => Ok(Self::B4096),
            _ => Err(ArenaError::FrameSize { bytes }),
        }
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// Which frame a byte is in, and where. The size is a power of two, which the compiler does not know: no division.
    const fn place_of(self, address: u64) -> (u64, u16) {
        (address >> self.0.trailing_zeros(), (address & (self.0 as u64 - 1)) as u16)
    }

    /// Bytes of a packet that a frame holds: the kernel keeps 256 in front (XDP_PACKET_HEADROOM).
    pub const fn payload(self) -> u32 {
        self.0 - 256
    }
}

/// Why an arena could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The caller asked for a size that AF_XDP does not take.
    #[error("frame size {bytes} is not offered; use 2048 or 4096")]
    FrameSize {
        /// What was asked for.
        bytes: u32,
    },
    /// The kernel refused the mapping; fewer frames or more memory help.
    #[error("no memory for {frames} frames of {frame_size} bytes: {source}")]
    Map {
        /// Frames asked for.
        frames: u32,
        /// Bytes of one.
        frame_size: u32,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// One anonymous mapping, cut into frames of equal size.
///
/// The bytes of a frame are reached only through its [`Frame`], so there are never two ways to the same bytes.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    mapped_bytes: usize,
    has_huge_pages: bool,
    frames: u32,
    frame_size: FrameSize,
    id: u32,
}

// SAFETY: the mapping is owned by the arena and unmapped once, on drop. Its bytes are reached only through
// `bytes` and `bytes_mut`, whose `&Frame` and `&mut Frame` arguments carry the usual aliasing rules across threads.
unsafe impl Send for Arena {}
// SAFETY: as above; the arena itself has no interior state that changes.
unsafe impl Sync for Arena {}

/// The usual huge page of x86-64 and arm64; where the machine's is larger, mapping by it is refused.
const HUGE_PAGE: usize = 2 << 20;

static NEXT_ARENA: AtomicU32 = AtomicU32::new(1);

impl Arena {
    /// Maps memory for `frames` frames and returns it with all the frames there will ever be of it.
    ///
    /// # Errors
    /// [`ArenaError::Map`] when the kernel refuses.
    pub fn new(frames: NonZeroU32, frame_size: FrameSize) -> Result<(Self, Vec<Frame>), ArenaError> {
        let frames = frames.get();
        let bytes = frames as usize * frame_size.bytes() as usize;
        let in_huge_pages = bytes.next_multiple_of(HUGE_PAGE);
        let huge = (bytes >= HUGE_PAGE).then(|| map(in_huge_pages, libc::MAP_HUGETLB).ok()).flatten();
        let (base, mapped_bytes) = match huge {
            Some(base) => (base, in_huge_pages),
            None => {
                let failed = |source| ArenaError::Map { frames, frame_size: frame_size.bytes(), source };
                (map(bytes, 0).map_err(failed)?, bytes)
            }
        };
        let has_huge_pages = huge.is_some();
        let id = NEXT_ARENA.fetch_add(1, Ordering::Relaxed);
        let arena = Self { base, mapped_bytes, has_huge_pages, frames, frame_size, id };
        let all = (0..frames).map(|index| Frame::new(id, index)).collect();
        Ok((arena, all))
    }

    /// Tells its frames from those of other arenas.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Start of the mapping, to register with the kernel.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length of the mapping in bytes.
    pub fn len_bytes(&self) -> usize {
        self.frames as usize * self.frame_size.bytes() as usize
    }

    /// Whether it lies in huge pages, which it does when the machine has enough of them set aside.
    pub fn has_huge_pages(&self) -> bool {
        self.has_huge_pages
    }

    /// How many frames there are.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Size of one frame.
    pub fn frame_size(&self) -> FrameSize {
        self.frame_size
    }

    /// `len` bytes of `frame` from `offset`; packet path.
    ///
    /// # Panics
    /// When the frame is of another arena or the range leaves the frame: both are bugs of the caller.
    #[inline]
    pub fn bytes<'a>(&'a self, frame: &'a Frame, offset: u16, len: u16) -> &'a [u8] {
        let start = self.locate(frame, offset, len);
        // SAFETY: `locate` checked that the range lies in this mapping and inside the frame; `&Frame` proves that
        // no one else holds the frame, so nobody writes to it while the slice lives.
        unsafe { std::slice::from_raw_parts(start, usize::from(len)) }
    }

    /// Like [`Arena::bytes`], to write.
    ///
    /// # Panics
    /// As [`Arena::bytes`].
    #[inline]
    pub fn bytes_mut<'a>(&'a self, frame: &'a mut Frame, offset: u16, len: u16) -> &'a mut [u8] {
        let start = self.locate(frame, offset, len);
        // SAFETY: as in `bytes`; `&mut Frame` proves that no other slice of this frame exists.
        unsafe { std::slice::from_raw_parts_mut(start, usize::from(len)) }
    }

    /// Begins to bring `below` bytes below `address` and `bytes` from there into the processor's cache; packet path. It
    /// reads nothing: the frames may be anybody's, and the address anything.
    #[inline]
    pub fn prefetch(&self, address: u64, below: u16, bytes: u16) {
        let start = self.base.as_ptr().wrapping_add(address as usize).wrapping_sub(usize::from(below));
        prefetch_bytes(start, usize::from(below) + usize::from(bytes));
    }

    /// Takes back a frame that the kernel returned by its address: any byte of the frame names it.
    ///
    /// Returns the frame and the offset of `address` inside it, or `None` when the address lies outside the arena.
    ///
    /// # Safety
    /// The frame must have been given up through [`Frame::into_address`] and not been taken back since.
    #[inline]
    pub unsafe fn frame_at(&self, address: u64) -> Option<(Frame, u16)> {
        let (index, offset) = self.frame_size.place_of(address);
        let index = u32::try_from(index).ok().filter(|index| *index < self.frames)?;
        Some((Frame::new(self.id, index), offset))
    }

    #[inline]
    fn locate(&self, frame: &Frame, offset: u16, len: u16) -> *mut u8 {
        assert_eq!(frame.arena(), self.id, "frame of another arena");
        let size = self.frame_size.bytes();
        assert!(u32::from(offset) + u32::from(len) <= size, "range leaves the frame");
        let start = frame.index() as usize * size as usize + usize::from(offset);
        // SAFETY: index < frames for every frame of this arena, and offset < size, so `start` is inside the mapping.
        unsafe { self.base.as_ptr().add(start) }
    }
}

fn map(bytes: usize, flags: libc::c_int) -> std::io::Result<NonNull<u8>> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    Ok(NonNull::new(address.cast()).expect("mmap never returns the null page unasked"))
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length and is unmapped only here.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> (Arena, Vec<Frame>) {
        Arena::new(NonZeroU32::new(4).expect("not zero"), FrameSize::B2048).expect("8 KiB of memory")
    }

    #[test]
    fn frames_do_not_overlap() {
        let (arena, mut frames) = small();
        for (n, frame) in frames.iter_mut().enumerate() {
            arena.bytes_mut(frame, 0, 2048).fill(n as u8);
        }
        for (n, frame) in frames.iter().enumerate() {
            assert!(arena.bytes(frame, 0, 2048).iter().all(|byte| *byte == n as u8));
        }
    }

    #[test]
    fn an_offset_counts_from_the_start_of_its_frame() {
        let (arena, mut frames) = small();
        arena.bytes_mut(&mut frames[1], 300, 2).copy_from_slice(&[7, 8]);
        let whole = arena.bytes(&frames[1], 0, 2048);
        assert_eq!((&whole[300..302], whole.iter().filter(|byte| **byte != 0).count()), (&[7, 8][..], 2));
    }

    #[test]
    fn an_arena_knows_its_size() {
        let (arena, frames) = small();
        assert_eq!((arena.frames(), frames.len(), arena.len_bytes()), (4, 4, 8192));
        assert!(!arena.has_huge_pages(), "it is smaller than one");
        assert_eq!([FrameSize::B2048, FrameSize::B4096].map(FrameSize::payload), [1792, 3840]);
    }

    /// Lines of /proc/self/smaps from the mapping on that holds `address`; none if nothing is mapped there.
    fn mapping_of(address: usize) -> Vec<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("procfs");
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        let holds = |line: &&str| {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let range = range.and_then(|(start, end)| Some(number(start)?..number(end)?));
            range.is_some_and(|range| range.contains(&address))
        };
        maps.lines().skip_while(|line| !holds(line)).map(str::to_owned).collect()
    }

    /// Where no huge pages are set aside, this says only that none are claimed.
    #[test]
    fn an_arena_says_whether_it_lies_in_huge_pages() {
        let frames = NonZeroU32::new(1024).expect("not zero");
        let (arena, _frames) = Arena::new(frames, FrameSize::B2048).expect("2 MiB of memory");
        let mapping = mapping_of(arena.base().as_ptr().addr());
        let size = mapping
            .iter()
            .find_map(|line| line.strip_prefix("KernelPageSize:"))
            .expect("every mapping has it");
        assert_eq!(arena.has_huge_pages(), size.trim() == "2048 kB");
    }

    #[test]
    fn an_arena_that_is_dropped_gives_its_memory_back() {
        let is_given_back = || {
            let (arena, _frames) = small();
            let address = arena.base().as_ptr().addr();
            assert!(!mapping_of(address).is_empty());
            drop(arena);
            mapping_of(address).is_empty()
        };
        // Another thread may be given the same addresses at once, but not each time.
        assert!((0..100).any(|_| is_given_back()));
    }

    #[test]
    fn any_address_may_be_prefetched() {
        let (arena, _frames) = small();
        [0, 8191, u64::MAX].into_iter().for_each(|address| arena.prefetch(address, 64, u16::MAX));
    }

    #[test]
    fn an_address_anywhere_in_a_frame_names_it() {
        let (arena, mut frames) = small();
        let address = frames.remove(2).into_address(2048);
        // SAFETY: the frame was given up on the line above.
        let (frame, offset) = unsafe { arena.frame_at(address + 300) }.expect("inside the arena");
        assert_eq!((frame.index(), offset), (2, 300));
    }

    #[test]
    fn an_address_beyond_the_arena_names_nothing() {
        let (arena, _frames) = small();
        // SAFETY: no frame is created for an address outside.
        assert!(unsafe { arena.frame_at(4 * 2048) }.is_none());
        // SAFETY: as above.
        assert!(unsafe { arena.frame_at(u64::MAX) }.is_none());
    }

    #[test]
    #[should_panic(expected = "frame of another arena")]
    fn a_frame_opens_only_its_own_arena() {
        let (_first, mut frames) = small();
        let (second, _) = small();
        second.bytes_mut(&mut frames[0], 0, 1);
    }

    #[test]
    #[should_panic(expected = "range leaves the frame")]
    fn a_range_may_not_leave_its_frame() {
        let (arena, frames) = small();
        arena.bytes(&frames[3], 2000, 49);
    }
}
