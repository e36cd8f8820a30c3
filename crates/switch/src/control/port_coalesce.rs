//! What a port holds of its netdevs' interrupt moderation.

use std::sync::Arc;

use forebay_control::ApiError;
use forebay_control::coalesce::{CoalesceDirection, CoalesceNetdevSetting, CoalescePolicy, CoalesceSet};

use super::netdev_side::NetdevSide;

/// In the order of settings and sides.
pub(super) const DIRECTIONS: [CoalesceDirection; 2] = [CoalesceDirection::Rx, CoalesceDirection::Tx];

/// What is set for a port's netdevs, by direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NetdevSettings(pub(super) [CoalesceNetdevSetting; 2]);

/// What a netdev is set to, by direction. When dropped, what was there before is put back.
#[derive(Default)]
pub(super) struct Sides(pub(super) [Option<Arc<NetdevSide>>; 2]);

impl Sides {
    /// The netdev is in another network namespace. Writes a file, so the control side's lock must be free.
    pub(super) fn leave_away(&self) {
        self.0.iter().flatten().for_each(|side| side.leave_away());
    }
}

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

    /// Why these settings are not in force at a netdev. Where both directions have the same, that is about those that the
    /// netdev takes limits for.
    pub(super) fn refused(&self, applied: [Result<(), ApiError>; 2]) -> Option<ApiError> {
        if self.0[0] == self.0[1] && applied.iter().any(Result::is_ok) {
            return None;
        }
        applied.into_iter().find_map(Result::err)
    }

    /// The settings after a change of some directions.
    ///
    /// # Errors
    /// A setting that cannot be.
    pub(super) fn changed(&self, change: &CoalesceSet, is_meant: [bool; 2]) -> Result<Self, ApiError> {
        let mut next = self.clone();
        for at in (0..DIRECTIONS.len()).filter(|at| is_meant[*at]) {
            next.0[at] = self.0[at].changed(change)?;
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
