//! Which thread stands still.

/// Numbers of turns that threads had made when they were last looked at.
///
/// Between two looks every thread makes at least one turn: some wake by themselves, others are woken at each look. So a
/// number that is as it was belongs to a thread that is dead or stuck.
#[derive(Debug, Default, Clone)]
pub struct Watchdog {
    seen: Vec<u64>,
}

impl Watchdog {
    /// Looks at the turns of all threads, which come in the same order each time. Returns the index of the first that has
    /// made none since the last look; the first look finds nobody.
    pub fn look(&mut self, turns: impl IntoIterator<Item = u64>) -> Option<usize> {
        let before = std::mem::take(&mut self.seen);
        self.seen.extend(turns);
        self.seen.iter().zip(&before).position(|(now, before)| now == before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_makes_no_turn_between_two_looks_is_found_and_forgiven_when_it_goes_on() {
        let mut watchdog = Watchdog::default();
        let looks = [[1, 0], [2, 1], [3, 1], [3, 2], [4, 3]].map(|turns| watchdog.look(turns));
        assert_eq!(looks, [None, None, Some(1), Some(0), None]);
    }

    #[test]
    fn threads_that_have_ended_on_purpose_are_no_threads() {
        let mut watchdog = Watchdog::default();
        assert_eq!(watchdog.look([1, 1]), None);
        assert_eq!(watchdog.look([]), None);
        assert_eq!(watchdog.look([1, 1]), None);
    }
}
