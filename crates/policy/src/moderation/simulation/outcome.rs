//! What came out of a stretch of virtual time.

use crate::moderation::limits::Settings;

/// Counts of all queues, and of each source.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Length of the stretch.
    pub seconds: f64,
    /// Calls of the guest.
    pub calls: u64,
    /// Turns in which something was shown, once for each queue.
    pub batches: u64,
    /// Packets that the guest took, by source.
    pub taken: Vec<u64>,
    /// Bytes that the guest took.
    pub bytes: u64,
    /// Packets for which a ring had no room.
    pub lost: u64,
    /// Time for which the guest's processor was busy, in nanoseconds.
    pub guest_ns: u64,
    /// When settings changed, in nanoseconds, and to what.
    pub moves: Vec<(u64, Settings)>,
    /// Nanoseconds from a packet's arrival until the guest had it, by source.
    latencies: Vec<Vec<u32>>,
}

impl Outcome {
    pub(super) fn of(micros: u64, sources: usize) -> Self {
        Self {
            seconds: micros as f64 / 1e6,
            taken: vec![0; sources],
            latencies: vec![Vec::new(); sources],
            ..Self::default()
        }
    }

    pub(super) fn had(&mut self, source: usize, bytes: u32, nanos: u64) {
        self.taken[source] += 1;
        self.bytes += u64::from(bytes);
        self.latencies[source].push(u32::try_from(nanos).unwrap_or(u32::MAX));
    }

    /// Calls a second.
    pub fn calls_a_second(&self) -> f64 {
        self.calls as f64 / self.seconds
    }

    /// Packets a second that the guest took from one source.
    pub fn taken_a_second(&self, source: usize) -> f64 {
        self.taken[source] as f64 / self.seconds
    }

    /// Gigabits a second that the guest took.
    pub fn gigabits(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds / 1e9
    }

    /// Share of time for which the guest's processor was busy.
    pub fn guest_share(&self) -> f64 {
        self.guest_ns as f64 / self.seconds / 1e9
    }

    /// Latency of one source in microseconds; `hundredths` of its packets were faster. 0 if it had none.
    pub fn latency_us(&self, source: usize, hundredths: f64) -> f64 {
        let mut latencies = self.latencies[source].clone();
        if latencies.is_empty() {
            return 0.0;
        }
        latencies.sort_unstable();
        let rank = (latencies.len() - 1) as f64 * hundredths / 100.0;
        f64::from(latencies[rank as usize]) / 1000.0
    }
}
