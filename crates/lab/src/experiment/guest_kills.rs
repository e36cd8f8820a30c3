//! Virtual machines (Linux in user mode) that are killed under traffic, and switches that are killed below machines: what
//! others notice, what stays behind, and who goes on.

mod machines;
mod pings;
mod switches;

use forebay_testbed::Result;
use forebay_testbed::machine::Machine;

use super::{OutputOptions, Report, Table};

/// How to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Number of times that a virtual machine is killed under traffic
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub guests_killed: u32,
    /// Number of times that the daemon is killed with virtual machines connected
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub switch_killed: u32,
    /// Where the report goes.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Measures and reports; false when a ping was lost, something stayed behind, or a machine did not go on.
///
/// # Errors
/// When the lab can't be made, or a machine does not boot.
pub fn run(options: &Options) -> Result<bool> {
    let title = format!(
        "{} virtual machines killed, and {} daemons below virtual machines",
        options.guests_killed, options.switch_killed
    );
    let about = "Linux in user mode is booted, sends and receives, and is killed with SIGKILL, again and again; by turns it \
                 floods with pings that are answered, and sends a TCP stream that comes back. Meanwhile a container pings \
                 another, and a machine that is not killed. What the daemon holds is compared with what it held before. \
                 Then the daemon is killed with SIGKILL and started again with --handover, below two machines that stay: \
                 one with split rings, one with packed rings whose front end keeps the daemon's notes. Each front end \
                 connects again by a relay, because Linux in user mode itself does not. A TCP connection into each \
                 machine is used after each kill.";
    let mut report = Report::begin("guest-kills", title, about);
    let outcome = measure(options, &mut report);
    report.conclude(outcome, &options.output)
}

fn measure(options: &Options, report: &mut Report) -> Result<()> {
    if !Machine::is_installed() {
        report.skip("everything: user-mode-linux is not installed");
        return Ok(());
    }
    if options.guests_killed > 0 {
        machines::measure(options.guests_killed, report)?;
    }
    if options.switch_killed > 0 {
        switches::measure(options.switch_killed, report)?;
    }
    Ok(())
}
