//! Receive queues: how deep they are, where they are bound, how full their fill rings are kept.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorCode};
use crate::words::words;

/// Entries that an RX ring may have; a power of two.
pub const DEPTH: std::ops::RangeInclusive<u32> = 64..=4096;

/// How full a fill ring is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RefillKind {
    /// At its depth, always.
    #[default]
    Static,
    /// At the low watermark at rest, at its depth while polling stays busy.
    Adaptive,
}

/// Where a port's packets wait for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RxqBinding {
    /// In rings of the port's own on the collector, which one fill ring supplies.
    #[default]
    Collector,
    /// In the rings that all ports share (spool mode `basic`).
    Shared,
    /// In rings on the port's own netdev, with fill rings of their own.
    Direct,
}

/// One of the collectors. Ports that have many packets are moved out of the way of those that have few.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RxqLane {
    /// For ports that have few packets.
    #[default]
    Calm,
    /// For ports that have many: from 50,000 frames a second on, until there were fewer than 20,000 for ten seconds.
    Busy,
}

words!(RefillKind: Static => "static", Adaptive => "adaptive");
words!(RxqBinding: Collector => "collector", Shared => "shared", Direct => "direct");
words!(RxqLane: Calm => "calm", Busy => "busy");

/// All receive queues.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct RxqShow {
    /// Each collector's, for all rings on it.
    pub collectors: Vec<RxqCollector>,
    /// Each port's.
    pub ports: Vec<RxqPort>,
}

/// A collector's fill rings, one a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct RxqCollector {
    /// Whose packets they are for.
    pub lane: RxqLane,
    /// Frames that each holds at most: the high watermark.
    pub depth: u32,
    /// How full they are kept.
    pub refill: RefillKind,
    /// Frames that adaptive refill keeps in each at rest.
    pub low: u32,
    /// Frames posted in all of them.
    pub posted: u64,
}

/// One port's receive queues.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct RxqPort {
    /// The port's name.
    pub name: String,
    /// Where its packets wait.
    pub binding: RxqBinding,
    /// Which collector its rings are on, while it is bound to one.
    pub lane: RxqLane,
    /// RX rings it has, one for each worker that serves it.
    pub queues: u32,
    /// Packets that one holds.
    pub depth: u32,
    /// How full fill rings of its own are kept, where it is bound directly.
    pub refill: RefillKind,
    /// Frames that adaptive refill keeps in each at rest.
    pub low: u32,
    /// Frames posted in fill rings of its own.
    pub posted: u64,
    /// Frames in its RX rings.
    pub used: u64,
}

/// What may be changed of a port's receive queues; what isn't given stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RxqSet {
    /// Packets that one RX ring holds, a power of two from 64 to 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// How full fill rings of its own are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refill: Option<RefillKind>,
    /// Frames that adaptive refill keeps in each at rest, from 1 to the depth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<u32>,
    /// `direct` or `collector`, in spool mode `spp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<RxqBinding>,
}

/// What may be changed of the collectors' fill rings; what isn't given stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RxqCollectorSet {
    /// How full they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refill: Option<RefillKind>,
    /// Frames that adaptive refill keeps in each at rest, from 1 to the depth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<u32>,
}

/// Whether a ring may have `depth` entries.
///
/// # Errors
/// With the value, the limit and the way out.
pub fn check_depth(depth: u32) -> Result<(), ApiError> {
    if depth.is_power_of_two() && DEPTH.contains(&depth) {
        return Ok(());
    }
    let remedy = match depth.checked_next_power_of_two() {
        Some(larger) if larger <= *DEPTH.end() => {
            format!("the next larger depth is {}", larger.max(*DEPTH.start()))
        }
        _ => format!("the largest depth is {}", DEPTH.end()),
    };
    Err(ApiError::new(ErrorCode::InvalidValue, "an RX ring can't have this depth")
        .with_field("depth")
        .with_value(depth)
        .with_limit(format!("a power of two from {} to {}", DEPTH.start(), DEPTH.end()))
        .with_remedy(remedy))
}

/// Whether `low` can be the low watermark of a ring of `depth` entries.
///
/// # Errors
/// With the value, the limit and the way out.
pub fn check_low(low: u32, depth: u32) -> Result<(), ApiError> {
    if (1..=depth).contains(&low) {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::InvalidValue, "the low watermark of the fill ring is out of range")
        .with_field("low")
        .with_value(low)
        .with_limit(format!("1 to the ring's depth, {depth}"))
        .with_remedy("the default is 128 frames"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_depth_is_a_power_of_two_in_range() {
        assert!([64, 1024, 4096].into_iter().all(|depth| check_depth(depth).is_ok()));
        let error = check_depth(1000).unwrap_err();
        assert_eq!(error.value.as_deref(), Some("1000"));
        assert_eq!(error.remedy.as_deref(), Some("the next larger depth is 1024"));
        for (depth, expected) in [
            (0, "the next larger depth is 64"),
            (63, "the next larger depth is 64"),
            (4095, "the next larger depth is 4096"),
            (4097, "the largest depth is 4096"),
            (u32::MAX, "the largest depth is 4096"),
        ] {
            let remedy = check_depth(depth).unwrap_err().remedy;
            assert_eq!(remedy.as_deref(), Some(expected), "{depth}");
        }
    }

    #[test]
    fn a_low_watermark_lies_in_its_ring() {
        assert!(check_low(1, 64).is_ok() && check_low(64, 64).is_ok());
        assert!(check_low(0, 64).is_err() && check_low(65, 64).is_err());
    }
}
