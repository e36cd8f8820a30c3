//! Who writes hints, and in which layouts packets came.

use forebay_control::hints::{HintsLayout, HintsShow};
use forebay_control::stats::LatencyShow;

use super::Grid;

/// Ports, then each layout as C has it.
pub(crate) fn hints(hints: &HintsShow) -> String {
    let mut ports = Grid::new(&["port", "hints", "program", ">layout", "driver"]);
    for port in &hints.ports {
        ports.row([
            port.name.clone(),
            port.state.to_string(),
            port.program.clone(),
            port.layout.map_or_else(String::new, |id| id.to_string()),
            port.driver.join(", "),
        ]);
    }
    let mut text = ports.finish();
    for HintsLayout { id, text: struct_text, packets, .. } in &hints.layouts {
        text += &format!("\nlayout {id}, {packets} packets\n{struct_text}\n");
    }
    text + &format!(
        "\npackets with unknown layouts {}, with layouts that were replaced long ago {}\n",
        hints.unknown_packets, hints.stale_packets
    )
}

/// Quantiles of each port's packets.
pub(crate) fn latency(latency: &LatencyShow) -> String {
    let mut grid =
        Grid::new(&["port", ">packets", ">p50, µs", ">p90, µs", ">p99, µs", ">max, µs", ">from the future"]);
    for port in &latency.ports {
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
        grid.row([
            port.name.clone(),
            port.packets.to_string(),
            us(port.p50_ns),
            us(port.p90_ns),
            us(port.p99_ns),
            us(port.max_ns),
            port.from_the_future.to_string(),
        ]);
    }
    grid.finish()
}
