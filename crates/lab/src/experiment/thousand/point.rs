//! Memory at one point of an experiment.

use std::time::Duration;

use forebay_testbed::measure::memory::InUse;
use forebay_testbed::measure::spread::Spread;
use forebay_testbed::{LabError, Result};

use super::super::megabytes;

/// Readings of memory at one point.
const READINGS: u32 = 11;
const PAUSE: Duration = Duration::from_millis(50);

/// Memory at one point, in bytes: medians, with their spread.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Point {
    pub(in super::super) held: Spread,
    pub(in super::super) available: Spread,
}

impl Point {
    /// Several readings, once memory has come to rest.
    pub(in super::super) fn read(pids: &[u32]) -> Result<Point> {
        InUse::settled(pids)?;
        let reading = |_| {
            std::thread::sleep(PAUSE);
            InUse::now(pids)
        };
        let readings = (0..READINGS).map(reading).collect::<Result<Vec<_>>>()?;
        let spread = |of: fn(&InUse) -> u64| {
            let spread = Spread::of(readings.iter().map(|now| of(now) as f64));
            spread.ok_or_else(|| LabError::output("memory", "no reading"))
        };
        Ok(Point { held: spread(|now| now.held)?, available: spread(|now| now.available)? })
    }

    /// Megabytes more than at an earlier point: as counted, and by MemAvailable.
    pub(in super::super) fn since(&self, earlier: &Point) -> [f64; 2] {
        let held = self.held.median - earlier.held.median;
        let available = earlier.available.median - self.available.median;
        [held, available].map(megabytes)
    }

    /// How far the readings lie apart, in megabytes.
    pub(in super::super) fn width(&self) -> [f64; 2] {
        [self.held, self.available].map(|spread| megabytes(spread.most - spread.least))
    }
}
