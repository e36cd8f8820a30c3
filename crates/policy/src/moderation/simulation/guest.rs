//! The guest's processor: calls, and packets taken as NAPI takes them.

use std::collections::VecDeque;

/// Packets of one queue before it is the next one's turn.
const BUDGET: u32 = 64;

/// What things cost. All of it is stated, and nothing measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A turn of the worker, in nanoseconds.
    pub turn_ns: u64,
    /// What each packet adds to it, in nanoseconds.
    pub copy_ns: u64,
    /// A call, in nanoseconds of the guest's processor.
    pub call_ns: u64,
    /// A packet, in nanoseconds of the guest's processor.
    pub packet_ns: u64,
    /// … and each byte of it, in picoseconds.
    pub byte_ps: u64,
}

impl Default for Costs {
    /// A guest whose driver takes a packet of any size in the same time.
    fn default() -> Self {
        Self { turn_ns: 1_000, copy_ns: 100, call_ns: 4_000, packet_ns: 500, byte_ps: 0 }
    }
}

impl Costs {
    /// A guest that copies each byte, as Linux in user mode does, and pays 8 µs for a call.
    pub const COPIES: Costs =
        Costs { turn_ns: 1_000, copy_ns: 10_000, call_ns: 8_000, packet_ns: 2_000, byte_ps: 1_000 };

    fn of_packet(&self, bytes: u32) -> u64 {
        self.packet_ns + u64::from(bytes) * self.byte_ps / 1000
    }
}

/// A packet that is being taken.
#[derive(Clone, Copy, Debug)]
struct Work {
    queue: usize,
    until: u64,
}

/// The processor.
pub(super) struct Guest {
    costs: Costs,
    work: Option<Work>,
    /// Packets of this queue in a row.
    in_a_row: u32,
    /// Queues that were called for and wait for their turn.
    polls: VecDeque<usize>,
    /// Queues whose next packet needs a call.
    wants: Vec<bool>,
}

impl Guest {
    pub(super) fn new(queues: usize, costs: Costs) -> Self {
        Self { costs, work: None, in_a_row: 0, polls: VecDeque::new(), wants: vec![true; queues] }
    }

    /// When the packet is taken that it works on.
    pub(super) fn until(&self) -> Option<u64> {
        self.work.map(|work| work.until)
    }

    /// A call for a queue whose first packet has so many bytes. Its cost, if the guest wanted one.
    pub(super) fn call(&mut self, queue: usize, now: u64, bytes: u32) -> Option<u64> {
        if !std::mem::replace(&mut self.wants[queue], false) {
            return None;
        }
        let call_ns = self.costs.call_ns;
        match &mut self.work {
            Some(work) => {
                work.until += call_ns;
                self.polls.push_back(queue);
                Some(call_ns)
            }
            None => {
                let packet_ns = self.costs.of_packet(bytes);
                self.work = Some(Work { queue, until: now + call_ns + packet_ns });
                self.in_a_row = 1;
                Some(call_ns + packet_ns)
            }
        }
    }

    /// A packet is taken. The number of its queue.
    pub(super) fn done(&mut self) -> Option<usize> {
        self.work.take().map(|work| work.queue)
    }

    /// Begins with the next packet; `bytes` of the first packet of a queue. What it costs.
    pub(super) fn goes_on(&mut self, queue: usize, now: u64, bytes: impl Fn(usize) -> Option<u32>) -> u64 {
        let next = match bytes(queue) {
            None => {
                self.wants[queue] = true;
                self.next_poll(&bytes)
            }
            Some(_) if self.in_a_row >= BUDGET => {
                self.polls.push_back(queue);
                self.next_poll(&bytes)
            }
            Some(bytes) => Some((queue, bytes)),
        };
        let Some((queue, bytes)) = next else { return 0 };
        let packet_ns = self.costs.of_packet(bytes);
        self.work = Some(Work { queue, until: now + packet_ns });
        self.in_a_row += 1;
        packet_ns
    }

    fn next_poll(&mut self, bytes: &impl Fn(usize) -> Option<u32>) -> Option<(usize, u32)> {
        self.in_a_row = 0;
        while let Some(queue) = self.polls.pop_front() {
            match bytes(queue) {
                Some(bytes) => return Some((queue, bytes)),
                None => self.wants[queue] = true,
            }
        }
        None
    }
}
