//! Which worker takes a packet of a port with several members: receive-side scaling as NICs have it, in the switch.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorCode};
use crate::words::words;

/// Hashes that a table tells apart, as many as NICs often have.
pub const RSS_SLOTS: usize = 128;

/// Most channels that a request may name: a hash leads to one of them.
pub const MAX_CHANNELS: u32 = RSS_SLOTS as u32;

/// Largest weight of a channel.
pub const MAX_WEIGHT: u32 = 1000;

/// What a packet's worker is chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RssSteering {
    /// By where the packet leaves: the worker that serves that port takes it, once a first packet has found out. Before that,
    /// and for packets to many, by the table.
    #[default]
    Output,
    /// By the table alone.
    Hash,
}

words!(RssSteering: Output => "output", Hash => "hash");

/// How the packets of one port are spread.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct RssShow {
    /// The port's name.
    pub name: String,
    /// What a packet's worker is chosen by.
    pub steering: RssSteering,
    /// The port's channels.
    pub channels: Vec<RssChannel>,
    /// The channel of each hash of source and destination address.
    pub table: Vec<u32>,
    /// Packets forwarded to one port that a worker serves.
    pub steered_packets: u64,
    /// Of these, packets that another worker had.
    pub away_packets: u64,
    /// Of these, packets whose worker is on another NUMA node than the one that serves their output.
    pub across_packets: u64,
    /// Packets that came in by its members and that flows of the kernel did not carry: they are for workers.
    pub slow_path_packets: u64,
    /// Of these, packets that came in by a member on another NUMA node than the worker's.
    pub far_packets: u64,
}

/// One channel in the table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct RssChannel {
    /// Its number.
    pub channel: u32,
    /// The worker that takes its packets, on the NUMA node of its member if there is one.
    pub worker: u32,
    /// Hashes of the table that lead to it.
    pub slots: u32,
}

/// What may be changed of it; what isn't given stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RssSet {
    /// What a packet's worker is chosen by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steering: Option<RssSteering>,
    /// The first so many channels have equal parts of the table; 0: all have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equal: Option<u32>,
    /// The first channels have parts of the table like these numbers, from 0 to 1000; those behind have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Vec<u32>>,
}

impl RssSet {
    /// Refuses what no port could have; `channels` is how many this one has.
    ///
    /// # Errors
    /// With the value, the limit and the way out.
    pub fn check(&self, channels: u32) -> Result<(), ApiError> {
        let refuse = |field: &'static str, message: String, limit: String| {
            let error = ApiError::new(ErrorCode::InvalidValue, message);
            Err(error
                .with_field(field)
                .with_limit(limit)
                .with_remedy("`forebay rss show` lists the channels"))
        };
        if self.equal.is_some() && self.weights.is_some() {
            return refuse(
                "weights",
                "equal parts and weights exclude each other".to_owned(),
                "one".to_owned(),
            );
        }
        if let Some(equal) = self.equal.filter(|equal| *equal > channels) {
            let message = format!("the port has {channels} channels, not {equal}");
            return refuse("equal", message, format!("0 to {channels}"));
        }
        let Some(weights) = &self.weights else { return Ok(()) };
        if weights.len() > channels as usize {
            let message = format!("{} weights for {channels} channels", weights.len());
            return refuse("weights", message, format!("{channels} weights"));
        }
        if let Some(weight) = weights.iter().find(|weight| **weight > MAX_WEIGHT) {
            return refuse("weights", format!("a weight of {weight}"), format!("0 to {MAX_WEIGHT}"));
        }
        if weights.iter().all(|weight| *weight == 0) {
            return refuse("weights", "no channel has a weight".to_owned(), "one of them above 0".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_port_could_have_is_refused() {
        let equal = |equal| RssSet { equal: Some(equal), ..RssSet::default() };
        let weights = |weights: &[u32]| RssSet { weights: Some(weights.to_vec()), ..RssSet::default() };
        for good in [equal(0), equal(4), weights(&[1]), weights(&[0, 0, 0, 1000])] {
            assert_eq!(good.check(4), Ok(()));
        }
        let both = RssSet { weights: Some(vec![1]), ..equal(1) };
        for bad in [equal(5), weights(&[]), weights(&[0, 0]), weights(&[1; 5]), weights(&[1001]), both] {
            assert_eq!(bad.check(4).map_err(|error| error.code), Err(ErrorCode::InvalidValue), "{bad:?}");
        }
    }
}
