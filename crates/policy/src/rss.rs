//! Which channel has which part of a table of hashes, and which worker takes a channel's packets.

/// The channel of each of `slots` hashes, in parts like the weights. Channels take turns, so that equal weights go round. A
/// channel without a weight has none; if no channel has one, all have the same.
pub fn part_slots(slots: usize, weights: &[u32]) -> Vec<usize> {
    let equal = vec![1; weights.len().max(1)];
    let weights = if weights.iter().all(|weight| *weight == 0) { &equal } else { weights };
    let total: i64 = weights.iter().map(|weight| i64::from(*weight)).sum();
    // The channel that is furthest behind its part comes next.
    let mut behind = vec![0i64; weights.len()];
    let mut next = || {
        for (behind, weight) in behind.iter_mut().zip(weights) {
            *behind += i64::from(*weight);
        }
        let most = behind.iter().copied().max().unwrap_or(0);
        let channel = behind.iter().position(|behind| *behind == most).unwrap_or(0);
        behind[channel] -= total;
        channel
    };
    (0..slots).map(|_| next()).collect()
}

/// The worker of each channel: those on the channel's node take turns, or all where none is there. Nodes are numbers of any
/// kind; `None` is a node that nobody knows.
///
/// # Panics
/// Without workers.
pub fn workers_of_channels(channels: &[Option<u32>], workers: &[Option<u32>]) -> Vec<usize> {
    let near = |node: Option<u32>| {
        let there: Vec<usize> =
            (0..workers.len()).filter(|worker| node.is_some() && workers[*worker] == node).collect();
        if there.is_empty() { (0..workers.len()).collect() } else { there }
    };
    let mut taken: Vec<(Vec<usize>, usize)> = Vec::new();
    let mut take = |node: Option<u32>| {
        let candidates = near(node);
        let at = taken.iter().position(|(known, _)| *known == candidates).unwrap_or_else(|| {
            taken.push((candidates, 0));
            taken.len() - 1
        });
        let (candidates, turn) = &mut taken[at];
        *turn += 1;
        candidates[(*turn - 1) % candidates.len()]
    };
    channels.iter().map(|node| take(*node)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_weights_go_round_and_others_take_turns() {
        assert_eq!(part_slots(6, &[1, 1, 1]), [0, 1, 2, 0, 1, 2]);
        assert_eq!(part_slots(8, &[3, 1]), [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(part_slots(4, &[0, 1]), [1, 1, 1, 1]);
        assert_eq!(part_slots(4, &[0, 0]), [0, 1, 0, 1]);
        assert_eq!(part_slots(2, &[]), [0, 0]);
    }

    #[test]
    fn channels_go_to_workers_of_their_node_in_turn() {
        let nodes = |nodes: &[u32]| nodes.iter().copied().map(Some).collect::<Vec<_>>();
        let channels = nodes(&[0, 1, 0, 1, 0, 1]);
        assert_eq!(workers_of_channels(&channels, &nodes(&[0, 0, 1, 1])), [0, 2, 1, 3, 0, 2]);
        // Nobody is on node 1.
        assert_eq!(workers_of_channels(&channels, &nodes(&[0, 0])), [0, 1, 0, 1, 0, 1]);
        assert_eq!(workers_of_channels(&[None; 4], &[None; 2]), [0, 1, 0, 1]);
        assert_eq!(workers_of_channels(&channels, &[None]), [0; 6]);
    }

    proptest! {
        #[test]
        fn a_channel_has_its_part(weights in proptest::collection::vec(0..1000u32, 1..65)) {
            let table = part_slots(128, &weights);
            let total: u32 = weights.iter().sum();
            for (channel, weight) in weights.iter().enumerate().filter(|_| total > 0) {
                let has = table.iter().filter(|slot| **slot == channel).count() as f64;
                let part = 128.0 * f64::from(*weight) / f64::from(total);
                prop_assert!((has - part).abs() < 2.0, "{has} of {part}");
            }
        }

        #[test]
        fn a_worker_on_the_channels_node_has_it(
            channels in proptest::collection::vec(proptest::option::of(0..4u32), 1..65),
            workers in proptest::collection::vec(proptest::option::of(0..4u32), 1..17),
        ) {
            for (node, worker) in channels.iter().zip(workers_of_channels(&channels, &workers)) {
                prop_assert!(worker < workers.len());
                if node.is_some() && workers.contains(node) {
                    prop_assert_eq!(&workers[worker], node);
                }
            }
        }
    }
}
