//! What a packet's hash as a hint spares the packet thread: packets that a rule drops, of one flow and of many.
//!
//! The source's frames are no skbs, of which a veth has a hash; so a program on the port writes one, of addresses and
//! ports, as a device would. Its time is the source's, not the packet thread's.

use std::time::Duration;

use forebay_testbed::dut::Processed;
use forebay_testbed::measure::flood::small_frame;
use forebay_testbed::measure::source::Source;
use forebay_testbed::programs::hints::HintsProgram;
use forebay_testbed::{Result, wait};

use super::pair::Pair;
use super::{Contender, SENDER_CPU, Value, asked};

/// So many flows, and what the numbers are called.
struct Part {
    flows: u32,
    metric: &'static str,
    rate: &'static str,
    hinted: &'static str,
    cached: &'static str,
    repeated: &'static str,
    burst: &'static str,
}

macro_rules! part {
    ($flows:literal, $metric:expr) => {
        Part {
            flows: $flows,
            metric: $metric,
            rate: concat!("Mpps that a rule drops, flows: ", $flows),
            hinted: concat!("of these had a hint, %, flows: ", $flows),
            cached: concat!("of these were in the cache, %, flows: ", $flows),
            repeated: concat!("of these were known by their flow id, %, flows: ", $flows),
            burst: concat!("packets a burst, flows: ", $flows),
        }
    };
}

const PARTS: [Part; 3] =
    [part!(1, asked::DROPPED_1), part!(128, asked::DROPPED_128), part!(8192, asked::DROPPED_8192)];
/// Of [`small_frame`].
const PORT: u16 = 9;
/// Packets of each flow before anything is counted: Open vSwitch remembers one in a hundred of those it does not know.
const WARM_UP_A_FLOW: u64 = 300;
const WARM_UP_LEAST: u64 = 500_000;
const WARM_UP_LIMIT: Duration = Duration::from_secs(30);

/// Its hash type is the seed: `XDP_RSS_L4`, a hash of the ports too (include/net/xdp.h).
const PROGRAM: HintsProgram<'static> = HintsProgram {
    name: "flow",
    members: "FOREBAY_RX_HASH; FOREBAY_HINTS_END;",
    more: "",
    present: "",
    seed: 1 << 3,
};

pub(super) fn measure(contender: Contender, duration: Duration) -> Result<Vec<Value>> {
    let mut pair = Pair::new(contender)?;
    let (from, to) = (pair.ends().0.name().to_owned(), pair.ends().1.v4());
    pair.dut.add_drop_rule(to, PORT)?;
    match contender {
        Contender::XdpHints => {
            let object = PROGRAM.compile(&pair.lab)?;
            pair.dut.load_hints(&from, &object)?;
        }
        Contender::XdpFlowIds => pair.dut.write_hints(&from)?,
        _ => {}
    }
    let mut values = Vec::new();
    for part in PARTS {
        let processed = processed(&pair, part.flows, duration)?;
        let a_packet = |count: u64| count as f64 / processed.packets.max(1) as f64;
        values.push(Value::new(part.metric, a_packet(processed.cycles)));
        let rate = processed.packets as f64 / duration.as_secs_f64();
        values.push(Value::new(part.rate, rate / 1e6));
        if let Some(facts) = processed.facts {
            values.push(Value::new(part.hinted, a_packet(facts.hinted) * 100.0));
            values.push(Value::new(part.cached, a_packet(facts.cached) * 100.0));
            values.push(Value::new(part.repeated, a_packet(facts.repeated) * 100.0));
            values.push(Value::new(part.burst, 1.0 / a_packet(facts.bursts)));
        }
    }
    Ok(values)
}

fn processed(pair: &Pair, flows: u32, duration: Duration) -> Result<Processed> {
    let (from, to) = pair.ends();
    let begun = pair.dut.processed()?.packets;
    let source = Source::start(from.netns(), "eth0", small_frame(from, to), flows, SENDER_CPU)?;
    let warm = begun + WARM_UP_LEAST.max(WARM_UP_A_FLOW * u64::from(flows));
    let is_warm = || pair.dut.processed().is_ok_and(|now| now.packets > warm);
    wait::until("the packet thread to know the flows", WARM_UP_LIMIT, is_warm)?;
    let before = pair.dut.processed()?;
    std::thread::sleep(duration);
    let after = pair.dut.processed()?;
    source.finish()?;
    Ok(after.since(&before))
}
