//! When guests are called: one moderation for all queues of guests that a worker serves.
//!
//! At the end of a turn a guest is shown its packets; [`Moderators`] says whether it is called for them now or by the
//! worker's timer. After each turn the queue's policy looks at its counts, unless the control side does that.
//!
//! The rule it keeps: before a queue is taken away, its guest is called for the packets that wait in it.

use std::sync::Arc;

use forebay_control::PortId;
use forebay_control::coalesce::CoalesceGuest;
use forebay_policy::Nanos;
use forebay_policy::moderation::{Moderators, Policy, Settings, Shown};
use forebay_vhost::Virtqueue;
use forebay_wire::ack::is_pure_ack;

use super::slot::Slot;
use crate::calls::CallCells;
use crate::news::News;

/// A guest's queue whose calls are moderated.
pub(crate) struct ModeratedQueue {
    pub(super) virtqueue: Virtqueue,
    /// What the worker calls the queue.
    number: usize,
    cells: Arc<CallCells>,
    /// What was done in this turn.
    shown: Shown,
    /// The guest has no more buffers.
    is_full: bool,
}

impl ModeratedQueue {
    /// A queue with this number in its worker's moderation.
    pub(crate) fn new(virtqueue: Virtqueue, number: usize, cells: Arc<CallCells>) -> Self {
        Self { virtqueue, number, cells, shown: Shown::default(), is_full: false }
    }

    /// The queue's index in its device.
    pub(crate) fn index(&self) -> usize {
        self.virtqueue.index()
    }

    pub(crate) fn into_virtqueue(self) -> Virtqueue {
        self.virtqueue
    }

    /// A packet of `len` bytes was written, or taken, or thrown away. Packet path.
    #[inline]
    pub(super) fn count<'p>(&mut self, len: u32, first: impl FnOnce() -> Option<&'p [u8]>) {
        let is_ack = self.cells.looks()
            && first().is_some_and(|first| first.len() as u32 == len && is_pure_ack(first));
        self.shown.add(len, 0, is_ack);
    }

    /// Packets of this turn with data.
    pub(super) fn with_data(&self) -> u32 {
        self.shown.packets - self.shown.acks
    }

    /// There was no buffer for a packet: a guest that sleeps gives none.
    #[cold]
    pub(super) fn note_full(&mut self) {
        self.is_full = true;
    }

    /// Shows the guest what was done in this turn, and calls it if that is due. Packet path, once a turn.
    #[inline]
    pub(super) fn show(&mut self, moderation: &mut Moderation, now: Nanos) {
        let Self { virtqueue, number, cells, shown, is_full } = self;
        let Moderation { moderators, entries, news } = moderation;
        let has_shown = virtqueue.show();
        if !has_shown && !*is_full {
            return;
        }
        let shown = Shown { places: virtqueue.take_places(), ..std::mem::take(shown) };
        if has_shown {
            moderators.show(*number, &shown, now, || call(virtqueue));
        }
        if std::mem::take(is_full) {
            moderators.flush(*number, || call(virtqueue));
        }
        let entry = &mut entries[*number];
        if has_shown && let Some(policy @ (Policy::Dim(_) | Policy::Adaptive(_))) = &mut entry.policy {
            let chosen = policy.observe(moderators.counts(*number), now);
            let settings = entry.keep_to(chosen, cells);
            if settings != moderators.settings(*number) {
                moderators.set(*number, settings, now, || call(virtqueue));
                cells.moved(settings);
            }
        }
        cells.publish(moderators.counts(*number));
        if entry.policy.is_none() {
            news.note(*number);
        }
    }

    /// Obeys what is chosen now. What waits is looked at again.
    pub(super) fn obey(&mut self, moderation: &mut Moderation, now: Nanos) {
        let Moderation { moderators, entries, .. } = moderation;
        self.cells.hear();
        let settings = entries[self.number].settings(&self.cells);
        if settings != moderators.settings(self.number) {
            moderators.set(self.number, settings, now, || call(&mut self.virtqueue));
            self.cells.moved(settings);
            self.cells.publish(moderators.counts(self.number));
        }
    }

    pub(super) fn start(&mut self, moderation: &mut Moderation, place: Place, now: Nanos) {
        moderation.moderators.start(self.number, self.virtqueue.size());
        moderation.entries[self.number].place = Some(place);
        self.obey(moderation, now);
    }

    /// The first packet that waits has done so for long enough.
    pub(super) fn expire(&mut self, moderation: &mut Moderation) {
        moderation.moderators.expire(self.number, || call(&mut self.virtqueue));
        self.cells.publish(moderation.moderators.counts(self.number));
    }

    /// The queue is to be taken away.
    pub(super) fn stop(&mut self, moderation: &mut Moderation) {
        moderation.moderators.flush(self.number, || call(&mut self.virtqueue));
        moderation.entries[self.number].place = None;
        self.cells.publish(moderation.moderators.counts(self.number));
    }
}

/// Calls the guest if it wants that. Says whether it did.
fn call(virtqueue: &mut Virtqueue) -> bool {
    let wants = virtqueue.wants_call();
    if wants {
        // Fails only when the guest has closed it, which its socket tells too.
        let _ = virtqueue.call();
    }
    wants
}

/// Where a queue is while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Source(Slot),
    /// Of this port, the queue with this index.
    Output(PortId, usize),
}

/// How a queue's limits are chosen.
pub(crate) struct Choice {
    /// `None`: the control side chooses ([`CallCells::wanted`]).
    pub(crate) policy: Option<Policy>,
    pub(crate) guest: CoalesceGuest,
}

/// Where a queue is, and how its limits are chosen.
#[derive(Default)]
struct Entry {
    place: Option<Place>,
    policy: Option<Policy>,
    guest: CoalesceGuest,
}

impl Entry {
    fn settings(&self, cells: &CallCells) -> Settings {
        let chosen = self.policy.as_ref().map_or_else(|| cells.wanted(), Policy::settings);
        self.keep_to(chosen, cells)
    }

    /// What is in force if the policy chooses this.
    #[inline]
    fn keep_to(&self, chosen: Settings, cells: &CallCells) -> Settings {
        match (self.guest, cells.asked()) {
            (CoalesceGuest::Limits, Some(asked)) => {
                Settings { limits: chosen.limits.within(asked), ..chosen }
            }
            (CoalesceGuest::Decides, Some(asked)) => Settings::of(asked),
            (_, None) | (CoalesceGuest::Ignored, _) => chosen,
        }
    }
}

/// All moderated queues of one worker, by their numbers.
pub(crate) struct Moderation {
    moderators: Moderators,
    entries: Box<[Entry]>,
    /// Tells the moderator which queues have done something.
    news: Arc<News>,
}

impl Moderation {
    /// Room for queues with the numbers below `queues`.
    pub(crate) fn new(queues: usize, news: Arc<News>) -> Self {
        let entries = (0..queues).map(|_| Entry::default()).collect();
        Self { moderators: Moderators::new(queues), entries, news }
    }

    /// When the first call is due that waits.
    #[inline]
    pub(super) fn next(&self) -> Option<Nanos> {
        self.moderators.next()
    }

    /// Takes a queue whose packets have waited for long enough.
    #[inline]
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<usize> {
        self.moderators.take_due(now)
    }

    /// Nothing is owed to a queue that does not run.
    pub(super) fn forgive(&mut self, number: usize) {
        self.moderators.expire(number, || false);
    }

    /// Where the queue with this number is, if it runs.
    pub(super) fn place(&self, number: usize) -> Option<Place> {
        self.entries[number].place
    }

    /// Goes on with all queues of `before`, which are not more than these.
    pub(super) fn adopt(&mut self, before: Self) {
        self.moderators.adopt(before.moderators);
        for (entry, before) in self.entries.iter_mut().zip(before.entries) {
            *entry = before;
        }
    }

    /// Chooses a queue's limits in another way from now on; [`ModeratedQueue::obey`] is to follow.
    pub(super) fn choose(&mut self, number: usize, choice: Choice) {
        let entry = &mut self.entries[number];
        (entry.policy, entry.guest) = (choice.policy, choice.guest);
    }

    /// The queue with this number comes no more.
    pub(super) fn forget(&mut self, number: usize) {
        self.moderators.stop(number, || false);
        self.entries[number] = Entry::default();
    }

    /// The guest of the queue with this number has sent packets with data.
    #[inline]
    pub(super) fn answered(&mut self, number: usize, packets: u32) {
        self.moderators.answered(number, packets);
    }
}

#[cfg(test)]
mod tests {
    use forebay_policy::moderation::Limits;
    use forebay_vhost::driver::{Driver, DriverOptions};
    use forebay_vhost::{Features, Put};
    use forebay_wire::net_header::NetHeader;

    use super::*;

    const NUMBER: usize = 1;
    const BUFFERS: usize = 3;
    const LONG: Settings = Settings::of(Limits { usecs: 65_535, packets: 65_535 });

    /// A guest's receive queue with a few buffers in a long ring, whose calls the control side holds for long.
    struct Scene {
        moderation: Moderation,
        queue: ModeratedQueue,
        cells: Arc<CallCells>,
        _driver: Driver,
    }

    impl Scene {
        fn new() -> Self {
            let mut driver =
                Driver::new(DriverOptions::new(Features::VERSION_1, 64, 2048)).expect("a driver");
            (0..BUFFERS).for_each(|_| _ = driver.offer(&[2048]).expect("the ring has room"));
            driver.publish();
            let cells = Arc::new(CallCells::default());
            let _ = cells.want(LONG);
            let virtqueue = driver.device(0).expect("the driver's ring");
            let moderation = Moderation::new(2, Arc::clone(&News::of_workers(1, 2)[0]));
            let queue = ModeratedQueue::new(virtqueue, NUMBER, Arc::clone(&cells));
            let mut scene = Self { moderation, queue, cells, _driver: driver };
            scene.queue.start(&mut scene.moderation, Place::Output(PortId(1), 0), Nanos(0));
            scene
        }

        /// Shows the guest a turn of packets, as an output does.
        fn turn(&mut self, packets: usize) {
            for _ in 0..packets {
                let put = self.queue.virtqueue.put(NetHeader::default(), [&[7u8; 60][..]], 60);
                match put.expect("the ring is well-formed") {
                    Put::Done => self.queue.count(60, || None),
                    Put::Full | Put::TooLong => self.queue.note_full(),
                }
            }
            self.queue.show(&mut self.moderation, Nanos(1000));
        }

        fn calls(&self) -> u64 {
            self.cells.counts().calls
        }
    }

    #[test]
    fn a_guest_without_buffers_is_called() {
        let mut scene = Scene::new();
        scene.turn(BUFFERS);
        assert_eq!((scene.calls(), scene.moderation.next().is_some()), (0, true), "its packets wait");
        scene.turn(1);
        assert_eq!((scene.calls(), scene.moderation.next()), (1, None));
    }

    #[test]
    fn a_queue_that_is_taken_away_is_called_for() {
        let mut scene = Scene::new();
        scene.turn(1);
        assert_eq!(scene.calls(), 0);
        scene.queue.stop(&mut scene.moderation);
        assert_eq!((scene.calls(), scene.moderation.next()), (1, None));
    }

    #[test]
    fn what_a_guest_asks_for_is_obeyed_for_packets_that_wait() {
        let mut scene = Scene::new();
        scene.turn(1);
        assert_eq!(scene.calls(), 0);
        let _ = scene.cells.ask(Some(Limits { usecs: 65_535, packets: 1 }));
        scene.queue.obey(&mut scene.moderation, Nanos(2000));
        assert_eq!((scene.calls(), scene.moderation.next()), (1, None));
    }
}
