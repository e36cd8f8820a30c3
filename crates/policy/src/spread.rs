//! Spread: which processors each channel of a port serves, and which of them takes its interrupt.
//!
//! Each processor sends by one channel: one of the member that is nearest. The processors of a member go to its channels in
//! turn, nearest first. So every processor is served once, whatever the number of channels, and nothing crosses to another
//! node that need not. With as many channels as processors this is what the kernel's driver for such NICs does; with fewer,
//! the kernel's rule leaves processors out, or mixes nodes.

use crate::Channels;

/// A NUMA node, or the whole machine where there are none.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Node {
    /// Numbers of its processors that are online.
    pub processors: Vec<usize>,
    /// How far each node is from here, by their order; 10 is here. What is missing is farther than all.
    pub distances: Vec<u32>,
}

/// What a channel serves.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Processors {
    /// The processor that takes its interrupt; `None` on a machine without processors.
    pub interrupt: Option<usize>,
    /// Processors that send by it. None where its member has more channels than processors.
    pub senders: Vec<usize>,
}

/// For each channel what it serves. `homes` are the members' nodes by their order; `None`: nobody knows, as far from one
/// node as from any.
pub fn spread(nodes: &[Node], homes: &[Option<usize>], channels: Channels) -> Vec<Processors> {
    let near: Vec<Vec<usize>> = homes.iter().map(|home| nearest(nodes, *home)).collect();
    let mut served = vec![Processors::default(); channels.count()];
    let own = own_processors(nodes, homes, channels);
    for (channel, served) in served.iter_mut().enumerate() {
        let home = channels.home(channel);
        let stride = channels.of(home.member);
        served.senders = own[home.member].iter().copied().skip(home.queue).step_by(stride).collect();
        let some = if own[home.member].is_empty() { &near[home.member] } else { &own[home.member] };
        served.interrupt = some.get(home.queue % some.len().max(1)).copied();
    }
    served
}

/// Each member's processors, nearest first: those that have no nearer member with a channel. Members that are equally near
/// take them in turn.
fn own_processors(nodes: &[Node], homes: &[Option<usize>], channels: Channels) -> Vec<Vec<usize>> {
    let mut own = vec![Vec::new(); homes.len()];
    for (number, node) in nodes.iter().enumerate() {
        let with_channels = || (0..homes.len()).filter(|member| channels.of(*member) > 0);
        let far = |member: &usize| distance(nodes, homes[*member], number);
        let nearest = with_channels().map(|member| far(&member)).min();
        let takers: Vec<usize> = with_channels().filter(|member| Some(far(member)) == nearest).collect();
        for (processor, taker) in node.processors.iter().zip(takers.iter().cycle()) {
            own[*taker].push((nearest, *processor));
        }
    }
    own.iter_mut().for_each(|processors| processors.sort_unstable());
    own.into_iter()
        .map(|processors| processors.into_iter().map(|(_, processor)| processor).collect())
        .collect()
}

/// Processors of the nearest nodes that have any.
fn nearest(nodes: &[Node], home: Option<usize>) -> Vec<usize> {
    let with_processors = || nodes.iter().enumerate().filter(|(_, node)| !node.processors.is_empty());
    let far = |(number, _): &(usize, &Node)| distance(nodes, home, *number);
    let least = with_processors().map(|node| far(&node)).min();
    let are_nearest = with_processors().filter(|node| Some(far(node)) == least);
    are_nearest.flat_map(|(_, node)| node.processors.iter().copied()).collect()
}

fn distance(nodes: &[Node], home: Option<usize>, node: usize) -> u32 {
    let Some(home) = home else { return u32::MAX };
    let told = nodes.get(home).and_then(|home| home.distances.get(node)).copied();
    // A node is nearest to itself, whatever a table says.
    if home == node { 0 } else { told.unwrap_or(u32::MAX - 1).max(1) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each node has the same number of processors. Node 0 has the first of them. All nodes are equally far apart.
    fn machine(nodes: usize, processors: usize) -> Vec<Node> {
        let node = |number: usize| Node {
            processors: (number * processors..(number + 1) * processors).collect(),
            distances: (0..nodes).map(|other| if other == number { 10 } else { 21 }).collect(),
        };
        (0..nodes).map(node).collect()
    }

    fn senders(nodes: &[Node], homes: &[Option<usize>], channels: usize) -> Vec<Vec<usize>> {
        let served = spread(nodes, homes, Channels::new(homes.len(), channels));
        served.into_iter().map(|served| served.senders).collect()
    }

    #[test]
    fn two_members_on_two_nodes_serve_each_processor_from_its_own_node() {
        let (nodes, homes) = (machine(2, 12), [Some(0), Some(1)]);
        // The published table: channel 2k serves processor k, channel 2k + 1 serves processor 12 + k.
        let served = spread(&nodes, &homes, Channels::new(2, 24));
        for (channel, served) in served.iter().enumerate() {
            let processor = channel % 2 * 12 + channel / 2;
            assert_eq!(
                *served,
                Processors { interrupt: Some(processor), senders: vec![processor] },
                "{channel}"
            );
        }
        // Counts for which the kernel's rule leaves processors out.
        assert_eq!(senders(&nodes, &homes, 2), [(0..12).collect::<Vec<_>>(), (12..24).collect()]);
        assert_eq!(senders(&nodes, &homes, 4)[2], [1, 3, 5, 7, 9, 11]);
    }

    #[test]
    fn a_node_without_a_member_goes_to_the_nearest() {
        let mut nodes = machine(3, 2);
        nodes[0].distances = vec![10, 20, 40];
        nodes[2].distances = vec![40, 20, 10];
        // Node 1 is as near to member 0 as to member 1, so they share it.
        assert_eq!(senders(&nodes, &[Some(0), Some(2)], 2), [vec![0, 1, 2], vec![4, 5, 3]]);
        nodes[0].distances[1] = 30;
        assert_eq!(senders(&nodes, &[Some(0), Some(2)], 2), [vec![0, 1], vec![4, 5, 2, 3]]);
    }

    #[test]
    fn more_channels_than_processors_share_interrupts_and_leave_none_out() {
        let served = spread(&machine(1, 2), &[Some(0)], Channels::new(1, 3));
        assert_eq!(served.iter().map(|served| served.interrupt.unwrap()).collect::<Vec<_>>(), [0, 1, 0]);
        assert_eq!(served.iter().map(|served| served.senders.len()).collect::<Vec<_>>(), [1, 1, 0]);
    }

    #[test]
    fn interrupts_of_a_member_that_no_processor_sends_by_stay_on_its_node() {
        let homes = [Some(0), Some(0), Some(1)];
        let served = spread(&machine(2, 1), &homes, Channels::new(3, 6));
        let interrupts: Vec<_> = served.iter().map(|served| served.interrupt).collect();
        assert_eq!(interrupts, [0, 0, 1, 0, 0, 1].map(Some));
    }

    #[test]
    fn a_member_on_a_node_without_processors_takes_interrupts_nearby() {
        let mut nodes = machine(2, 2);
        nodes[1].processors.clear();
        nodes[1].distances = vec![17, 10];
        let served = spread(&nodes, &[Some(1)], Channels::new(1, 2));
        assert_eq!(served[1], Processors { interrupt: Some(1), senders: vec![1] });
        assert_eq!(spread(&[], &[None], Channels::new(1, 1)), [Processors::default()]);
    }

    /// Machines that may not exist: asymmetric, with processors offline, with nodes that nobody knows the distance of.
    fn any_nodes() -> impl Strategy<Value = Vec<Node>> {
        let node = (0..9usize, proptest::collection::vec(prop_oneof![Just(10), 11..255u32], 0..17));
        proptest::collection::vec(node, 1..17).prop_map(|nodes| {
            let mut next = 0;
            let mut number = |count: usize| {
                next += count + 1;
                (next - count..next).collect()
            };
            let node = |(count, distances)| Node { processors: number(count), distances };
            nodes.into_iter().map(node).collect()
        })
    }

    proptest! {
        #[test]
        fn every_processor_is_served_once_by_a_nearest_member(
            nodes in any_nodes(),
            homes in proptest::collection::vec(proptest::option::of(0..16usize), 1..9),
            channels in 1..65usize,
        ) {
            let channels = Channels::new(homes.len(), channels);
            let served = spread(&nodes, &homes, channels);
            let mut all: Vec<usize> = served.iter().flat_map(|served| served.senders.clone()).collect();
            all.sort_unstable();
            let expected: Vec<usize> = nodes.iter().flat_map(|node| node.processors.clone()).collect();
            prop_assert_eq!(&all, &expected);
            let node_of = |processor| nodes.iter().position(|node| node.processors.contains(processor)).unwrap();
            for (channel, served) in served.iter().enumerate() {
                let member = channels.home(channel).member;
                for processor in &served.senders {
                    let far = |member: usize| distance(&nodes, homes[member], node_of(processor));
                    let nearest = (0..homes.len()).filter(|member| channels.of(*member) > 0).map(far).min();
                    prop_assert_eq!(Some(far(member)), nearest);
                }
                prop_assert_eq!(served.interrupt.is_none(), expected.is_empty());
            }
        }

        #[test]
        fn channels_of_one_member_serve_equally_many(nodes in any_nodes(), channels in 1..65usize) {
            let served = spread(&nodes, &[Some(0)], Channels::new(1, channels));
            let counts = || served.iter().map(|served| served.senders.len());
            prop_assert!(counts().max().unwrap() - counts().min().unwrap() <= 1);
        }
    }
}
