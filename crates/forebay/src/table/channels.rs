//! Channels, a line each.

use forebay_control::channels::ChannelPlan;

use super::Grid;

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
