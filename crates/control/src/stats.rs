//! Statistics of the whole switch, and the check that every packet was counted out exactly once.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::counters::PortCounters;
use crate::id::PortId;

/// Everything that is counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct StatsShow {
    /// All ports together, deleted ones included.
    pub total: PortCounters,
    /// Each port that exists.
    pub ports: Vec<PortStats>,
    /// Each worker.
    pub workers: Vec<WorkerStats>,
    /// Whether the counters balance.
    pub check: StatsCheck,
}

/// One port's counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortStats {
    /// Its number.
    pub id: PortId,
    /// Its name.
    pub name: String,
    /// Its counters.
    pub counters: PortCounters,
}

/// Sizes of bursts that are counted apart: 1, 2–3, 4–7, 8–15, 16–31, 32–63, 64–127, 128 packets.
pub const BATCH_SIZES: usize = 8;

/// How destinations and rules were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Lookups {
    /// The address is in the forwarding table.
    pub known: u64,
    /// It is not: the packet is flooded, or dropped by a limit.
    pub unknown: u64,
    /// A group address, for which there is nothing to look up.
    pub group: u64,
    /// Packets that were decided about as one like them was: the last of their flow, which the port's program told by a hint,
    /// or the one before them, which had the same headers.
    pub repeated: u64,
    /// Packets whose rule, where rules look deeper than their addresses, was known from one like them.
    pub cached: u64,
    /// Those whose rule was not known and was looked up among all.
    pub classified: u64,
}

/// How long packets had been under way when it was decided where they go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct LatencyShow {
    /// Each port whose packets come with hints, or did.
    pub ports: Vec<PortLatency>,
}

/// One port's packets, from the device or its driver to the decision. Times are up to an eighth too long.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PortLatency {
    /// The port's name.
    pub name: String,
    /// Packets that said when they arrived.
    pub packets: u64,
    /// The time that half of them took at most.
    pub p50_ns: u64,
    /// Nine of ten.
    pub p90_ns: u64,
    /// Ninety-nine of a hundred.
    pub p99_ns: u64,
    /// All of them.
    pub max_ns: u64,
    /// Packets that seem to have arrived after the decision: nobody keeps the device's clock at the time of this machine.
    pub from_the_future: u64,
    /// The histogram: the longest time of each bucket that has packets, and how many.
    pub buckets: Vec<(u64, u64)>,
}

/// What all workers did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkersShow {
    /// Nanoseconds since the switch started, or since the numbers were cleared.
    pub elapsed_ns: u64,
    /// Each worker, in that time.
    pub workers: Vec<WorkerStats>,
}

impl WorkersShow {
    /// What was done since `before`, an earlier look at the same numbers.
    #[must_use]
    pub fn since(&self, before: &WorkersShow) -> WorkersShow {
        let workers = self.workers.iter().map(|worker| {
            let earlier = before.workers.iter().find(|earlier| earlier.worker == worker.worker);
            earlier.map_or(*worker, |earlier| worker.since(earlier))
        });
        WorkersShow {
            elapsed_ns: self.elapsed_ns.saturating_sub(before.elapsed_ns),
            workers: workers.collect(),
        }
    }
}

/// What one worker did since start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkerStats {
    /// Its number.
    pub worker: u32,
    /// The CPU it is pinned to, if it is.
    pub cpu: Option<u32>,
    /// Rounds of its loop.
    pub iterations: u64,
    /// Those of them that had packets.
    pub busy_iterations: u64,
    /// Ticks of the time stamp counter in rounds that had packets, sleep not counted.
    pub busy_cycles: u64,
    /// The same of rounds that had none.
    pub idle_cycles: u64,
    /// Bursts that had at least one packet.
    pub batches: u64,
    /// By size: 1, 2–3, 4–7, 8–15, 16–31, 32–63, 64–127, 128 packets.
    pub batch_sizes: [u64; BATCH_SIZES],
    /// Packets received: what the kernel programs left to user space.
    pub packets: u64,
    /// How their destinations and rules were found.
    pub lookups: Lookups,
    /// Copies handed to output ports; a packet flooded to three ports makes three.
    pub copies: u64,
    /// Those of them that left by the departure program, in batches; the others left by a packet socket.
    pub departed: u64,
    /// Packets of no known port, in a ring that ports share.
    pub strays: u64,
    /// Descriptors that pointed outside the pool: the kernel is wrong, and each loses its frame.
    #[serde(default)]
    pub bad_descriptors: u64,
    /// Times it went to sleep because nothing was ready.
    pub sleeps: u64,
    /// Times it waited awake, and something came.
    pub lingers: u64,
    /// Nanoseconds that it waited awake.
    pub linger_ns: u64,
    /// Nanoseconds that it did not wait.
    pub busy_ns: u64,
}

impl WorkerStats {
    /// What was done since `before`, an earlier look at the same numbers.
    #[must_use]
    pub fn since(&self, before: &WorkerStats) -> WorkerStats {
        let less = |of: fn(&WorkerStats) -> u64| of(self).saturating_sub(of(before));
        WorkerStats {
            worker: self.worker,
            cpu: self.cpu,
            iterations: less(|w| w.iterations),
            busy_iterations: less(|w| w.busy_iterations),
            busy_cycles: less(|w| w.busy_cycles),
            idle_cycles: less(|w| w.idle_cycles),
            batches: less(|w| w.batches),
            batch_sizes: std::array::from_fn(|size| {
                self.batch_sizes[size].saturating_sub(before.batch_sizes[size])
            }),
            packets: less(|w| w.packets),
            lookups: Lookups {
                known: less(|w| w.lookups.known),
                unknown: less(|w| w.lookups.unknown),
                group: less(|w| w.lookups.group),
                repeated: less(|w| w.lookups.repeated),
                cached: less(|w| w.lookups.cached),
                classified: less(|w| w.lookups.classified),
            },
            copies: less(|w| w.copies),
            departed: less(|w| w.departed),
            strays: less(|w| w.strays),
            bad_descriptors: less(|w| w.bad_descriptors),
            sleeps: less(|w| w.sleeps),
            lingers: less(|w| w.lingers),
            linger_ns: less(|w| w.linger_ns),
            busy_ns: less(|w| w.busy_ns),
        }
    }
}

/// The balance of all counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct StatsCheck {
    /// Whether every equation holds, but for packets that may be under way.
    pub balanced: bool,
    /// The equations.
    pub balances: Vec<Balance>,
}

impl StatsCheck {
    /// The check that consists of these equations.
    pub fn new(balances: Vec<Balance>) -> StatsCheck {
        StatsCheck { balanced: balances.iter().all(Balance::holds), balances }
    }

    /// This check, made when `earlier` was made some time before. What moved between the two may be under way: the sides of
    /// an equation were read one after the other, and a packet is counted on the left before it is on the right.
    pub fn after(self, earlier: &StatsCheck) -> StatsCheck {
        let before = |balance: &Balance| earlier.balances.iter().find(|before| before.name == balance.name);
        let judged = self.balances.into_iter().map(|balance| match before(&balance) {
            Some(before) => balance.after(before),
            None => balance,
        });
        StatsCheck::new(judged.collect())
    }
}

/// One equation: what went in on the left, where it ended on the right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Balance {
    /// The equation in words.
    pub name: String,
    /// The left side.
    pub left: u64,
    /// The right side.
    pub right: u64,
    /// Left less right.
    pub difference: i64,
    /// Packets or frames by which a side grew or shrank between two readings; of the two sides, the larger number. The
    /// difference may be as large. 0 where nothing moves.
    #[serde(default)]
    pub moving: u64,
}

impl Balance {
    /// The equation `left = right`.
    pub fn new(name: impl Into<String>, left: u64, right: u64) -> Balance {
        let difference = left.wrapping_sub(right).cast_signed();
        Balance { name: name.into(), left, right, difference, moving: 0 }
    }

    fn after(self, before: &Balance) -> Balance {
        let moving = self.left.abs_diff(before.left).max(self.right.abs_diff(before.right));
        Balance { moving, ..self }
    }

    /// Whether the sides are equal, but for what may be under way.
    pub fn holds(&self) -> bool {
        self.difference.unsigned_abs() <= self.moving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_meanwhile_is_the_difference() {
        let look = |elapsed_ns, packets| {
            let worker = WorkerStats {
                packets,
                batch_sizes: [packets; BATCH_SIZES],
                lookups: Lookups { known: packets, ..Lookups::default() },
                ..WorkerStats::default()
            };
            WorkersShow { elapsed_ns, workers: vec![worker] }
        };
        assert_eq!(look(30, 7).since(&look(10, 2)), look(20, 5));
        assert_eq!(
            look(30, 7).since(&WorkersShow::default()),
            look(30, 7),
            "a worker that was not there before"
        );
    }

    #[test]
    fn one_packet_astray_unbalances_the_check() {
        assert!(StatsCheck::new(vec![Balance::new("rx", 5, 5)]).balanced);
        let check = StatsCheck::new(vec![Balance::new("rx", 5, 5), Balance::new("tx", 5, 6)]);
        assert!(!check.balanced);
        assert_eq!(check.balances[1].difference, -1);
    }

    #[test]
    fn what_moves_between_two_readings_may_be_under_way_and_no_more() {
        let check = |left, right| StatsCheck::new(vec![Balance::new("rx", left, right)]);
        // (left, right) of the first and of the second reading
        for (first, second, is_balanced) in [
            ((100, 90), (100, 90), false),
            ((100, 90), (105, 95), false),
            ((100, 90), (110, 100), true),
            ((100, 90), (104, 104), true),
            ((100, 100), (104, 105), true),
            ((100, 100), (100, 101), true),
            ((100, 101), (100, 101), false),
        ] {
            let judged = check(second.0, second.1).after(&check(first.0, first.1));
            assert_eq!(judged.balanced, is_balanced, "{first:?}, {second:?}: {judged:?}");
        }
        let unknown = check(5, 6).after(&StatsCheck::new(Vec::new()));
        assert!(!unknown.balanced, "nothing is known of what moves");
    }
}
