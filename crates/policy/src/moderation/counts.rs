//! What one queue has done so far, and what policies observe of it.

/// Two batches with at least this much time and a hold between them have a lull between them, in nanoseconds.
pub(super) const LULL: u64 = 2_000_000;
/// A call that is due by time for longer than this is late, in nanoseconds.
pub(super) const LATE: u64 = 50_000;

/// Counts of one queue since it started. They never go back, so a reader takes differences, however often it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets shown to the guest.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Pure TCP acknowledgements among them.
    pub acks: u64,
    /// Short messages among them.
    pub short: u64,
    /// Packets with data that the guest sent the other way.
    pub answers: u64,
    /// Turns in which packets were shown. Without moderation a call would have been due for each.
    pub batches: u64,
    /// Batches with short messages.
    pub short_batches: u64,
    /// Calls made: notifications, the guest's interrupts.
    pub calls: u64,
    /// Calls that were due and that the guest did not want.
    pub suppressed: u64,
    /// Batches that needed no call of their own, because a later one served them too.
    pub saved: u64,
    /// Time between batches, without lulls of 2 ms and a hold, or more: a high-pass filter. In nanoseconds.
    pub active_ns: u64,
    /// Calls that became due by either limit.
    pub holds: u64,
    /// Those by time, in whose second half no packet came: the sender was done, or waited for the guest.
    pub idle_holds: u64,
    /// Calls that became due by time.
    pub timed: u64,
    /// Of these, those that the worker looked for more than 50 µs too late.
    pub late: u64,
    /// Of idle holds, the time from the first packet to the last, in nanoseconds.
    pub idle_last_ns: u64,
}

impl Counts {
    /// What was added since `before`.
    pub(super) fn since(&self, before: &Counts) -> Counts {
        Counts {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
            acks: self.acks.saturating_sub(before.acks),
            short: self.short.saturating_sub(before.short),
            answers: self.answers.saturating_sub(before.answers),
            batches: self.batches.saturating_sub(before.batches),
            short_batches: self.short_batches.saturating_sub(before.short_batches),
            calls: self.calls.saturating_sub(before.calls),
            suppressed: self.suppressed.saturating_sub(before.suppressed),
            saved: self.saved.saturating_sub(before.saved),
            active_ns: self.active_ns.saturating_sub(before.active_ns),
            holds: self.holds.saturating_sub(before.holds),
            idle_holds: self.idle_holds.saturating_sub(before.idle_holds),
            timed: self.timed.saturating_sub(before.timed),
            late: self.late.saturating_sub(before.late),
            idle_last_ns: self.idle_last_ns.saturating_sub(before.idle_last_ns),
        }
    }
}
