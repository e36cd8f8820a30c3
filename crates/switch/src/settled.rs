//! Reads counters when packets under way have arrived, or tells what may be under way.
//!
//! Counters are exact only when nothing is under way, so a reader waits a few milliseconds for that. On a busy switch
//! that never comes. There the reader reads twice, and sides that differ by no more than what moved in between add up. The
//! rule this file keeps: the reader waits without the lock, so that no other request waits with it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_control::stats::StatsShow;

/// Pause between two looks, in which packets under way arrive.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);
/// Number of looks; under traffic something is always under way, so the wait needs a bound.
const LOOKS: u32 = 5;

/// Reads statistics again until all that does not add up is explained by what moves, or [`LOOKS`] times, each time after
/// twice the pause: packets wait longer where more do.
pub(crate) fn compare(first: StatsShow, read: impl Fn() -> StatsShow, pause: impl Fn(Duration)) -> StatsShow {
    let mut stats = first;
    for look in 0..LOOKS {
        if stats.check.balanced {
            break;
        }
        pause(PAUSE * 2u32.pow(look));
        let again = read();
        let check = again.check.after(&stats.check);
        stats = StatsShow { check, ..again };
    }
    stats
}

/// Locks `lock` when `look` finds it settled, or after [`LOOKS`] looks with `pause` after each.
pub(crate) fn lock_settled<'a, T>(
    lock: &'a Mutex<T>,
    look: impl Fn(&mut T) -> bool,
    pause: impl Fn(),
) -> MutexGuard<'a, T> {
    // A thread that panicked while it held the lock has left counters that are still each in order.
    let take = || lock.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..LOOKS {
        let mut locked = take();
        if look(&mut locked) {
            return locked;
        }
        drop(locked);
        pause();
    }
    take()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use forebay_control::stats::{Balance, StatsCheck};

    use super::*;

    #[test]
    fn the_lock_is_free_in_every_pause() {
        let lock = Mutex::new(());
        let pauses = Cell::new(0);
        drop(lock_settled(
            &lock,
            |()| false,
            || {
                assert!(lock.try_lock().is_ok(), "a reader holds the lock while it waits");
                pauses.set(pauses.get() + 1);
            },
        ));
        assert_eq!(pauses.get(), LOOKS);
    }

    fn stats(left: u64, right: u64) -> StatsShow {
        let check = StatsCheck::new(vec![Balance::new("rx", left, right)]);
        StatsShow { check, ..StatsShow::default() }
    }

    #[test]
    fn a_busy_switch_is_balanced_and_one_that_loses_packets_is_not() {
        let looks = Cell::new(0);
        let read = |lag: u64, step: u64| {
            looks.set(0);
            let read = || {
                looks.set(looks.get() + 1);
                stats(looks.get() * step + lag, looks.get() * step)
            };
            compare(stats(lag, 0), read, |_| ()).check.balanced
        };
        assert!(read(0, 100) && looks.get() == 0, "what adds up is not read again");
        assert!(read(7, 100) && looks.get() == 1);
        assert!(!read(7, 0) && looks.get() == u64::from(LOOKS), "nothing moves");
    }

    #[test]
    fn packets_that_wait_long_are_waited_for() {
        let (waited, rate) = (Cell::new(Duration::ZERO), 1000.0);
        // A thousand packets a second, of which twenty wait at any time.
        let right = || (waited.get().as_secs_f64() * rate) as u64;
        let stats =
            compare(stats(20, 0), || stats(right() + 20, right()), |pause| waited.set(waited.get() + pause));
        assert!(stats.check.balanced && waited.get() < Duration::from_millis(100), "{:?}", waited.get());
    }

    #[test]
    fn what_is_settled_is_not_waited_for() {
        let lock = Mutex::new(2);
        let one_less = |under_way: &mut u32| {
            *under_way -= 1;
            *under_way == 0
        };
        let pauses = Cell::new(0);
        assert_eq!(*lock_settled(&lock, one_less, || pauses.set(pauses.get() + 1)), 0);
        assert_eq!(pauses.get(), 1, "two looks have one pause between them");
    }
}
