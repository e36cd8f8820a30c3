//! What workers share. In tests it is the same queue, and each operation on it is a point where a scheduler may let another
//! worker go first: `magazine::model` tries such orders at random.

#[cfg(not(test))]
pub(crate) use crossbeam_queue::ArrayQueue;
#[cfg(test)]
pub(crate) use scheduled::{ArrayQueue, in_any_order};

#[cfg(test)]
mod scheduled {
    use std::cell::Cell;

    thread_local! {
        /// Shuttle runs all threads of a model on one thread of the system, so this is true for all of them.
        static IS_MODEL: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs `model` so many times, its threads each time in another order.
    pub(crate) fn in_any_order(orders: usize, model: fn()) {
        let run = move || {
            IS_MODEL.set(true);
            model();
        };
        shuttle::check_random(run, orders);
        IS_MODEL.set(false);
    }

    fn let_others_go_first() {
        if IS_MODEL.get() {
            shuttle::thread::yield_now();
        }
    }

    /// The product's queue. That its operations each happen at one moment is crossbeam's promise, and is not tested here.
    #[derive(Debug)]
    pub(crate) struct ArrayQueue<T>(crossbeam_queue::ArrayQueue<T>);

    impl<T> ArrayQueue<T> {
        pub(crate) fn new(capacity: usize) -> Self {
            Self(crossbeam_queue::ArrayQueue::new(capacity))
        }

        pub(crate) fn push(&self, value: T) -> Result<(), T> {
            let_others_go_first();
            self.0.push(value)
        }

        pub(crate) fn pop(&self) -> Option<T> {
            let_others_go_first();
            self.0.pop()
        }

        pub(crate) fn len(&self) -> usize {
            let_others_go_first();
            self.0.len()
        }
    }
}
