//! What a port holds of its netdevs' interrupt moderation.

use std::sync::Arc;

use forebay_control::coalesce::{CoalesceDirection, CoalesceNetdevSetting, CoalescePolicy, CoalesceSet};
use forebay_control::{ApiError, ErrorCode};

use super::netdev_side::{NetdevSide, direction_of};
use super::port_calls::profile_of;

/// In the order of settings and sides.
pub(super) const DIRECTIONS: [CoalesceDirection; 2] = [CoalesceDirection::Rx, CoalesceDirection::Tx];

/// What is set for a port's netdevs, by direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NetdevSettings(pub(super) [CoalesceNetdevSetting; 2]);

/// What a netdev is set to, by direction. When dropped, what was there before is put back.
#[derive(Default)]
pub(super) struct Sides(pub(super) [Option<Arc<NetdevSide>>; 2]);

impl Drop for Sides {
    fn drop(&mut self) {
        self.0.iter().flatten().for_each(|side| side.close());
    }
}

impl NetdevSettings {
    /// Whether nothing is to be set.
    pub(super) fn is_off(&self) -> bool {
        self.0.iter().all(|setting| setting.policy == CoalescePolicy::Off)
    }

    /// The settings after a change of some directions.
    ///
    /// # Errors
    /// A setting that cannot be.
    pub(super) fn changed(&self, change: &CoalesceSet, is_meant: [bool; 2]) -> Result<Self, ApiError> {
        let mut next = self.clone();
        for (at, direction) in DIRECTIONS.into_iter().enumerate().filter(|(at, _)| is_meant[*at]) {
            let setting = self.0[at].changed(change)?;
            profile_of(&setting.profile, direction_of(direction)).map_err(|error| {
                let error = ApiError::new(ErrorCode::InvalidValue, error.to_string()).with_field("profile");
                error.with_value(&setting.profile)
            })?;
            next.0[at] = setting;
        }
        Ok(next)
    }

    /// What makes a new port's netdevs obey the same.
    pub(super) fn asked(&self) -> impl Iterator<Item = CoalesceSet> {
        let changed = DIRECTIONS.iter().zip(&self.0);
        let changed = changed.filter(|(_, setting)| **setting != CoalesceNetdevSetting::default());
        changed.map(|(direction, setting)| CoalesceSet::of_netdev(*direction, setting))
    }
}
