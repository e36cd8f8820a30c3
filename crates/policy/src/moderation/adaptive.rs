//! The adaptive policy: hold calls while that gains something, and remember where it gained nothing.
//!
//! Linux's DIM tries each line of a table and compares rates. Here the device measures what a rate cannot tell: whether
//! packets went on coming until the end of a hold. A sender that does not wait for the guest goes on sending, so a longer
//! hold serves more packets by one call. A sender that waits for the guest is idle in the second half of the hold, so the
//! hold costs time and gains nothing: it is shortened to the time in which packets came. docs/moderation.md has the law.
//!
//! The rule it keeps: holds get longer only after the load has changed, so that under a constant load it makes a bounded
//! number of moves and then none. Short messages are not held while they are exchanges or few.
//!
//! ```text
//!         3 calls or more would fall into the longest hold
//!  ┌─────┐ ──────────────────────────────────────────────► ┌─────────┐ ─┐ after each window four times as long,
//!  │ off │                                                 │ holding │  │ up to the longest, or the ceiling
//!  └─────┘ ◄────────────────────────────────────────────── └─────────┘ ◄┘
//!         fewer than 1; the guest polls; the sender stalls   │   ▲
//!                                                            └───┘ 20 idle holds more than others: shorter, and
//!                                                                  that is the ceiling until the load is another one
//! ```

mod bulk;
mod ceiling;
mod load;
mod sparing;
mod trial;

#[cfg(test)]
mod tests;

use self::bulk::Bulk;
use self::ceiling::{Ceilings, OTHER};
use self::load::Load;
use self::sparing::Sparing;
use self::trial::{Trial, Verdict};
use super::counts::Counts;
use super::limits::{Direction, Limits, Settings};
use crate::Nanos;

/// Longest hold of packets to the guest, in microseconds: the last line of Linux's table.
const LONGEST_USECS: u32 = 256;
/// Longest hold where most packets are acknowledgements, which the guest's own sending waits for.
const LONGEST_FOR_ACKS_USECS: u32 = 64;
/// Longest hold of packets from the guest: its sockets wait for their buffers.
const LONGEST_FROM_GUEST_USECS: u32 = 64;
/// Longest hold of a bulk stream of few large packets.
const LONGEST_FOR_BULK_USECS: u32 = 1500;
/// Longest hold of acknowledgements that a guest has sent: nobody waits for their buffers.
const LONGEST_FOR_SENT_ACKS_USECS: u32 = 2000;
/// Longest hold beside short messages that are not held: a guest takes packets in order, so what waits delays them.
const LONGEST_BESIDE_USECS: u32 = 64;
/// Shortest hold: as long as a call takes.
const SHORTEST_USECS: u32 = 4;
/// A hold that was shortened, and is shorter than this, would cost a loop more than it gains.
const SHORTENED_USECS: u32 = 32;
/// How many times longer a hold gets at once.
const GAIN: u32 = 4;
/// Most packets of a hold, where the ring has room.
const MOST_PACKETS: u32 = 256;
/// Calls that the longest hold would serve by one, doubled: from `[1]` on it holds, below `[0]` it stops.
const WORTH: [u64; 2] = [2, 6];
/// Hundredths of acknowledgements: from `[1]` on they are most packets, below `[0]` they are not.
const ACKS: [u64; 2] = [20, 50];
/// A window ends once packets came for this long, in nanoseconds without lulls, if there were [`WINDOW_PACKETS`].
const WINDOW_NS: u64 = 2_000_000;
const WINDOW_PACKETS: u64 = 64;
/// It ends once packets came for this long, however few there were.
const LONG_WINDOW_NS: u64 = 6_000_000;
/// It ends after this time in any case.
const LONGEST_WINDOW_NS: u64 = 12_000_000;
/// A window with fewer packets is sparse: as a rule, and while holds are long.
const SPARSE: [u64; 2] = [16, 3];
/// Batches in a hold, or packets of bulk, from which on idle ones tell something: of two at random, a third of holds is idle by
/// chance.
const TRIED: u64 = 2;
/// Holds of bulk after which more may wait, if it comes as fast as without holds.
const TRUSTED: u64 = 10;
/// Holds of one length after which rates are compared, and hundredths of the rate under longer ones from which on it is higher.
const COMPARED: u64 = 20;
const FASTER: u64 = 112;
/// Packets without holds and with them from which on their rates are compared, and hundredths of the former below which the
/// latter is lower. Of 400 packets at random the rate is known to a twentieth.
const KNOWN: [u64; 2] = [400, 1000];
const SLOWER: [u64; 2] = [90, 96];
/// While bulk is not held to find out its rate, each packet may have a call. So this time is enough, however few packets came, in
/// nanoseconds without lulls.
const KNOWN_NS: u64 = 24_000_000;
/// Holds in a window from which on it says whether the sender waits for the guest, and the part of the rate without holds below
/// which it does. Where packets come at random, 64 in a window, so few come by chance in one of forty, but not in idle holds.
const STALLS: u64 = 4;
const STALLED: [u64; 2] = [2, 3];
/// Calls due in a window from which on it says whether the guest polls.
const POLLS: u64 = 16;

/// The policy for one queue.
#[derive(Clone, Debug)]
pub struct Adaptive {
    direction: Direction,
    packets: u32,
    usecs: u32,
    ceilings: Ceilings,
    is_mostly_acks: bool,
    bulk: Bulk,
    sparing: Sparing,
    /// What windows without holds were like lately.
    free: Load,
    /// Holds are as long as they may be, so that idle ones tell something: packets may come in clusters.
    is_tried: bool,
    trial: Trial,
    /// Rate under longer holds that were idle, until the rate under shorter ones is known.
    longer: Option<Load>,
    /// The rate under holds of this length is not compared with the one without holds yet.
    is_new: bool,
    /// The last window was barely worth a hold.
    is_near: bool,
    window: Option<(Counts, Nanos)>,
}

impl Adaptive {
    /// A policy that begins without holds. `entries` is the size of the ring.
    pub fn new(direction: Direction, entries: u16) -> Self {
        Self {
            direction,
            packets: (u32::from(entries) / 4).clamp(1, MOST_PACKETS),
            usecs: 0,
            ceilings: Ceilings::default(),
            is_mostly_acks: false,
            bulk: Bulk::default(),
            sparing: Sparing::default(),
            free: Load::default(),
            is_tried: false,
            trial: Trial::default(),
            longer: None,
            is_new: false,
            is_near: false,
            window: None,
        }
    }

    /// What the queue is to obey.
    pub fn settings(&self) -> Settings {
        let spares_short = self.spares();
        let most = if self.is_beside_short() {
            self.bulk.packets_beside()
        } else if self.is_for_bulk() {
            self.bulk.packets()
        } else {
            MOST_PACKETS
        };
        let limits = match self.usecs {
            0 => Limits::OFF,
            usecs => Limits { usecs, packets: self.packets.min(most) },
        };
        Settings { limits, spares_short }
    }

    /// Longest hold now, in microseconds; `None` if nothing has shown that it should be shorter than usual.
    pub fn ceiling_usecs(&self) -> Option<u32> {
        self.ceilings.usecs()
    }

    /// Learns the counts of the queue.
    pub(super) fn observe(&mut self, counts: &Counts, now: Nanos) {
        let goes_on = |(start, since): &(Counts, Nanos)| *since <= now && start.packets <= counts.packets;
        let Some((start, since)) = self.window.filter(goes_on) else {
            // The first one; or the clock went back, or the queue began anew.
            self.trial.begin(counts);
            self.window = Some((*counts, now));
            return;
        };
        let is_long = self.is_for_bulk();
        if let Verdict::Idle { useful_ns } = self.trial.observe(counts, is_long)
            && self.is_tried
        {
            // If they are shortened once more before that, the first rate counts.
            let longer = Load::of(&self.trial.all(counts), self.spares());
            if !is_long {
                self.longer.get_or_insert(longer);
            }
            self.trial.begin(counts);
            // The sender may be one that something else stops. Only a lower rate says that holds stop it.
            if !is_long || !self.is_free_known() || self.is_slower(longer.packets_a_second, is_long) {
                self.shorten(useful_ns, now);
                self.window = Some((*counts, now));
                return;
            }
        }
        let window = counts.since(&start);
        let has_enough = window.active_ns >= WINDOW_NS && window.packets >= WINDOW_PACKETS;
        let wall = now.since(since);
        if has_enough || window.active_ns >= LONG_WINDOW_NS || wall >= LONGEST_WINDOW_NS {
            let usecs = self.usecs;
            self.judge(&window, wall, now);
            if self.usecs != usecs {
                self.trial.begin(counts);
                self.is_new = !self.bulk.is_cleared();
            } else if self.compare(counts, now) {
                self.trial.begin(counts);
            }
            self.window = Some((*counts, now));
        }
    }

    /// Short messages are never held on the way to a guest alone: nobody waits for a free buffer.
    fn spares(&self) -> bool {
        self.direction == Direction::Receive && self.sparing.spares()
    }

    /// There are short messages that are not held.
    fn is_beside_short(&self) -> bool {
        self.spares() && self.sparing.has_seen()
    }

    /// Holds may be long.
    fn is_for_bulk(&self) -> bool {
        self.bulk.is_bulk() && !self.is_mostly_acks && !self.is_beside_short()
    }

    /// Nobody waits for what is held, so idle holds do no harm.
    fn is_harmless(&self) -> bool {
        self.direction == Direction::Transmit && self.is_mostly_acks
    }

    /// A window is over, which took `wall` nanoseconds.
    fn judge(&mut self, window: &Counts, wall: u64, now: Nanos) {
        let load = Load::of(window, self.spares());
        self.sparing.observe(window, wall, now);
        if load.packets > 0 {
            let limit = ACKS[usize::from(!self.is_mostly_acks)];
            self.is_mostly_acks = 100 * window.acks >= limit * load.packets;
        }
        if load.packets > 0 {
            self.bulk.observe(window, &load);
        }
        let may_be_long = self.is_for_bulk() || self.is_harmless();
        if load.packets < SPARSE[usize::from(may_be_long && self.usecs > 0)] {
            (self.usecs, self.is_near) = (0, false);
            return;
        }
        if self.ceilings.observe(load, now) && self.is_for_bulk() {
            self.begin_anew();
        }
        let due = window.calls + window.suppressed;
        let polls = due >= POLLS && 8 * window.suppressed >= 7 * due;
        if self.usecs == 0 {
            self.free.learn(&load, OTHER);
        } else if polls || (!may_be_long && (load.is_clustered(&self.free) || self.stalls(window, &load))) {
            return self.stop(now);
        }
        let longest = self.longest();
        if longest == 0 {
            self.usecs = 0;
            return;
        }
        let worth = |a_second: u64| 2 * a_second * u64::from(longest) / 1_000_000;
        let is_worth = match self.usecs {
            // What the guest suppresses by itself needs no hold.
            0 => self.begins(worth(load.batches_a_second.min(load.calls_a_second))),
            // Holds make clusters of what waits for them.
            _ if may_be_long => worth(load.packets_a_second) >= WORTH[0],
            _ => worth(load.batches_a_second) >= WORTH[0],
        };
        if is_worth {
            self.lengthen(longest, &load, now);
        } else if self.trial.is_in_doubt() {
            // Perhaps it is the hold that has made the sender slow.
            self.stop(now);
        } else {
            self.usecs = 0;
        }
    }

    /// Whether the sender waits for the guest. Nothing came in the second half of most holds of this window, and much less came
    /// than without holds.
    fn stalls(&self, window: &Counts, load: &Load) -> bool {
        let [part, of] = STALLED;
        let are_idle = window.holds >= STALLS && 4 * window.idle_holds >= 3 * window.holds;
        are_idle && of * load.packets_a_second < part * self.free.packets_a_second
    }

    /// Whether a hold begins. `worth` is twice the number of calls that it would serve. If that is barely enough, two windows have
    /// to agree.
    fn begins(&mut self, worth: u64) -> bool {
        let was_near = std::mem::replace(&mut self.is_near, (WORTH[1]..2 * WORTH[1]).contains(&worth));
        worth >= 2 * WORTH[1] || (was_near && self.is_near)
    }

    /// Compares the rate under shortened holds with the one under longer holds. Where it has risen the sender waits for the
    /// guest, and any hold makes it slower. Bursts that come at times of their own have the same rate. Returns whether holds of
    /// another length begin.
    fn compare(&mut self, counts: &Counts, now: Nanos) -> bool {
        let all = self.trial.all(counts);
        let rate = Load::of(&all, self.spares()).packets_a_second;
        if self.is_new && self.is_tried && self.compare_with_none(&all, rate, now) {
            return true;
        }
        let Some(longer) = self.longer.filter(|_| all.holds >= COMPARED || self.usecs == 0) else {
            return false;
        };
        self.longer = None;
        let is_faster = self.usecs > 0 && rate * 100 > longer.packets_a_second * FASTER;
        if is_faster {
            self.stop(now);
        }
        is_faster
    }

    /// Compares holds of one length with no holds, once; `rate` is what came during them. That needs enough packets on both sides
    /// to know the two rates. Returns whether holds of another length begin.
    fn compare_with_none(&mut self, all: &Counts, rate: u64, now: Nanos) -> bool {
        let is_bulk = self.is_for_bulk();
        if all.holds < TRUSTED || all.packets < KNOWN[0] {
            return false;
        }
        let is_free_known = is_bulk || self.free.packets >= KNOWN[0];
        let is_slower = is_free_known && self.is_slower(rate, is_bulk);
        let is_known = all.holds >= COMPARED && all.packets >= KNOWN[1];
        if is_slower && is_known {
            if is_bulk {
                self.bulk.doubt(rate);
                (self.usecs, self.free) = (0, Load::default());
            } else {
                self.stop(now);
            }
            return true;
        }
        // More than may wait comes while a hold may last.
        let is_full = rate * u64::from(self.usecs) >= 1_000_000 * u64::from(self.bulk.packets());
        let may_grow = is_bulk && is_full && !is_slower && self.ceilings.usecs().is_none();
        let grows = may_grow && self.bulk.grow();
        self.is_new = grows || !is_known;
        if !is_bulk && !self.is_new {
            // Under holds the load may become another one.
            self.free = Load::default();
        }
        grows
    }

    /// Whether this rate is lower than that without holds.
    fn is_slower(&self, rate: u64, is_bulk: bool) -> bool {
        rate * 100 < self.free.packets_a_second * SLOWER[usize::from(is_bulk)]
    }

    /// The rate of bulk without holds is known.
    fn is_free_known(&self) -> bool {
        self.free.packets >= KNOWN[0] || self.free.active_ns >= LONGEST_WINDOW_NS
    }

    fn longest(&self) -> u32 {
        match self.direction {
            // What the guest gets besides is slower if it has fewer interrupts.
            Direction::Transmit if self.is_mostly_acks && self.sparing.has_seen() => 0,
            Direction::Transmit if self.is_mostly_acks => LONGEST_FOR_SENT_ACKS_USECS,
            Direction::Transmit => LONGEST_FROM_GUEST_USECS,
            Direction::Receive if self.is_mostly_acks => LONGEST_FOR_ACKS_USECS,
            Direction::Receive if self.is_beside_short() => LONGEST_BESIDE_USECS,
            Direction::Receive if self.bulk.is_bulk() => LONGEST_FOR_BULK_USECS,
            Direction::Receive => LONGEST_USECS,
        }
    }

    /// The rate without holds is known once more. Whether that under holds was lower than this one, too.
    fn settle_doubt(&mut self, rate: u64, now: Nanos) {
        let is_slower = self.is_slower(rate, true);
        self.bulk.judged(is_slower);
        if is_slower {
            self.lessen(now);
        } else if self.ceilings.usecs().is_none() {
            // The rate without holds is known now, so that is the time to see whether more may wait.
            self.bulk.grow();
        }
    }

    fn lengthen(&mut self, longest: u32, load: &Load, now: Nanos) {
        if let Some(rate) = self.bulk.doubted()
            && self.usecs == 0
        {
            if self.free.packets < KNOWN[1] && self.free.active_ns < KNOWN_NS {
                return;
            }
            self.settle_doubt(rate, now);
        }
        let most = self.ceilings.usecs().map_or(longest, |usecs| usecs.min(longest));
        let next = match self.usecs {
            // Bytes bound a hold of bulk, and a rate to compare with has to be known.
            0 if self.bulk.begins() || (self.is_for_bulk() && !self.is_free_known()) => 0,
            0 if self.is_for_bulk() => longest,
            // Three batches would come in it.
            0 => (3_000_000 / load.batches_a_second.max(1)).max(SHORTEST_USECS.into()) as u32,
            usecs => usecs.saturating_mul(GAIN),
        };
        self.usecs = next.min(most);
        // A sender of bulk that waits for the guest sends its window at once: that may be one batch for each hold.
        let rate = if self.is_for_bulk() { load.packets_a_second } else { load.batches_a_second };
        let come = rate * u64::from(self.usecs) / 1_000_000;
        self.is_tried = self.usecs == most && come >= TRIED && !self.is_harmless();
    }

    /// Holds were idle, but for their first part.
    fn shorten(&mut self, useful_ns: u64, now: Nanos) {
        let is_bulk = self.is_for_bulk();
        if self.ceilings.lift_if_proven(now) {
            // They had not been so before: this is another load, and the next windows say how long its holds are.
            self.is_tried = false;
            if is_bulk {
                self.begin_anew();
            }
            return;
        }
        if is_bulk {
            return self.lessen(now);
        }
        // The guest works on the first half while the second comes.
        let usecs = u32::try_from(useful_ns / 2 / 1000).unwrap_or(u32::MAX);
        self.usecs = if usecs < SHORTENED_USECS { 0 } else { usecs.min(self.usecs) };
        self.ceilings.set(self.usecs, now);
    }

    /// Holds of bulk cost throughput: from now on half as much waits, or nothing.
    fn lessen(&mut self, now: Nanos) {
        if self.bulk.shrink() {
            self.is_new = true;
            self.ceilings.set(LONGEST_FOR_BULK_USECS, now);
        } else {
            self.stop(now);
        }
    }

    /// This is another load: first its rate without holds has to be known.
    fn begin_anew(&mut self) {
        (self.usecs, self.is_tried, self.free) = (0, false, Load::default());
        self.bulk.forget();
    }

    fn stop(&mut self, now: Nanos) {
        self.usecs = 0;
        self.ceilings.set(0, now);
    }
}
