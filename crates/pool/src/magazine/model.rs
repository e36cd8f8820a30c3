//! Workers take, put, drop their magazines and make new ones, in every order that a random scheduler comes to.

use std::sync::{Arc, Mutex};

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::thread;

use super::Magazine;
use crate::sync::in_any_order;
use crate::{Frame, Pool};

/// Fewer than two magazines hold, so that workers meet an empty pool and a full one.
const FRAMES: u32 = 150;
const STEPS: usize = 8;
/// Frames of one step: up to more than a magazine moves at once.
const MOST: usize = 90;

/// Who has a frame outside of pool and magazines.
type Ledger = Arc<Mutex<Vec<Option<usize>>>>;

struct Worker {
    number: usize,
    pool: Arc<Pool>,
    magazine: Magazine,
    held: Vec<Frame>,
    ledger: Ledger,
}

impl Worker {
    fn new(number: usize, pool: &Arc<Pool>, ledger: &Ledger) -> Worker {
        let magazine = Magazine::new(Arc::clone(pool));
        Worker { number, pool: Arc::clone(pool), magazine, held: Vec::new(), ledger: Arc::clone(ledger) }
    }

    fn take(&mut self) {
        let Some(frame) = self.magazine.take() else { return };
        let before = self.note(&frame, Some(self.number));
        assert_eq!(before, None, "frame {} is in two places", frame.index());
        self.held.push(frame);
    }

    fn put(&mut self) {
        let Some(frame) = self.held.pop() else { return };
        let before = self.note(&frame, None);
        assert_eq!(before, Some(self.number), "frame {} changed hands", frame.index());
        self.magazine.put(frame);
    }

    fn note(&self, frame: &Frame, who: Option<usize>) -> Option<usize> {
        let mut ledger = self.ledger.lock().expect("nobody panics while holding it");
        std::mem::replace(&mut ledger[frame.index() as usize], who)
    }

    /// Ends with its magazine dropped; what it holds goes to the caller.
    fn work(mut self) -> Vec<Frame> {
        for _ in 0..STEPS {
            let count = thread_rng().gen_range(1..=MOST);
            match thread_rng().gen_range(0..5) {
                0 | 1 => (0..count).for_each(|_| self.take()),
                2 | 3 => (0..count).for_each(|_| self.put()),
                _ => self.magazine = Magazine::new(Arc::clone(&self.pool)),
            }
        }
        self.held
    }
}

fn workers(count: usize) {
    let pool = Arc::new(Pool::new((0..FRAMES).map(|index| Frame::new(1, index)).collect()));
    let ledger: Ledger = Arc::new(Mutex::new(vec![None; FRAMES as usize]));
    let workers: Vec<_> = (0..count)
        .map(|number| Worker::new(number, &pool, &ledger))
        .map(|worker| thread::spawn(move || worker.work()))
        .collect();
    let mut all: Vec<Frame> =
        workers.into_iter().flat_map(|worker| worker.join().expect("it ends")).collect();
    assert_eq!(all.len() as u32 + pool.free(), FRAMES, "a frame is lost, or there is one too many");
    all.extend(std::iter::from_fn(|| pool.take()));
    let mut indices: Vec<u32> = all.iter().map(Frame::index).collect();
    indices.sort_unstable();
    assert_eq!(indices, (0..FRAMES).collect::<Vec<u32>>(), "every frame is in one place");
}

#[test]
fn two_workers_in_any_order_lose_no_frame_and_have_none_twice() {
    in_any_order(500, || workers(2));
}

#[test]
fn four_workers_in_any_order_lose_no_frame_and_have_none_twice() {
    in_any_order(200, || workers(4));
}
