//! Pings that go on for the whole time.

use forebay_testbed::programs::ping::PingReport;

use crate::experiment::Cell;

/// Columns of a ping that went on for the whole time: sent, lost, and in a row.
pub(super) fn ping_cells(report: &PingReport, longest_outage: u32) -> [Cell; 3] {
    let lost = u64::from(report.sent.saturating_sub(report.received));
    [u64::from(report.sent).into(), lost.into(), u64::from(longest_outage).into()]
}

/// Whether no request was lost but the last, whose reply nobody waits for.
pub(super) fn lost_none(report: &PingReport) -> bool {
    report.received + 1 >= report.sent && report.received > 0 && report.duplicates == 0
}
