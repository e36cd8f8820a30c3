//! The machine the numbers are from, and whether it had anything else to do.

use std::fmt;

use serde::Serialize;

/// Runnable threads a processor, above which numbers are worth little.
const BUSY_LOAD: f64 = 0.25;

/// What is known of the machine when measuring begins.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Machine {
    kernel: String,
    processor: String,
    processors: usize,
    /// Runnable threads on average over the last minute, before anything was measured.
    load_before: f64,
}

impl Machine {
    /// This machine, now.
    pub fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        Machine {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor: model.unwrap_or("unknown").to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            load_before: read("/proc/loadavg").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0),
        }
    }

    fn is_busy(&self) -> bool {
        self.load_before > BUSY_LOAD * self.processors as f64
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { kernel, processor, processors, load_before } = self;
        write!(f, "Linux {kernel}, {processors} × {processor}, load before {load_before:.2}")?;
        if self.is_busy() {
            write!(
                f,
                "\nWARNING: this machine was busy with other work; mind the spreads, or measure again."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_called_busy() {
        let machine = |load_before| Machine { processors: 2, load_before, ..Machine::default() };
        assert!(machine(3.0).to_string().contains("WARNING"));
        assert!(!machine(0.3).to_string().contains("WARNING"));
    }
}
