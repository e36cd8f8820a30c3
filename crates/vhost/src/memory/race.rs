//! In tests, each load and each store of a ring is a point where a scheduler may let the other end go first, and a store
//! may be seen late.
//!
//! A processor holds its stores back for a while. It sees them itself at once; the other end sees them later, in any order
//! but that a store with `Release` comes after all before it. A fence between stores and loads, a bell and sleep end that.
//! Loads are made in the order of the program: that `Acquire` is where it must be is not tested by this.
#![allow(unsafe_code, reason = "makes stores that were held back")]

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::thread::{self, ThreadId};

use super::mapping::Mapping;

/// Bytes of the longest store.
const LONGEST: usize = 8;

thread_local! {
    /// Shuttle runs all threads of a model on one thread of the system, so this is true for all of them.
    static IS_MODEL: Cell<bool> = const { Cell::new(false) };
    /// Stores that are held back, by who made them.
    static HELD: RefCell<Vec<(ThreadId, Vec<Store>)>> = const { RefCell::new(Vec::new()) };
}

struct Store {
    /// Keeps the memory alive.
    _mapping: Arc<Mapping>,
    to: NonNull<u8>,
    bytes: [u8; LONGEST],
    len: usize,
    is_release: bool,
}

impl Store {
    fn range(&self) -> std::ops::Range<usize> {
        let start = self.to.addr().get();
        start..start + self.len
    }

    fn overlaps(&self, other: &Store) -> bool {
        self.range().start < other.range().end && other.range().start < self.range().end
    }

    fn make(self) {
        // SAFETY: the area that made this store checked that its bytes lie in the mapping, which is still there. Shuttle
        // runs all threads of a model on one thread of the system, so no other one touches these bytes meanwhile.
        unsafe { self.to.copy_from_nonoverlapping(NonNull::from(&self.bytes).cast(), self.len) };
    }
}

/// Runs `model` so many times, its threads each time in another order.
pub(crate) fn in_any_order(orders: usize, model: impl Fn() + Send + Sync + 'static) {
    let run = move || {
        IS_MODEL.set(true);
        HELD.take();
        model();
    };
    shuttle::check_random(run, orders);
    IS_MODEL.set(false);
}

/// Another end may go first, and stores that were held back may be made.
pub(super) fn let_others_go_first() {
    if !IS_MODEL.get() {
        return;
    }
    thread::yield_now();
    HELD.with_borrow_mut(|all| {
        for (_, held) in all.iter_mut().filter(|(_, held)| !held.is_empty()) {
            let at = thread_rng().gen_range(0..2 * held.len());
            take(held, at).into_iter().for_each(Store::make);
        }
    });
}

/// Takes out a store, if it may be made before those in front of it.
fn take(held: &mut Vec<Store>, at: usize) -> Option<Store> {
    let store = held.get(at)?;
    let is_free = at == 0 || !store.is_release;
    (is_free && !held[..at].iter().any(|before| before.overlaps(store))).then(|| held.remove(at))
}

/// Whether the store is held back; if not, it is to be made.
pub(super) fn holds_back(mapping: &Arc<Mapping>, to: NonNull<u8>, bytes: &[u8], order: Ordering) -> bool {
    if !IS_MODEL.get() {
        return false;
    }
    let (me, is_release) = (thread::current().id(), order == Ordering::Release);
    let mut store =
        Store { _mapping: Arc::clone(mapping), to, bytes: [0; LONGEST], len: bytes.len(), is_release };
    store.bytes[..bytes.len()].copy_from_slice(bytes);
    HELD.with_borrow_mut(|all| match all.iter_mut().find(|(whose, _)| *whose == me) {
        Some((_, held)) => held.push(store),
        None => all.push((me, vec![store])),
    });
    true
}

/// What the thread itself sees of `bytes` that it has loaded from there.
pub(super) fn overlay(from: NonNull<u8>, bytes: &mut [u8]) {
    if !IS_MODEL.get() {
        return;
    }
    let me = thread::current().id();
    HELD.with_borrow(|all| {
        for store in all.iter().filter(|(whose, _)| *whose == me).flat_map(|(_, held)| held) {
            for (at, byte) in bytes.iter_mut().enumerate() {
                let offset = (from.addr().get() + at).wrapping_sub(store.range().start);
                if offset < store.len {
                    *byte = store.bytes[offset];
                }
            }
        }
    });
}

/// The thread's stores are made, in any order that is allowed; others may go on meanwhile.
pub(crate) fn settle() {
    if !IS_MODEL.get() {
        return;
    }
    let me = thread::current().id();
    loop {
        thread::yield_now();
        let is_done = HELD.with_borrow_mut(|all| {
            let Some((_, held)) = all.iter_mut().find(|(whose, _)| *whose == me) else { return true };
            let at = thread_rng().gen_range(0..held.len().max(1));
            take(held, at).into_iter().for_each(Store::make);
            held.is_empty()
        });
        if is_done {
            return;
        }
    }
}
