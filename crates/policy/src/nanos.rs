//! Time as policies know it.

/// A point in time, in nanoseconds since some start that the caller chose and keeps; 584 years fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Nanoseconds in a second.
    pub const PER_SECOND: u64 = 1_000_000_000;

    /// The point a number of whole seconds after the start; beyond the last one, the last one.
    pub const fn from_secs(seconds: u64) -> Self {
        Nanos(seconds.saturating_mul(Self::PER_SECOND))
    }

    /// Whole seconds since the start; after 136 years, as many as fit.
    pub const fn seconds(self) -> u32 {
        let seconds = self.0 / Self::PER_SECOND;
        if seconds > u32::MAX as u64 { u32::MAX } else { seconds as u32 }
    }

    /// Nanoseconds from `earlier` to this point, 0 if it is not earlier.
    pub const fn since(self, earlier: Nanos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_a_later_point_is_none() {
        assert_eq!(Nanos(5).since(Nanos(3)), 2);
        assert_eq!(Nanos(3).since(Nanos(5)), 0);
    }

    #[test]
    fn seconds_saturate_rather_than_wrap() {
        assert_eq!(Nanos::from_secs(300).seconds(), 300);
        assert_eq!(Nanos(u64::MAX).seconds(), u32::MAX);
        assert_eq!(Nanos::from_secs(u64::MAX), Nanos(u64::MAX));
    }
}
