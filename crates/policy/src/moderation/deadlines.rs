//! When each of many queues is due, for one timer.
//!
//! A binary heap that knows where each queue lies in it. To set, change or take a deadline makes at most 2·log2(n) + 2
//! comparisons of n queues that wait: 26 for 4096. To ask for the first one makes none. All memory is allocated at the
//! start: 20 bytes for each queue. Deadlines are exact: there is no wheel whose slots they would be rounded to.

use crate::Nanos;

/// A queue that does not wait.
const NOWHERE: u32 = u32::MAX;

/// Deadlines of the queues of one worker.
#[derive(Clone, Debug)]
pub struct Deadlines {
    heap: Vec<(Nanos, u32)>,
    /// Where in the heap each queue is.
    places: Box<[u32]>,
}

impl Deadlines {
    /// Of queues with the numbers below `queues`. None of them waits.
    ///
    /// # Panics
    /// With 2³² queues or more.
    pub fn new(queues: usize) -> Self {
        assert!(queues < NOWHERE as usize, "{queues} queues do not fit");
        Self { heap: Vec::with_capacity(queues), places: vec![NOWHERE; queues].into() }
    }

    /// The first deadline, if any queue waits.
    #[inline]
    pub fn next(&self) -> Option<Nanos> {
        self.heap.first().map(|(at, _)| *at)
    }

    /// Number of queues that wait.
    pub fn waiting(&self) -> usize {
        self.heap.len()
    }

    /// Sets or changes a queue's deadline.
    ///
    /// # Panics
    /// There is no such queue.
    pub fn set(&mut self, queue: usize, at: Nanos) {
        let mut place = self.places[queue] as usize;
        if place == NOWHERE as usize {
            place = self.heap.len();
            self.heap.push((at, queue as u32));
        } else {
            self.heap[place].0 = at;
        }
        self.settle(place);
    }

    /// The queue waits no more.
    ///
    /// # Panics
    /// There is no such queue.
    #[inline]
    pub fn clear(&mut self, queue: usize) {
        let place = std::mem::replace(&mut self.places[queue], NOWHERE) as usize;
        if place == NOWHERE as usize {
            return;
        }
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.settle(place);
        }
    }

    /// Takes a queue whose deadline has come; it waits no more.
    pub fn take(&mut self, now: Nanos) -> Option<usize> {
        let (at, queue) = *self.heap.first()?;
        let is_due = at <= now;
        if is_due {
            self.clear(queue as usize);
        }
        is_due.then_some(queue as usize)
    }

    /// Every deadline is at the latest at `at`.
    pub fn hurry(&mut self, at: Nanos) {
        // A heap stays one.
        self.heap.iter_mut().for_each(|(deadline, _)| *deadline = at.min(*deadline));
    }

    /// Moves the entry at `place` to where it belongs.
    fn settle(&mut self, mut place: usize) {
        while place > 0 && self.heap[place].0 < self.heap[(place - 1) / 2].0 {
            self.heap.swap(place, (place - 1) / 2);
            self.note(place);
            place = (place - 1) / 2;
        }
        loop {
            let left = 2 * place + 1;
            let Some(mut least) = (left < self.heap.len()).then_some(left) else { break };
            if left + 1 < self.heap.len() && self.heap[left + 1].0 < self.heap[left].0 {
                least = left + 1;
            }
            if self.heap[place].0 <= self.heap[least].0 {
                break;
            }
            self.heap.swap(place, least);
            self.note(place);
            place = least;
        }
        self.note(place);
    }

    #[inline]
    fn note(&mut self, place: usize) {
        self.places[self.heap[place].1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Set(usize, u64),
        Clear(usize),
        Take(u64),
        Hurry(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (queue, at) = (0..20usize, 0..50u64);
        prop_oneof![
            4 => (queue.clone(), at.clone()).prop_map(|(queue, at)| Step::Set(queue, at)),
            1 => queue.prop_map(Step::Clear),
            2 => at.clone().prop_map(Step::Take),
            1 => at.prop_map(Step::Hurry),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_map_of_which_the_least_is_known(steps in proptest::collection::vec(step(), 0..200)) {
            let (mut deadlines, mut map) = (Deadlines::new(20), BTreeMap::<usize, u64>::new());
            let capacity = deadlines.heap.capacity();
            for step in steps {
                match step {
                    Step::Set(queue, at) => {
                        deadlines.set(queue, Nanos(at));
                        map.insert(queue, at);
                    }
                    Step::Clear(queue) => {
                        deadlines.clear(queue);
                        map.remove(&queue);
                    }
                    Step::Take(now) => {
                        let least = map.values().min().copied().filter(|at| *at <= now);
                        let taken = deadlines.take(Nanos(now)).map(|queue| map.remove(&queue));
                        prop_assert_eq!(taken, least.map(Some), "any queue that is due first");
                    }
                    Step::Hurry(at) => {
                        deadlines.hurry(Nanos(at));
                        map.values_mut().for_each(|deadline| *deadline = at.min(*deadline));
                    }
                }
                prop_assert_eq!(deadlines.next(), map.values().min().map(|at| Nanos(*at)));
                prop_assert_eq!((deadlines.waiting(), deadlines.heap.capacity()), (map.len(), capacity));
            }
        }
    }
}
