//! What was asked for the table by which a group's packets go to workers.

use forebay_control::rss::{RSS_SLOTS, RssSet, RssSteering};
use forebay_policy::part_slots;

/// What was asked for a group's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rss {
    pub(super) steering: RssSteering,
    spread: Spread,
}

/// The parts that channels have of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Spread {
    /// Equal ones.
    #[default]
    All,
    /// Equal ones, of the first so many.
    First(u32),
    Weights(Vec<u32>),
}

impl Rss {
    pub(super) fn changed(&self, change: &RssSet) -> Self {
        let spread = match (change.equal, &change.weights) {
            (Some(0), _) => Spread::All,
            (Some(first), _) => Spread::First(first),
            (None, Some(weights)) => Spread::Weights(weights.clone()),
            (None, None) => self.spread.clone(),
        };
        Self { steering: change.steering.unwrap_or(self.steering), spread }
    }

    /// The request that leads from the default to this.
    pub(super) fn asked(&self) -> RssSet {
        let mut asked = RssSet {
            steering: (self.steering != RssSteering::default()).then_some(self.steering),
            ..RssSet::default()
        };
        match &self.spread {
            Spread::All => {}
            Spread::First(first) => asked.equal = Some(*first),
            Spread::Weights(weights) => asked.weights = Some(weights.clone()),
        }
        asked
    }

    /// The channel of each slot. Members that are there may have fewer channels than when it was asked for.
    pub(super) fn table(&self, channels: usize) -> Vec<usize> {
        let mut weights = match &self.spread {
            Spread::All => vec![1; channels],
            Spread::First(first) => vec![1; channels.min(*first as usize)],
            Spread::Weights(weights) => weights.clone(),
        };
        weights.resize(channels, 0);
        part_slots(RSS_SLOTS, &weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_leads_to_the_same_again() {
        let asked = |change: RssSet| Rss::default().changed(&change).asked();
        for change in [
            RssSet::default(),
            RssSet { equal: Some(2), ..RssSet::default() },
            RssSet { weights: Some(vec![3, 1]), steering: Some(RssSteering::Hash), ..RssSet::default() },
        ] {
            assert_eq!(asked(change.clone()), change);
        }
        assert_eq!(asked(RssSet { equal: Some(0), ..RssSet::default() }), RssSet::default());
    }

    #[test]
    fn channels_without_a_weight_have_no_slot_and_all_have_some_when_those_with_one_are_gone() {
        let weights = |weights: &[u32]| {
            Rss::default().changed(&RssSet { weights: Some(weights.to_vec()), ..RssSet::default() })
        };
        assert!(weights(&[0, 1]).table(4).iter().all(|channel| *channel == 1));
        let table = weights(&[0, 0, 1]).table(2);
        assert_eq!(table.iter().filter(|channel| **channel == 0).count(), RSS_SLOTS / 2);
    }
}
