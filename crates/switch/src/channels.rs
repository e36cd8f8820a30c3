//! How the channels of a port should lie on its members and the machine's processors.

use std::path::Path;

use forebay_control::channels::{ChannelPlan, mask};
use forebay_kernel::machine::{self, Machine, MachineError, Place};
use forebay_policy::{Channels, Node, spread};

/// The plan for these members, named by netdev or PCI function, in the order in which a group has them. `sys` is the root of
/// sysfs. Without a number there are as many channels as processors.
///
/// # Errors
/// What sysfs does not have, or says without sense.
///
/// # Panics
/// Without members.
pub fn plan(
    sys: &Path,
    members: &[String],
    channels: Option<usize>,
) -> Result<Vec<ChannelPlan>, MachineError> {
    let machine = Machine::read(sys)?;
    let mut placed = Vec::new();
    for (number, name) in members.iter().enumerate() {
        let place = machine::place_of(sys, name)?;
        placed.push((place.function.is_none(), place.function, number, name, place));
    }
    placed.sort_by_key(|(without, function, number, ..)| (*without, *function, *number));
    let members: Vec<(&str, Place)> =
        placed.into_iter().map(|(.., name, place)| (name.as_str(), place)).collect();
    let online = machine.nodes.iter().map(|node| node.processors.len()).sum::<usize>();
    let channels = Channels::new(members.len(), channels.unwrap_or(online).max(1));
    Ok(lay_out(&machine, &members, channels))
}

/// The same for members in their order.
pub(crate) fn lay_out(machine: &Machine, members: &[(&str, Place)], channels: Channels) -> Vec<ChannelPlan> {
    let node = |node: &machine::MachineNode| Node {
        processors: node.processors.clone(),
        distances: node.distances.clone(),
    };
    let nodes: Vec<Node> = machine.nodes.iter().map(node).collect();
    let homes: Vec<_> = members.iter().map(|(_, place)| machine.index_of(place.node)).collect();
    let served = spread(&nodes, &homes, channels);
    let describe = |(channel, served): (usize, forebay_policy::Processors)| {
        let home = channels.home(channel);
        let (name, place) = &members[home.member];
        let senders: Vec<u32> = served.senders.iter().map(|processor| *processor as u32).collect();
        ChannelPlan {
            channel: channel as u32,
            member: home.member as u32,
            name: (*name).to_owned(),
            pci: place.function,
            node: place.node,
            queue: home.queue as u32,
            processor: served.interrupt.map(|processor| processor as u32),
            processor_node: served.interrupt.and_then(|processor| machine.node_of(processor)),
            xps_cpus: mask(&senders, machine.possible),
            senders,
        }
    };
    served.into_iter().enumerate().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The channels that the kernel's documentation of such NICs lists (Documentation/networking/multi-pf-netdev.rst, Linux
    /// 6.12): the processor and mask of each, of two functions on two nodes with twelve processors each.
    const PUBLISHED: [(u32, &str); 24] = [
        (0, "000001"),
        (12, "001000"),
        (1, "000002"),
        (13, "002000"),
        (2, "000004"),
        (14, "004000"),
        (3, "000008"),
        (15, "008000"),
        (4, "000010"),
        (16, "010000"),
        (5, "000020"),
        (17, "020000"),
        (6, "000040"),
        (18, "040000"),
        (7, "000080"),
        (19, "080000"),
        (8, "000100"),
        (20, "100000"),
        (9, "000200"),
        (21, "200000"),
        (10, "000400"),
        (22, "400000"),
        (11, "000800"),
        (23, "800000"),
    ];

    #[test]
    fn the_published_table_comes_out_of_a_sysfs_like_that_machines() {
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        for (name, text) in [
            ("devices/system/cpu/online", "0-23"),
            ("devices/system/cpu/possible", "0-23"),
            ("devices/system/node/node0/cpulist", "0-11"),
            ("devices/system/node/node0/distance", "10 21"),
            ("devices/system/node/node1/cpulist", "12-23"),
            ("devices/system/node/node1/distance", "21 10"),
            ("bus/pci/devices/0000:3b:00.0/numa_node", "0"),
            ("bus/pci/devices/0000:af:00.0/numa_node", "1"),
        ] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("files lie in directories")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        }
        // In whatever order the members are named.
        let members = ["0000:af:00.0", "0000:3b:00.0"].map(str::to_owned);
        let planned = plan(root.path(), &members, Some(24)).expect("sysfs makes sense");
        for (line, (processor, xps_cpus)) in planned.iter().zip(PUBLISHED) {
            let channel = line.channel;
            assert_eq!((line.member, line.queue), (channel % 2, channel / 2));
            assert_eq!(line.pci.map(|pci| pci.bus), Some([0x3b, 0xaf][line.member as usize]));
            assert_eq!((line.processor, line.xps_cpus.as_str()), (Some(processor), xps_cpus), "{channel}");
            assert_eq!(line.processor_node, line.node);
        }
        assert_eq!(planned.len(), 24);
        assert_eq!(plan(root.path(), &members, None).expect("sysfs makes sense"), planned);
    }
}
