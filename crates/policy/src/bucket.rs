//! A token bucket: at most `burst` at once, `per_second` in the long run.
//!
//! The switch keeps one per port for flooding and pays a token for every copy it makes, because one broadcast among
//! a thousand ports is a thousand transmissions.
//!
//! The rule it keeps: what is taken between any two moments *t* apart never exceeds `burst + per_second · t`, and a
//! taker that asks often enough gets exactly that, for ever. The level is therefore kept in billionths of a token,
//! in which a nanosecond's refill is a whole number: there is no rounding, hence no drift.

use crate::Nanos;

/// A bucket and what is in it. All calls are constant-time and may be made on the packet path.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    per_second: u64,
    burst: u64,
    /// Billionths of a token; at most [`capacity`] of the burst.
    level: u128,
    /// The latest moment seen, up to which the inflow is in `level`.
    filled_at: Nanos,
}

/// Billionths of a token in a full bucket.
const fn capacity(burst: u64) -> u128 {
    burst as u128 * Nanos::PER_SECOND as u128
}

impl TokenBucket {
    /// A full bucket of `burst` tokens, into which `per_second` flow; 0 of these means no limit at all.
    ///
    /// A single take of more than `burst` never succeeds: for flooding, `burst` must be no less than the number of
    /// ports, or their broadcasts starve for ever.
    pub const fn new(per_second: u64, burst: u64) -> Self {
        // Full, so it does not matter how long ago the filling began.
        TokenBucket { per_second, burst, level: capacity(burst), filled_at: Nanos(0) }
    }

    /// Takes `tokens` if that many are there; takes nothing otherwise. Taking 0 always succeeds.
    ///
    /// A `now` earlier than one seen before brings no inflow and costs none: what flows in is counted once, when
    /// time passes the latest moment seen.
    #[must_use]
    pub fn take(&mut self, now: Nanos, tokens: u64) -> bool {
        if self.per_second == 0 {
            return true;
        }
        self.fill(now);
        let cost = u128::from(tokens) * u128::from(Nanos::PER_SECOND);
        let enough = cost <= self.level;
        if enough {
            self.level -= cost;
        }
        enough
    }

    /// Whole tokens in the bucket at `now`; `u64::MAX` when unlimited.
    #[must_use]
    pub fn available(&mut self, now: Nanos) -> u64 {
        if self.per_second == 0 {
            return u64::MAX;
        }
        self.fill(now);
        // At most `burst`, so it fits.
        (self.level / u128::from(Nanos::PER_SECOND)) as u64
    }

    /// Tokens that flow in per second, 0 when unlimited.
    pub const fn per_second(&self) -> u64 {
        self.per_second
    }

    /// Tokens in a full bucket.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// Changes the limit. What is in the bucket stays, as far as it fits; a bucket that was unlimited begins full.
    pub fn set_rate(&mut self, now: Nanos, per_second: u64, burst: u64) {
        self.fill(now);
        let full = capacity(burst);
        self.level = if self.per_second == 0 { full } else { self.level.min(full) };
        (self.per_second, self.burst) = (per_second, burst);
    }

    fn fill(&mut self, now: Nanos) {
        let elapsed = now.since(self.filled_at);
        // The product of two u64 fits a u128; the sum may not, and is cut to the capacity anyway.
        let inflow = u128::from(elapsed) * u128::from(self.per_second);
        self.level = self.level.saturating_add(inflow).min(capacity(self.burst));
        self.filled_at = self.filled_at.max(now);
    }
}

#[cfg(test)]
mod tests;
