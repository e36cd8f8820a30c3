//! One change at a time, in steps.
//!
//! A change of the switch waits for the kernel (programs are detached, sockets closed, grace periods end) and for workers.
//! The state behind [`Changes`] has a lock that is held for a step only. A [`Change`] is alone from its beginning to its
//! end, so no other change sees its half-done work; it gives the lock back for everything that takes long
//! ([`Change::without_lock`]). Readers and short work take the lock alone ([`Changes::hold`]) and never wait for a change.
//! One thread that must not wait begins a change if none is under way ([`Changes::try_begin`]), and may have the next
//! place kept for it.
//!
//! The rule this file keeps: what a step has changed is shown ([`Shown::show`]) whenever the lock is given back. Changes
//! begin in the order in which they were asked for. After a panic in the middle of a step or a change nobody knows what is
//! half done, so nothing is shown, and [`Shown::broken`] ends the process.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// State whose changes must be shown to others.
pub(crate) trait Shown {
    /// Shows what has changed since the last time, if anything has.
    fn show(&mut self);

    /// A thread panicked in the middle of a step or of a change.
    fn broken();
}

/// State, and the queue of those that change it in more than one step.
pub(crate) struct Changes<T> {
    state: Mutex<T>,
    queue: Mutex<Queue>,
    called: Condvar,
}

/// Who waits, by number.
#[derive(Default)]
struct Queue {
    /// Number that the next one to wait gets.
    next: u64,
    /// Number that is called next.
    called: u64,
    /// A change is under way.
    is_busy: bool,
    /// The next place is to be kept for [`Changes::try_begin`].
    is_asked: bool,
    /// Now is the place that is kept.
    is_kept: bool,
}

impl Queue {
    fn is_free(&self) -> bool {
        !self.is_busy && (self.is_kept || self.called == self.next)
    }
}

impl<T: Shown> Changes<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { state: Mutex::new(state), queue: Mutex::default(), called: Condvar::new() }
    }

    /// Locks the state for one step.
    pub(crate) fn hold(&self) -> Held<'_, T> {
        Held::from(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The lock by itself.
    pub(crate) fn lock(&self) -> &Mutex<T> {
        &self.state
    }

    /// Waits for those before it, and begins a change.
    pub(crate) fn begin(&self) -> Change<'_, T> {
        let mut queue = self.queue();
        let number = queue.next;
        queue.next += 1;
        let waits = |queue: &mut Queue| queue.is_busy || queue.is_kept || queue.called != number;
        let mut queue = self.called.wait_while(queue, waits).unwrap_or_else(PoisonError::into_inner);
        queue.called += 1;
        self.enter(queue)
    }

    /// Begins a change if none is under way or waits, or if this place is kept.
    pub(crate) fn try_begin(&self) -> Option<Change<'_, T>> {
        let mut queue = self.queue();
        if !queue.is_free() {
            return None;
        }
        (queue.is_asked, queue.is_kept) = (false, false);
        Some(self.enter(queue))
    }

    /// Has the next place kept for [`Changes::try_begin`], which must come soon: everybody waits for it.
    pub(crate) fn keep_next(&self) {
        let mut queue = self.queue();
        queue.is_asked = !queue.is_free();
    }

    /// No place is to be kept any more.
    pub(crate) fn keep_none(&self) {
        let mut queue = self.queue();
        (queue.is_asked, queue.is_kept) = (false, false);
        self.called.notify_all();
    }

    fn enter(&self, mut queue: MutexGuard<'_, Queue>) -> Change<'_, T> {
        queue.is_busy = true;
        drop(queue);
        let under_way = UnderWay { changes: self, witness: Witness::new() };
        Change { held: Some(self.hold()), under_way }
    }

    /// Whether [`Changes::try_begin`] would begin a change now.
    pub(crate) fn is_free(&self) -> bool {
        self.queue().is_free()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state, locked for one step. What was changed is shown when it is dropped.
pub(crate) struct Held<'a, T: Shown> {
    guard: MutexGuard<'a, T>,
    witness: Witness,
}

/// Tells a panic of its own time from one that led to it, as when a panic drops what then works with the state.
struct Witness {
    was_panicking: bool,
}

impl Witness {
    fn new() -> Self {
        Self { was_panicking: thread::panicking() }
    }

    fn sees_panic(&self) -> bool {
        thread::panicking() && !self.was_panicking
    }
}

impl<'a, T: Shown> From<MutexGuard<'a, T>> for Held<'a, T> {
    fn from(guard: MutexGuard<'a, T>) -> Self {
        Self { guard, witness: Witness::new() }
    }
}

impl<T: Shown> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: Shown> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: Shown> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if self.witness.sees_panic() {
            return T::broken();
        }
        self.guard.show();
    }
}

/// A change under way. It has the state locked, except in [`Change::without_lock`].
pub(crate) struct Change<'a, T: Shown> {
    /// `None` only while [`Change::without_lock`] works.
    held: Option<Held<'a, T>>,
    /// Ends after the lock is given back.
    under_way: UnderWay<'a, T>,
}

/// While it lives, no other change begins.
struct UnderWay<'a, T: Shown> {
    changes: &'a Changes<T>,
    witness: Witness,
}

impl<T: Shown> Change<'_, T> {
    /// Does what takes long. The lock is free meanwhile, and no other change begins: what
    /// only changes alter stays as it is.
    pub(crate) fn without_lock<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.held = None;
        let done = work();
        self.held = Some(self.under_way.changes.hold());
        done
    }
}

impl<T: Shown> Deref for Change<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("`without_lock` puts it back before it returns")
    }
}

impl<T: Shown> DerefMut for Change<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("`without_lock` puts it back before it returns")
    }
}

impl<T: Shown> Drop for UnderWay<'_, T> {
    fn drop(&mut self) {
        if self.witness.sees_panic() {
            T::broken();
        }
        let mut queue = self.changes.queue();
        queue.is_busy = false;
        queue.is_kept = std::mem::take(&mut queue.is_asked);
        self.changes.called.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;

    use super::*;

    /// What is so, and what others were shown.
    #[derive(Default)]
    struct Sign {
        now: u32,
        shown: Vec<u32>,
    }

    thread_local! {
        static BROKEN: Cell<u32> = const { Cell::new(0) };
    }

    impl Shown for Sign {
        fn broken() {
            BROKEN.set(BROKEN.get() + 1);
        }

        fn show(&mut self) {
            if self.shown.last() != Some(&self.now) {
                self.shown.push(self.now);
            }
        }
    }

    #[test]
    fn readers_and_short_work_do_not_wait_for_a_change_that_waits() {
        let changes = Changes::new(Sign::default());
        let mut change = changes.begin();
        change.now = 1;
        // The grace period that lasts until both have finished.
        change.without_lock(|| {
            thread::scope(|scope| {
                scope.spawn(|| changes.hold().now += 10);
                scope.spawn(|| _ = changes.hold().now);
            });
        });
        assert_eq!(change.now, 11);
    }

    #[test]
    fn what_a_step_has_changed_is_shown_before_the_wait_and_at_the_end() {
        let changes = Changes::new(Sign::default());
        let mut change = changes.begin();
        change.now = 1;
        change.without_lock(|| assert_eq!(changes.hold().shown, [1]));
        change.now = 2;
        drop(change);
        assert_eq!(changes.hold().shown, [1, 2]);
        changes.hold().now = 3;
        assert_eq!(changes.hold().shown, [1, 2, 3], "short work shows what it has changed, too");
    }

    #[test]
    fn a_change_begins_when_the_one_before_has_ended_and_not_while_that_waits() {
        let changes = Changes::new(Sign::default());
        let (began, begins) = mpsc::channel();
        thread::scope(|scope| {
            let mut first = changes.begin();
            scope.spawn(|| {
                let mut second = changes.begin();
                began.send(second.now).expect("the test waits for it");
                second.now = 9;
            });
            // Until the second waits.
            first.without_lock(|| {
                while changes.queue().next < 2 {
                    thread::yield_now();
                }
            });
            assert!(begins.try_recv().is_err() && changes.try_begin().is_none() && !changes.is_free());
            first.now = 1;
            drop(first);
            assert_eq!(begins.recv(), Ok(1), "it sees all that the first has done");
        });
        assert!(changes.is_free() && changes.hold().now == 9);
        assert!(changes.try_begin().is_some());
    }

    #[test]
    fn changes_begin_in_the_order_in_which_they_were_asked_for() {
        let changes = Changes::new(Sign::default());
        thread::scope(|scope| {
            let mut first = changes.begin();
            for number in 1..=8u64 {
                let changes = &changes;
                scope.spawn(move || changes.begin().now = number as u32);
                first.without_lock(|| {
                    while changes.queue().next <= number {
                        thread::yield_now();
                    }
                });
            }
        });
        assert_eq!(changes.hold().shown, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_kept_place_comes_before_all_that_wait() {
        let changes = Changes::new(Sign::default());
        thread::scope(|scope| {
            let mut first = changes.begin();
            scope.spawn(|| changes.begin().now = 9);
            first.without_lock(|| {
                while changes.queue().next < 2 {
                    thread::yield_now();
                }
            });
            changes.keep_next();
            assert!(changes.try_begin().is_none());
            drop(first);
            let mut kept = changes.try_begin().expect("it was kept");
            assert_eq!(kept.now, 0, "the one that waits has not begun");
            kept.now = 1;
        });
        assert_eq!(changes.hold().shown, [0, 1, 9]);
    }

    #[test]
    fn a_place_that_nobody_wants_any_more_is_kept_no_longer() {
        let changes = Changes::new(Sign::default());
        let first = changes.begin();
        changes.keep_next();
        drop(first);
        changes.keep_none();
        changes.begin().now = 1;
        changes.keep_next();
        changes.begin().now = 2;
        assert_eq!(changes.hold().shown, [0, 1, 2], "where nobody waits, none is kept");
    }

    fn breaks(changes: &Changes<Sign>, work: impl FnOnce(&Changes<Sign>)) -> bool {
        let before = BROKEN.replace(0);
        let panicked = catch_unwind(AssertUnwindSafe(|| work(changes))).is_err();
        assert!(panicked && before == 0);
        BROKEN.replace(0) > 0
    }

    #[test]
    fn a_panic_in_a_step_or_between_two_of_a_change_is_told_and_nothing_is_shown() {
        let changes = Changes::new(Sign::default());
        assert!(breaks(&changes, |changes| {
            changes.hold().now = 1;
            let mut held = changes.hold();
            held.now = 2;
            panic!("in a step");
        }));
        let shown = changes.state.lock().unwrap_or_else(PoisonError::into_inner).shown.clone();
        assert_eq!(shown, [1]);
        let changes = Changes::new(Sign::default());
        assert!(breaks(&changes, |changes| changes.begin().without_lock(|| panic!("between two steps"))));
    }

    #[test]
    fn what_a_panic_elsewhere_drops_may_work_with_the_state() {
        struct Stops<'a>(&'a Changes<Sign>);
        impl Drop for Stops<'_> {
            fn drop(&mut self) {
                self.0.begin().now = 7;
            }
        }
        let changes = Changes::new(Sign::default());
        assert!(!breaks(&changes, |changes| {
            let _stops = Stops(changes);
            panic!("elsewhere");
        }));
        assert_eq!(changes.hold().now, 7);
    }
}
