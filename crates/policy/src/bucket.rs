//! A token bucket: at most `burst` at once, `per_second` in the long run.
//!
//! The switch keeps one per port for flooding and pays a token for every copy it makes, because one broadcast among
//! a thousand ports is a thousand transmissions.
//!
//! The rule it keeps: what is taken between any two moments *t* apart never exceeds `burst + per_second · t`, and a
//! taker that asks often enough gets exactly that, for ever. The level is therefore kept in billionths of a token,
//! in which a nanosecond's refill is a whole number: there is no rounding, hence no drift.

use crate::Nanos;

/// How fast and how bursty something may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Tokens that flow in per second; 0 means unlimited.
    pub per_second: u64,
    /// Tokens that the bucket holds, and begins with. A single take of more never succeeds: for flooding, keep it at
    /// no less than the number of ports, or their first broadcast starves for ever.
    pub burst: u64,
}

impl Rate {
    /// No limit at all.
    pub const UNLIMITED: Rate = Rate { per_second: 0, burst: 0 };

    const fn capacity(self) -> u128 {
        self.burst as u128 * Nanos::PER_SECOND as u128
    }
}

/// A bucket and what is in it. All calls are constant-time and may be made on the packet path.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// Billionths of a token; at most `rate.capacity()`.
    level: u128,
    /// The latest moment seen, up to which the inflow is in `level`.
    filled_at: Nanos,
}

impl TokenBucket {
    /// A full bucket.
    pub const fn new(rate: Rate, now: Nanos) -> Self {
        TokenBucket { rate, level: rate.capacity(), filled_at: now }
    }

    /// Takes `tokens` if that many are there; takes nothing otherwise. Taking 0 always succeeds.
    ///
    /// A `now` earlier than one seen before brings no inflow and costs none: what flows in is counted once, when
    /// time passes the latest moment seen.
    #[must_use]
    pub fn take(&mut self, now: Nanos, tokens: u64) -> bool {
        if self.rate.per_second == 0 {
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
        if self.rate.per_second == 0 {
            return u64::MAX;
        }
        self.fill(now);
        // At most `burst`, so it fits.
        (self.level / u128::from(Nanos::PER_SECOND)) as u64
    }

    /// The limit in force.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Changes the limit. What is in the bucket stays, as far as it fits; a bucket that was unlimited begins full.
    pub fn set_rate(&mut self, now: Nanos, rate: Rate) {
        let was_unlimited = self.rate.per_second == 0;
        self.fill(now);
        self.rate = rate;
        self.level = if was_unlimited { rate.capacity() } else { self.level.min(rate.capacity()) };
    }

    fn fill(&mut self, now: Nanos) {
        let elapsed = now.since(self.filled_at);
        // The product of two u64 fits a u128; the sum may not, and is cut to the capacity anyway.
        let inflow = u128::from(elapsed) * u128::from(self.rate.per_second);
        self.level = self.level.saturating_add(inflow).min(self.rate.capacity());
        self.filled_at = self.filled_at.max(now);
    }
}

#[cfg(test)]
mod tests;
