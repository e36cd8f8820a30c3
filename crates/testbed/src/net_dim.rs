//! What the running kernel's own NetDIM is told and what it decides, call by call: a probe at `net_dim`, by the kernel's
//! tracing.
//!
//! The probe reads a call's arguments, and the state that the call finds. So a decision is seen with the next call. Fields
//! are found by the kernel's types (BTF). The sample, which is passed by value, is found where a function that is called by
//! the x86-64 ABI has it: behind the return address.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{LabError, Result};

const TRACING: &str = "/sys/kernel/debug/tracing";
const PROBE: &str = "fb_net_dim";
/// What the probe reads; names as in [`Call`].
const FIELDS: &str = "dim phase=dim->state line=dim->profile_ix tune=dim->tune_state \
    start_ns=dim->start_sample.time start_events=dim->start_sample.event_ctr \
    ns=+8($stack):u64 packets=+16($stack):u32 bytes=+20($stack):u32 events=+24($stack):u16";
/// Memory for each processor's calls: some 300,000.
const BUFFER_KIB: &str = "32768";

/// What an instance waits for when it is called (`state` in include/linux/dim.h, Linux 6.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The first sample of a window.
    Start,
    /// The end of the window.
    Measuring,
    /// Its driver, which is to apply what was decided.
    Applying,
}

/// One call of `net_dim`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Tells instances apart.
    pub instance: u64,
    /// What the instance was waiting for.
    pub phase: Phase,
    /// Number of the line in force, from 0 to 4 (`profile_ix`).
    pub line: u8,
    /// Where its search was (`tune_state`): parked on top, parked because it was tired, to the right, to the left.
    pub tune: u8,
    /// When the window began, by the kernel's clock.
    pub start_ns: u64,
    /// Count of events at the window's begin.
    pub start_events: u16,
    /// When the sample was taken.
    pub ns: u64,
    /// Packets up to now.
    pub packets: u32,
    /// Bytes up to now.
    pub bytes: u32,
    /// Events up to now.
    pub events: u16,
}

/// Records all calls until it is dropped. There is one at a time.
#[derive(Debug)]
pub struct Recorder(());

impl Recorder {
    /// Begins to record.
    ///
    /// # Errors
    /// The kernel has no `net_dim`, no types, or no tracing of functions.
    pub fn start() -> Result<Self> {
        // One for all processors: an instance moves between them.
        write("trace_clock", "mono")?;
        write("buffer_size_kb", BUFFER_KIB)?;
        write("kprobe_events", &format!("p:{PROBE} net_dim {FIELDS}"))?;
        let recorder = Self(());
        write(&format!("events/kprobes/{PROBE}/enable"), "1")?;
        Ok(recorder)
    }

    /// Number of calls up to now.
    ///
    /// # Errors
    /// The kernel missed a call.
    pub fn count(&self) -> Result<u64> {
        let said = read("kprobe_profile")?;
        let words: Vec<&str> =
            said.lines().find(|line| line.contains(PROBE)).unwrap_or_default().split_whitespace().collect();
        match words[..] {
            [_, hits, "0"] => hits.parse().map_err(|_| LabError::output("kprobe_profile", said)),
            _ => Err(LabError::output("kprobe_profile", said)),
        }
    }

    /// Ends the recording. Returns all calls in their order.
    ///
    /// # Errors
    /// The kernel missed a call, or had no memory for one.
    pub fn finish(self) -> Result<Vec<Call>> {
        write(&format!("events/kprobes/{PROBE}/enable"), "0")?;
        self.count()?;
        let trace = read("trace")?;
        parse(&trace).ok_or_else(|| {
            LabError::output("the trace of net_dim", trace.lines().take(20).collect::<Vec<_>>().join("\n"))
        })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = write(&format!("events/kprobes/{PROBE}/enable"), "0");
        let _ = write("kprobe_events", &format!("-:{PROBE}"));
    }
}

/// `None`: a call is missing, or is written in another way.
fn parse(trace: &str) -> Option<Vec<Call>> {
    let counts = trace.lines().find_map(|line| line.strip_prefix("# entries-in-buffer/entries-written: "))?;
    let (kept, written) = counts.split_whitespace().next()?.split_once('/')?;
    let of_probe = format!(" {PROBE}: ");
    let calls: Vec<Call> = trace
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| call(line.split_once(&of_probe)?.1))
        .collect::<Option<_>>()?;
    (kept == written && kept.parse() == Ok(calls.len())).then_some(calls)
}

fn call(fields: &str) -> Option<Call> {
    fn field<T: FromStr>(fields: &str, name: &str) -> Option<T> {
        let word = fields.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
        word.parse().ok()
    }
    let instance: String = field(fields, "dim")?;
    Some(Call {
        instance: u64::from_str_radix(instance.strip_prefix("0x")?, 16).ok()?,
        phase: [Phase::Start, Phase::Measuring, Phase::Applying]
            .get(field::<usize>(fields, "phase")?)
            .copied()?,
        line: field(fields, "line")?,
        tune: field(fields, "tune")?,
        start_ns: field(fields, "start_ns")?,
        start_events: field(fields, "start_events")?,
        ns: field(fields, "ns")?,
        packets: field(fields, "packets")?,
        bytes: field(fields, "bytes")?,
        events: field(fields, "events")?,
    })
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(TRACING).join(file)
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(path(file))
        .map_err(|error| LabError::system(format!("reading {file} of the kernel's tracing"), error))
}

fn write(file: &str, text: &str) -> Result<()> {
    fs::write(path(file), text).map_err(|error| {
        let what = format!("writing `{text}` to {file} of the kernel's tracing");
        LabError::system(what, error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "  <idle>-0  [001] ..s1.  9.128: fb_net_dim: (net_dim+0x0/0x2f0) dim=0xffff8c8f01a2b350 phase=1 \
        line=3 tune=2 start_ns=9000000001 start_events=65535 ns=9100000002 packets=7 bytes=4294967295 events=63\n";

    #[test]
    fn a_call_is_read_from_a_line_of_the_trace() {
        let trace = format!("# tracer: nop\n#\n# entries-in-buffer/entries-written: 1/1   #P:2\n#\n{LINE}");
        let calls = parse(&trace).unwrap();
        let wanted = Call {
            instance: 0xffff_8c8f_01a2_b350,
            phase: Phase::Measuring,
            line: 3,
            tune: 2,
            start_ns: 9_000_000_001,
            start_events: 65_535,
            ns: 9_100_000_002,
            packets: 7,
            bytes: u32::MAX,
            events: 63,
        };
        assert_eq!(calls, [wanted]);
    }

    #[test]
    fn a_trace_that_lacks_a_call_is_refused() {
        for counts in ["1/2", "2/2"] {
            let trace = format!("# entries-in-buffer/entries-written: {counts}   #P:2\n{LINE}");
            assert_eq!(parse(&trace), None, "{counts}");
        }
    }
}
