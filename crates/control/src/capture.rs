//! Captures: packets of one port as the switch receives them, with their hints.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorCode};

/// Seconds that a capture may take; no connection to the daemon lasts much longer.
pub const SECONDS: std::ops::RangeInclusive<u32> = 1..=100;
/// The most that is kept of a packet; as much as the longest one has.
pub const SNAPLEN: std::ops::RangeInclusive<u32> = 1..=65_535;

/// What to capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureSelect {
    /// Packets after which it ends; 0: no limit.
    pub packets: u64,
    /// Seconds after which it ends, from 1 to 100.
    pub seconds: u32,
    /// Bytes of each packet that are kept, from 1 to 65535.
    pub snaplen: u32,
}

impl Default for CaptureSelect {
    fn default() -> Self {
        Self { packets: 0, seconds: 10, snaplen: *SNAPLEN.end() }
    }
}

impl CaptureSelect {
    /// Whether it keeps the limits.
    ///
    /// # Errors
    /// With the value and the limit.
    pub fn validate(&self) -> Result<(), ApiError> {
        for (field, value, range) in [("seconds", self.seconds, SECONDS), ("snaplen", self.snaplen, SNAPLEN)]
        {
            if !range.contains(&value) {
                let error = ApiError::new(ErrorCode::InvalidValue, format!("{field} is out of range"));
                let limit = format!("{} to {}", range.start(), range.end());
                return Err(error.with_field(field).with_value(value).with_limit(limit));
            }
        }
        Ok(())
    }
}

/// A packet that was captured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// Nanoseconds since 1970, when a worker received it.
    pub at_ns: u64,
    /// Its length.
    pub len_bytes: u32,
    /// Packets that were missed since the one before, because the reader was too slow.
    pub missed: u64,
    /// The first bytes of it.
    pub bytes: Vec<u8>,
    /// What its hints said, by name.
    pub hints: Vec<(&'static str, u64)>,
}

/// A running capture. It ends when it is dropped.
pub trait Capture: Send {
    /// The next packet that waits.
    fn next(&mut self) -> Option<Captured>;

    /// Whether nothing more will come: the port is gone, or the switch.
    fn is_over(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        assert!(CaptureSelect::default().validate().is_ok());
        let error = CaptureSelect { seconds: 0, ..CaptureSelect::default() }.validate().unwrap_err();
        assert_eq!((error.field.as_deref(), error.limit.as_deref()), (Some("seconds"), Some("1 to 100")));
        assert!(CaptureSelect { snaplen: 70_000, ..CaptureSelect::default() }.validate().is_err());
    }
}
