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
                let Some(slot) = self.next() else { break };
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
    fn next(&mut self) -> Option<Slot> {
        if self.run_list.wants_look() {
            self.doorbell.look_now(&mut self.run_list);
        }
        let next = self.run_list.pop();
        next.or_else(|| self.look_at_guests().then(|| self.run_list.pop()).flatten()).map(Slot)
    }

    /// Waits for packets or commands, from `began` on.
    fn wait(&mut self, clock: &mut Clock, began: Nanos) -> Wait {
        if self.doorbell.take_rang() || self.exchange.as_ref().is_some_and(Exchange::has_handed) {
            self.deliver_handed(began);
            self.linger.come(began);
            return Wait::None;
        }
        let is_anybody_ready = self.doorbell.look_now(&mut self.run_list) | self.look_at_guests();
        self.tend();
        self.settle_underway();
        if is_anybody_ready || self.reclaim() {
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
        while !comes && goes_on && (waited < window || is_near(Nanos(began.0 + waited))) {
            comes = self.look_at_guests() || self.doorbell.look_now(&mut self.run_list);
            let now = clock.read().now;
            comes |= due.is_some_and(|due| due <= now);
            let looked = std::mem::replace(&mut waited, now.since(began));
            goes_on = self.linger.goes_on(waited - looked, now);
        }
        self.shared.worker_cell(self.index).linger_ns.add(waited);
        comes
    }
}
