//! Packets between two guests: one DPDK process with two virtio ports sends what comes in at one out of the other.

use std::time::Duration;

use forebay_testbed::Result;
use forebay_testbed::lab::Lab;
use forebay_testbed::programs::testpmd::{Testpmd, TestpmdOptions};

use super::{Contender, SENDER_CPU, Value};

/// One load, and what its numbers are called.
struct Load {
    in_flight: u32,
    rate: &'static str,
    cycles: &'static str,
}

macro_rules! load {
    ($bytes:literal, $in_flight:literal) => {
        Load {
            in_flight: $in_flight,
            rate: concat!($bytes, "-byte frames between guests, ", $in_flight, " in flight, Mpps both ways"),
            cycles: concat!("cycles a ", $bytes, "-byte frame between guests, ", $in_flight, " in flight"),
        }
    };
}

/// Packets from each guest that are under way. The rings have 256 entries.
const LOADS: [(u32, &[Load]); 2] = [
    (64, &[load!(64, 16), load!(64, 32), load!(64, 64), load!(64, 128), load!(64, 256), load!(64, 512)]),
    (1514, &[load!(1514, 16), load!(1514, 64), load!(1514, 512)]),
];

pub(super) fn measure(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    for (packet_bytes, loads) in LOADS {
        values.extend(measure_size(contender, packet_bytes, loads, duration)?);
    }
    Ok(values)
}

fn measure_size(
    contender: Contender,
    packet_bytes: u32,
    loads: &[Load],
    duration: Duration,
) -> Result<Vec<Value>> {
    let lab = Lab::new("bench-guests")?;
    let mut dut = contender.start(&lab)?;
    let sockets = ["vm1", "vm2"].map(|name| (name, lab.path(&format!("{name}.sock"))));
    for (name, socket) in &sockets {
        dut.add_guest(name, socket)?;
    }
    let options = TestpmdOptions {
        sockets: [&sockets[0].1, &sockets[1].1],
        listens: dut.connects_to_guests(),
        processor: SENDER_CPU,
        packets: &packet_bytes.to_string(),
        device: ",queues=1",
        arguments: &[],
    };
    let mut guests = Testpmd::start(&lab, &options)?;
    let mut values = Vec::new();
    for load in loads {
        let before = dut.processed()?;
        let rate = guests.measure(load.in_flight, duration)?;
        let done = dut.processed()?.since(&before);
        values.push(Value::new(load.rate, rate / 1e6));
        values.push(Value::new(load.cycles, done.cycles as f64 / done.packets.max(1) as f64));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::super::asked;
    use super::*;

    #[test]
    fn what_is_asked_for_is_measured() {
        let rates = LOADS.iter().flat_map(|(_, loads)| loads.iter().map(|load| load.rate));
        let rates: Vec<&str> = rates.collect();
        assert!(
            [asked::GUESTS_64, asked::GUESTS_1514].iter().all(|metric| rates.contains(metric)),
            "{rates:?}"
        );
    }
}
