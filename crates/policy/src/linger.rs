//! Linger: how long a worker goes on looking for packets before it sleeps.
//!
//! To wake a worker costs whoever sends: an interrupt to the worker's processor, and of a virtual machine an exit. Where
//! the next packets come before that would have been worth it, the worker stays awake for them. It tries so long as the
//! last waits were, up to a limit: the window opens while waits are short and closes at the first long one, as that of
//! KVM's halt polling does. So pings cost nothing, and a flood hardly ever has to wake a worker.
//!
//! A worker that wakes by itself in between, because a call or a probe is due, still waits for the same packets: a timer
//! neither opens the window nor begins it anew. So a worker that holds calls stays awake no longer than one that does not.
//!
//! Who lingers where somebody else waits for the processor does harm twice, for the worker is then itself the one who
//! waits. The processor was taken away if there is a gap between two looks, and the kernel has counted a preemption. Then the
//! worker sleeps for some time whenever it has nothing to do, twice as long if that happens again soon. A gap without a
//! preemption is time that the hypervisor or an interrupt has taken: whether the worker sleeps changes nothing about that.
//!
//! Nor does a worker linger while it moves bulk in long packets: a wake-up is little beside such packets.

use crate::Nanos;

/// The first window.
const FIRST: u64 = 8_000;
/// Between two looks there is less, unless somebody else had the processor: a look takes a sixth of a microsecond, and a
/// timer's interrupt up to 50 on a virtual machine.
const GAP: u64 = 100_000;
/// How long the worker does not linger after that, at first and at most.
const PATIENCE: [u64; 2] = [1_000_000, 1_000_000_000];
/// Within so much time it happens again soon.
const SOON: u64 = 100_000_000;

/// The shortest time, in nanoseconds, over which packets and bytes are summed up.
const PERIOD: u64 = 1_000_000;
/// The least rate of bulk, as a fraction: 1 byte in 2 ns, 4 Gbit/s.
const BULK_BYTES_PER_NANO: [u64; 2] = [1, 2];
/// From this mean length on, in bytes, packets are long. Jumbo frames are, and TCP packets that a netdev or a guest will cut.
const LONG_BYTES: u64 = 4096;

/// One worker's.
#[derive(Clone, Debug)]
pub struct Linger {
    longest: u64,
    window: u64,
    patience: u64,
    barred_until: Nanos,
    /// Since when there have been no packets, while there are none.
    waits_since: Option<Nanos>,
    moved: Moved,
    is_bulk: bool,
}

/// What was moved in a period.
#[derive(Clone, Debug, Default)]
struct Moved {
    since: Nanos,
    packets: u64,
    bytes: u64,
}

impl Linger {
    /// Of a worker that lingers for at most `longest` nanoseconds.
    pub fn new(longest: u64) -> Self {
        Self {
            longest,
            window: 0,
            patience: PATIENCE[0],
            barred_until: Nanos(0),
            waits_since: None,
            moved: Moved::default(),
            is_bulk: false,
        }
    }

    /// Nobody has packets: nanoseconds to go on looking for, from `now` on. A wait that has begun goes on.
    #[inline]
    pub fn waits(&mut self, now: Nanos) -> u64 {
        let waited = now.since(*self.waits_since.get_or_insert(now));
        if now < self.barred_until || self.is_bulk { 0 } else { self.window.saturating_sub(waited) }
    }

    /// Between two looks while it lingered there was so much time. Whether it may go on. `was_preempted` tells of a long gap
    /// whether another thread had the processor.
    #[inline]
    pub fn goes_on(&mut self, gap: u64, now: Nanos, was_preempted: impl FnOnce() -> bool) -> bool {
        if gap < GAP || !was_preempted() {
            return true;
        }
        let is_soon = self.barred_until > Nanos(0) && now.since(self.barred_until) < SOON;
        self.patience = if is_soon { (2 * self.patience).min(PATIENCE[1]) } else { PATIENCE[0] };
        self.barred_until = Nanos(now.0.saturating_add(self.patience));
        false
    }

    /// The worker has moved packets at `now`; `bytes` is the length of all of them together.
    #[inline]
    pub fn moves(&mut self, packets: u64, bytes: u64, now: Nanos) {
        let spent = now.since(self.moved.since);
        if spent >= PERIOD {
            self.is_bulk = self.moved.is_bulk(spent);
            self.moved = Moved { since: now, ..Moved::default() };
        }
        self.moved.packets += packets;
        self.moved.bytes += bytes;
    }

    /// There were packets at `now`. If the worker had waited for them, awake or asleep, that is over.
    #[inline]
    pub fn come(&mut self, now: Nanos) {
        let Some(since) = self.waits_since.take() else { return };
        let nanos = now.since(since);
        if nanos > self.longest {
            self.window = 0;
        } else if nanos > self.window {
            self.window = (2 * self.window).max(FIRST).min(self.longest);
        }
    }
}

impl Moved {
    /// Whether this is bulk in long packets; `nanos` is the time that it took.
    fn is_bulk(&self, nanos: u64) -> bool {
        let [bytes, per_nanos] = BULK_BYTES_PER_NANO;
        self.bytes >= LONG_BYTES * self.packets.max(1)
            && self.bytes * per_nanos >= bytes.saturating_mul(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(5_000_000_000);

    /// Waits for so long until there are packets.
    fn wait(linger: &mut Linger, nanos: u64) {
        let _ = linger.waits(NOW);
        linger.come(Nanos(NOW.0 + nanos));
    }

    /// What a wait that begins at `now` begins with.
    fn window(linger: &Linger, now: Nanos) -> u64 {
        linger.clone().waits(now)
    }

    #[test]
    fn short_waits_open_the_window_and_a_long_one_closes_it() {
        let mut linger = Linger::new(50_000);
        assert_eq!(window(&linger, NOW), 0);
        let windows = [30_000; 5].map(|nanos| {
            wait(&mut linger, nanos);
            window(&linger, NOW)
        });
        assert_eq!(windows, [8_000, 16_000, 32_000, 32_000, 32_000]);
        wait(&mut linger, 32_000);
        assert_eq!(window(&linger, NOW), 32_000, "the window was wide enough");
        wait(&mut linger, 50_000);
        assert_eq!(window(&linger, NOW), 50_000);
        wait(&mut linger, 50_001);
        assert_eq!(window(&linger, NOW), 0);
    }

    #[test]
    fn a_wait_goes_on_over_timers_and_is_as_long_as_it_was() {
        let at = |nanos| Nanos(NOW.0 + nanos);
        let mut linger = Linger::new(100_000);
        (0..5).for_each(|_| wait(&mut linger, 90_000));
        assert_eq!(linger.waits(NOW), 100_000);
        assert_eq!(linger.waits(at(60_000)), 40_000, "a timer rang");
        assert_eq!(linger.waits(at(100_000)), 0);
        assert_eq!(linger.waits(at(150_000)), 0);
        linger.come(at(200_000));
        assert_eq!(linger.waits(at(210_000)), 0, "however short the pieces were, the wait was long");
        linger.come(at(220_000));
        linger.come(at(900_000));
        assert_eq!(window(&linger, at(900_000)), 8_000, "nobody waited the second time");
    }

    #[test]
    fn who_may_not_linger_never_does() {
        let mut linger = Linger::new(0);
        [0, 1, 1_000_000].into_iter().for_each(|nanos| wait(&mut linger, nanos));
        assert_eq!(window(&linger, NOW), 0);
    }

    #[test]
    fn the_first_loss_of_the_processor_is_no_second_one_however_early_it_is() {
        let mut linger = Linger::new(50_000);
        wait(&mut linger, 10_000);
        assert!(!linger.goes_on(GAP, Nanos(GAP), || true));
        assert_eq!(window(&linger, Nanos(GAP + PATIENCE[0])), FIRST);
    }

    #[test]
    fn who_loses_its_processor_sleeps_for_some_time_and_longer_if_that_happens_again_soon() {
        let mut linger = Linger::new(50_000);
        wait(&mut linger, 10_000);
        assert!(linger.goes_on(GAP - 1, NOW, || true));
        let mut now = NOW;
        for millis in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000] {
            assert!(!linger.goes_on(GAP, now, || true));
            let over = Nanos(now.0 + millis * 1_000_000);
            let windows = [Nanos(over.0 - 1), over].map(|now| window(&linger, now));
            assert_eq!(windows, [0, FIRST], "{millis} ms");
            now = over;
        }
        now.0 += SOON;
        assert!(!linger.goes_on(GAP, now, || true));
        assert_eq!(window(&linger, Nanos(now.0 + 1_000_000)), FIRST);
    }

    #[test]
    fn time_that_no_other_thread_had_bars_nobody() {
        let mut linger = Linger::new(50_000);
        wait(&mut linger, 10_000);
        assert!(linger.goes_on(100 * GAP, NOW, || false));
        assert_eq!(window(&linger, NOW), FIRST);
    }

    #[test]
    fn who_moves_bulk_in_long_packets_does_not_linger() {
        // Packets and bytes in a period, and whether the worker lingers in the next one.
        let periods = [
            (200, 500_000, true, "short packets"),
            (122, 500_000, false, "bulk"),
            (123, 500_000, true, "packets of 4065 bytes"),
            (10, 499_999, true, "less than 4 Gbit/s"),
            (10, 500_000, false, "bulk again"),
            (0, 0, true, "nothing"),
        ];
        let mut linger = Linger::new(50_000);
        wait(&mut linger, 10_000);
        let mut now = NOW;
        linger.moves(0, 0, now);
        for (packets, bytes, lingers, what) in periods {
            linger.moves(packets, bytes, Nanos(now.0 + PERIOD - 1));
            now.0 += PERIOD;
            linger.moves(0, 0, now);
            assert_eq!(window(&linger, now) > 0, lingers, "{what}");
        }
    }
}
