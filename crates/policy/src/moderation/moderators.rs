//! All queues of one worker, and the one timer that serves them.

use super::counts::Counts;
use super::deadlines::Deadlines;
use super::limits::Settings;
use super::queue::Queue;
use super::shown::Shown;
use crate::Nanos;

/// Says for each queue of a worker when its guest is to be called. A queue is named by a number that the caller gives it.
///
/// Most functions take a closure `call`: it calls the guest if the guest wants that (event suppression), and says whether
/// it did. It is asked only when a call is due, and once for all packets that the call is for. A guest that wants no call
/// then has seen the packets, or looks at its ring again before it sleeps; so nothing is owed to it.
///
/// Nothing allocates after [`Moderators::new`]. All functions panic if there is no queue of that number.
#[derive(Clone, Debug)]
pub struct Moderators {
    queues: Box<[Queue]>,
    deadlines: Deadlines,
    /// The latest time that was heard.
    latest: Nanos,
}

impl Moderators {
    /// Queues with the numbers below `queues`. Until one starts, a call is due for whatever it shows.
    pub fn new(queues: usize) -> Self {
        Self {
            queues: vec![Queue::default(); queues].into(),
            deadlines: Deadlines::new(queues),
            latest: Nanos(0),
        }
    }

    /// Goes on with all queues of `before`, which are not more than these. Does not allocate.
    ///
    /// # Panics
    /// There are more.
    pub fn adopt(&mut self, before: Self) {
        for (number, queue) in before.queues.into_iter().enumerate() {
            if let Some(deadline) = queue.deadline() {
                self.deadlines.set(number, deadline);
            }
            self.queues[number] = queue;
        }
        self.latest = before.latest;
    }

    /// A queue starts with a ring of so many entries. Its settings and counts stay as they were. Whatever the limits are, a
    /// call is due for half a ring.
    ///
    /// # Panics
    /// Packets wait that were shown in the ring before: [`Moderators::flush`] comes first.
    pub fn start(&mut self, queue: usize, entries: u16) {
        assert!(self.queues[queue].deadline().is_none(), "queue {queue} was not flushed");
        self.queues[queue].start(entries);
    }

    /// What a queue obeys.
    pub fn settings(&self, queue: usize) -> Settings {
        self.queues[queue].settings()
    }

    /// What a queue has done so far.
    pub fn counts(&self, queue: usize) -> &Counts {
        self.queues[queue].counts()
    }

    /// Packets were shown to a queue's guest. Packet path, once a turn.
    #[inline]
    pub fn show(&mut self, queue: usize, shown: &Shown, now: Nanos, call: impl FnOnce() -> bool) {
        self.hear(now);
        let waited = self.queues[queue].deadline().is_some();
        self.queues[queue].show(shown, now, call);
        self.follow(queue, waited);
    }

    /// The guest sent packets with data the other way.
    #[inline]
    pub fn answered(&mut self, queue: usize, packets: u32) {
        self.queues[queue].answered(packets);
    }

    /// A queue is to obey other settings from now on, for packets that wait too.
    pub fn set(&mut self, queue: usize, settings: Settings, now: Nanos, call: impl FnOnce() -> bool) {
        self.hear(now);
        if settings == self.settings(queue) {
            return;
        }
        self.queues[queue].set(settings, now, call);
        self.deadlines.clear(queue);
        self.follow(queue, false);
    }

    /// A call is due for whatever waits in a queue: its guest has no more buffers, or its worker gives it away.
    pub fn flush(&mut self, queue: usize, call: impl FnOnce() -> bool) {
        self.queues[queue].flush(self.latest, call);
        self.follow(queue, true);
    }

    /// The number of a queue is free: a call is due for what waits. The next queue of this number begins without
    /// moderation, and its counts at 0.
    pub fn stop(&mut self, queue: usize, call: impl FnOnce() -> bool) {
        self.flush(queue, call);
        self.queues[queue] = Queue::default();
    }

    /// Takes a queue whose packets have waited for long enough; [`Moderators::expire`] is to follow. The worker asks between
    /// turns until there is none; it costs one comparison while no queue is due.
    #[inline]
    #[must_use = "a guest that is not called may sleep for ever"]
    pub fn take_due(&mut self, now: Nanos) -> Option<usize> {
        self.hear(now);
        self.deadlines.take(now)
    }

    /// A call is due for what waits in a queue that [`Moderators::take_due`] named.
    pub fn expire(&mut self, queue: usize, call: impl FnOnce() -> bool) {
        self.queues[queue].expire(self.latest, call);
    }

    /// When the first queue is due, if any waits.
    #[inline]
    pub fn next(&self) -> Option<Nanos> {
        self.deadlines.next()
    }

    /// If the clock went back, nobody knows how long packets have waited: everything that waits is due.
    #[inline]
    fn hear(&mut self, now: Nanos) {
        if now < self.latest {
            self.queues.iter_mut().for_each(Queue::clock_went_back);
            self.deadlines.hurry(now);
        }
        self.latest = now;
    }

    /// Brings a queue's deadline to where it belongs; `waited`: it has one.
    #[inline]
    fn follow(&mut self, queue: usize, waited: bool) {
        match self.queues[queue].deadline() {
            Some(deadline) if !waited => self.deadlines.set(queue, deadline),
            // The first packet's deadline stands.
            Some(_) => {}
            None if waited => self.deadlines.clear(queue),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
