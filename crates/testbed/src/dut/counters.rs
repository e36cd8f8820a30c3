//! Which counters moved: the difference between two readings of the statistics.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use forebay_control::counters::PortCounters;
use forebay_control::stats::StatsShow;

use super::client::Client;
use crate::{Result, wait};

/// How long packets may still be under way after traffic has stopped.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);

/// Every port's counters at one moment, by port name and counter name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading(BTreeMap<(String, &'static str), u64>);

/// How far each counter moved between two readings; those that did not are absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moved(BTreeMap<(String, &'static str), u64>);

impl Reading {
    /// The statistics' port counters.
    pub fn of(stats: &StatsShow) -> Reading {
        let counters = stats.ports.iter().flat_map(|port| {
            by_name(&port.counters).into_iter().map(|(name, count)| ((port.name.clone(), name), count))
        });
        Reading(counters.collect())
    }

    /// A reading when nothing is under way any more: balanced, and the same twice.
    ///
    /// # Errors
    /// When that does not come about within five seconds: counters do not balance.
    pub fn settled(client: &Client) -> Result<Reading> {
        let (api, mut last, mut why) = (client.api(), None::<Reading>, String::new());
        let settled = wait::until_some("the counters to balance and stand still", SETTLE_LIMIT, || {
            let stats: StatsShow = api.get("/v1/stats").inspect_err(|error| why = error.to_string()).ok()?;
            let reading = Reading::of(&stats);
            let moved = last.replace(reading.clone()).map(|last| reading.since(&last));
            let unequal = stats.check.balances.iter().filter(|balance| balance.difference != 0);
            let unequal: Vec<_> = unequal.map(|balance| (&balance.name, balance.difference)).collect();
            why = format!("unequal: {unequal:?}; moved since the last look: {moved:?}");
            (moved == Some(Moved::default()) && unequal.is_empty()).then_some(reading)
        });
        settled.inspect_err(|_| eprintln!("{why}"))
    }

    /// What moved since `earlier`; a counter that is new counts from 0.
    pub fn since(&self, earlier: &Reading) -> Moved {
        let difference = |(key, now): (&(String, &'static str), &u64)| {
            let before = earlier.0.get(key).copied().unwrap_or(0);
            (*now != before).then(|| (key.clone(), now.wrapping_sub(before)))
        };
        Moved(self.0.iter().filter_map(difference).collect())
    }
}

fn by_name(counters: &PortCounters) -> Vec<(&'static str, u64)> {
    let mut named = vec![
        ("rx_packets", counters.rx_packets),
        ("rx_bytes", counters.rx_bytes),
        ("tx_packets", counters.tx_packets),
        ("tx_bytes", counters.tx_bytes),
        ("forwarded_packets", counters.forwarded_packets),
        ("flooded_packets", counters.flooded_packets),
        ("offloaded_packets", counters.offloaded_packets),
    ];
    named.extend(counters.drops.iter().map(|(reason, count)| (reason.name(), count)));
    named
}

impl Moved {
    /// How far one counter moved.
    pub fn get(&self, port: &str, counter: &str) -> u64 {
        let found = self.0.iter().find(|((at, name), _)| at == port && *name == counter);
        found.map_or(0, |(_, moved)| *moved)
    }

    /// How far a counter moved on all ports together.
    pub fn total(&self, counter: &str) -> u64 {
        self.0.iter().filter(|((_, name), _)| *name == counter).map(|(_, moved)| moved).sum()
    }

    /// The packet counters that moved, without the byte counters.
    pub fn packets(&self) -> Vec<(&str, &'static str, u64)> {
        let all = self.0.iter().map(|((port, name), moved)| (port.as_str(), *name, *moved));
        all.filter(|(_, name, _)| !name.ends_with("_bytes")).collect()
    }

    /// Counters of drops that moved.
    pub fn drops(&self) -> Vec<(&str, &'static str, u64)> {
        let mut drops = self.packets();
        drops.retain(|(_, name, _)| !name.ends_with("_packets"));
        drops
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|((port, name), moved)| writeln!(f, "  {port} {name} +{moved}"))
    }
}

#[cfg(test)]
mod tests {
    use forebay_control::counters::DropReason;
    use forebay_control::id::PortId;
    use forebay_control::stats::PortStats;

    use super::*;

    fn stats(rx_packets: u64, isolated: u64) -> StatsShow {
        let mut counters = PortCounters { rx_packets, ..PortCounters::default() };
        counters.drops[DropReason::Isolated] = isolated;
        let port = PortStats { id: PortId(1), name: "a".to_owned(), counters };
        StatsShow { ports: vec![port], ..StatsShow::default() }
    }

    #[test]
    fn only_what_moved_is_named() {
        let moved = Reading::of(&stats(5, 2)).since(&Reading::of(&stats(3, 2)));
        assert_eq!(moved.packets(), [("a", "rx_packets", 2)]);
        assert!(moved.drops().is_empty());
        let moved = Reading::of(&stats(5, 2)).since(&Reading::of(&stats(5, 0)));
        assert_eq!(moved.drops(), [("a", "isolated", 2)]);
        assert_eq!(moved.get("a", "isolated"), 2);
        assert_eq!(moved.get("b", "isolated"), 0);
    }
}
