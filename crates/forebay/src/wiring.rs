//! The one place that names the switch and the machine's probe.

use std::path::Path;
use std::sync::Arc;

use forebay_control::channels::ChannelPlan;
use forebay_control::doctor::DoctorReport;
use forebay_control::{Config, SwitchControl};
use forebay_kernel::machine::MachineError;
use forebay_kernel::netlink::{NetlinkError, PrivateNetns};
use forebay_kernel::{ShortGracePeriods, probe};
use forebay_switch::{Handover, Switch, SwitchError};

use crate::privileges::{self, PrivilegeError};

/// Why the switch did not start. Nothing of it is left behind; `forebay doctor` tells what the machine lacks.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The process may not do what a switch does.
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    /// No private network namespace for the collector.
    #[error(transparent)]
    Netns(#[from] NetlinkError),
    /// The switch itself.
    #[error(transparent)]
    Switch(#[from] SwitchError),
}

/// Starts the switch; ports follow through [`SwitchControl::port_add`], unless there is something to take over.
///
/// What only the start needs is given up on the way: threads that are started later never have it.
///
/// # Errors
/// What is missing, and what to do.
pub fn start_switch(
    config: &Config,
    handover: Option<Handover>,
) -> Result<Arc<dyn SwitchControl>, StartError> {
    privileges::check()?;
    if ShortGracePeriods::recover() {
        tracing::info!("switched the kernel's rcu_expedited off, which a killed daemon had left on");
    }
    let netns = PrivateNetns::new("collector")?;
    netns.run(privileges::keep_for_running)?;
    privileges::keep_for_running()?;
    Ok(Arc::new(Switch::start(config, netns, handover)?))
}

/// Before the process ends without having stopped the switch: puts back what would stay changed on this machine.
pub fn abandon_switch() {
    ShortGracePeriods::put_back();
}

/// Name of the BPF program `id`, if this process may know.
pub fn program_name(id: u32) -> Option<String> {
    forebay_kernel::program_name(id)
}

/// How channels should lie on the machine whose sysfs is there.
///
/// # Errors
/// What sysfs does not have, or says without sense.
pub fn plan_channels(
    sys: &Path,
    members: &[String],
    channels: Option<u32>,
) -> Result<Vec<ChannelPlan>, MachineError> {
    forebay_switch::plan_channels(sys, members, channels.map(|channels| channels as usize))
}

/// Asks this machine what it offers. Takes some milliseconds; changes nothing that stays.
pub fn probe() -> DoctorReport {
    let config = Config::default();
    probe::run(&probe::Options {
        ports: u64::from(config.switch.max_ports),
        workers: u64::from(config.switch.workers),
        pool_bytes: u64::from(config.pool.frames) * u64::from(config.pool.frame_size),
    })
}
