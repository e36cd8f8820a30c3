use super::*;
use crate::moderation::{Adaptive, Dim, Direction, Profile};

const BULK: u32 = 9000;
/// TCP segments that are joined, and their headers.
const JOINED: u32 = 65_226;
/// One exchange at a time, of short messages.
const EXCHANGE: Load = Load::Exchange { at_once: 1, packets: 1, loop_ns: 30_000, bytes: 100 };
/// Messages of three packets, one at a time.
const LONG: Load = Load::Exchange { at_once: 1, packets: 3, loop_ns: 60_000, bytes: BULK };
const ACKS: Load = Load::Paced { gap_ns: 10_000, bytes: 66, is_ack: true };

const fn random(packets_a_second: u64) -> Load {
    Load::Random { gap_ns: 1_000_000_000 / packets_a_second, bytes: BULK }
}

const fn paced(packets_a_second: u64) -> Load {
    Load::Paced { gap_ns: 1_000_000_000 / packets_a_second, bytes: BULK, is_ack: false }
}

const fn window(packets: usize, loop_us: u64) -> Load {
    Load::Window { packets, loop_ns: loop_us * 1000, bytes: BULK }
}

const fn bursts(packets: usize, gap_ns: u64, every_ms: u64) -> Load {
    Load::Bursts { packets, gap_ns, every_ns: every_ms * 1_000_000, bytes: BULK }
}

const SHORT_FLOOD: Load = Load::Random { gap_ns: 5_000, bytes: 64 };

fn adaptive() -> Policy {
    Policy::Adaptive(Box::new(Adaptive::new(Direction::Receive, ENTRIES)))
}

fn dim() -> Policy {
    Policy::Dim(Dim::new(Profile::RX_EQE))
}

/// What comes out after 100 ms with a load.
fn settled(policy: Policy, loads: &[Load], micros: u64) -> Outcome {
    let mut simulation = Simulation::new(policy);
    simulation.load(loads);
    simulation.run(100_000);
    simulation.run(micros)
}

#[test]
fn adaptive_makes_no_move_in_a_minute_of_constant_load_where_dim_hunts() {
    let minute = |policy| settled(policy, &[paced(20_000)], 60_000_000);
    let (ours, theirs) = (minute(adaptive()), minute(dim()));
    assert_eq!(ours.moves, []);
    assert!(theirs.moves.len() > 9_000, "dim moved {} times", theirs.moves.len());
    assert!(ours.calls_a_second() < 0.25 * theirs.calls_a_second());
}

/// Each kind of load, by name.
fn kinds() -> Vec<(&'static str, Vec<Load>)> {
    vec![
        ("1,000 packets a second", vec![random(1_000)]),
        ("20,000 at random", vec![random(20_000)]),
        ("50,000 at random", vec![random(50_000)]),
        ("50,000 evenly", vec![paced(50_000)]),
        ("300,000 at random", vec![random(300_000)]),
        ("1,000,000 at random", vec![random(1_000_000)]),
        ("100,000 acknowledgements", vec![ACKS]),
        ("200,000 short packets", vec![SHORT_FLOOD]),
        ("bursts of 100 in 100 µs, each ms", vec![bursts(100, 1_000, 1)]),
        ("on 5 ms, off 5 ms", vec![bursts(1_000, 5_000, 10)]),
        ("window of 20, loop 50 µs", vec![window(20, 50)]),
        ("window of 100, loop 200 µs", vec![window(100, 200)]),
        ("window of 300, loop 1 ms", vec![window(300, 1_000)]),
        ("one exchange", vec![EXCHANGE]),
        ("64 exchanges", vec![Load::Exchange { at_once: 64, packets: 1, loop_ns: 30_000, bytes: 100 }]),
        ("one exchange of 3 long packets", vec![LONG]),
        ("exchange beside 50,000", vec![EXCHANGE, random(50_000)]),
        ("exchange beside 300,000", vec![EXCHANGE, random(300_000)]),
        ("exchange beside window of 100", vec![EXCHANGE, window(100, 200)]),
    ]
}

#[test]
fn adaptive_is_at_rest_under_every_kind_of_constant_load() {
    for (name, loads) in kinds() {
        let outcome = settled(adaptive(), &loads, 1_000_000);
        assert_eq!(outcome.moves, [], "{name}");
    }
}

#[test]
fn adaptive_settles_within_20_ms_of_each_step() {
    let steps: [&[Load]; 14] = [
        &[random(50_000)],
        &[random(1_000)],
        &[random(300_000)],
        &[random(60_000)],
        &[EXCHANGE],
        &[random(300_000)],
        &[LONG],
        &[random(200_000)],
        &[ACKS],
        &[paced(100_000)],
        &[window(20, 50)],
        &[paced(10_000)],
        &[SHORT_FLOOD],
        &[EXCHANGE, random(300_000)],
    ];
    let mut simulation = Simulation::new(adaptive());
    for (number, loads) in steps.into_iter().enumerate() {
        simulation.load(loads);
        let outcome = simulation.run(500_000);
        let late: Vec<_> = outcome.moves.iter().filter(|(at, _)| *at > 20_000_000).collect();
        assert!(late.is_empty(), "step {number} to {loads:?}: {:?}", outcome.moves);
        // And it has settled at the right place: where it settles if it knows no other load.
        let (after, alone) = (simulation.run(200_000), settled(adaptive(), loads, 200_000));
        assert!(
            after.calls <= alone.calls * 13 / 10,
            "step {number} to {loads:?}: {} calls, not {}",
            after.calls,
            alone.calls
        );
        let taken = |outcome: &Outcome| outcome.taken.iter().sum::<u64>();
        assert!(taken(&after) >= taken(&alone) * 98 / 100, "step {number} to {loads:?}");
    }
}

#[test]
fn one_exchange_at_a_time_is_as_fast_as_without_moderation() {
    for loads in [[EXCHANGE].as_slice(), &[LONG]] {
        let (off, ours) = (settled(Policy::Off, loads, 1_000_000), settled(adaptive(), loads, 1_000_000));
        assert_eq!(
            [ours.latency_us(0, 50.0), ours.latency_us(0, 99.9)],
            [off.latency_us(0, 50.0), off.latency_us(0, 99.9)]
        );
        assert!(ours.taken[0] * 1000 >= off.taken[0] * 999, "{:?} {:?}", ours.taken, off.taken);
    }
    let mut first = Simulation::new(adaptive());
    first.load(&[EXCHANGE]);
    let outcome = first.run(100_000);
    assert_eq!(outcome.latency_us(0, 100.0), outcome.latency_us(0, 0.0), "the first ones too");
}

#[test]
fn an_exchange_waits_for_a_few_packets_of_a_stream_and_not_for_a_hold() {
    for (gap_ns, bytes, most, part) in
        [(20_000, 1400, 4.0, 0.8), (3_333, 1400, 4.0, 0.6), (3_333, BULK, 1.0, 1.01)]
    {
        let run = |policy| settled(policy, &[EXCHANGE, Load::Random { gap_ns, bytes }], 500_000);
        let (off, ours, theirs) = (run(Policy::Off), run(adaptive()), run(dim()));
        let few = most * Costs::default().packet_ns as f64 / 1000.0;
        assert!(ours.latency_us(0, 99.0) <= off.latency_us(0, 99.0) + few);
        assert!(theirs.latency_us(0, 50.0) > 5.0 * ours.latency_us(0, 99.0));
        assert!((ours.calls as f64) < part * off.calls as f64, "{} of {} calls", ours.calls, off.calls);
        assert!(ours.taken_a_second(0) > 0.9 * off.taken_a_second(0), "{:?} {:?}", ours.taken, off.taken);
    }
}

/// Joined segments of one TCP stream, as a guest gets them that copies each byte.
fn joined(packets: usize) -> Load {
    Load::Tcp { most: packets, gap_ns: 150_000, loop_ns: 50_000, bytes: JOINED }
}

fn copied(policy: Policy, load: Load) -> Outcome {
    let mut simulation = Simulation::with(vec![policy], Costs::COPIES, 0);
    simulation.load(&[load]);
    // Whether a hold of bulk costs throughput is known after 1000 packets.
    simulation.run(500_000);
    simulation.run(1_000_000)
}

#[test]
fn few_large_packets_have_a_quarter_of_the_calls_and_the_same_throughput() {
    for packets in [10, 16, 64] {
        let [off, theirs, ours] =
            [Policy::Off, dim(), adaptive()].map(|policy| copied(policy, joined(packets)));
        assert!(4 * ours.calls <= off.calls, "window of {packets}: {} of {} calls", ours.calls, off.calls);
        assert!(ours.calls < theirs.calls);
        assert!(ours.bytes * 100 >= off.bytes * 98, "window of {packets}: {} of {}", ours.bytes, off.bytes);
        assert_eq!(ours.moves, []);
    }
}

#[test]
fn a_window_of_few_large_packets_carries_as_much_as_without_moderation() {
    for packets in 1..10 {
        let (off, ours) = (copied(Policy::Off, joined(packets)), copied(adaptive(), joined(packets)));
        assert!(ours.bytes * 100 >= off.bytes * 98, "window of {packets}: {} of {}", ours.bytes, off.bytes);
        assert_eq!(ours.moves, [], "window of {packets}");
    }
}

#[test]
fn a_loop_carries_as_much_as_without_moderation() {
    for loads in [window(20, 50), window(40, 100), window(100, 200), window(300, 1_000)] {
        let run = |policy| settled(policy, &[loads], 500_000).taken_a_second(0);
        let (off, ours) = (run(Policy::Off), run(adaptive()));
        assert!(ours > 0.98 * off, "{loads:?}: {ours} of {off} packets a second");
    }
}

#[test]
fn a_window_that_follows_the_moderation_is_not_held_back() {
    for (most, gap_ns, loop_ns) in [(64, 2_000, 100_000), (64, 4_000, 100_000), (16, 1_000, 50_000)] {
        let load = Load::Tcp { most, gap_ns, loop_ns, bytes: 1500 };
        let run = |policy| settled(policy, &[load], 500_000);
        let (off, ours) = (run(Policy::Off), run(adaptive()));
        assert!(ours.bytes * 100 >= off.bytes * 98, "{load:?}: {} of {}", ours.bytes, off.bytes);
        assert_eq!(ours.moves, [], "{load:?}");
    }
}

#[test]
fn a_loop_that_begins_while_calls_are_held_carries_more_than_with_dim() {
    for load in [window(20, 50), window(40, 100), window(100, 200), window(300, 1_000)] {
        for before in [random(20_000), random(50_000), random(1_000_000), ACKS] {
            let run = |policy| {
                let mut simulation = Simulation::new(policy);
                simulation.load(&[before]);
                simulation.run(200_000);
                simulation.load(&[load]);
                simulation.run(20_000);
                simulation.run(500_000).taken_a_second(0)
            };
            let [off, theirs, ours] = [Policy::Off, dim(), adaptive()].map(run);
            assert!(ours > theirs && ours > 0.6 * off, "{load:?} after {before:?}: {off} {theirs} {ours}");
        }
    }
}

#[test]
fn streams_have_a_quarter_of_the_calls() {
    for load in [random(20_000), paced(50_000), random(300_000), random(1_000_000), ACKS, SHORT_FLOOD] {
        let run = |policy| settled(policy, &[load], 500_000);
        let (off, ours) = (run(Policy::Off), run(adaptive()));
        assert!(ours.calls <= off.calls / 4, "{load:?}: {} of {} calls", ours.calls, off.calls);
        assert!(ours.taken_a_second(0) > 0.98 * off.taken_a_second(0));
        assert_eq!(ours.lost, 0);
    }
}

#[test]
fn a_ramp_up_and_down_makes_few_moves() {
    let mut simulation = Simulation::new(adaptive());
    let ramp = (1..=60).chain((1..60).rev()).map(|step| random(step * 5_000));
    let mut moves = 0;
    for load in ramp {
        simulation.load(&[load]);
        moves += simulation.run(20_000).moves.len();
    }
    assert!(moves <= 6, "{moves} moves");
}

#[test]
fn adaptive_observed_every_10_ms_settles_within_50_ms_and_rests() {
    for (load, part) in [([random(50_000)].as_slice(), 0.25), (&[random(300_000)], 0.25), (&[EXCHANGE], 1.0)]
    {
        let mut simulation = Simulation::with(vec![adaptive()], Costs::default(), 10);
        simulation.load(load);
        simulation.run(50_000);
        let (ours, off) = (simulation.run(500_000), settled(Policy::Off, load, 500_000));
        assert_eq!(ours.moves, [], "{load:?}");
        assert!(ours.calls_a_second() <= part * off.calls_a_second() * 1.01, "{load:?}");
    }
}

/// Prints the table of docs/moderation.md:
/// `cargo test --release -p forebay-policy simulated_table -- --ignored --nocapture`
#[test]
#[ignore = "prints a table"]
fn simulated_table() {
    for (name, loads) in kinds() {
        let row = |policy| {
            let out = settled(policy, &loads, 2_000_000);
            let packets = out.taken.iter().sum::<u64>() as f64 / out.seconds / 1000.0;
            let [p50, p99] = [50.0, 99.0].map(|hundredths| out.latency_us(0, hundredths));
            let guest = out.guest_ns as f64 / out.seconds / 1e7;
            let calls = out.calls_a_second() / 1000.0;
            format!("{packets:.1} | {calls:.1} | {guest:.0} | {p50:.1} / {p99:.1} | {}", out.moves.len())
        };
        println!("| {name} | off | {} |", row(Policy::Off));
        println!("| | dim | {} |", row(dim()));
        println!("| | adaptive | {} |", row(adaptive()));
    }
}
