//! How full the pool was, in the way of `devlink sb occupancy`: a snapshot is taken, then looked at, and the watermarks
//! can be cleared.
//!
//! As JSON it has the shape that `devlink -j sb occupancy show` prints, with ports by name and one pool, 0; scripts that
//! read `.occupancy[PORT].pool["0"].max` read ours. As there, `current` and `max` are bytes; we know frames besides.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The pool's number in every output; there is one.
const POOL: &str = "0";

/// A snapshot of all ports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolOccupancy {
    /// Each port's, by name.
    pub occupancy: BTreeMap<String, PortOccupancy>,
}

/// What one port held.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PortOccupancy {
    /// By the pool's number.
    pub pool: BTreeMap<String, Occupancy>,
}

/// What was held at the moment of the snapshot, and the most since the watermark was cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Occupancy {
    /// Bytes held: frames times the frame size.
    pub current: u64,
    /// The most bytes held since the port was added or its watermark cleared.
    pub max: u64,
    /// Frames held.
    pub current_frames: u64,
    /// The most frames held.
    pub max_frames: u64,
}

impl Occupancy {
    /// Of so many frames of this size. What is held now was held.
    pub fn of_frames(current: u64, max: u64, frame_size: u32) -> Occupancy {
        let (max, bytes) = (max.max(current), u64::from(frame_size));
        Occupancy { current: current * bytes, max: max * bytes, current_frames: current, max_frames: max }
    }
}

impl PortOccupancy {
    /// Of the one pool.
    pub fn new(occupancy: Occupancy) -> PortOccupancy {
        PortOccupancy { pool: BTreeMap::from([(POOL.to_owned(), occupancy)]) }
    }

    /// The pool's, or nothing.
    pub fn of_pool(&self) -> Occupancy {
        self.pool.get(POOL).copied().unwrap_or_default()
    }
}

/// Which ports: all, or one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OccupancySelect {
    /// Only this port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

/// What `clearmax` did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct ClearmaxReply {
    /// The ports whose watermark begins anew.
    pub cleared: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_read_by_what_reads_devlinks() {
        let port = PortOccupancy::new(Occupancy::of_frames(2, 5, 2048));
        let shown = PoolOccupancy { occupancy: BTreeMap::from([("p1".to_owned(), port)]) };
        let json = serde_json::to_value(&shown).unwrap();
        // The path that the kernel's own tests of devlink-sb take.
        assert_eq!(json["occupancy"]["p1"]["pool"]["0"]["current"], 4096);
        assert_eq!(json["occupancy"]["p1"]["pool"]["0"]["max"], 10240);
        assert_eq!(json.as_object().unwrap().len(), 1, "devlink has nothing beside it: {json}");
        assert_eq!(serde_json::from_value::<PoolOccupancy>(json).unwrap(), shown);
    }

    #[test]
    fn what_is_held_was_held() {
        assert_eq!(Occupancy::of_frames(7, 3, 4096).max, 7 * 4096);
    }
}
