//! Channels with their workers, a line each.

use forebay_control::rss::RssShow;

use super::Grid;

/// The tables; then how many packets had another worker than the one that serves their output.
pub(crate) fn rss(ports: &[RssShow]) -> String {
    let mut grid = Grid::new(&["port", "steering", ">channel", ">worker", ">slots"]);
    let mut counted = String::new();
    for port in ports {
        for channel in &port.channels {
            grid.row([
                port.name.clone(),
                port.steering.to_string(),
                channel.channel.to_string(),
                channel.worker.to_string(),
                channel.slots.to_string(),
            ]);
        }
        let RssShow { name, steered_packets: all, away_packets: away, across_packets: across, .. } = port;
        let share_of = |part: u64, all: u64| part as f64 / all.max(1) as f64 * 100.0;
        let share = |part: u64| share_of(part, *all);
        counted += &format!(
            "{name}: {all} packets for ports that one worker serves; {away} ({:.2} %) had another worker, {across} \
             ({:.2} %) one on another node\n",
            share(*away),
            share(*across)
        );
        let RssShow { slow_path_packets: all, far_packets: far, .. } = port;
        counted += &format!(
            "{name}: {all} packets to workers; {far} ({:.2} %) came in on another node than their worker's\n",
            share_of(*far, *all)
        );
    }
    format!("{}\n{counted}", grid.finish())
}
