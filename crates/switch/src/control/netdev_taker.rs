//! Who takes the limits of a netdev: its driver, or the kernel for its NAPI instances; and which.

use forebay_control::coalesce::{CoalesceBy, CoalesceDirection, CoalescePolicy, CoalesceValues};
use forebay_control::netdev_queue::NetdevNapi;
use forebay_control::{ApiError, ErrorCode, IfIndex};
use forebay_kernel::netlink::coalesce::{self, Coalescing, Deferral};
use forebay_kernel::netlink::netdev_genl;
use forebay_policy::moderation::Limits;

use super::tunable::{Parts, Tunable, text_of, text_of_deferral};

/// A netdev, and who takes its limits.
#[derive(Debug, Default)]
pub(super) struct Taker {
    pub(super) by: CoalesceBy,
    pub(super) coalescing: Coalescing,
    pub(super) napis: Vec<NetdevNapi>,
}

impl Taker {
    /// Asks the kernel. Not knowing is nobody.
    pub(super) fn of(ifindex: IfIndex) -> Self {
        let coalescing = coalesce::coalescing(ifindex).unwrap_or_default();
        let napis = netdev_genl::napis(ifindex).unwrap_or_default();
        // Kernels that have no napi-set do not tell it (6.13).
        let is_settable = |napi: &NetdevNapi| napi.gro_flush_timeout.is_some();
        let by = match coalescing == Coalescing::default() {
            false => CoalesceBy::Ethtool,
            true if napis.iter().any(is_settable) => CoalesceBy::Napi,
            true => CoalesceBy::None,
        };
        Self { by, coalescing, napis }
    }

    /// What one direction takes. A NAPI instance has one setting, which counts as that of what comes in.
    pub(super) fn values(&self, direction: CoalesceDirection) -> CoalesceValues {
        match (self.by, direction) {
            (CoalesceBy::Ethtool, _) => self.coalescing.of(direction),
            (CoalesceBy::Napi, CoalesceDirection::Rx) => {
                let timeouts = self.napis.iter().filter_map(|napi| napi.gro_flush_timeout);
                let usecs = timeouts.max().map(|nanos| u32::try_from(nanos / 1000).unwrap_or(u32::MAX));
                CoalesceValues { usecs, ..CoalesceValues::default() }
            }
            (CoalesceBy::Napi, CoalesceDirection::Tx) | (CoalesceBy::None, _) => CoalesceValues::default(),
        }
    }

    /// Refuses what a direction of the netdev does not take, by its name.
    ///
    /// # Errors
    /// What that is.
    pub(super) fn check(
        &self,
        (netdev, direction): (&str, CoalesceDirection),
        policy: CoalescePolicy,
        asked: &CoalesceValues,
    ) -> Result<(), ApiError> {
        let refuse = |field: &str, value: String, message: String| {
            let error = ApiError::new(ErrorCode::NotSupported, message);
            error.with_field(field).with_value(value)
        };
        let offered = self.values(direction);
        if offered.is_empty() {
            let error = refuse(
                "policy",
                policy.to_string(),
                format!("nobody takes limits for {direction} of `{netdev}`"),
            );
            return Err(match self.by {
                CoalesceBy::None => error.with_limit("a driver with coalescing, or NAPI on Linux 6.13").with_remedy(
                    format!("`ethtool -c {netdev}` shows what its driver has; a veth has NAPI after ethtool -K {netdev} gro on"),
                ),
                _ => error.with_limit(other(direction)).with_remedy(format!("give --{}", other(direction))),
            });
        }
        let is_napi = self.by == CoalesceBy::Napi;
        let has = [
            ("usecs", asked.usecs.map(|usecs| usecs.to_string()), offered.usecs.is_some()),
            // It sets how many polls find nothing.
            ("frames", asked.frames.map(|frames| frames.to_string()), offered.frames.is_some() || is_napi),
            ("adaptive", asked.adaptive.map(|_| policy.to_string()), offered.adaptive.is_some()),
        ];
        for (word, value, is_taken) in has {
            let Some(value) = value.filter(|_| !is_taken) else { continue };
            let is_policy = policy != CoalescePolicy::Static;
            let field = if is_policy { "policy" } else { word };
            let message = format!("`{netdev}` takes no {}", ethtools(direction, word));
            let error = refuse(field, if is_policy { policy.to_string() } else { value }, message);
            let remedy = if is_policy {
                "give --policy static with what it takes"
            } else {
                "leave it out, or give one direction: --rx or --tx"
            };
            return Err(error.with_limit(words(direction, &offered)).with_remedy(remedy));
        }
        if is_napi && policy == CoalescePolicy::Static && asked.usecs.is_none() {
            let message = format!("NAPI instances of `{netdev}` have no limit for packets without a time");
            let error = refuse("frames", asked.frames.unwrap_or_default().to_string(), message);
            return Err(error.with_limit("usecs, or usecs and frames").with_remedy("give --usecs too"));
        }
        Ok(())
    }

    /// The settings that `wanted` takes, each with its value.
    pub(super) fn texts(
        &self,
        ifindex: IfIndex,
        direction: CoalesceDirection,
        wanted: Wanted,
    ) -> Vec<(Tunable, String)> {
        let values = match (wanted, self.by) {
            (_, CoalesceBy::None) => return Vec::new(),
            (Wanted::Limits(limits), CoalesceBy::Napi) => {
                let napi = limits.of_napi();
                let deferral = Deferral {
                    gro_flush_timeout: napi.gro_flush_timeout_ns,
                    defer_hard_irqs: napi.defer_hard_irqs,
                };
                let text = text_of_deferral(deferral);
                let instances = self.napis.iter().map(|napi| Tunable::Napi { ifindex, id: napi.id });
                return instances.map(|tunable| (tunable, text.clone())).collect();
            }
            (Wanted::Limits(limits), _) => by_limits(limits, &self.values(direction)),
            (Wanted::Values(values), _) => with_adaptive_off(values, &self.values(direction)),
        };
        let parts = Parts::of(&values);
        vec![(Tunable::Coalesce { ifindex, direction, parts }, text_of(&values))]
    }
}

/// What a netdev is to obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Values(CoalesceValues),
    Limits(Limits),
}

/// The words of what a direction takes.
fn words(direction: CoalesceDirection, offered: &CoalesceValues) -> String {
    let CoalesceValues { usecs, frames, adaptive } = offered;
    let all = [("usecs", usecs.is_some()), ("frames", frames.is_some()), ("adaptive", adaptive.is_some())];
    let words = all.iter().filter(|(_, is_taken)| *is_taken).map(|(word, _)| ethtools(direction, word));
    words.collect::<Vec<_>>().join(", ")
}

fn ethtools(direction: CoalesceDirection, word: &str) -> String {
    if word == "adaptive" { format!("{word}-{direction}") } else { format!("{direction}-{word}") }
}

fn other(direction: CoalesceDirection) -> CoalesceDirection {
    match direction {
        CoalesceDirection::Rx => CoalesceDirection::Tx,
        CoalesceDirection::Tx => CoalesceDirection::Rx,
    }
}

/// Limits of a policy for a driver that takes what is `offered`.
fn by_limits(limits: Limits, offered: &CoalesceValues) -> CoalesceValues {
    // Neither time nor number would be no interrupt at all (include/uapi/linux/ethtool.h).
    let (usecs, frames) = if limits.holds() { (limits.usecs, limits.packets) } else { (0, 1) };
    let values = CoalesceValues {
        usecs: offered.usecs.map(|_| usecs),
        frames: offered.frames.map(|_| frames),
        adaptive: None,
    };
    with_adaptive_off(values, offered)
}

/// A driver that chooses by itself would not obey limits.
fn with_adaptive_off(values: CoalesceValues, offered: &CoalesceValues) -> CoalesceValues {
    CoalesceValues { adaptive: values.adaptive.or(offered.adaptive.map(|_| false)), ..values }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: CoalesceValues = CoalesceValues { usecs: Some(3), frames: Some(9), adaptive: Some(true) };

    #[test]
    fn a_policys_limits_are_what_a_driver_takes_and_never_no_interrupt() {
        let limits = Limits { usecs: 64, packets: 32 };
        let expected = CoalesceValues { usecs: Some(64), frames: Some(32), adaptive: Some(false) };
        assert_eq!(by_limits(limits, &ALL), expected);
        let time_alone = CoalesceValues { usecs: Some(3), ..CoalesceValues::default() };
        assert_eq!(by_limits(limits, &time_alone), CoalesceValues { usecs: Some(64), ..time_alone });
        let off = by_limits(Limits::OFF, &ALL);
        assert_eq!((off.usecs, off.frames), (Some(0), Some(1)));
    }

    #[test]
    fn a_driver_that_chooses_by_itself_is_told_not_to_unless_that_is_asked_for() {
        let driver = CoalesceValues { adaptive: Some(true), ..CoalesceValues::default() };
        assert_eq!(with_adaptive_off(driver, &ALL), driver);
        let usecs = CoalesceValues { usecs: Some(8), ..CoalesceValues::default() };
        assert_eq!(with_adaptive_off(usecs, &ALL).adaptive, Some(false));
        assert_eq!(with_adaptive_off(usecs, &usecs), usecs);
    }

    #[test]
    fn what_a_direction_takes_has_ethtools_words() {
        assert_eq!(words(CoalesceDirection::Tx, &ALL), "tx-usecs, tx-frames, adaptive-tx");
    }
}
