//! The forwarding database: which station is behind which port.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::id::{MacAddr, Vid};

/// Where an entry comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FdbKind {
    /// Added by request or configuration; does not move and does not age.
    Static,
    /// Learned from traffic; moves with it and ages.
    Learned,
}

impl FdbKind {
    /// The word in every output.
    pub const fn name(self) -> &'static str {
        match self {
            FdbKind::Static => "static",
            FdbKind::Learned => "learned",
        }
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FdbEntry {
    /// The station's VLAN; 0 when it is untagged on a transparent port.
    pub vlan: Vid,
    /// The station's address.
    pub mac: MacAddr,
    /// The port it is behind, by name.
    pub port: String,
    /// Where the entry comes from.
    pub kind: FdbKind,
    /// Seconds since its last packet; 0 for static entries.
    pub age_seconds: u64,
}

/// Adds a static entry, in place of the one this address has if it has one; also one `[[fdb.static]]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FdbAdd {
    /// The station's VLAN.
    #[serde(default)]
    pub vlan: Vid,
    /// The station's address; not a group address.
    pub mac: MacAddr,
    /// The port it is behind, by name.
    pub port: String,
}

impl FdbAdd {
    /// Checks that the address can belong to a station; whether the port exists only the switch knows.
    ///
    /// # Errors
    /// Names the address and the limit.
    pub fn validate(&self) -> Result<(), ApiError> {
        if self.mac.is_group() || self.mac.is_zero() {
            return Err(ApiError::invalid(
                "mac",
                self.mac,
                "an individual address: first byte even, not all zero",
            ));
        }
        Ok(())
    }
}

/// Deletes one entry, static or learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FdbDel {
    /// The station's VLAN.
    #[serde(default)]
    pub vlan: Vid,
    /// The station's address.
    pub mac: MacAddr,
}

/// Forgets learned entries: all of them, or those of one port, one VLAN, or both.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FdbFlush {
    /// Only those behind this port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Only those of this VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vid>,
}

/// The answer to [`FdbFlush`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FdbFlushReply {
    /// How many entries were forgotten.
    pub flushed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_address_has_no_port() {
        let entry = |mac| FdbAdd { vlan: Vid::UNTAGGED, mac, port: "a".to_owned() };
        assert!(entry(MacAddr::BROADCAST).validate().is_err());
        assert!(entry(MacAddr([0; 6])).validate().is_err());
        assert_eq!(entry(MacAddr([2, 0, 0, 0, 0, 1])).validate(), Ok(()));
    }
}
