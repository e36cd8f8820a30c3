//! Which queues have done something since they were looked at last. Workers note it, and the thread that moderates queues from
//! outside takes the notes, so queues that rest cost it nothing.
//!
//! The rule it keeps: a note that may have been overlooked wakes the reader. It says that it goes to sleep before it looks for
//! notes a last time, and a worker asks whether it sleeps after it has noted.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};

/// Notes of one worker, about queues by their numbers.
pub(crate) struct News {
    noted: Box<[AtomicU64]>,
    reader: Arc<Reader>,
}

/// Who takes all workers' notes.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    sleeps: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Reader {
    /// Notes are read on this thread. To be said before anybody notes something or wakes it.
    pub(crate) fn runs_on(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Wakes the thread, or keeps it from going to sleep.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

impl News {
    /// Notes of `workers` workers, for one reader. Each worker can note queues with numbers below `queues`.
    pub(crate) fn of_workers(workers: usize, queues: usize) -> Box<[Arc<News>]> {
        let reader = Arc::new(Reader::default());
        let words = || (0..queues.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        (0..workers).map(|_| Arc::new(Self { noted: words(), reader: Arc::clone(&reader) })).collect()
    }

    /// Who takes the notes of all workers.
    pub(crate) fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// The queue with this number has done something; packet path, once a turn. It costs a load while the note is there.
    #[inline]
    pub(crate) fn note(&self, number: usize) {
        let (word, bit) = (&self.noted[number / 64], 1 << (number % 64));
        if word.load(Relaxed) & bit == 0 {
            self.tell(word, bit);
        }
    }

    #[cold]
    fn tell(&self, word: &AtomicU64, bit: u64) {
        word.fetch_or(bit, SeqCst);
        if self.reader.sleeps.swap(false, SeqCst) {
            self.reader.wake();
        }
    }

    /// The reader sleeps until it is woken, if nobody has noted anything. Says whether it did.
    pub(crate) fn sleep(all: &[Arc<News>]) -> bool {
        all.iter().for_each(|news| news.reader.sleeps.store(true, SeqCst));
        let is_any = all.iter().flat_map(|news| &news.noted).any(|word| word.load(SeqCst) != 0);
        if is_any {
            // The next note need not wake it.
            all.iter().for_each(|news| news.reader.sleeps.store(false, SeqCst));
        } else {
            thread::park();
        }
        !is_any
    }

    /// Takes all notes.
    pub(crate) fn take(&self, mut each: impl FnMut(usize)) {
        for (at, word) in self.noted.iter().enumerate() {
            if word.load(Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, SeqCst);
            while bits != 0 {
                each(64 * at + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_queue_is_taken_once_for_all_its_notes() {
        let [news] = &*News::of_workers(1, 130) else { panic!("one worker") };
        [0, 63, 64, 129, 64].into_iter().for_each(|number| news.note(number));
        let mut taken = Vec::new();
        news.take(|number| taken.push(number));
        assert_eq!(taken, [0, 63, 64, 129]);
        news.take(|number| panic!("{number} was taken before"));
    }

    #[test]
    fn a_reader_that_stays_awake_for_a_note_is_not_woken_by_the_next() {
        let all = News::of_workers(2, 64);
        all[1].note(0);
        assert!(!News::sleep(&all), "there is a note");
        assert!(!all[0].reader.sleeps.load(SeqCst));
    }

    /// Long enough for any scheduler.
    const LOST: Duration = Duration::from_secs(20);
    const ROUNDS: usize = 100_000;

    #[test]
    fn no_note_leaves_the_reader_asleep() {
        let news = Arc::clone(&News::of_workers(1, 64)[0]);
        let read = Arc::new(AtomicUsize::new(0));
        let work = {
            let (news, read) = (Arc::clone(&news), Arc::clone(&read));
            move || {
                while read.load(SeqCst) < ROUNDS {
                    News::sleep(std::slice::from_ref(&news));
                    news.take(|_| _ = read.fetch_add(1, SeqCst));
                }
            }
        };
        let thread = thread::spawn(work);
        news.reader().runs_on(thread.thread().clone());
        let started = Instant::now();
        for round in 0..ROUNDS {
            news.note(round % 64);
            while read.load(SeqCst) <= round {
                assert!(started.elapsed() < LOST, "note {round} was lost");
                thread::yield_now();
            }
        }
        thread.join().expect("the reader ends");
    }
}
