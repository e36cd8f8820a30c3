//! What is asked of Forebay: ratios to its peers, and whether what was measured holds them.

use forebay_testbed::measure::spread::Spread;

use super::Contender;
use super::Contender::{
    BareTcx, BareXdp, Bridge, BridgeXdp, Guests, Ovs, OvsDpdk, Tcx, TcxRule, TcxSlow, Uplink, Xdp,
    XdpFlowIds, XdpSlow,
};

pub(super) const SMALL_PACKETS: &str = "60-byte frames, Mpps";
pub(super) const ONE_STREAM: &str = "one TCP stream, Gbit/s";
pub(super) const EIGHT_STREAMS: &str = "eight TCP streams, Gbit/s";
pub(super) const SMALL_UDP: &str = "18-byte datagrams received, Mpps";
pub(super) const TCP_P50: &str = "TCP request/response p50, µs";
pub(super) const TCP_P99: &str = "TCP request/response p99, µs";
pub(super) const UDP_P50: &str = "UDP request/response p50, µs";
pub(super) const UDP_P99: &str = "UDP request/response p99, µs";
pub(super) const WEB: &str = "web requests, 1000/s";
pub(super) const CONNECTIONS: &str = "TCP connections, 1000/s";
pub(super) const DROPPED_1: &str = "cycles a packet that a rule drops, 1 flow";
pub(super) const DROPPED_128: &str = "cycles a packet that a rule drops, 128 flows";
pub(super) const DROPPED_8192: &str = "cycles a packet that a rule drops, 8192 flows";
pub(super) const GUESTS_64: &str = "64-byte frames between guests, 512 in flight, Mpps both ways";
pub(super) const GUESTS_1514: &str = "1514-byte frames between guests, 512 in flight, Mpps both ways";
/// Between a virtual machine and a container: streams, request and response that the container begins.
pub(super) const OUT_OF_GUEST: &str = "virtual machine to container, one TCP stream, Gbit/s";
pub(super) const INTO_GUEST: &str = "container to virtual machine, one TCP stream, Gbit/s";
pub(super) const BETWEEN_GUESTS: &str = "virtual machine to virtual machine, one TCP stream, Gbit/s";
pub(super) const GUEST_P50: &str = "virtual machine, TCP request/response p50, µs";
pub(super) const GUEST_P99: &str = "virtual machine, TCP request/response p99, µs";
/// From an uplink to a container: streams, datagrams, request and response that the uplink's side begins, and the share of the
/// datagrams that arrived.
pub(super) const IN: [&str; 6] = [
    "uplink to container, one TCP stream, Gbit/s",
    "uplink to container, eight TCP streams, Gbit/s",
    "uplink to container, 18-byte datagrams received, Mpps",
    "uplink to container, TCP request/response p50, µs",
    "uplink to container, TCP request/response p99, µs",
    "uplink to container, of these datagrams arrived, %",
];
/// The other way.
pub(super) const OUT: [&str; 6] = [
    "container to uplink, one TCP stream, Gbit/s",
    "container to uplink, eight TCP streams, Gbit/s",
    "container to uplink, 18-byte datagrams received, Mpps",
    "container to uplink, TCP request/response p50, µs",
    "container to uplink, TCP request/response p99, µs",
    "container to uplink, of these datagrams arrived, %",
];

/// One ratio that is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) metric: &'static str,
    pub(super) contender: Contender,
    pub(super) peer: Contender,
    pub(super) bound: Bound,
    /// Enough too: so much of what a program without a decision reaches in this place.
    pub(super) or: Option<(f64, Contender)>,
}

/// What a ratio must be, in the median over the rounds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// Everything that is asked.
pub(super) const ALL: [Asked; 38] = [
    at_least(4.0, SMALL_PACKETS, Xdp, Bridge).or(0.95, BareXdp),
    at_least(1.5, SMALL_PACKETS, Tcx, Bridge).or(0.95, BareTcx),
    at_least(1.3, SMALL_PACKETS, XdpSlow, Ovs),
    at_least(1.3, SMALL_PACKETS, TcxSlow, Ovs),
    at_least(1.0, ONE_STREAM, Tcx, Bridge),
    at_least(1.0, EIGHT_STREAMS, Tcx, Bridge),
    at_least(1.2, SMALL_UDP, Tcx, Bridge).or(0.97, BareTcx),
    at_most(1.0, TCP_P50, Tcx, Bridge),
    at_most(1.0, TCP_P99, Tcx, Bridge),
    at_most(1.0, UDP_P50, Tcx, Bridge),
    at_most(1.0, UDP_P99, Tcx, Bridge),
    at_least(1.2, IN[0], Uplink, BridgeXdp),
    at_least(1.2, IN[1], Uplink, BridgeXdp),
    at_least(1.0, IN[2], Uplink, BridgeXdp),
    at_most(1.0, IN[3], Uplink, BridgeXdp),
    at_most(1.0, IN[4], Uplink, BridgeXdp),
    at_least(1.0, OUT[0], Uplink, BridgeXdp),
    at_least(1.0, OUT[1], Uplink, BridgeXdp),
    at_least(1.0, OUT[2], Uplink, BridgeXdp),
    at_most(1.0, OUT[3], Uplink, BridgeXdp),
    at_most(1.0, OUT[4], Uplink, BridgeXdp),
    at_least(1.0, WEB, Tcx, Bridge),
    at_least(1.0, CONNECTIONS, Tcx, Bridge),
    at_least(0.9, CONNECTIONS, TcxRule, Bridge),
    at_most(0.68, DROPPED_1, XdpFlowIds, XdpSlow),
    at_most(0.68, DROPPED_128, XdpFlowIds, XdpSlow),
    at_most(0.68, DROPPED_8192, XdpFlowIds, XdpSlow),
    at_most(0.5, DROPPED_1, XdpFlowIds, Ovs),
    at_most(0.5, DROPPED_128, XdpFlowIds, Ovs),
    at_most(0.5, DROPPED_8192, XdpFlowIds, Ovs),
    at_least(1.0, OUT_OF_GUEST, Guests, Bridge),
    at_least(1.5, INTO_GUEST, Guests, Bridge),
    at_least(1.0, BETWEEN_GUESTS, Guests, Bridge),
    at_least(3.0, OUT_OF_GUEST, Guests, OvsDpdk),
    at_least(3.0, INTO_GUEST, Guests, OvsDpdk),
    at_least(3.0, BETWEEN_GUESTS, Guests, OvsDpdk),
    at_least(1.0, GUESTS_64, Guests, OvsDpdk),
    at_least(1.0, GUESTS_1514, Guests, OvsDpdk),
];

const fn at_least(ratio: f64, metric: &'static str, contender: Contender, peer: Contender) -> Asked {
    Asked { metric, contender, peer, bound: Bound::AtLeast(ratio), or: None }
}

const fn at_most(ratio: f64, metric: &'static str, contender: Contender, peer: Contender) -> Asked {
    Asked { metric, contender, peer, bound: Bound::AtMost(ratio), or: None }
}

impl Asked {
    const fn or(self, share: f64, peer: Contender) -> Asked {
        Asked { or: Some((share, peer)), ..self }
    }

    /// Whose ratio to whom.
    pub(super) fn name(&self) -> String {
        let or = self.or.map_or_else(String::new, |(_, peer)| format!(", or / {}", peer.name()));
        format!("{} / {}{or}", self.contender.name(), self.peer.name())
    }

    /// What it must be, as tables have it.
    pub(super) fn text(&self) -> String {
        let or =
            self.or.map_or_else(String::new, |(share, _)| format!(", or {}", Bound::AtLeast(share).text()));
        format!("{}{or}", self.bound.text())
    }

    /// The verdict in words on the ratio, and on that which would be enough too; `None` stands for what was not measured in
    /// any round.
    pub(super) fn verdict(&self, measured: Option<Spread>, or: Option<Spread>) -> &'static str {
        let enough = self.or.zip(or).map(|((share, _), ratio)| Bound::AtLeast(share).holds(ratio.median));
        match (measured.map(|ratio| self.bound.holds(ratio.median)), enough) {
            (Some(true), _) | (_, Some(true)) => "holds",
            (None, None) => "not measured",
            _ => "does not hold",
        }
    }
}

impl Bound {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Bound::AtLeast(least) => ratio >= least,
            Bound::AtMost(most) => ratio <= most,
        }
    }

    /// As tables have it.
    pub(super) fn text(self) -> String {
        match self {
            Bound::AtLeast(least) => format!("≥ {least:.2}"),
            Bound::AtMost(most) => format!("≤ {most:.2}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Benchmark;
    use super::*;

    #[test]
    fn a_bound_is_held_by_the_median_and_by_equality() {
        let spread = |median| Some(Spread { median, least: 0.1, most: 9.0 });
        let (rate, latency) = (at_least(1.5, ONE_STREAM, Tcx, Bridge), at_most(1.0, TCP_P50, Tcx, Bridge));
        let verdicts = |asked: Asked| [1.0, 1.5, 2.0].map(|median| asked.verdict(spread(median), None));
        assert_eq!(verdicts(rate), ["does not hold", "holds", "holds"]);
        assert_eq!(verdicts(latency), ["holds", "does not hold", "does not hold"]);
        assert_eq!(rate.verdict(None, None), "not measured");
        let either = rate.or(0.9, BareTcx);
        let verdicts =
            [(1.0, 0.8), (1.0, 0.9), (1.5, 0.1)].map(|(one, or)| either.verdict(spread(one), spread(or)));
        assert_eq!(verdicts, ["does not hold", "holds", "holds"]);
        assert_eq!(
            (either.verdict(None, spread(0.9)), either.text()),
            ("holds", "≥ 1.50, or ≥ 0.90".to_owned())
        );
    }

    #[test]
    fn both_sides_of_every_ratio_take_part_in_one_benchmark() {
        for asked in ALL {
            let meet = |benchmark: Benchmark| {
                let all = benchmark.contenders();
                let or = asked.or.is_none_or(|(_, peer)| all.contains(&peer));
                all.contains(&asked.contender) && all.contains(&asked.peer) && or
            };
            assert!(Benchmark::ALL.into_iter().any(meet), "{}", asked.name());
        }
    }
}
