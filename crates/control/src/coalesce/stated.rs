//! Moderation that a configuration file or a request for a port states: a list of changes to what a port begins with, in
//! the words of `forebay coalesce set`.
//!
//! The rule it keeps: a list says all. A port's settings are those that the list makes out of the defaults, whatever they
//! were before.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::netdev::CoalesceNetdevSetting;
use super::{CoalesceDirection, CoalescePolicy, CoalesceSet, CoalesceSetting};
use crate::error::ApiError;
use crate::vhost_user::MAX_QUEUE_PAIRS;

/// Most members of a list: one for each queue that a port can have, and as many again.
pub const MAX_STATED: usize = 4 * MAX_QUEUE_PAIRS as usize;

/// In the order of settings.
const DIRECTIONS: [CoalesceDirection; 2] = [CoalesceDirection::Rx, CoalesceDirection::Tx];

/// `[coalesce]`: moderation of ports that state none themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoalesceConfig {
    /// Of virtual machines' queues.
    #[serde(deserialize_with = "one_or_many")]
    pub guests: Vec<CoalesceSet>,
    /// Of netdevs, for each direction that a netdev takes limits for.
    #[serde(deserialize_with = "one_or_many")]
    pub netdevs: Vec<CoalesceSet>,
}

impl Default for CoalesceConfig {
    fn default() -> Self {
        let off = || vec![CoalesceSet { policy: Some(CoalescePolicy::Off), ..CoalesceSet::default() }];
        Self { guests: off(), netdevs: off() }
    }
}

impl CoalesceConfig {
    /// Checks both lists.
    ///
    /// # Errors
    /// The first member that cannot be, and the key of its list.
    pub fn check(&self) -> Result<(), (&'static str, StatedError)> {
        let numbered = self.guests.iter().position(|change| change.queue.is_some());
        if let Some(index) = numbered {
            let error = ApiError::invalid("queue", "a number", "none, because ports differ in their queues");
            let error = error.with_remedy("state it at the port");
            return Err(("guests", StatedError { index, error }));
        }
        check(&self.guests, Some(1)).map_err(|wrong| ("guests", wrong))?;
        check(&self.netdevs, None).map_err(|wrong| ("netdevs", wrong))
    }
}

/// A member of a list that cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedError {
    /// Where it is in the list, from 0.
    pub index: usize,
    /// Why it cannot be.
    pub error: ApiError,
}

/// Settings of a guest's queues: receive and transmit queue of each pair in turn.
///
/// What cannot be changes nothing, and is told.
pub fn of_guest(stated: &[CoalesceSet], pairs: u16) -> (Vec<CoalesceSetting>, Vec<StatedError>) {
    let mut settings = vec![CoalesceSetting::default(); 2 * usize::from(pairs)];
    let errors = fold(stated, |change| {
        change.check_queue(pairs)?;
        let is_meant = |index: usize| {
            change.queue.is_none_or(|only| usize::from(only) == index / 2)
                && change.is_about(DIRECTIONS[index % 2])
        };
        let mut next = settings.clone();
        for (index, setting) in next.iter_mut().enumerate().filter(|(index, _)| is_meant(*index)) {
            *setting = settings[index].changed(change)?;
        }
        settings = next;
        Ok(())
    });
    (settings, errors)
}

/// Settings of a port's netdevs, for what they receive and what they send.
///
/// What cannot be changes nothing, and is told.
pub fn of_netdevs(stated: &[CoalesceSet]) -> ([CoalesceNetdevSetting; 2], Vec<StatedError>) {
    let mut settings = [CoalesceNetdevSetting::default(), CoalesceNetdevSetting::default()];
    let errors = fold(stated, |change| {
        let mut next = settings.clone();
        let meant = DIRECTIONS.iter().enumerate().filter(|(_, direction)| change.is_about(**direction));
        for (at, _) in meant {
            next[at] = settings[at].changed(change)?;
        }
        settings = next;
        Ok(())
    });
    (settings, errors)
}

/// Checks a list against what a port with this many pairs of queues can have, or against netdevs.
///
/// # Errors
/// The first member that cannot be.
pub fn check(stated: &[CoalesceSet], pairs: Option<u16>) -> Result<(), StatedError> {
    if stated.len() > MAX_STATED {
        let error = ApiError::invalid("coalesce", format!("{} members", stated.len()), MAX_STATED);
        let error = error.with_remedy("state several queues at once: leave queue or direction out");
        return Err(StatedError { index: MAX_STATED, error });
    }
    let errors = match pairs {
        Some(pairs) => of_guest(stated, pairs).1,
        None => of_netdevs(stated).1,
    };
    errors.into_iter().next().map_or(Ok(()), Err)
}

fn fold(
    stated: &[CoalesceSet],
    mut take: impl FnMut(&CoalesceSet) -> Result<(), ApiError>,
) -> Vec<StatedError> {
    let take = |(index, change): (usize, &CoalesceSet)| {
        let empty = change.is_empty().then(nothing_stated);
        let error = empty.or_else(|| take(change).err())?;
        Some(StatedError { index, error: without_dashes(error) })
    };
    stated.iter().enumerate().filter_map(take).collect()
}

fn nothing_stated() -> ApiError {
    ApiError::invalid("policy", "nothing", "policy, where, guest, usecs, frames, profile")
        .with_remedy("give one of them, or leave all of it out")
}

/// A way out is said in words of the command line, and a file has the same words without dashes.
fn without_dashes(mut error: ApiError) -> ApiError {
    error.remedy = error.remedy.map(|remedy| remedy.replace("--", "").into());
    error
}

/// Reads one table, or a list of them.
pub(crate) fn one_or_many<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<CoalesceSet>, D::Error> {
    value.deserialize_any(OneOrMany)
}

/// As [`one_or_many`], of what may be left out.
pub(crate) fn some_one_or_many<'de, D: Deserializer<'de>>(
    value: D,
) -> Result<Option<Vec<CoalesceSet>>, D::Error> {
    one_or_many(value).map(Some)
}

struct OneOrMany;

impl<'de> Visitor<'de> for OneOrMany {
    type Value = Vec<CoalesceSet>;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("a table as in { policy = \"adaptive\" }, or a list of such tables")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        CoalesceSet::deserialize(MapAccessDeserializer::new(map)).map(|one| vec![one])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CoalesceGuest, CoalescePlace};
    use super::*;

    fn read(text: &str) -> Vec<CoalesceSet> {
        one_or_many(&mut serde_json::Deserializer::from_str(text)).unwrap()
    }

    #[test]
    fn a_later_member_changes_what_an_earlier_one_set() {
        let stated = read(
            r#"[{"policy":"static","usecs":8,"frames":64,"guest":"ignored"},
                {"queue":1,"direction":"tx","policy":"adaptive","where":"onload"}, {"direction":"rx","usecs":9}]"#,
        );
        let (settings, errors) = of_guest(&stated, 2);
        let held = |usecs| CoalesceSetting {
            policy: CoalescePolicy::Static,
            guest: CoalesceGuest::Ignored,
            usecs,
            frames: 64,
            ..CoalesceSetting::default()
        };
        let last = CoalesceSetting {
            policy: CoalescePolicy::Adaptive,
            place: CoalescePlace::Onload,
            guest: CoalesceGuest::Ignored,
            ..CoalesceSetting::default()
        };
        assert_eq!((settings, errors), (vec![held(9), held(8), held(9), last], vec![]));
    }

    #[test]
    fn one_table_is_a_list_of_one() {
        assert_eq!(read(r#"{"policy":"dim"}"#), read(r#"[{"policy":"dim"}]"#));
        let ([rx, tx], errors) = of_netdevs(&read(r#"{"policy":"driver"}"#));
        assert_eq!((rx.policy, tx.policy, errors), (CoalescePolicy::Driver, CoalescePolicy::Driver, vec![]));
    }

    #[test]
    fn what_cannot_be_is_told_with_its_place_and_costs_only_itself() {
        let stated = read(
            r#"[{"policy":"static","usecs":8}, {"policy":"dim","usecs":9}, {"queue":2,"policy":"off"}, {}]"#,
        );
        let (settings, errors) = of_guest(&stated, 2);
        assert_eq!(errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(settings.iter().all(|setting| setting.usecs == 8), "{settings:?}");
        assert_eq!(check(&stated, Some(2)).unwrap_err(), errors[0]);
        let offload =
            check(&read(r#"{"policy":"dim","where":"offload"}"#), None).unwrap_err().error.to_string();
        assert!(
            offload
                .ends_with("give where onload, or policy driver, if the driver can choose limits by itself"),
            "{offload}"
        );
        assert!(check(&vec![CoalesceSet::default(); MAX_STATED + 1], None).is_err());
        let bad = r#"{"policy":"dim","profile":"fast"}"#;
        assert!(check(&read(bad), None).is_err() && check(&read(bad), Some(1)).is_err());
    }
}
