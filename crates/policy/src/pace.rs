//! Pace: when a worker's rings are interrupted in their turns.
//!
//! A long turn costs least a packet. But whoever has a packet or two waits for the turn under way; so while there is
//! somebody like that, turns of small packets are interrupted a few times, and whoever has come meanwhile goes first.
//! Turns of large packets are not: the kernel merges those of one stream that arrive together (GRO), and a stream in
//! pieces is a fifth slower.

/// Packets from this length on are large.
const LARGE_BYTES: u64 = 512;
/// Pieces in a row without a sparse ring after which there is none: some milliseconds of a worker that is busy.
const MEMORY: u32 = 64;

/// What was served in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Packets.
    pub packets: u32,
    /// The ring has more.
    pub more: bool,
    /// The ring had nothing before.
    pub new: bool,
}

/// One worker's pace.
#[derive(Clone, Debug)]
pub struct Pace {
    since_sparse: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { since_sparse: MEMORY }
    }
}

impl Pace {
    /// Packets of a turn, at most: twice the kernel's NAPI budget, and as many as one run of the departure program sends.
    pub const TURN: u32 = 128;
    /// Packets between two interruptions.
    pub const PIECE: u32 = 16;

    /// Whether somebody sparse was there lately, for whom the others make room.
    pub fn is_hurried(&self) -> bool {
        self.since_sparse < MEMORY
    }

    /// Packets that may be served in one piece, of a ring whose packets were so long before.
    pub fn piece(&self, mean_bytes: u64) -> u32 {
        if self.is_hurried() && mean_bytes < LARGE_BYTES { Self::PIECE } else { Self::TURN }
    }

    /// Learns what was served; packet path.
    #[inline]
    pub fn observe(&mut self, served: Served) {
        let is_sparse = served.new && !served.more && (1..=Self::PIECE).contains(&served.packets);
        self.since_sparse = if is_sparse { 0 } else { self.since_sparse.saturating_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPARSE: Served = Served { packets: 1, more: false, new: true };
    const FLOODED: Served = Served { packets: 16, more: true, new: false };

    #[test]
    fn turns_are_interrupted_when_somebody_sparse_comes_and_some_time_after() {
        let mut pace = Pace::default();
        assert_eq!(pace.piece(60), Pace::TURN);
        pace.observe(SPARSE);
        assert_eq!([511, 512].map(|bytes| pace.piece(bytes)), [Pace::PIECE, Pace::TURN]);
        for _ in 0..MEMORY {
            assert_eq!(pace.piece(60), Pace::PIECE);
            assert_eq!(pace.piece(1514), Pace::TURN, "large packets are merged where they arrive");
            pace.observe(FLOODED);
        }
        assert_eq!(pace.piece(60), Pace::TURN);
    }

    #[test]
    fn a_ring_is_sparse_when_it_comes_with_few_packets_and_leaves_none() {
        let cases = [
            Served { packets: 64, ..SPARSE },
            Served { packets: 0, ..SPARSE },
            Served { more: true, ..SPARSE },
            Served { new: false, ..SPARSE },
        ];
        for served in cases {
            let mut pace = Pace::default();
            pace.observe(served);
            assert!(!pace.is_hurried(), "{served:?}");
        }
    }
}
