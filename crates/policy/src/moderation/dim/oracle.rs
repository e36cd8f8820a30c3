//! DIM once more, for tests: written down from a description of Linux's code, paragraph by paragraph, and not from the
//! policy beside it. Numbers are wide and states are words.

/// What a window was like.
#[derive(Clone, Copy, Default)]
struct Stats {
    ppms: i128,
    bpms: i128,
    epms: i128,
}

/// Cumulative counters, and when they were read.
#[derive(Clone, Copy, Default)]
pub(super) struct Reading {
    pub(super) ns: u64,
    pub(super) pkts: u32,
    pub(super) bytes: u32,
    pub(super) events: u16,
}

pub(super) struct Oracle {
    pub(super) phase: &'static str,
    pub(super) tune: &'static str,
    pub(super) ix: i32,
    steps: [u8; 2],
    tired: u8,
    prev: Stats,
    start: Reading,
}

const RIGHT: usize = 0;
const LEFT: usize = 1;

impl Oracle {
    pub(super) fn new() -> Self {
        Self {
            phase: "START",
            tune: "PARK_TOP",
            ix: 0,
            steps: [0, 0],
            tired: 0,
            prev: Stats::default(),
            start: Reading::default(),
        }
    }

    /// 1.2: true if the worker that applies was scheduled.
    pub(super) fn net_dim(&mut self, sample: Reading) -> bool {
        if self.phase == "APPLYING" {
            return false;
        }
        if self.phase == "MEASURING" {
            let n = (65_536 + i64::from(sample.events) - i64::from(self.start.events)) % 65_536;
            if n < 64 {
                return false;
            }
            let dt = i128::from(sample.ns - self.start.ns.min(sample.ns)) / 1000;
            if dt == 0 {
                return false;
            }
            let modulo = |to: u32, from: u32| (i128::from(to) - i128::from(from)).rem_euclid(1 << 32);
            let ceil = |count: i128| {
                let whole = count * 1000 / dt;
                if whole * dt == count * 1000 { whole } else { whole + 1 }
            };
            let stats = Stats {
                ppms: ceil(modulo(sample.pkts, self.start.pkts)),
                bpms: ceil(modulo(sample.bytes, self.start.bytes)),
                epms: ceil(64),
            };
            if self.decide(stats) {
                self.phase = "APPLYING";
                return true;
            }
        }
        self.start = sample;
        self.phase = "MEASURING";
        false
    }

    pub(super) fn apply_worker(&mut self) {
        self.phase = "START";
    }

    /// 1.3
    fn compare(&self, cur: Stats) -> &'static str {
        fn significant(a: i128, reference: i128) -> bool {
            reference != 0 && (100 * (a - reference).abs()).div_euclid(reference) > 10
        }
        let prev = self.prev;
        if prev.bpms == 0 {
            return if cur.bpms != 0 { "BETTER" } else { "SAME" };
        }
        if significant(cur.bpms, prev.bpms) {
            return if cur.bpms > prev.bpms { "BETTER" } else { "WORSE" };
        }
        if prev.ppms == 0 {
            return if cur.ppms != 0 { "BETTER" } else { "SAME" };
        }
        if significant(cur.ppms, prev.ppms) {
            return if cur.ppms > prev.ppms { "BETTER" } else { "WORSE" };
        }
        if prev.epms == 0 {
            return "SAME";
        }
        if significant(cur.epms, prev.epms) {
            return if cur.epms < prev.epms { "BETTER" } else { "WORSE" };
        }
        "SAME"
    }

    /// 1.4
    fn decide(&mut self, cur: Stats) -> bool {
        let (was_tune, was_ix) = (self.tune, self.ix);
        if self.tune == "PARK_TOP" {
            if self.compare(cur) != "SAME" {
                self.exit_parking();
            }
        } else if self.tune == "PARK_TIRED" {
            self.tired -= 1;
            if self.tired == 0 {
                self.exit_parking();
            }
        } else {
            if self.compare(cur) != "BETTER" {
                if self.tune == "RIGHT" {
                    self.tune = "LEFT";
                    self.steps[LEFT] = 0;
                } else {
                    self.tune = "RIGHT";
                    self.steps[RIGHT] = 0;
                }
            }
            let on_top = (self.tune == "RIGHT" && self.steps[LEFT] > 1 && self.steps[RIGHT] == 1)
                || (self.tune == "LEFT" && self.steps[RIGHT] > 1 && self.steps[LEFT] == 1);
            if on_top {
                self.park_top();
            } else {
                match self.step() {
                    "EDGE" => self.park_top(),
                    "TOO_TIRED" => {
                        self.steps = [0, 0];
                        self.tune = "PARK_TIRED";
                    }
                    _ => {}
                }
            }
        }
        if !(was_tune == "PARK_TOP" && self.tune == "PARK_TOP") {
            self.prev = cur;
        }
        self.ix != was_ix
    }

    fn step(&mut self) -> &'static str {
        if self.tired == 2 * 5 {
            return "TOO_TIRED";
        }
        if self.tune == "RIGHT" {
            if self.ix == 4 {
                return "EDGE";
            }
            self.ix += 1;
            self.steps[RIGHT] += 1;
        }
        if self.tune == "LEFT" {
            if self.ix == 0 {
                return "EDGE";
            }
            self.ix -= 1;
            self.steps[LEFT] += 1;
        }
        self.tired += 1;
        "STEPPED"
    }

    fn exit_parking(&mut self) {
        self.tune = if self.ix > 0 { "LEFT" } else { "RIGHT" };
        self.step();
    }

    fn park_top(&mut self) {
        self.steps = [0, 0];
        self.tired = 0;
        self.tune = "PARK_TOP";
    }
}
