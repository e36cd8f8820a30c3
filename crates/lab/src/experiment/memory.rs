//! What one port costs in memory, the kernel's included: over depths, queues and spool modes, beside Open vSwitch.
//!
//! In every row the same veths become ports of a switch that has just started. A port's cost is what grows between the
//! running switch without ports and with all of them, divided by their number; the whole is what grew since before the
//! switch was started. Every row begins when memory is back to where the row before began.

mod rows;

use std::time::Duration;

use forebay_control::eswitch::SpoolMode;
use forebay_control::port::PortSpec;
use forebay_testbed::dut::{Client, Dut, Ovs};
use forebay_testbed::lab::Lab;
use forebay_testbed::measure::memory::{self, InUse};
use forebay_testbed::{LabError, Result, wait};
use rows::{Prediction, Row, Switch};

use super::{OutputOptions, Report, Setup, WORKER_CPU, growth, megabytes};

const QUEUES: [u32; 2] = [1, 2];
const MODES: [SpoolMode; 3] = [SpoolMode::None, SpoolMode::Basic, SpoolMode::Spp];
/// Frames of the collector's pool in every mode; in `none` ports do not use it, and their own memory comes on top.
const POOL_FRAMES: u32 = 16384;
/// Memory that the switch before leaves behind may take this long to be free again.
const RETURN_LIMIT: Duration = Duration::from_secs(15);
/// So near to the baseline before is as good as back.
const RETURN_BYTES: u64 = 2 << 20;
/// What Open vSwitch takes for a port and queue at most, to know how many ports the machine has room for.
const OVS_PORT_BYTES: u64 = 100 << 20;

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Number of ports in each row of the table
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub ports: u32,
    /// Depths of a port's ring
    #[arg(long, value_delimiter = ',', default_value = "64,128,256,512,1024,2048", value_name = "LIST")]
    pub depths: Vec<u32>,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports.
///
/// # Errors
/// When a lab can't be made or a switch does not do what it must.
pub fn run(options: &Options) -> Result<bool> {
    let about = "Veths that carry nothing become ports of a switch that has just started. Memory is the kernel's (slabs, \
                 vmalloc, per-CPU, page tables, stacks) and the daemon's own. A port: what grows from the running switch \
                 without ports to the one with all, divided. The whole: what grew since before the switch was started. \
                 Predicted: what `forebay pool estimate` says.";
    let mut report = Report::begin("memory", format!("Memory of a port, {} ports", options.ports), about);
    let mut rows = Vec::new();
    let outcome = measure(options, &mut report, &mut rows);
    rows::fill(&mut report, &options.depths, &rows);
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, report: &mut Report, rows: &mut Vec<Row>) -> Result<()> {
    for queues in QUEUES {
        let lab = Lab::new("memory")?;
        let _peers = lab.bulk_veths_of_queues(options.ports as usize, queues)?;
        let mut bed = Bed { lab: &lab, queues, last: InUse::settled(&[])? };
        for mode in MODES {
            for depth in &options.depths {
                let (depth, frames) = (Some(*depth), Some(POOL_FRAMES));
                let setup = Setup { mode, workers: queues, depth, frames, ..Setup::default() };
                rows.extend(bed.forebay(options.ports, setup, report)?);
            }
        }
        rows.extend(bed.ovs(options.ports, report)?);
    }
    Ok(())
}

/// A lab with veths that wait to become ports.
struct Bed<'a> {
    lab: &'a Lab,
    queues: u32,
    /// The baseline before.
    last: InUse,
}

/// What was read of one switch, in bytes.
#[derive(Debug, Clone, Copy)]
struct Cost {
    without_ports: f64,
    whole: f64,
}

impl Bed<'_> {
    fn forebay(&mut self, ports: u32, setup: Setup, report: &mut Report) -> Result<Option<Row>> {
        let (depth, queues) = (setup.depth.unwrap_or_default(), self.queues);
        eprintln!("spool mode {}, depth {depth}, {queues} queues", setup.mode);
        let before = self.baseline(report)?;
        let Some(mut forebay) = setup.start(self.lab, report)? else { return Ok(None) };
        let cost = cost(&mut forebay, ports, before)?;
        let predicted = predicted(forebay.client(), ports, &setup, report)?;
        let switch = Switch::Forebay { mode: setup.mode, depth };
        let without_ports = megabytes(cost.without_ports);
        Ok(Some(Row { switch, queues, ports, without_ports, whole: megabytes(cost.whole), predicted }))
    }

    fn ovs(&mut self, ports: u32, report: &mut Report) -> Result<Option<Row>> {
        if !Ovs::is_installed() {
            report.skip("Open vSwitch: openvswitch-switch-dpdk is not installed");
            return Ok(None);
        }
        let room = memory::available()? / 2 / (OVS_PORT_BYTES * u64::from(self.queues));
        let ports = ports.min(u32::try_from(room).unwrap_or(u32::MAX));
        if ports == 0 {
            report.skip("Open vSwitch: this machine has no memory for a single port of it");
            return Ok(None);
        }
        eprintln!("Open vSwitch, {ports} ports, {} queues", self.queues);
        let before = self.baseline(report)?;
        let mut ovs = Ovs::start(self.lab, WORKER_CPU)?.of_queues(self.queues);
        let cost = cost(&mut ovs, ports, before)?;
        let (without_ports, whole) = (megabytes(cost.without_ports), megabytes(cost.whole));
        let (switch, queues) = (Switch::Ovs, self.queues);
        Ok(Some(Row { switch, queues, ports, without_ports, whole, predicted: None }))
    }

    /// Memory before a switch is started, once the one before has given all back.
    fn baseline(&mut self, report: &mut Report) -> Result<InUse> {
        let is_back = || InUse::now(&[]).is_ok_and(|now| now.held <= self.last.held + RETURN_BYTES);
        let _ = wait::until("memory to be free again", RETURN_LIMIT, is_back);
        let before = InUse::settled(&[])?;
        if before.held > self.last.held + RETURN_BYTES {
            let more = megabytes(growth(self.last.held, before.held));
            report.note(format!(
                "A row began with {more:.1} MB more of kernel memory in use than the one before: of others on this \
                 machine, or left by that row's switch."
            ));
        }
        self.last = before;
        Ok(before)
    }
}

fn cost(dut: &mut dyn Dut, ports: u32, before: InUse) -> Result<Cost> {
    let without = InUse::settled(&dut.pids())?;
    let specs: Vec<PortSpec> = (1..=ports).map(|n| PortSpec::new(format!("p{n}"))).collect();
    dut.add_ports(&specs)?;
    let with = InUse::settled(&dut.pids())?;
    Ok(Cost { without_ports: growth(before.held, without.held), whole: growth(before.held, with.held) })
}

/// Exit status of wrong usage: this program has no such verb.
const USAGE_STATUS: i32 = 2;

/// What `forebay pool estimate` says; `None` where there is no such verb.
fn predicted(client: &Client, ports: u32, setup: &Setup, report: &mut Report) -> Result<Option<Prediction>> {
    let numbers = [ports, setup.depth.unwrap_or_default(), setup.workers, POOL_FRAMES];
    let words = numbers.map(|number| number.to_string());
    let [ports, depth, workers, frames] = words.each_ref().map(String::as_str);
    let mode = setup.mode.name();
    let verb = ["pool", "estimate", "--ports", ports, "--depth", depth, "--mode", mode, "--workers", workers];
    // As many queues as workers: so it is measured.
    let finished =
        client.call(&[&verb[..], &["--queues", workers, "--frames", frames, "--json"]].concat())?;
    if finished.status.code() == Some(USAGE_STATUS) {
        report.skip("predictions: this forebay has no `pool estimate` yet");
        return Ok(None);
    }
    let finished = finished.success()?;
    let prediction = prediction(&finished.stdout);
    prediction.map(Some).ok_or_else(|| LabError::output("`pool estimate`", finished.stdout))
}

/// What a configuration takes in all, and what one more port takes.
fn prediction(json: &str) -> Option<Prediction> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let field = |name: &str| value.get(name)?.as_f64().map(megabytes);
    Some(Prediction { whole: field("total_bytes")?, a_port: field("bytes_a_port")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_says_what_all_takes_and_what_one_port_takes() {
        let json = "{\"total_bytes\": 52377768, \"bytes_a_port\": 14056, \"parts\": []}";
        let read = prediction(json).unwrap();
        assert_eq!((read.whole, read.a_port), (52.377768, 0.014056));
        assert!(prediction("{\"ports\": 1}").is_none());
    }
}
