//! What `dim` decides when it is told what the kernel's `net_dim` was told.

use forebay_policy::Nanos;
use forebay_policy::moderation::{Dim, Limits, Profile, Sample};
use forebay_testbed::net_dim::{Call, Phase};

/// Events of a window.
const WINDOW: u16 = 64;
/// Names of [`Call::tune`], in their order.
const TUNES: [&str; 4] =
    ["parked on top", "parked because it was tired", "on the way right", "on the way left"];

/// A window of the kernel's, and what it decided.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    micros: u64,
    packets: u32,
    bytes: u32,
    /// Line in force afterwards.
    line: u8,
    tune: u8,
}

/// All windows of a recording, in which `dim` decided as the kernel did.
#[derive(Debug, Default)]
pub struct Opinion {
    calls: usize,
    windows: Vec<Window>,
    decided: Vec<Limits>,
}

impl Opinion {
    /// Tells `dim` what the kernel was told, and compares line and phase after each call.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn on(calls: &[Call]) -> Result<Opinion, String> {
        let mut opinion = Opinion::default();
        let mut dim = Dim::new(Profile::RX_EQE);
        let (mut clock, mut begin, mut is_applying) = (Clock::default(), None::<Call>, false);
        for pair in calls.windows(2) {
            let [call, next] = [pair[0], pair[1]];
            if call.ns > next.ns || call.start_ns > call.ns {
                return Err(format!("calls overlap: {call:?}, {next:?}"));
            }
            if call.phase == Phase::Start && is_applying {
                dim.applied();
            }
            let sample = Sample { packets: call.packets, bytes: call.bytes, calls: call.events };
            let changed = dim.observe(sample, clock.read(&call));
            opinion.calls += 1;
            if let (Phase::Measuring, Some(begin)) = (call.phase, begin)
                && let Some(window) = window(&begin, &call, &next)
            {
                opinion.windows.push(window);
            }
            if changed {
                opinion.decided.push(dim.limits());
            }
            is_applying = changed || call.phase == Phase::Applying;
            let is_same = (next.line, next.phase != Phase::Measuring, next.instance)
                == (dim.line(), is_applying, call.instance);
            if !is_same {
                let (calls, windows, ours) = (opinion.calls, opinion.windows.len(), dim.line());
                return Err(format!(
                    "after call {calls} and window {windows} dim is at line {ours}, applying: {is_applying}; \
                     Linux was told {call:?} and then was {next:?}"
                ));
            }
            if next.start_ns != call.start_ns {
                begin = Some(call);
            }
        }
        Ok(opinion)
    }

    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Limits of each new line.
    pub fn decided(&self) -> &[Limits] {
        &self.decided
    }

    /// What was compared.
    pub fn summary(&self) -> String {
        let (calls, windows, decided) = (self.calls, self.windows.len(), self.decided.len());
        let of_tune = |(tune, name): (usize, &&str)| {
            let windows = self.windows.iter().filter(|window| usize::from(window.tune) == tune);
            format!("{} {name}", windows.count())
        };
        let tunes: Vec<String> = TUNES.iter().enumerate().map(of_tune).collect();
        format!("compared: {calls} calls, {windows} windows ({}), {decided} new lines", tunes.join(", "))
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Window { micros, packets, bytes, line, .. } = self;
        write!(text, "{micros} {packets} {bytes} {line}")
    }
}

/// The window that ends with this call. `None`: it does not end yet.
fn window(begin: &Call, call: &Call, next: &Call) -> Option<Window> {
    let micros = (call.ns - call.start_ns) / 1000;
    let is_whole = call.events.wrapping_sub(call.start_events) >= WINDOW && micros > 0;
    is_whole.then(|| Window {
        micros,
        packets: call.packets.wrapping_sub(begin.packets),
        bytes: call.bytes.wrapping_sub(begin.bytes),
        line: next.line,
        tune: call.tune,
    })
}

/// Time for `dim`, which reads the clock once for the end of a window and the begin of the next. The kernel reads it twice,
/// so the time between these is left out here.
#[derive(Debug, Default)]
struct Clock {
    start_ns: u64,
    /// The same moment here.
    start: u64,
    now: u64,
}

impl Clock {
    fn read(&mut self, call: &Call) -> Nanos {
        if call.start_ns != self.start_ns {
            // The last call began a window.
            (self.start_ns, self.start) = (call.start_ns, self.now);
        }
        self.now = self.start + (call.ns - call.start_ns);
        Nanos(self.now)
    }
}
