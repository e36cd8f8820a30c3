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

/// What one worker did since start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct WorkerStats {
    /// Its number.
    pub worker: u32,
    /// The CPU it is pinned to, if it is.
    pub cpu: Option<u32>,
    /// Rounds of its loop.
    pub iterations: u64,
    /// Bursts that had at least one packet.
    pub batches: u64,
    /// Packets received.
    pub packets: u64,
    /// Copies handed to output ports; a packet flooded to three ports makes three.
    pub copies: u64,
    /// Those of them that left by the departure program, in batches; the others left by a packet socket.
    pub departed: u64,
    /// Packets of no known port, in a ring that ports share.
    pub strays: u64,
    /// Times it went to sleep because nothing was ready.
    pub sleeps: u64,
    /// Nanoseconds not asleep.
    pub busy_ns: u64,
}

/// The balance of all counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct StatsCheck {
    /// Whether every equation holds. While packets are under way a small difference is no fault: ask again.
    pub balanced: bool,
    /// The equations.
    pub balances: Vec<Balance>,
}

impl StatsCheck {
    /// The check that consists of these equations.
    pub fn new(balances: Vec<Balance>) -> StatsCheck {
        StatsCheck { balanced: balances.iter().all(|balance| balance.difference == 0), balances }
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
}

impl Balance {
    /// The equation `left = right`.
    pub fn new(name: impl Into<String>, left: u64, right: u64) -> Balance {
        Balance { name: name.into(), left, right, difference: left.wrapping_sub(right).cast_signed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_astray_unbalances_the_check() {
        assert!(StatsCheck::new(vec![Balance::new("rx", 5, 5)]).balanced);
        let check = StatsCheck::new(vec![Balance::new("rx", 5, 5), Balance::new("tx", 5, 6)]);
        assert!(!check.balanced);
        assert_eq!(check.balances[1].difference, -1);
    }
}
