//! Deficit round robin (Shreedhar and Varghese, SIGCOMM 1995): turns that are fair in bytes.
//!
//! Each turn brings a quantum. A queue is served while it has credit; what it takes beyond is owed, and the next turn
//! brings that much less. So in the long run queues with work get equal bytes, whatever their packets' lengths, and
//! no turn is longer than the quantum and one packet.

/// One queue's credit.
#[derive(Clone, Copy, Debug)]
pub struct Deficit {
    quantum: u32,
    credit: i64,
}

impl Deficit {
    /// No credit and no debt. A quantum of 0 would never serve anybody.
    pub const fn new(quantum: u32) -> Self {
        Self { quantum, credit: 0 }
    }

    /// A turn begins.
    pub fn begin(&mut self) {
        self.credit += i64::from(self.quantum);
    }

    /// Bytes that may be served in what is left of the turn; none when the debt is larger than a quantum.
    pub fn allowed(&self) -> u64 {
        self.credit.max(0) as u64
    }

    /// So many were served.
    pub fn served(&mut self, bytes: u64) {
        self.credit -= bytes as i64;
    }

    /// The turn is over. Credit that was not used is lost, so that none is saved up; so is the debt of a queue that has
    /// no `more` to serve.
    pub fn end(&mut self, more: bool) {
        self.credit = if more { self.credit.min(0) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Serves packets of one length for a turn, as a worker does: while there is credit, up to a number of packets.
    fn turn(deficit: &mut Deficit, length: u64, most: u64) -> u64 {
        deficit.begin();
        let served = (deficit.allowed().div_ceil(length)).min(most) * length;
        deficit.served(served);
        deficit.end(true);
        served
    }

    fn next(deficit: &mut Deficit) -> u64 {
        deficit.begin();
        deficit.allowed()
    }

    #[test]
    fn credit_is_not_saved_up_while_there_is_nothing_to_serve() {
        let mut deficit = Deficit::new(1000);
        for _ in 0..10 {
            deficit.begin();
            deficit.end(false);
        }
        assert_eq!(next(&mut deficit), 1000);
    }

    #[test]
    fn what_was_taken_beyond_is_owed() {
        let mut deficit = Deficit::new(1000);
        assert_eq!(next(&mut deficit), 1000);
        [800, 1000].into_iter().for_each(|bytes| deficit.served(bytes));
        deficit.end(true);
        assert_eq!(next(&mut deficit), 200);
        deficit.served(1500);
        deficit.end(true);
        assert_eq!(next(&mut deficit), 0, "more than a quantum is owed");
    }

    proptest! {
        #[test]
        fn saturated_queues_get_equal_bytes(lengths in prop::collection::vec(60..9000u64, 2..8), turns in 50..200u64) {
            const QUANTUM: u32 = 64 * 1514;
            let served: Vec<u64> = lengths
                .iter()
                .map(|length| {
                    let mut deficit = Deficit::new(QUANTUM);
                    (0..turns).map(|_| turn(&mut deficit, *length, u64::MAX / 9000)).sum()
                })
                .collect();
            let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
            prop_assert!(most - least <= 9000, "{served:?}");
        }
    }
}
