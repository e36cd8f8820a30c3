//! Locks something for a reader when packets under way have arrived.
//!
//! Counters are exact only when nothing is under way, so a reader waits a few milliseconds for that. The rule this
//! file keeps: the reader waits without the lock, so that no other request waits with it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Pause between two looks, in which packets under way arrive.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);
/// Number of looks; under traffic something is always under way, so the wait needs a bound.
const LOOKS: u32 = 5;

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
