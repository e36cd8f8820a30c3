//! The loop around the data plane: it waits, reads the clocks and gives sources their turns.

use forebay_kernel::cycles;
use forebay_policy::{Nanos, Refill};

use super::clock::Clock;
use super::exchange::Exchange;
use super::{Slot, TURN, Worker};

/// What a turn counts for at least: sixteen turns of next to nothing come between two looks at who is ready, and one
/// full turn, because whoever became ready meanwhile waits that long. Commands are looked for before each turn.
const LEAST_TURN: usize = TURN / 16;

/// Until a timer that rings this soon the worker stays awake: to set the timer, sleep and wake takes longer.
const NEAR: u64 = 10_000;

/// How it came that there is something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// There was.
    None,
    /// The worker waited for it, awake.
    Awake,
    /// It slept.
    Asleep,
}

impl Worker {
    /// Serves rings until told to stop.
    pub(crate) fn run(mut self) {
        let mut clock = Clock::new(self.shared.started);
        loop {
            let looked = clock.read();
            self.arrivals.settle(looked);
            let wait = self.wait(&mut clock, looked.now);
            let woken = if wait == Wait::None { looked } else { clock.read() };
            self.observe_poll(wait != Wait::None, woken.now);
            let began = cycles();
            let (mut served, mut packets) = (0, 0);
            while served < TURN {
                let moment = clock.read();
                self.arrivals.settle(moment);
                if !self.obey(moment) {
                    return;
                }
                self.call_those_due(moment.now);
                self.probe_those_due(moment.now);
                let Some(slot) = self.next(moment.now) else { break };
                let turn = self.run_once(slot, moment);
                packets += turn;
                served += turn.max(LEAST_TURN);
            }
            if packets > 0 {
                self.linger.come(woken.now);
            }
            let cell = self.shared.worker_cell(self.index);
            let spent = cycles().wrapping_sub(began);
            cell.iterations.add(1);
            cell.busy_iterations.add(u64::from(packets > 0));
            if packets > 0 { &cell.busy_cycles } else { &cell.idle_cycles }.add(spent);
            cell.sleeps.add(u64::from(wait == Wait::Asleep));
            cell.lingers.add(u64::from(wait == Wait::Awake));
            cell.busy_ns.add(clock.read().now.since(woken.now));
        }
    }

    /// The ring whose turn it is.
    fn next(&mut self, now: Nanos) -> Option<Slot> {
        if self.run_list.wants_look() {
            self.look_around(now);
        }
        let next = self.run_list.pop();
        next.or_else(|| self.look_at_guests().then(|| self.run_list.pop()).flatten()).map(Slot)
    }

    /// Waits for packets or commands, from `began` on.
    fn wait(&mut self, clock: &mut Clock, began: Nanos) -> Wait {
        let is_there_work = self.look_around(began);
        self.tend();
        self.settle_underway();
        if is_there_work || self.reclaim() {
            return Wait::None;
        }
        let comes = self.linger(clock, began);
        if !comes {
            if self.await_kicks() {
                return Wait::None;
            }
            let now = clock.read().now;
            self.doorbell.sleep(self.wakes_at(now), now, &mut self.run_list);
        }
        if comes { Wait::Awake } else { Wait::Asleep }
    }

    /// Lists the sources that have packets, and delivers packets that other workers handed over, at most a piece. Says whether
    /// there was either.
    fn look_around(&mut self, now: Nanos) -> bool {
        let is_anybody_ready = self.doorbell.look_now(&mut self.run_list);
        // Guests that are polled do not kick, so epoll does not know of them.
        let is_guest_ready = self.look_at_guests();
        let was_handed =
            self.doorbell.take_rang() || self.exchange.as_ref().is_some_and(Exchange::has_handed);
        if was_handed {
            // They go into guests' queues, where large packets gain nothing from a longer piece.
            let most = self.run_list.pace().piece(0);
            self.deliver_handed(now, most as usize);
            self.linger.come(now);
        }
        is_anybody_ready | is_guest_ready | was_handed
    }

    /// When the worker is to wake by itself, if it is.
    fn wakes_at(&self, now: Nanos) -> Option<Nanos> {
        let looks = self.looks_again().then(|| Nanos(now.0 + Refill::QUIET));
        looks.into_iter().chain(self.moderation.next()).min()
    }

    /// Looks for somebody who is ready, for as long as that is likely to be worth it. Whether there is anybody, or a call is
    /// due.
    fn linger(&mut self, clock: &mut Clock, began: Nanos) -> bool {
        let window = self.linger.waits(began);
        let due = self.moderation.next();
        let is_near = |now: Nanos| due.is_some_and(|due| due.since(now) < NEAR);
        let (mut waited, mut comes, mut goes_on) = (0, false, true);
        self.preemptions.refresh(began);
        while !comes && goes_on && (waited < window || is_near(Nanos(began.0 + waited))) {
            comes = self.look_at_guests() || self.doorbell.look_now(&mut self.run_list);
            let now = clock.read().now;
            comes |= due.is_some_and(|due| due <= now);
            let looked = std::mem::replace(&mut waited, now.since(began));
            goes_on = self.linger.goes_on(waited - looked, now, || self.preemptions.has_come(now));
        }
        self.shared.worker_cell(self.index).linger_ns.add(waited);
        comes
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use forebay_control::PortId;
    use forebay_control::vlan::VlanMode;
    use forebay_kernel::LoopProbes;
    use forebay_policy::{Standing, Turn};
    use forebay_pool::FrameSize;
    use forebay_vhost::Features;
    use forebay_vhost::driver::{Driver, DriverOptions};
    use forebay_wire::net_header::NetHeader;

    use super::*;
    use crate::attention::Attention;
    use crate::memory::{MemoryOptions, MemoryPort, MemorySwitch, Sent, WayIn};
    use crate::pool_instance::Stock;
    use crate::worker::{
        Feed, GuestCells, GuestSource, ModeratedQueue, ProbeNotes, QUANTUM_BYTES, ServedSource, Source,
    };

    const FLOOD: Slot = Slot(1);
    const GUEST: Slot = Slot(2);
    const NOW: Nanos = Nanos(1_000_000);

    /// A worker that polls a guest, and that guest. Another worker has handed this number of packets to the worker.
    fn worker_and_guest(handed: usize) -> (Worker, Driver) {
        let memory = "there is memory";
        let mut switch = MemorySwitch::new(MemoryOptions::default()).expect(memory);
        let [from, _] = [0, 1].map(|owner| {
            let (vlan, isolated, way_in, worker) = (VlanMode::All, false, WayIn::Queue, 0);
            switch.add_port(MemoryPort { vlan, isolated, way_in, worker, owner }).expect("room for a port")
        });
        let packet: Arc<[u8]> = [&[0xff; 6][..], &[2; 6], &[7; 48]].concat().into();
        switch.obey(0);
        for _ in 0..handed {
            assert_eq!(switch.send(from, &packet), Sent::Waits);
            let _ = switch.turn(0);
        }
        switch.obey(1);
        let mut worker = switch.into_worker(1);
        assert_eq!(worker.handed_frames() as usize, handed);
        let Stock { arena, .. } = Stock::new(NonZeroU32::MIN, FrameSize::B2048).expect(memory);
        let guest = Driver::new(DriverOptions::new(Features::VERSION_1, 8, 2048)).expect("a driver");
        let virtqueue = guest.device(1).expect("the driver's ring");
        let cells = Arc::new(GuestCells::new(Arc::new(Attention::new().expect("an eventfd"))));
        let probes =
            ProbeNotes { notes: Arc::new(LoopProbes::detached(3, 1).expect(memory)), port: PortId(2) };
        let queue = ModeratedQueue::new(virtqueue, 0, Arc::default());
        let source = GuestSource::new((queue, 0), Features::VERSION_1, (cells, probes), (0, arena));
        worker.sources[GUEST.index()] = Some(Box::new(ServedSource {
            feed: Feed::Port(PortId(2)),
            source: Source::Guest(Box::new(source)),
            gauge: Arc::default(),
            account: None,
            turn: Turn::new(QUANTUM_BYTES),
            is_calm: false,
        }));
        worker.poll_guest(GUEST);
        (worker, guest)
    }

    fn send(guest: &mut Driver) {
        guest.send(NetHeader::default(), &[&[7; 60]]).expect("the ring has room");
        guest.publish();
    }

    /// The worker serves one packet of the guest. After that it serves floods in pieces. Then the flood begins.
    fn hurry(worker: &mut Worker) {
        worker.wake(GUEST);
        assert_eq!(worker.next(NOW), Some(GUEST));
        worker.run_list.served(GUEST.0, 1, Standing::Empty);
        worker.wake(FLOOD);
    }

    /// The flood has a piece of its turn.
    fn serve_flood(worker: &mut Worker) {
        assert_eq!(worker.next(NOW), Some(FLOOD));
        worker.run_list.served(FLOOD.0, 16, Standing::Interrupted);
    }

    #[test]
    fn a_guest_that_is_polled_goes_before_the_next_piece_of_a_flood() {
        let (mut worker, mut guest) = worker_and_guest(0);
        hurry(&mut worker);
        (0..3).for_each(|_| serve_flood(&mut worker));
        send(&mut guest);
        assert_eq!([worker.next(NOW), worker.next(NOW)], [GUEST, FLOOD].map(Some));
    }

    #[test]
    fn what_another_worker_hands_over_goes_before_the_next_piece_of_a_flood() {
        let (mut worker, _guest) = worker_and_guest(20);
        hurry(&mut worker);
        serve_flood(&mut worker);
        for left in [4, 0] {
            serve_flood(&mut worker);
            assert_eq!(worker.handed_frames(), left);
        }
    }

    #[test]
    fn a_flood_here_and_one_from_another_worker_let_others_be_seen() {
        let (mut worker, mut guest) = worker_and_guest(200);
        let mut clock = Clock::new(worker.shared.started);
        worker.wake(FLOOD);
        serve_flood(&mut worker);
        send(&mut guest);
        assert_eq!(worker.wait(&mut clock, NOW), Wait::None);
        assert_eq!((worker.handed_frames(), worker.next(NOW)), (200 - TURN as u32, Some(GUEST)));
    }
}
