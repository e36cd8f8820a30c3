//! Packet counters of one port, and the reasons a packet can be dropped for.
//!
//! Every packet that enters ends in exactly one place, so the counters balance: what a port received was forwarded,
//! flooded or dropped for one reason; every copy made for an output port was transmitted there or dropped there.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;
use std::ops::{AddAssign, Index, IndexMut};

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident => $name:literal,)+) => {
        /// Why a packet was dropped. Those whose name begins with `tx_` are counted on the output port, the others
        /// on the input port.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum DropReason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DropReason {
            /// Every reason, in the order of [`DropReason::index`].
            pub const ALL: [DropReason; [$($name),+].len()] = [$(DropReason::$variant),+];

            /// The reason's name in every output.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)+ }
            }

            /// One sentence that explains the reason to an operator.
            pub const fn explanation(self) -> &'static str {
                match self { $(DropReason::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

drop_reasons! {
    /// The pool had no free frame when the packet arrived.
    NoFrame => "no_frame",
    /// The port's RX ring was full: the worker did not keep up.
    RxRingFull => "rx_ring_full",
    /// One packet, cut as it asks for, would become more than 128 packets, or take more frames than the RX ring has.
    RxTooBig => "rx_too_big",
    /// The collector lost the packet before it reached the port's RX ring.
    CollectorFull => "collector_full",
    /// The port's share of the pool had no room for the packet.
    OverThreshold => "over_threshold",
    /// The port's flooding limit was reached.
    FloodLimited => "flood_limited",
    /// The port does not carry the packet's VLAN.
    VlanNotAllowed => "vlan_not_allowed",
    /// The port is an access port, and the packet has a VLAN tag; a single priority tag (802.1Q, VLAN id 0) is none.
    TaggedAtAccess => "tagged_at_access",
    /// Both ends are isolated ports.
    Isolated => "isolated",
    /// A rule says that such packets are dropped.
    ByRule => "by_rule",
    /// A rule that drops or redirects may match the packet, but its headers are cut off or deeper than rules look.
    Undecidable => "undecidable",
    /// The destination is behind the port the packet came from.
    SamePort => "same_port",
    /// The destination is a link-local group address (01:80:C2:00:00:00 to 0F), which bridges do not forward.
    ReservedAddress => "reserved_address",
    /// The packet is too short or malformed to be forwarded.
    BadFrame => "bad_frame",
    /// No other port carries the packet's VLAN.
    NoDestination => "no_destination",
    /// The port is blocked, because packets that leave by another port come in there.
    Blocked => "blocked",
    /// The input port was going down or being deleted.
    PortDown => "port_down",
    /// The output port's transmit queue was full.
    TxFull => "tx_full",
    /// Few of a guest's receive buffers, or places on the way to its worker, were free, and the input port had its share.
    TxOverShare => "tx_over_share",
    /// The packet is longer than the output port's MTU allows.
    TxTooBig => "tx_too_big",
    /// The output port's netdev is down or gone.
    TxPortDown => "tx_port_down",
    /// The kernel refused to transmit the packet.
    TxError => "tx_error",
}

impl DropReason {
    /// How many reasons there are.
    pub const COUNT: usize = DropReason::ALL.len();

    /// This reason's place in an array of [`DropReason::COUNT`] counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the drop is counted on the output port, per copy, rather than on the input port.
    pub const fn is_output(self) -> bool {
        matches!(
            self,
            DropReason::TxFull
                | DropReason::TxOverShare
                | DropReason::TxTooBig
                | DropReason::TxPortDown
                | DropReason::TxError
        )
    }

    /// The reason of this name.
    pub fn from_name(name: &str) -> Option<DropReason> {
        DropReason::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One counter per drop reason; in JSON a map from the reason's name to the count, every reason present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, u64>", into = "BTreeMap<&'static str, u64>")]
pub struct Drops([u64; DropReason::COUNT]);

impl Drops {
    /// Counters in the order of [`DropReason::index`].
    pub const fn from_array(counts: [u64; DropReason::COUNT]) -> Drops {
        Drops(counts)
    }

    /// Every reason with its count, zero or not.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().map(|reason| (reason, self[reason]))
    }

    /// All drops.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Drops counted on the input port: packets.
    pub fn input(&self) -> u64 {
        self.iter().filter(|(reason, _)| !reason.is_output()).map(|(_, count)| count).sum()
    }

    /// Drops counted on the output port: copies.
    pub fn output(&self) -> u64 {
        self.total() - self.input()
    }
}

impl Index<DropReason> for Drops {
    type Output = u64;

    fn index(&self, reason: DropReason) -> &u64 {
        &self.0[reason.index()]
    }
}

impl IndexMut<DropReason> for Drops {
    fn index_mut(&mut self, reason: DropReason) -> &mut u64 {
        &mut self.0[reason.index()]
    }
}

impl AddAssign for Drops {
    fn add_assign(&mut self, other: Drops) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
}

impl From<Drops> for BTreeMap<&'static str, u64> {
    fn from(drops: Drops) -> Self {
        drops.iter().map(|(reason, count)| (reason.name(), count)).collect()
    }
}

impl TryFrom<BTreeMap<String, u64>> for Drops {
    type Error = String;

    fn try_from(map: BTreeMap<String, u64>) -> Result<Drops, String> {
        let mut drops = Drops::default();
        for (name, count) in map {
            let reason =
                DropReason::from_name(&name).ok_or_else(|| format!("unknown drop reason `{name}`"))?;
            drops[reason] = count;
        }
        Ok(drops)
    }
}

impl PartialSchema for Drops {
    fn schema() -> RefOr<Schema> {
        let count = || ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
        let object = ObjectBuilder::new().description(Some("Dropped packets by reason."));
        DropReason::ALL
            .into_iter()
            .fold(object, |object, reason| {
                let name = reason.name();
                object.property(name, count().description(Some(reason.explanation()))).required(name)
            })
            .into()
    }
}

impl ToSchema for Drops {}

/// Packets that were dropped as `bad_frame`, by what is wrong with them. Their sum is that counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct BadFrames {
    /// Shorter than an Ethernet header.
    pub runt: u64,
    /// Ends within its VLAN tag.
    pub truncated_tag: u64,
    /// Claims to come from a group address.
    pub multicast_source: u64,
    /// Claims to come from 00:00:00:00:00:00.
    pub zero_source: u64,
}

impl BadFrames {
    /// Every cause with its count, zero or not.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let BadFrames { runt, truncated_tag, multicast_source, zero_source } = *self;
        [
            ("runt", runt),
            ("truncated_tag", truncated_tag),
            ("multicast_source", multicast_source),
            ("zero_source", zero_source),
        ]
        .into_iter()
    }
}

impl AddAssign for BadFrames {
    fn add_assign(&mut self, other: BadFrames) {
        self.runt += other.runt;
        self.truncated_tag += other.truncated_tag;
        self.multicast_source += other.multicast_source;
        self.zero_source += other.zero_source;
    }
}

/// What one port, or all of them together, received, sent and dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PortCounters {
    /// Packets that entered here, dropped ones included.
    pub rx_packets: u64,
    /// Their bytes, without the frame check sequence; of packets dropped before user space as far as known.
    pub rx_bytes: u64,
    /// Packets that left here.
    pub tx_packets: u64,
    /// Their bytes, without the frame check sequence.
    pub tx_bytes: u64,
    /// Packets that entered here and were given to exactly one known port.
    pub forwarded_packets: u64,
    /// Packets that entered here and were given to every port of their VLAN.
    pub flooded_packets: u64,
    /// Packets that entered here and whose source was not learned, because a limit was reached; they went on.
    pub not_learned_packets: u64,
    /// Packets that entered here with an unfinished L4 checksum, which was completed.
    pub completed_checksums: u64,
    /// Packets that entered here and that the kernel programs carried or dropped by a flow; part of `rx_packets`.
    pub offloaded_packets: u64,
    /// Packets that entered here from a station that had been behind another port, and is behind this one now.
    #[serde(default)]
    pub moved_packets: u64,
    /// Packets that entered here from a station behind another port, which is believed to be there still: the port had
    /// reached its limit of moves. They went on.
    #[serde(default)]
    pub move_limited_packets: u64,
    /// Loop probes that left here; no packets of the port's.
    #[serde(default)]
    pub tx_loop_probes: u64,
    /// Loop probes of this switch that entered here; no packets of the port's.
    #[serde(default)]
    pub rx_loop_probes: u64,
    /// Packets that ended here.
    pub drops: Drops,
    /// What was wrong with those of them that are counted as `bad_frame`.
    #[serde(default)]
    pub bad_frames: BadFrames,
}

impl PortCounters {
    /// Packets that no port reaches: 22 years at 100 million a second.
    const MAX_PACKETS: u64 = 1 << 56;
    /// Bytes that no port reaches: 11 years at 100 Gb/s.
    const MAX_BYTES: u64 = 1 << 62;

    /// Whether traffic can have made them. Sums of such counters do not overflow for a long time.
    pub fn is_plausible(&self) -> bool {
        let packets = [
            self.rx_packets,
            self.tx_packets,
            self.forwarded_packets,
            self.flooded_packets,
            self.not_learned_packets,
            self.completed_checksums,
            self.offloaded_packets,
            self.moved_packets,
            self.move_limited_packets,
            self.tx_loop_probes,
            self.rx_loop_probes,
        ];
        let bad = self.bad_frames.iter().map(|(_, packets)| packets);
        packets.into_iter().chain(self.drops.0).chain(bad).all(|packets| packets < Self::MAX_PACKETS)
            && [self.rx_bytes, self.tx_bytes].iter().all(|bytes| *bytes < Self::MAX_BYTES)
    }
}

impl AddAssign for PortCounters {
    fn add_assign(&mut self, other: PortCounters) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes = self.rx_bytes.saturating_add(other.rx_bytes);
        self.tx_packets += other.tx_packets;
        self.tx_bytes = self.tx_bytes.saturating_add(other.tx_bytes);
        self.forwarded_packets += other.forwarded_packets;
        self.flooded_packets += other.flooded_packets;
        self.not_learned_packets += other.not_learned_packets;
        self.completed_checksums += other.completed_checksums;
        self.offloaded_packets += other.offloaded_packets;
        self.moved_packets += other.moved_packets;
        self.move_limited_packets += other.move_limited_packets;
        self.tx_loop_probes += other.tx_loop_probes;
        self.rx_loop_probes += other.rx_loop_probes;
        self.drops += other.drops;
        self.bad_frames += other.bad_frames;
    }
}

impl Sum for PortCounters {
    fn sum<I: Iterator<Item = PortCounters>>(counters: I) -> PortCounters {
        counters.fold(PortCounters::default(), |mut total, one| {
            total += one;
            total
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_index_and_its_name_leads_back_to_it() {
        for (position, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), position);
            assert_eq!(DropReason::from_name(reason.name()), Some(reason));
            assert_eq!(reason.is_output(), reason.name().starts_with("tx_"));
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{reason}\""));
            assert!(reason.explanation().ends_with('.'), "{}", reason.explanation());
        }
    }

    #[test]
    fn drops_are_a_map_that_names_every_reason() {
        let mut drops = Drops::default();
        drops[DropReason::Isolated] = 3;
        drops[DropReason::TxFull] = 4;
        let json = serde_json::to_string(&drops).unwrap();
        assert!(json.contains("\"isolated\":3") && json.contains("\"no_frame\":0"), "{json}");
        assert_eq!(serde_json::from_str::<Drops>(&json).unwrap(), drops);
        assert_eq!((drops.total(), drops.input(), drops.output()), (7, 3, 4));
        assert!(serde_json::from_str::<Drops>("{\"bad_luck\":1}").is_err());
    }

    #[test]
    fn counters_add_up_field_by_field() {
        let mut one =
            PortCounters { rx_packets: 1, rx_bytes: 2, tx_packets: 3, tx_bytes: 4, ..Default::default() };
        (one.forwarded_packets, one.flooded_packets) = (5, 6);
        (one.not_learned_packets, one.completed_checksums) = (7, 8);
        one.offloaded_packets = 9;
        one.move_limited_packets = 13;
        (one.moved_packets, one.tx_loop_probes, one.rx_loop_probes) = (10, 11, 12);
        one.drops[DropReason::NoFrame] = 7;
        one.bad_frames = BadFrames { runt: 1, truncated_tag: 2, multicast_source: 3, zero_source: 4 };
        let total: PortCounters = [one, one].into_iter().sum();
        let values = [total.rx_packets, total.rx_bytes, total.tx_packets, total.tx_bytes];
        assert_eq!(values, [2, 4, 6, 8]);
        assert_eq!((total.forwarded_packets, total.flooded_packets, total.drops.total()), (10, 12, 14));
        assert_eq!((total.not_learned_packets, total.completed_checksums), (14, 16));
        assert_eq!(total.offloaded_packets, 18);
        let causes = [("runt", 2), ("truncated_tag", 4), ("multicast_source", 6), ("zero_source", 8)];
        assert!(total.bad_frames.iter().eq(causes), "{:?}", total.bad_frames);
        assert_eq!(total.move_limited_packets, 26);
        assert_eq!((total.moved_packets, total.tx_loop_probes, total.rx_loop_probes), (20, 22, 24));
    }
}
