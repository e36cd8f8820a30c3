//! The loads.

use forebay_policy::moderation::simulation::{Costs, Load};

/// Bytes of a jumbo frame, of a usual one, and of joined segments.
const JUMBO: u32 = 9000;
const USUAL: u32 = 1500;
const JOINED: u32 = 65_226;

/// A load that does not change.
pub(super) struct Constant {
    pub(super) name: &'static str,
    /// Each with its queue.
    pub(super) loads: Vec<(usize, Load)>,
    pub(super) queues: usize,
    pub(super) costs: Costs,
}

/// Loads that follow each other.
pub(super) struct Course {
    pub(super) name: &'static str,
    pub(super) steps: Vec<Step>,
    /// Each step is one that a policy is to settle after.
    pub(super) is_judged: bool,
}

/// One of them.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) loads: Vec<Load>,
    pub(super) millis: u64,
}

const fn random(rate: u64, bytes: u32) -> Load {
    Load::Random { gap_ns: 1_000_000_000 / rate, bytes }
}

const fn paced(rate: u64, bytes: u32) -> Load {
    Load::Paced { gap_ns: 1_000_000_000 / rate, bytes, is_ack: false }
}

const fn acks(rate: u64) -> Load {
    Load::Paced { gap_ns: 1_000_000_000 / rate, bytes: 66, is_ack: true }
}

const fn bursts(packets: usize, gap_ns: u64, every_us: u64, bytes: u32) -> Load {
    Load::Bursts { packets, gap_ns, every_ns: every_us * 1000, bytes }
}

/// 200,000 packets a second for so long, then nothing for as long.
const fn on_off(millis: u64) -> Load {
    bursts((200 * millis) as usize, 5_000, 2_000 * millis, USUAL)
}

const fn exchanges(at_once: usize, bytes: u32) -> Load {
    Load::Exchange { at_once, packets: 1, loop_ns: 30_000, bytes }
}

const EXCHANGE: Load = exchanges(1, 100);

const fn tcp(most: usize, gap_ns: u64, loop_us: u64, bytes: u32) -> Load {
    Load::Tcp { most, gap_ns, loop_ns: loop_us * 1000, bytes }
}

pub(super) fn constants() -> Vec<Constant> {
    let one = |name, loads: &[Load]| Constant {
        name,
        loads: loads.iter().map(|load| (0, *load)).collect(),
        queues: 1,
        costs: Costs::default(),
    };
    let two = |name, loads: &[(usize, Load)]| Constant {
        name,
        loads: loads.to_vec(),
        queues: 2,
        costs: Costs::default(),
    };
    let joined = |name, loads: &[Load]| Constant { costs: Costs::COPIES, ..one(name, loads) };
    vec![
        one("1,000 a second at random", &[random(1_000, USUAL)]),
        one("8,000 at random", &[random(8_000, USUAL)]),
        one("20,000 at random", &[random(20_000, USUAL)]),
        one("20,000 evenly", &[paced(20_000, USUAL)]),
        one("50,000 evenly", &[paced(50_000, USUAL)]),
        one("200,000 at random", &[random(200_000, USUAL)]),
        one("1,000,000 at random", &[random(1_000_000, USUAL)]),
        one("50,000 at random, jumbo", &[random(50_000, JUMBO)]),
        one("200,000 short packets", &[random(200_000, 64)]),
        one("acknowledgements, 10,000", &[acks(10_000)]),
        one("acknowledgements, 100,000", &[acks(100_000)]),
        one("bursts of 32 each 500 µs", &[bursts(32, 1_000, 500, USUAL)]),
        one("on 1 ms, off 1 ms", &[on_off(1)]),
        one("on 5 ms, off 5 ms", &[on_off(5)]),
        one("on 50 ms, off 50 ms", &[on_off(50)]),
        one("on 500 ms, off 500 ms", &[on_off(500)]),
        one("TCP, 1 connection", &[tcp(64, 2_000, 100, USUAL)]),
        one("TCP, 8 connections", &[tcp(64, 24_000, 100, USUAL); 8]),
        one("TCP, 64 connections", &[tcp(64, 190_000, 100, USUAL); 64]),
        one("TCP, small window", &[tcp(16, 1_000, 50, USUAL)]),
        one("TCP, long loop", &[tcp(500, 2_000, 1_000, USUAL)]),
        joined("TCP, joined segments", &[tcp(16, 150_000, 50, JOINED)]),
        joined(
            "TCP, joined, 4 connections",
            &[590_000, 600_000, 610_000, 620_000].map(|gap_ns| tcp(8, gap_ns, 50, JOINED)),
        ),
        joined("TCP, joined, window of 3", &[tcp(3, 150_000, 50, JOINED)]),
        one("one exchange", &[EXCHANGE]),
        one("16 exchanges", &[exchanges(16, 100)]),
        one("64 exchanges", &[exchanges(64, 100)]),
        one("one exchange of 1500 bytes", &[exchanges(1, USUAL)]),
        one("16 exchanges of 1500 bytes", &[exchanges(16, USUAL)]),
        one("exchange beside 50,000", &[EXCHANGE, random(50_000, USUAL)]),
        one("exchange beside TCP", &[EXCHANGE, tcp(64, 4_000, 100, USUAL)]),
        joined("exchange beside TCP, joined", &[EXCHANGE, tcp(16, 150_000, 50, JOINED)]),
        two("exchange and 50,000 on two queues", &[(0, EXCHANGE), (1, random(50_000, USUAL))]),
        two("exchange and TCP on two queues", &[(0, EXCHANGE), (1, tcp(64, 4_000, 100, USUAL))]),
    ]
}

pub(super) fn courses() -> Vec<Course> {
    let step = |name, loads: &[Load]| Step { name, loads: loads.to_vec(), millis: 250 };
    let ramp = [5u64, 10, 20, 40, 80, 160, 320, 160, 80, 40, 20, 10, 5];
    let names = [
        "5,000",
        "10,000",
        "20,000",
        "40,000",
        "80,000",
        "160,000",
        "320,000",
        "160,000 again",
        "80,000 again",
        "40,000 again",
        "20,000 again",
        "10,000 again",
        "5,000 again",
    ];
    let short = |name, load| Step { millis: 50, ..step(name, &[load]) };
    vec![
        Course {
            name: "Steps",
            is_judged: true,
            steps: vec![
                step("50,000 at random", &[random(50_000, USUAL)]),
                step("1,000 at random", &[random(1_000, USUAL)]),
                step("300,000 at random", &[random(300_000, USUAL)]),
                step("one exchange", &[EXCHANGE]),
                step("300,000 at random, again", &[random(300_000, USUAL)]),
                step("TCP, small window", &[tcp(16, 1_000, 50, USUAL)]),
                step("acknowledgements, 100,000", &[acks(100_000)]),
                step("TCP, 8 connections", &[tcp(64, 24_000, 100, USUAL); 8]),
                step("200,000 short packets", &[random(200_000, 64)]),
                step("exchange beside 50,000", &[EXCHANGE, random(50_000, USUAL)]),
                step("20,000 evenly", &[paced(20_000, USUAL)]),
            ],
        },
        Course {
            name: "Ramp",
            is_judged: false,
            steps: ramp
                .iter()
                .zip(names)
                .map(|(rate, name)| short(name, random(rate * 1000, USUAL)))
                .collect(),
        },
        Course {
            name: "On and off",
            is_judged: false,
            steps: [("1 ms", 1), ("5 ms", 5), ("20 ms", 20), ("100 ms", 100)]
                .into_iter()
                .map(|(name, millis)| step(name, &[on_off(millis)]))
                .collect(),
        },
    ]
}
