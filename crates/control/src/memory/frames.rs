//! Which frames of a pool the workers keep for themselves, and how many are left for ports.

/// Collectors of a pool: one for ports that have few packets, one for those that have many.
pub const LANES: usize = 2;

/// Most entries of a collector queue's fill ring: what the kernel may receive while a worker is away.
const FILL_ENTRIES: u32 = 4096;
/// Fewest.
const LEAST_ENTRIES: u32 = 64;
/// Those of the lane for ports that have many packets are so much shorter: every port's first burst comes by the other.
const BUSY_PART: u32 = 4;

/// Free frames that a worker keeps at hand for each lane.
pub const MAGAZINE_FRAMES: u32 = 128;
/// Fewer are nothing to share.
const LEAST_SHARED: u32 = 128;

/// Entries of each collector queue's fill ring, one a worker, by lane. Those for ports that have few packets take at most
/// half of the frames together, and all that workers keep at most three quarters where there are enough.
pub fn fill_entries(frames: u32, workers: u32) -> [u32; LANES] {
    let workers = workers.max(1);
    let both = |calm: u32| [calm, (calm / BUSY_PART).max(LEAST_ENTRIES)];
    let share = (frames / 2 / workers).max(LEAST_ENTRIES);
    let mut calm = (1 << share.ilog2()).min(FILL_ENTRIES);
    while calm > LEAST_ENTRIES && kept_by_a_worker(both(calm)) > frames / 4 * 3 / workers {
        calm /= 2;
    }
    both(calm)
}

fn kept_by_a_worker(fill_entries: [u32; LANES]) -> u32 {
    fill_entries.iter().map(|entries| entries + MAGAZINE_FRAMES).sum()
}

/// Frames that ports may hold in a pool of `frames`: all but those that fill rings and magazines keep.
pub fn shared_frames(frames: u32, workers: u32) -> u32 {
    frames.saturating_sub(workers * kept_by_a_worker(fill_entries(frames, workers)))
}

/// Frames of the smallest pool that `workers` can work with.
pub fn least_frames(workers: u32) -> u32 {
    workers * kept_by_a_worker([LEAST_ENTRIES; LANES]) + LEAST_SHARED
}
