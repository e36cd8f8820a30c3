//! Interrupt moderation of netdevs: limits that their drivers take, or the kernel where a driver takes none.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{CoalesceDirection, CoalescePlace, CoalescePolicy, CoalesceSet};
use crate::error::{ApiError, ErrorCode};
use crate::id::IfIndex;
use crate::netdev_queue::NetdevNapi;
use crate::words::words;

/// Who takes the limits of a netdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CoalesceBy {
    /// Its driver, as `ethtool -C` sets it.
    Ethtool,
    /// The kernel, for its NAPI instances: `gro-flush-timeout` and `defer-hard-irqs`.
    Napi,
    /// Nobody.
    #[default]
    None,
}

words!(CoalesceBy: Ethtool => "ethtool", Napi => "napi", None => "none");

/// Interrupt coalescing of one direction of a netdev. What the driver does not have is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct CoalesceValues {
    /// Microseconds that an interrupt is delayed after a packet: `rx-usecs` or `tx-usecs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usecs: Option<u32>,
    /// Packets after which an interrupt is not delayed any more: `rx-frames` or `tx-frames`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u32>,
    /// The driver or device chooses limits by itself: `adaptive-rx` or `adaptive-tx`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<bool>,
}

impl CoalesceValues {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What is set for one direction of a port's netdevs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct CoalesceNetdevSetting {
    /// How its limits are chosen; `off`: they are as the switch found them.
    pub policy: CoalescePolicy,
    /// Of policy `static`: microseconds, if they are to be set.
    pub usecs: Option<u32>,
    /// Of policy `static`: packets, if they are to be set.
    pub frames: Option<u32>,
    /// Of policy `dim`: its table; empty: Linux's, and with any other policy.
    pub profile: String,
}

/// One direction of a netdev.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct CoalesceSide {
    /// What is set.
    #[serde(flatten)]
    pub setting: CoalesceNetdevSetting,
    /// What is in force. Left out is what cannot be set.
    pub now: CoalesceValues,
    /// Times that a policy changed the limits.
    pub moves: u64,
    /// Packets that the policy has seen.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Interrupts that the policy has seen; none: nobody counts them.
    pub interrupts: Option<u64>,
    /// Why what is set is not in force, or else empty.
    pub problem: String,
}

/// Interrupt moderation of one netdev of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct CoalesceNetdev {
    /// Its name.
    pub netdev: String,
    /// Its number.
    pub ifindex: IfIndex,
    /// Who takes its limits.
    pub by: CoalesceBy,
    /// Packets that it receives.
    pub rx: CoalesceSide,
    /// Packets that it sends.
    pub tx: CoalesceSide,
    /// Its NAPI instances.
    pub napis: Vec<NetdevNapi>,
}

impl CoalesceSet {
    /// What makes a port whose netdevs have their defaults obey `setting`.
    pub fn of_netdev(direction: CoalesceDirection, setting: &CoalesceNetdevSetting) -> Self {
        let CoalesceNetdevSetting { policy, usecs, frames, profile } = setting.clone();
        let profile = (policy == CoalescePolicy::Dim).then_some(profile);
        Self { direction: Some(direction), policy: Some(policy), usecs, frames, profile, ..Self::default() }
    }

    /// Whether it is about this direction.
    pub fn is_about(&self, direction: CoalesceDirection) -> bool {
        self.direction.is_none_or(|only| only == direction)
    }
}

impl CoalesceNetdevSetting {
    /// The setting after a change. What the policy does not look at is forgotten.
    ///
    /// # Errors
    /// A value that it cannot have, one that the policy does not look at, or one that only virtual machines have.
    pub fn changed(&self, change: &CoalesceSet) -> Result<Self, ApiError> {
        refuse_what_guests_have(change)?;
        let policy = change.policy.unwrap_or(self.policy);
        change.check(policy)?;
        let (is_static, is_dim) = (policy == CoalescePolicy::Static, policy == CoalescePolicy::Dim);
        let profile = change.profile.as_ref().unwrap_or(&self.profile);
        let setting = Self {
            policy,
            usecs: change.usecs.or(self.usecs).filter(|_| is_static),
            frames: change.frames.or(self.frames).filter(|_| is_static),
            profile: if is_dim { profile.clone() } else { String::new() },
        };
        match (setting.usecs, setting.frames) {
            (None, None) if is_static => Err(invalid("usecs", "policy static sets nothing")
                .with_value("-")
                .with_limit("0 to 65535")
                .with_remedy("give --usecs, --frames or both")),
            (Some(0), Some(0)) => Err(invalid("frames", "without a time and a number there is no interrupt")
                .with_value(0)
                .with_limit("1 to 65535")
                .with_remedy("an interrupt for each packet: --usecs 0 --frames 1")),
            _ => Ok(setting),
        }
    }
}

fn refuse_what_guests_have(change: &CoalesceSet) -> Result<(), ApiError> {
    if change.place == Some(CoalescePlace::Offload) {
        let error = invalid("where", "a netdev's interrupts are its driver's, and no worker's");
        let remedy = "give --where onload, or --policy driver, if the driver can choose limits by itself";
        return Err(error.with_value("offload").with_limit("onload").with_remedy(remedy));
    }
    if let Some(guest) = change.guest {
        let error = invalid("guest", "a netdev has no guest that asks for limits");
        return Err(error.with_value(guest).with_limit("virtual machines").with_remedy("leave --guest out"));
    }
    if let Some(queue) = change.queue {
        let error = invalid("queue", "all queues of a netdev are moderated alike");
        return Err(error
            .with_value(queue)
            .with_limit("queues of virtual machines")
            .with_remedy("leave --queue out"));
    }
    Ok(())
}

fn invalid(field: &str, message: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidValue, message).with_field(field)
}

#[cfg(test)]
mod tests {
    use super::super::CoalesceGuest;
    use super::*;

    fn with(policy: CoalescePolicy) -> CoalesceSet {
        CoalesceSet { policy: Some(policy), ..CoalesceSet::default() }
    }

    fn changed(change: &CoalesceSet) -> Result<CoalesceNetdevSetting, ApiError> {
        CoalesceNetdevSetting::default().changed(change)
    }

    #[test]
    fn what_is_set_makes_a_new_netdev_the_same() {
        let table = "1,2,n_1,2,n_1,2,n_1,2,n_1,2,n".to_owned();
        let plain = |policy| CoalesceNetdevSetting { policy, ..Default::default() };
        for setting in [
            plain(CoalescePolicy::Off),
            plain(CoalescePolicy::Adaptive),
            plain(CoalescePolicy::Driver),
            CoalesceNetdevSetting { frames: Some(0), ..plain(CoalescePolicy::Static) }.with_usecs(8),
            CoalesceNetdevSetting { frames: Some(8), ..plain(CoalescePolicy::Static) },
            CoalesceNetdevSetting { profile: table, ..plain(CoalescePolicy::Dim) },
        ] {
            let change = CoalesceSet::of_netdev(CoalesceDirection::Tx, &setting);
            assert!(change.is_about(CoalesceDirection::Tx) && !change.is_about(CoalesceDirection::Rx));
            assert_eq!(changed(&change), Ok(setting));
        }
    }

    impl CoalesceNetdevSetting {
        fn with_usecs(self, usecs: u32) -> Self {
            Self { usecs: Some(usecs), ..self }
        }
    }

    #[test]
    fn what_only_guests_have_is_refused_with_the_way_out() {
        let offload = CoalesceSet { place: Some(CoalescePlace::Offload), ..with(CoalescePolicy::Dim) };
        let guest = CoalesceSet { guest: Some(CoalesceGuest::Ignored), ..with(CoalescePolicy::Dim) };
        let queue = CoalesceSet { queue: Some(1), ..with(CoalescePolicy::Dim) };
        for (change, way_out) in
            [(offload, "--where onload"), (guest, "leave --guest out"), (queue, "leave --queue out")]
        {
            let error = changed(&change).unwrap_err().to_string();
            assert!(error.contains(way_out), "{error}");
        }
        let onload = CoalesceSet { place: Some(CoalescePlace::Onload), ..with(CoalescePolicy::Dim) };
        assert!(changed(&onload).is_ok());
    }

    #[test]
    fn fixed_limits_are_some_and_allow_interrupts() {
        let limits = |usecs, frames| CoalesceSet { usecs, frames, ..with(CoalescePolicy::Static) };
        assert!(changed(&limits(None, None)).is_err());
        assert!(changed(&limits(Some(0), Some(0))).is_err());
        let one = changed(&limits(Some(0), Some(1))).unwrap();
        let both = one.changed(&CoalesceSet { usecs: Some(65_535), ..CoalesceSet::default() }).unwrap();
        assert_eq!((both.usecs, both.frames), (Some(65_535), Some(1)), "what is not given stays");
        assert!(changed(&limits(Some(65_536), None)).unwrap_err().to_string().contains("65535"));
        assert_eq!(both.changed(&with(CoalescePolicy::Off)), Ok(CoalesceNetdevSetting::default()));
    }
}
