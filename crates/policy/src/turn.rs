//! Turn: what one ring may have before the next one is served.

use crate::{Deficit, Pace};

/// What may be served without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Packets, at most.
    pub packets: u32,
    /// Bytes, which the last packet may exceed.
    pub bytes: u64,
}

/// Where a ring stands after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has nothing more.
    Empty,
    /// It has more, and its turn goes on when those that are new have been served.
    Interrupted,
    /// It has more, and its turn is over.
    Over,
}

/// One ring's turns: [`Pace::TURN`] packets or a quantum of bytes each, in one piece or in several.
#[derive(Clone, Debug)]
pub struct Turn {
    deficit: Deficit,
    under_way: bool,
    packets: u32,
    /// Of a packet in the last piece.
    mean_bytes: u64,
}

impl Turn {
    /// No turn yet; a turn is about `quantum` bytes.
    pub const fn new(quantum: u32) -> Self {
        Self { deficit: Deficit::new(quantum), under_way: false, packets: 0, mean_bytes: 0 }
    }

    /// The next piece of the turn under way, or of a new one.
    pub fn piece(&mut self, pace: &Pace) -> Piece {
        if !self.under_way {
            (self.under_way, self.packets) = (true, 0);
            self.deficit.begin();
        }
        let packets = (Pace::TURN - self.packets).min(pace.piece(self.mean_bytes));
        Piece { packets, bytes: self.deficit.allowed() }
    }

    /// So much was served of the piece.
    pub fn served(&mut self, packets: u32, bytes: u64, more: bool) -> Standing {
        self.mean_bytes = bytes.checked_div(packets.into()).unwrap_or(0);
        self.deficit.served(bytes);
        self.packets += packets;
        if more && self.packets < Pace::TURN && self.deficit.allowed() > 0 {
            return Standing::Interrupted;
        }
        self.under_way = false;
        self.deficit.end(more);
        if more { Standing::Over } else { Standing::Empty }
    }

    /// Packets served since the turn began.
    pub fn packets(&self) -> u32 {
        self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Served;

    const QUANTUM: u32 = 64 * 1514;

    fn hurried() -> Pace {
        let mut pace = Pace::default();
        pace.observe(Served { packets: 1, more: false, new: true });
        pace
    }

    /// Pieces of one turn of a ring that always has more, by their packets.
    fn pieces(turn: &mut Turn, pace: &Pace, bytes_each: u64) -> Vec<u32> {
        let mut pieces = Vec::new();
        loop {
            let piece = turn.piece(pace);
            let packets = u64::from(piece.packets).min(piece.bytes.div_ceil(bytes_each)) as u32;
            pieces.push(packets);
            if turn.served(packets, u64::from(packets) * bytes_each, true) == Standing::Over {
                return pieces;
            }
            assert!(pieces.len() < Pace::TURN as usize, "a turn that does not end");
        }
    }

    #[test]
    fn in_a_hurry_a_turn_of_small_packets_comes_in_pieces_and_is_no_shorter() {
        let mut turn = Turn::new(QUANTUM);
        assert_eq!(pieces(&mut turn, &Pace::default(), 60), [128]);
        assert_eq!(pieces(&mut turn, &hurried(), 60), [16; 8]);
    }

    #[test]
    fn a_turn_of_large_packets_is_one_piece_of_a_quantum() {
        let mut turn = Turn::new(QUANTUM);
        assert_eq!(pieces(&mut turn, &Pace::default(), 1514), [64]);
        assert_eq!(pieces(&mut turn, &hurried(), 1514), [64]);
        assert_eq!(pieces(&mut turn, &hurried(), 9000), [11]);
    }

    #[test]
    fn a_turn_goes_on_with_what_is_left_of_it() {
        let mut turn = Turn::new(QUANTUM);
        assert_eq!(turn.piece(&hurried()).packets, Pace::PIECE);
        assert_eq!(turn.served(10, 600, true), Standing::Interrupted);
        assert_eq!(turn.piece(&Pace::default()).packets, Pace::TURN - 10);
    }

    #[test]
    fn a_ring_that_is_empty_begins_anew() {
        let mut turn = Turn::new(QUANTUM);
        assert_eq!(turn.piece(&hurried()).packets, Pace::PIECE);
        assert_eq!(turn.served(16, 960, true), Standing::Interrupted);
        assert_eq!(turn.served(3, 180, false), Standing::Empty);
        assert_eq!(turn.packets(), 19);
        assert_eq!(turn.piece(&Pace::default()), Piece { packets: Pace::TURN, bytes: QUANTUM.into() });
    }
}
