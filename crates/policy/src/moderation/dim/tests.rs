use super::oracle::{Oracle, Reading};
use super::*;

impl Dim {
    fn word(&self) -> &'static str {
        match self.tune {
            Tune::ParkedTop => "PARK_TOP",
            Tune::ParkedTired => "PARK_TIRED",
            Tune::Right => "RIGHT",
            Tune::Left => "LEFT",
        }
    }
}

/// What a window is like: nanoseconds, packets and bytes, by the window's number and the line in force.
type Load = dyn Fn(usize, u8) -> (u64, u32, u32);

/// Line and state after each window of 64 calls.
fn trace(windows: usize, load: &Load) -> String {
    let mut dim = Dim::new(Profile::RX_EQE);
    let (mut now, mut sample) = (1_000_000_000, Sample::default());
    let mut trace = Vec::new();
    dim.observe(sample, Nanos(now));
    for window in 0..windows {
        let (nanos, packets, bytes) = load(window, dim.line());
        now += nanos;
        sample.calls = sample.calls.wrapping_add(WINDOW);
        sample.packets = sample.packets.wrapping_add(packets);
        sample.bytes = sample.bytes.wrapping_add(bytes);
        if dim.observe(sample, Nanos(now)) {
            assert!(!dim.observe(sample, Nanos(now)), "it waits until the change is applied");
            dim.applied();
            assert!(!dim.observe(sample, Nanos(now)));
        }
        let state = match dim.tune {
            Tune::ParkedTop => "TOP",
            Tune::ParkedTired => "TIRED",
            Tune::Right => "R",
            Tune::Left => "L",
        };
        trace.push(format!("{}{state}", dim.line));
    }
    trace.join(" ")
}

#[test]
fn trace_a_where_nothing_depends_on_the_limits_it_never_settles() {
    let cycle =
        "1R 0L 1R 0L 1R 0L 1R 0L 1R 0L 0TIRED 0TIRED 0TIRED 0TIRED 0TIRED 0TIRED 0TIRED 0TIRED 0TIRED 0TIRED";
    let found = trace(60, &|_, _| (640_000, 1000, 1_000_000));
    assert_eq!(found, [cycle; 3].join(" "));
}

#[test]
fn trace_b_fewer_calls_are_better_up_to_the_last_line() {
    let load = |_, line: u8| {
        let gap_us = [1, 8, 64, 128, 256][usize::from(line)].max(5);
        let packets = 64 * gap_us;
        (u64::from(packets) * 1000, packets, packets * 100)
    };
    assert_eq!(trace(8, &load), "1R 2R 3R 4R 4TOP 4TOP 4TOP 4TOP");
}

/// Thousands of packets a second by line.
const HUMP: [u32; 5] = [800, 900, 1300, 1100, 700];

#[test]
fn trace_c_it_stays_at_the_best_of_three() {
    let load = |_, line: u8| {
        let packets = 10 * HUMP[usize::from(line)];
        (10_000_000, packets, 100 * packets)
    };
    assert_eq!(trace(8, &load), "1R 2R 3R 2L 2TOP 2TOP 2TOP 2TOP");
}

#[test]
fn trace_d_it_looks_around_when_the_load_halves_and_comes_back() {
    let load = |window, line: u8| {
        let packets = if window < 12 { 10 } else { 5 } * HUMP[usize::from(line)];
        (10_000_000, packets, 100 * packets)
    };
    let found = trace(19, &load);
    let top = "2TOP ".repeat(8);
    assert_eq!(found, format!("1R 2R 3R 2L {top}1L 2R 3R 2L 2TOP 2TOP 2TOP"));
}

/// The first counts are zero, and a new line is applied at once.
#[test]
fn recorded_windows_are_decided_as_linux_decided_them() {
    let recorded = include_str!("recorded.txt");
    let mut dim = Dim::new(Profile::RX_EQE);
    let (mut now, mut sample) = (0, Sample::default());
    dim.observe(sample, Nanos(now));
    for (number, window) in recorded.lines().filter(|line| !line.starts_with('#')).enumerate() {
        let numbers: Vec<u64> = window.split(' ').map(|number| number.parse().unwrap()).collect();
        let [micros, packets, bytes, line] = numbers[..] else { panic!("{window}") };
        now += micros * 1000;
        sample.calls = sample.calls.wrapping_add(WINDOW);
        sample.packets = sample.packets.wrapping_add(packets as u32);
        sample.bytes = sample.bytes.wrapping_add(bytes as u32);
        if dim.observe(sample, Nanos(now)) {
            dim.applied();
            dim.observe(sample, Nanos(now));
        }
        assert_eq!(u64::from(dim.line()), line, "window {number}");
    }
}

#[test]
fn a_difference_of_less_than_eleven_hundredths_is_none() {
    let verdict = |packets| {
        let rates =
            |packets| Rates::between(Sample::default(), Sample { packets, bytes: 5, calls: 64 }, 1000);
        rates(packets).unwrap().against(&rates(1000).unwrap())
    };
    let verdicts = [890, 891, 1000, 1109, 1110].map(verdict);
    assert_eq!(verdicts, [Verdict::Worse, Verdict::Same, Verdict::Same, Verdict::Same, Verdict::Better]);
}

#[test]
fn a_window_without_time_is_not_used_and_not_begun_anew() {
    let mut dim = Dim::default();
    let sample = |calls| Sample { packets: 1, bytes: 100 * u32::from(calls), calls };
    dim.observe(sample(0), Nanos(0));
    assert!(!dim.observe(sample(64), Nanos(999)));
    assert!(dim.observe(sample(65), Nanos(1000)), "the window from 0 on");
}

#[test]
fn another_table_is_used_at_the_line_where_it_is() {
    let mut dim = Dim::default();
    dim.observe(Sample::default(), Nanos(0));
    assert!(dim.observe(Sample { packets: 1, bytes: 1, calls: 64 }, Nanos(1_000_000)));
    assert_eq!(dim.limits(), Limits { usecs: 8, packets: 256 });
    dim.set_profile(Profile::TX_CQE);
    assert_eq!((dim.line(), dim.limits()), (1, Limits { usecs: 8, packets: 64 }));
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// A load that sometimes changes, and that sometimes depends on the line.
struct RandomLoad {
    window_us: u64,
    packets: u64,
    bytes: u64,
    by_line: [u64; 5],
    /// Hundredths by which windows differ.
    noise: u64,
}

impl RandomLoad {
    fn new(random: &mut Random) -> Self {
        let by_line = match random.below(3) {
            0 => [100; 5],
            _ => [(); 5].map(|()| 20 + random.below(100)),
        };
        let magnitude = random.below(20) as u32;
        Self {
            window_us: random.below(1 << magnitude.max(4)),
            packets: random.below(1 << magnitude),
            bytes: random.below(1 << (magnitude + 10)),
            by_line,
            noise: [0, 3, 9, 12, 100][random.below(5) as usize],
        }
    }

    fn window(&self, line: u8, random: &mut Random) -> [u64; 3] {
        [self.window_us, self.packets, self.bytes].map(|count| {
            let noisy = count * (100 + random.below(self.noise + 1)) / 100;
            noisy * self.by_line[usize::from(line)] / 100
        })
    }
}

/// Plays `windows` windows and compares each call with the oracle.
fn compare(windows: u64, seed: u64) {
    let mut random = Random(seed);
    let (mut now, mut sample) = (random.below(1 << 40), Sample::default());
    sample.packets = u32::MAX - random.below(1000) as u32;
    sample.bytes = u32::MAX - random.below(1 << 30) as u32;
    sample.calls = u16::MAX - random.below(100) as u16;
    let (mut dim, mut oracle) = (Dim::default(), Oracle::new());
    let (mut load, mut changes) = (RandomLoad::new(&mut random), 0u64);
    for number in 0..windows {
        if random.below(40) == 0 {
            load = RandomLoad::new(&mut random);
        }
        if random.below(2000) == 0 {
            (dim, oracle) = (Dim::default(), Oracle::new());
        }
        let [usecs, packets, bytes] = load.window(dim.line(), &mut random);
        now += usecs * 1000 + random.below(1000);
        sample.packets = sample.packets.wrapping_add(packets as u32);
        sample.bytes = sample.bytes.wrapping_add(bytes as u32);
        // Mostly one call for a window: those in between do nothing, which the rest shows.
        let calls = if random.below(8) == 0 { random.below(80) as u16 } else { WINDOW };
        sample.calls = sample.calls.wrapping_add(calls);
        let Sample { packets: pkts, bytes, calls: events } = sample;
        let changed = dim.observe(sample, Nanos(now));
        assert_eq!(changed, oracle.net_dim(Reading { ns: now, pkts, bytes, events }), "window {number}");
        assert_eq!((i32::from(dim.line()), dim.word()), (oracle.ix, oracle.tune), "window {number}");
        let is_applying = oracle.phase == "APPLYING";
        assert_eq!(dim.phase == Phase::Applying, is_applying, "window {number}");
        changes += u64::from(changed);
        if is_applying && random.below(4) > 0 {
            dim.applied();
            oracle.apply_worker();
            // The next call begins the window. Without it a load would have changed half as often.
            let reading = Reading { ns: now, pkts, bytes, events };
            assert_eq!(dim.observe(sample, Nanos(now)), oracle.net_dim(reading));
        }
    }
    assert!(changes > windows / 20, "only {changes} changes in {windows} windows");
}

#[test]
fn random_windows_are_decided_as_the_description_of_linux_says() {
    (1..=8).for_each(|seed| compare(25_000, seed));
}

/// `cargo test --release -p forebay-policy ten_million -- --ignored`
#[test]
#[ignore = "takes 1 s in a release build and 5 s without optimisation"]
fn ten_million_random_windows_are_decided_as_the_description_of_linux_says() {
    (101..=110).for_each(|seed| compare(1_000_000, seed));
}
