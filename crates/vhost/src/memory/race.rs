//! In tests, each load and each store of a ring is a point where a scheduler may let the other end go first.
//!
//! The scheduler tries orders of whole accesses. It does not reorder the accesses of one thread, as a processor may: that
//! fences are where they must be is not tested by this.

use std::cell::Cell;

thread_local! {
    /// Shuttle runs all threads of a model on one thread of the system, so this is true for all of them.
    static IS_MODEL: Cell<bool> = const { Cell::new(false) };
}

/// Runs `model` so many times, its threads each time in another order.
pub(crate) fn in_any_order(orders: usize, model: impl Fn() + Send + Sync + 'static) {
    let run = move || {
        IS_MODEL.set(true);
        model();
    };
    shuttle::check_random(run, orders);
    IS_MODEL.set(false);
}

pub(super) fn let_others_go_first() {
    if IS_MODEL.get() {
        shuttle::thread::yield_now();
    }
}
