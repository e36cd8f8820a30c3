//! What arrives at the queue.

use std::collections::VecDeque;

use super::Message;

/// A sender, or several of a kind.
#[derive(Clone, Copy, Debug)]
pub(in crate::moderation) enum Load {
    /// One packet after another, with so many nanoseconds between them, whatever becomes of them.
    Paced { gap_ns: u64, bytes: u32, is_ack: bool },
    /// The same at random, with so many nanoseconds between them on average.
    Random { gap_ns: u64, bytes: u32 },
    /// So many packets, one after another, then nothing until the next time, whatever becomes of them.
    Bursts { packets: usize, gap_ns: u64, every_ns: u64, bytes: u32 },
    /// A sender that has at most so many packets under way, and hears of each so many nanoseconds after the guest has
    /// had it: TCP's loop, without its changes of the window.
    Window { packets: usize, loop_ns: u64, bytes: u32 },
    /// Exchanges, so many at once: a message of so many packets, which the guest answers. The next message comes after
    /// so many nanoseconds.
    Exchange { at_once: usize, packets: usize, loop_ns: u64, bytes: u32 },
}

/// A load that runs.
pub(super) struct Source {
    load: Load,
    /// When packets come, in order.
    due: VecDeque<u64>,
    /// Packets of the present message that the guest has had, or of the present burst that were sent.
    had: usize,
}

impl Source {
    pub(super) fn new(load: Load, now: u64) -> Self {
        let due = match load {
            Load::Paced { .. } | Load::Random { .. } | Load::Bursts { .. } => VecDeque::from([now]),
            // Spread over the loop.
            Load::Window { packets, loop_ns, .. } => {
                (0..packets as u64).map(|packet| now + packet * loop_ns / packets as u64).collect()
            }
            Load::Exchange { at_once, packets, .. } => vec![now; at_once * packets].into(),
        };
        Self { load, due, had: 0 }
    }

    /// When the next packet comes.
    pub(super) fn next(&self) -> Option<u64> {
        self.due.front().copied()
    }

    pub(super) fn send(&mut self, random: &mut Random) -> Message {
        let at = self.due.pop_front().unwrap_or_default();
        let (gap, bytes, is_ack, is_answered) = match self.load {
            Load::Paced { gap_ns, bytes, is_ack } => (Some(gap_ns), bytes, is_ack, false),
            Load::Random { gap_ns, bytes } => (Some(random.exponential(gap_ns)), bytes, false, false),
            Load::Bursts { packets, gap_ns, every_ns, bytes } => {
                self.had = (self.had + 1) % packets;
                let rest = every_ns - packets as u64 * gap_ns;
                (Some(if self.had == 0 { gap_ns + rest } else { gap_ns }), bytes, false, false)
            }
            Load::Window { bytes, .. } => (None, bytes, false, false),
            Load::Exchange { bytes, .. } => (None, bytes, false, true),
        };
        self.due.extend(gap.map(|gap| at + gap.max(1)));
        Message { bytes, is_ack, is_answered }
    }

    /// The guest has had a packet, or it was lost and the sender knows.
    pub(super) fn is_done(&mut self, now: u64, random: &mut Random) {
        match self.load {
            Load::Paced { .. } | Load::Random { .. } | Load::Bursts { .. } => {}
            Load::Window { loop_ns, .. } => self.come_back(now + random.about(loop_ns), 1),
            Load::Exchange { packets, loop_ns, .. } => {
                self.had += 1;
                if self.had == packets {
                    self.had = 0;
                    self.come_back(now + random.about(loop_ns), packets);
                }
            }
        }
    }
}

impl Source {
    /// Packets do not overtake each other.
    fn come_back(&mut self, at: u64, packets: usize) {
        let at = self.due.back().map_or(at, |last| at.max(*last));
        self.due.extend(vec![at; packets]);
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
