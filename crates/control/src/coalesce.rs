//! Interrupt moderation: how long calls of virtual machines' queues are held back, and interrupts of netdevs, in the words
//! of ethtool.

mod netdev;
pub mod stated;

pub use netdev::{CoalesceBy, CoalesceNetdev, CoalesceNetdevSetting, CoalesceSide, CoalesceValues};
pub use stated::CoalesceConfig;

use forebay_policy::moderation::Profile;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorCode};
use crate::words::words;

/// The most microseconds and the most packets that a call may be held back for.
pub const MOST: u32 = 65_535;

/// How the limits of a queue are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CoalescePolicy {
    /// The guest is called once a turn in which it got packets. A netdev is left as it is.
    #[default]
    Off,
    /// By `usecs` and `frames`, which do not change.
    Static,
    /// Linux's NetDIM: it climbs a table of five limits.
    Dim,
    /// Calls are held back for as long as that gains something; short messages are not.
    Adaptive,
    /// Of netdevs: the driver or device chooses by itself.
    Driver,
}

/// Where the limits of a queue are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CoalescePlace {
    /// By the worker that serves the queue, after each turn.
    #[default]
    Offload,
    /// By one thread for all queues, every 10 ms.
    Onload,
}

/// What becomes of the limits that a guest asks for (`ethtool -C` there).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CoalesceGuest {
    /// The policy keeps within them.
    #[default]
    Limits,
    /// They are in force instead of the policy's.
    Decides,
    /// They are answered and not obeyed.
    Ignored,
}

/// Which way a queue's packets go, seen from the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CoalesceDirection {
    /// To the guest.
    Rx,
    /// From the guest: calls say that its buffers are free again.
    Tx,
}

words!(CoalescePolicy: Off => "off", Static => "static", Dim => "dim", Adaptive => "adaptive",
    Driver => "driver");
words!(CoalescePlace: Offload => "offload", Onload => "onload");
words!(CoalesceGuest: Limits => "limits", Decides => "decides", Ignored => "ignored");
words!(CoalesceDirection: Rx => "rx", Tx => "tx");

/// What is set for one queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct CoalesceSetting {
    /// How its limits are chosen.
    pub policy: CoalescePolicy,
    /// Where they are chosen.
    #[serde(rename = "where")]
    pub place: CoalescePlace,
    /// What becomes of the limits that the guest asks for.
    pub guest: CoalesceGuest,
    /// Of policy `static`: microseconds after the first packet. 0 with any other policy.
    pub usecs: u32,
    /// Of policy `static`: packets. 0 with any other policy.
    pub frames: u32,
    /// Of policy `dim`: its table, as in `1,256,n_8,256,n_64,256,n_128,256,n_256,256,n`; empty: Linux's, and with any other
    /// policy.
    pub profile: String,
}

/// All queues of virtual machines whose calls can be moderated, and netdevs whose interrupts can be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct CoalesceShow {
    /// Each port that has such queues or netdevs.
    pub ports: Vec<CoalescePort>,
}

/// One port's queues, or its netdevs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct CoalescePort {
    /// The port's name.
    pub name: String,
    /// Queues of its virtual machine, whether the guest uses them or not.
    pub queues: Vec<CoalesceQueue>,
    /// Its netdevs.
    #[serde(default)]
    pub netdevs: Vec<CoalesceNetdev>,
}

/// One queue. Counts are since the port was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CoalesceQueue {
    /// Number of its pair.
    pub queue: u16,
    /// Which way its packets go.
    pub direction: CoalesceDirection,
    /// What is set.
    #[serde(flatten)]
    pub setting: CoalesceSetting,
    /// Microseconds in force; 0: no packet waits.
    pub usecs_now: u32,
    /// Packets in force; 0: no packet waits.
    pub frames_now: u32,
    /// Short messages are called for at once.
    pub spares_short: bool,
    /// Microseconds that the guest asked for, if it did.
    pub usecs_asked: Option<u32>,
    /// Packets that the guest asked for, if it did.
    pub frames_asked: Option<u32>,
    /// Times that the limits in force were changed.
    pub moves: u64,
    /// Packets shown to the guest, or taken from it.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Turns in which there were any: interrupts without moderation and without a guest that polls.
    pub turns: u64,
    /// Calls of the guest: its interrupts.
    pub interrupts: u64,
    /// Calls that were due and that the guest did not want.
    pub suppressed: u64,
    /// Turns that a later call served too.
    pub saved: u64,
    /// Calls that were due by time.
    #[serde(default)]
    pub timed: u64,
    /// Of these, those that came more than 50 µs too late, because the worker was busy or woke late.
    #[serde(default)]
    pub late: u64,
}

/// What may be changed; what isn't given stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CoalesceSet {
    /// Number of a pair; none: all pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u16>,
    /// One direction; none: both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<CoalesceDirection>,
    /// How limits are chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<CoalescePolicy>,
    /// Where limits are chosen.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub place: Option<CoalescePlace>,
    /// What becomes of the limits that the guest asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<CoalesceGuest>,
    /// Microseconds after the first packet, up to 65535; with policy `static`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usecs: Option<u32>,
    /// Packets, up to 65535; with policy `static`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u32>,
    /// Table in ethtool's notation; empty: Linux's; with policy `dim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

impl CoalesceSet {
    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        let Self { queue: _, direction: _, policy, place, guest, usecs, frames, profile } = self;
        policy.is_none()
            && place.is_none()
            && guest.is_none()
            && usecs.is_none()
            && frames.is_none()
            && profile.is_none()
    }

    /// What makes a queue that has its defaults obey `setting`.
    pub fn of(queue: u16, direction: CoalesceDirection, setting: &CoalesceSetting) -> Self {
        let CoalesceSetting { policy, place, guest, usecs, frames, profile } = setting.clone();
        let direction = Some(direction);
        let is_static = policy == CoalescePolicy::Static;
        Self {
            queue: Some(queue),
            direction,
            policy: Some(policy),
            place: Some(place),
            guest: Some(guest),
            usecs: is_static.then_some(usecs),
            frames: is_static.then_some(frames),
            profile: (policy == CoalescePolicy::Dim).then_some(profile),
        }
    }
}

impl CoalesceSet {
    /// Checks what is given against the policy that there is to be.
    fn check(&self, policy: CoalescePolicy) -> Result<(), ApiError> {
        for (field, value) in [("usecs", self.usecs), ("frames", self.frames)] {
            let Some(value) = value else { continue };
            if value > MOST {
                let error = ApiError::new(ErrorCode::InvalidValue, format!("`{field}` is too large"));
                let error = error.with_field(field);
                return Err(error.with_value(value).with_limit(MOST).with_remedy("give a smaller one"));
            }
            if policy != CoalescePolicy::Static {
                return Err(unused(field, policy, CoalescePolicy::Static));
            }
        }
        let Some(profile) = &self.profile else { return Ok(()) };
        if policy != CoalescePolicy::Dim {
            return Err(unused("profile", policy, CoalescePolicy::Dim));
        }
        check_profile(profile)
    }

    /// Checks the number of a pair against the pairs that a port has.
    ///
    /// # Errors
    /// There is no such pair.
    pub fn check_queue(&self, pairs: u16) -> Result<(), ApiError> {
        let Some(queue) = self.queue.filter(|queue| *queue >= pairs) else { return Ok(()) };
        let error = ApiError::new(ErrorCode::InvalidValue, "the port has no pair of queues with this number");
        let error = error
            .with_field("queue")
            .with_value(queue)
            .with_limit(format!("0 to {}", pairs.saturating_sub(1)));
        Err(error.with_remedy("leave it out for all pairs"))
    }
}

/// Names of Linux's tables; without a name it is the first.
pub const PROFILES: [&str; 2] = ["eqe", "cqe"];

/// The same text is a table in both directions, or in none.
fn check_profile(text: &str) -> Result<(), ApiError> {
    if text.is_empty() || PROFILES.contains(&text) {
        return Ok(());
    }
    let wrong = |error: forebay_policy::moderation::ProfileError| {
        let error = ApiError::new(ErrorCode::InvalidValue, error.to_string());
        error.with_field("profile").with_value(text.escape_debug())
    };
    Profile::default().edited(text).map(drop).map_err(wrong)
}

impl CoalesceSetting {
    /// The setting after a change. What the policy does not look at is forgotten.
    ///
    /// # Errors
    /// A value that it cannot have, or one that the policy does not look at.
    pub fn changed(&self, change: &CoalesceSet) -> Result<Self, ApiError> {
        let policy = change.policy.unwrap_or(self.policy);
        if policy == CoalescePolicy::Driver {
            let message = "a virtual machine's device is the switch, and has no driver here";
            let error = ApiError::new(ErrorCode::InvalidValue, message).with_field("policy");
            let error = error.with_value(policy).with_limit("off, static, dim, adaptive");
            return Err(error.with_remedy("give --policy adaptive"));
        }
        change.check(policy)?;
        let (is_static, is_dim) = (policy == CoalescePolicy::Static, policy == CoalescePolicy::Dim);
        let limit = |new: Option<u32>, before| if is_static { new.unwrap_or(before) } else { 0 };
        let profile = change.profile.as_ref().unwrap_or(&self.profile);
        Ok(Self {
            policy,
            place: change.place.unwrap_or(self.place),
            guest: change.guest.unwrap_or(self.guest),
            usecs: limit(change.usecs, self.usecs),
            frames: limit(change.frames, self.frames),
            profile: if is_dim { profile.clone() } else { String::new() },
        })
    }
}

/// A value that the policy does not look at.
fn unused(field: &str, policy: CoalescePolicy, user: CoalescePolicy) -> ApiError {
    let message = format!("policy {policy} chooses limits without {field}");
    let error = ApiError::new(ErrorCode::InvalidValue, message).with_field(field).with_value(policy);
    error.with_limit(user).with_remedy(format!("set policy {user} too"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(change: &CoalesceSet) -> Result<CoalesceSetting, ApiError> {
        CoalesceSetting::default().changed(change)
    }

    #[test]
    fn what_is_set_makes_a_new_queue_the_same() {
        for policy in
            [CoalescePolicy::Off, CoalescePolicy::Static, CoalescePolicy::Dim, CoalescePolicy::Adaptive]
        {
            let (is_static, is_dim) = (policy == CoalescePolicy::Static, policy == CoalescePolicy::Dim);
            let setting = CoalesceSetting {
                policy,
                place: CoalescePlace::Onload,
                guest: CoalesceGuest::Decides,
                usecs: if is_static { 8 } else { 0 },
                frames: if is_static { 64 } else { 0 },
                profile: if is_dim { "1,2,n_1,2,n_1,2,n_1,2,n_1,2,n".to_owned() } else { String::new() },
            };
            let change = CoalesceSet::of(1, CoalesceDirection::Tx, &setting);
            assert_eq!(changed(&change), Ok(setting));
        }
    }

    #[test]
    fn what_another_policy_looked_at_is_forgotten() {
        let with = |policy| CoalesceSet { policy: Some(policy), ..CoalesceSet::default() };
        let limits = CoalesceSet { usecs: Some(8), frames: Some(64), ..with(CoalescePolicy::Static) };
        let held = changed(&limits).unwrap();
        assert_eq!((held.usecs, held.frames), (8, 64));
        assert_eq!(held.changed(&with(CoalescePolicy::Off)), Ok(CoalesceSetting::default()));
    }

    #[test]
    fn a_value_that_cannot_be_or_that_nobody_looks_at_is_refused() {
        let with = |policy| CoalesceSet { policy: Some(policy), ..CoalesceSet::default() };
        let usecs = |policy, usecs| CoalesceSet { usecs: Some(usecs), ..with(policy) };
        assert!(changed(&usecs(CoalescePolicy::Static, MOST)).is_ok());
        let error = changed(&usecs(CoalescePolicy::Static, MOST + 1)).unwrap_err();
        assert!(error.to_string().contains("65535"), "{error}");
        assert!(changed(&usecs(CoalescePolicy::Dim, 8)).is_err());
        let profile = CoalesceSet { profile: Some(String::new()), ..with(CoalescePolicy::Static) };
        assert!(changed(&profile).is_err());
        assert!(changed(&with(CoalescePolicy::Driver)).is_err(), "there is none");
    }
}
