//! What the verbs know of one packet of the burst: each writes its part and reads those before it.
//!
//! Every verb passes over all records of the burst. So a record fills one cache line, and what few verbs read, hints, lies
//! elsewhere.

use forebay_control::DropReason;

use super::TURN;
use super::classify::Classified;
use super::facts::Facts;
use super::stretch::Found;
use super::verdict::Verdict;

/// One packet's record.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Record {
    /// By receive: what the source knows of it.
    pub(super) facts: Facts,
    /// The decision that it repeats, if it does.
    pub(super) repeats: Option<Found>,
    /// By classify: its headers.
    pub(super) classified: Classified,
    /// By decide: where it goes.
    pub(super) verdict: Verdict,
}

const _: () = assert!(size_of::<Record>() == 64, "a cache line");

impl Record {
    /// Whether both packets have the same headers, and no program has told a flow of either. Nothing but rules can tell
    /// them apart then.
    #[inline]
    pub(super) fn is_like(&self, other: &Record) -> bool {
        let is_told = |record: &Record| record.facts.flow_id != 0 || record.repeats.is_some();
        match (&self.classified, &other.classified) {
            (Ok(own), Ok(others)) => own == others && !is_told(self) && !is_told(other),
            _ => false,
        }
    }
}

/// As many as a burst has packets at most. What lies behind the burst's packets is of bursts before.
pub(super) fn records() -> Box<[Record]> {
    let record = Record {
        facts: Facts::default(),
        repeats: None,
        classified: Err(DropReason::PortDown),
        verdict: Verdict::Drop(DropReason::PortDown),
    };
    vec![record; TURN].into_boxed_slice()
}
