//! Watch: how often the housekeeper looks at ports.
//!
//! When nothing happens, once a second. While ports hold frames, ten times, so that an account that says too much is set
//! right soon. While something was put off, or a worker has called lately because a ring has more than its turn takes, fifty
//! times. A call counts for a fifth of a second; then workers are asked to call again.

use crate::Nanos;

/// Between two looks when nothing happens, and between two rounds of slow work.
const TICK: Nanos = Nanos(1_000_000_000);
/// While ports hold frames.
const AUDIT: Nanos = Nanos(100_000_000);
/// While a worker has called lately.
const ALERT: Nanos = Nanos(20_000_000);
/// How long a call counts.
const ALERT_LASTS: Nanos = Nanos(200_000_000);

/// The housekeeper's intervals.
#[derive(Clone, Debug)]
pub struct Watch {
    alert_since: Option<Nanos>,
    ticked: Nanos,
}

impl Watch {
    /// The longest time between two looks when there is something to do soon.
    pub const SOON: Nanos = ALERT;

    /// Begins at `now`; the first tick is a second away.
    pub fn new(now: Nanos) -> Self {
        Self { alert_since: None, ticked: now }
    }

    /// Learns whether a worker has called. Says whether workers are to be asked to call again.
    pub fn observe(&mut self, called: bool, now: Nanos) -> bool {
        if called {
            self.alert_since = Some(now);
        }
        let is_over = self.alert_since.is_some_and(|since| now.since(since) >= ALERT_LASTS.0);
        if is_over {
            self.alert_since = None;
        }
        is_over
    }

    /// Whether it is time for slow work, which is done once a second.
    pub fn ticks(&mut self, now: Nanos) -> bool {
        let ticks = now.since(self.ticked) >= TICK.0;
        if ticks {
            self.ticked = now;
        }
        ticks
    }

    /// Time to the next look. `puts_off`: something waits to be tried again; `holds_frames`: ports hold some.
    pub fn pause(&self, puts_off: bool, holds_frames: bool) -> Nanos {
        match self.alert_since {
            Some(_) => ALERT,
            None if puts_off => ALERT,
            None if holds_frames => AUDIT,
            None => TICK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Nanos = Nanos(5);

    fn at(ns: u64) -> Nanos {
        Nanos(START.0 + ns)
    }

    #[test]
    fn the_housekeeper_looks_as_often_as_there_is_reason_to() {
        let mut watch = Watch::new(START);
        let pauses =
            [(false, false), (false, true), (true, true)].map(|(off, holds)| watch.pause(off, holds));
        assert_eq!(pauses, [TICK, AUDIT, ALERT]);
        assert!(!watch.observe(true, START));
        assert_eq!(watch.pause(false, false), ALERT);
        assert!(!watch.observe(false, at(ALERT_LASTS.0 - 1)));
        assert_eq!(watch.pause(false, false), ALERT, "a call counts for a while");
    }

    #[test]
    fn workers_are_asked_to_call_again_once_after_each_alert() {
        let mut watch = Watch::new(START);
        watch.observe(true, START);
        assert!(watch.observe(false, at(ALERT_LASTS.0)));
        assert_eq!(watch.pause(false, false), TICK);
        assert!(!watch.observe(false, at(2 * ALERT_LASTS.0)));
    }

    #[test]
    fn slow_work_is_done_once_a_second() {
        let mut watch = Watch::new(START);
        let ticks = [TICK.0 - 1, TICK.0, TICK.0 + 1, 2 * TICK.0].map(|ns| watch.ticks(at(ns)));
        assert_eq!(ticks, [false, true, false, true]);
    }
}
