//! What arrives at the queues.

use std::collections::VecDeque;

/// A sender, or several of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// One packet after another, with so many nanoseconds between them, whatever becomes of them.
    Paced {
        /// Time from one to the next.
        gap_ns: u64,
        /// Of each packet.
        bytes: u32,
        /// They are pure TCP acknowledgements.
        is_ack: bool,
    },
    /// The same at random, with so many nanoseconds between them on average.
    Random {
        /// Time from one to the next, on average.
        gap_ns: u64,
        /// Of each packet.
        bytes: u32,
    },
    /// So many packets, one after another, then nothing until the next time, whatever becomes of them.
    Bursts {
        /// Of a burst.
        packets: usize,
        /// Time from one to the next.
        gap_ns: u64,
        /// Time from one burst to the next.
        every_ns: u64,
        /// Of each packet.
        bytes: u32,
    },
    /// A sender that has at most so many packets under way, and hears of each so many nanoseconds after the guest has
    /// had it: TCP's loop, without its changes of the window.
    Window {
        /// Under way at once.
        packets: usize,
        /// From the guest back to the sender, and to the switch.
        loop_ns: u64,
        /// Of each packet.
        bytes: u32,
    },
    /// The same with a window that grows and shrinks as that of TCP does: by a packet for each one that arrived until
    /// one is lost, then by one for each window; a loss halves it. The sender needs time for each packet.
    Tcp {
        /// The receiver's window.
        most: usize,
        /// Time that a packet takes the sender.
        gap_ns: u64,
        /// From the guest back to the sender, and to the switch.
        loop_ns: u64,
        /// Of each packet.
        bytes: u32,
    },
    /// Exchanges, so many at once: a message of so many packets, which the guest answers. The next message comes after
    /// so many nanoseconds.
    Exchange {
        /// At the same time.
        at_once: usize,
        /// Of a message.
        packets: usize,
        /// From the guest's answer to the next message.
        loop_ns: u64,
        /// Of each packet.
        bytes: u32,
    },
}

/// What a source sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) bytes: u32,
    pub(super) is_ack: bool,
    /// The guest answers it with data.
    pub(super) is_answered: bool,
}

/// Packets that a TCP sender begins with.
const FIRST_WINDOW: f64 = 10.0;

/// A TCP sender's state.
struct Tcp {
    window: f64,
    threshold: f64,
    under_way: usize,
    /// When the sender has time for another packet.
    free: u64,
    /// When the window was last cut.
    cut: u64,
}

/// A load that runs.
pub(super) struct Source {
    load: Load,
    /// When packets come, in order; of a TCP sender, when it hears that one has arrived.
    due: VecDeque<u64>,
    /// Packets of the present message that the guest has had, or of the present burst that were sent.
    had: usize,
    tcp: Tcp,
}

impl Source {
    pub(super) fn new(load: Load, now: u64) -> Self {
        let due = match load {
            Load::Paced { .. } | Load::Random { .. } | Load::Bursts { .. } => VecDeque::from([now]),
            // Spread over the loop.
            Load::Window { packets, loop_ns, .. } => {
                (0..packets as u64).map(|packet| now + packet * loop_ns / packets as u64).collect()
            }
            Load::Tcp { .. } => VecDeque::new(),
            Load::Exchange { at_once, packets, .. } => vec![now; at_once * packets].into(),
        };
        let tcp = Tcp { window: FIRST_WINDOW, threshold: f64::INFINITY, under_way: 0, free: now, cut: 0 };
        Self { load, due, had: 0, tcp }
    }

    /// When it has something to do.
    pub(super) fn next(&self) -> Option<u64> {
        match self.load {
            Load::Tcp { most, .. } if self.tcp.has_room(most) => Some(self.tcp.free),
            _ => self.due.front().copied(),
        }
    }

    /// Does what there is to do at `now`; a packet if there is one.
    pub(super) fn send(&mut self, now: u64, random: &mut Random) -> Option<Message> {
        let (gap, bytes, is_ack, is_answered) = match self.load {
            Load::Paced { gap_ns, bytes, is_ack } => (Some(gap_ns), bytes, is_ack, false),
            Load::Random { gap_ns, bytes } => (Some(random.exponential(gap_ns)), bytes, false, false),
            Load::Bursts { packets, gap_ns, every_ns, bytes } => {
                self.had = (self.had + 1) % packets;
                let rest = every_ns - packets as u64 * gap_ns;
                (Some(if self.had == 0 { gap_ns + rest } else { gap_ns }), bytes, false, false)
            }
            Load::Window { bytes, .. } => (None, bytes, false, false),
            Load::Tcp { most, gap_ns, bytes, .. } => {
                let arrived = self.due.iter().take_while(|at| **at <= now).count();
                self.due.drain(..arrived);
                self.tcp.hear(arrived, most);
                return self.tcp.send(now, most, gap_ns).then_some(Message {
                    bytes,
                    is_ack: false,
                    is_answered: false,
                });
            }
            Load::Exchange { bytes, .. } => (None, bytes, false, true),
        };
        let at = self.due.pop_front().unwrap_or_default();
        self.due.extend(gap.map(|gap| at + gap.max(1)));
        Some(Message { bytes, is_ack, is_answered })
    }

    /// The guest has had a packet.
    pub(super) fn is_done(&mut self, now: u64, random: &mut Random) {
        match self.load {
            Load::Paced { .. } | Load::Random { .. } | Load::Bursts { .. } => {}
            Load::Window { loop_ns, .. } | Load::Tcp { loop_ns, .. } => {
                self.come_back(now + random.about(loop_ns), 1);
            }
            Load::Exchange { packets, loop_ns, .. } => {
                self.had += 1;
                if self.had == packets {
                    self.had = 0;
                    self.come_back(now + random.about(loop_ns), packets);
                }
            }
        }
    }

    /// A packet was lost, and its sender knows.
    pub(super) fn is_lost(&mut self, now: u64, random: &mut Random) {
        match self.load {
            Load::Tcp { loop_ns, .. } => self.tcp.lose(now, loop_ns),
            _ => self.is_done(now, random),
        }
    }

    /// Packets do not overtake each other.
    fn come_back(&mut self, at: u64, packets: usize) {
        let at = self.due.back().map_or(at, |last| at.max(*last));
        self.due.extend(std::iter::repeat_n(at, packets));
    }
}

impl Tcp {
    fn has_room(&self, most: usize) -> bool {
        self.under_way < most.min(self.window as usize)
    }

    fn hear(&mut self, arrived: usize, most: usize) {
        self.under_way -= arrived;
        for _ in 0..arrived {
            let more = if self.window < self.threshold { 1.0 } else { 1.0 / self.window };
            self.window = (self.window + more).min(most as f64);
        }
    }

    fn send(&mut self, now: u64, most: usize, gap_ns: u64) -> bool {
        let sends = self.has_room(most) && self.free <= now;
        if sends {
            self.under_way += 1;
            self.free = now + gap_ns.max(1);
        }
        sends
    }

    /// All losses within a loop's time are one.
    fn lose(&mut self, now: u64, loop_ns: u64) {
        self.under_way -= 1;
        if now >= self.cut + loop_ns {
            self.cut = now;
            self.threshold = (self.window / 2.0).max(2.0);
            self.window = self.threshold;
        }
    }
}

/// The same numbers each time.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A tenth more or less at most.
    fn about(&mut self, nanos: u64) -> u64 {
        (nanos as f64 * (0.9 + 0.2 * self.unit())) as u64
    }

    fn exponential(&mut self, mean: u64) -> u64 {
        (-self.unit().ln() * mean as f64) as u64
    }
}
