//! Channels, a line each.

use forebay_control::channels::{ChannelPlan, ChannelShow};

use super::Grid;

/// How they are; then what could not be set.
pub(crate) fn channels(channels: &[ChannelShow]) -> String {
    let number =
        |number: Option<u32>| number.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut grid = Grid::new(&[
        "port",
        ">channel",
        ">member",
        "netdev",
        "pci",
        ">node",
        ">queue",
        ">received",
        ">napi",
        ">irq",
        ">processors",
        ">xps_cpus",
        ">workers",
    ]);
    let mut problems = String::new();
    for line in channels {
        let workers: Vec<String> = line.workers.iter().map(u32::to_string).collect();
        grid.row([
            line.port.clone(),
            line.channel.to_string(),
            line.member.to_string(),
            line.netdev.clone().unwrap_or_else(|| "missing".to_owned()),
            line.pci.map_or_else(|| "none".to_owned(), |pci| pci.to_string()),
            number(line.node),
            line.queue.to_string(),
            line.received_packets.map_or_else(|| "unknown".to_owned(), |packets| packets.to_string()),
            number(line.napi),
            number(line.irq),
            text(&line.processors),
            text(&line.xps_cpus),
            workers.join(","),
        ]);
        for problem in &line.problems {
            problems += &format!("{} channel {}: not set: {problem}\n", line.port, line.channel);
        }
    }
    let table = grid.finish();
    if problems.is_empty() { table } else { format!("{table}\n{problems}") }
}

/// How they are, as a picture for Graphviz: port, members by node, channels, and the processors that take their interrupts.
pub(crate) fn channels_dot(channels: &[ChannelShow]) -> String {
    let mut text = "digraph channels {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
    let mut nodes: Vec<Option<u32>> = channels.iter().map(|line| line.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for node in nodes {
        let name = node.map_or_else(|| "unknown".to_owned(), |node| node.to_string());
        text += &format!("  subgraph \"cluster {name}\" {{\n    label=\"node {name}\";\n");
        for line in channels.iter().filter(|line| line.node == node) {
            let netdev = line.netdev.as_deref().unwrap_or("missing");
            let pci = line.pci.map_or_else(String::new, |pci| format!("\\n{pci}"));
            let irq = line.irq.map_or_else(String::new, |irq| format!("\\nirq {irq}"));
            let (port, member, channel) = (quoted(&line.port), line.member, line.channel);
            text += &format!("    \"{port} m{member}\" [label=\"{}{pci}\"];\n", quoted(netdev));
            text += &format!(
                "    \"{port} c{channel}\" [label=\"channel {channel}\\nqueue {}{irq}\"];\n",
                line.queue
            );
        }
        text += "  }\n";
    }
    for line in channels {
        let (port, member, channel) = (quoted(&line.port), line.member, line.channel);
        text += &format!("  \"{port}\" -> \"{port} m{member}\" -> \"{port} c{channel}\"");
        let processors = line.processors.iter().map(|list| format!(" -> \"processors {list}\""));
        text.extend(processors);
        text += ";\n";
    }
    text + "}\n"
}

/// Within quotation marks of the picture.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// How they should lie.
pub(crate) fn channel_plan(planned: &[ChannelPlan]) -> String {
    let number =
        |number: Option<u32>| number.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    let mut grid = Grid::new(&[
        ">channel",
        ">member",
        "name",
        "pci",
        ">node",
        ">queue",
        ">processor",
        ">its node",
        ">xps_cpus",
    ]);
    for line in planned {
        grid.row([
            line.channel.to_string(),
            line.member.to_string(),
            line.name.clone(),
            line.pci.map_or_else(|| "none".to_owned(), |pci| pci.to_string()),
            number(line.node),
            line.queue.to_string(),
            number(line.processor),
            number(line.processor_node),
            line.xps_cpus.clone(),
        ]);
    }
    grid.finish()
}
