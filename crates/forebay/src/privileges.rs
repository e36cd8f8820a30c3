//! Capabilities: what the daemon needs, and giving up the rest.

use caps::{CapSet, Capability, CapsHashSet};

/// Needed as long as the daemon runs: netdevs and programs, packet sockets, BPF, pinned packet memory.
const RUNNING: [Capability; 4] =
    [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF, Capability::CAP_IPC_LOCK];
/// Wanted as long as the daemon runs, where it has them. With CAP_PERFMON the kernel adds no speculation barriers to our
/// programs, which make them slower. With CAP_CHOWN a guest's socket can be given to the user that runs the guest.
const WANTED: [Capability; 2] = [Capability::CAP_PERFMON, Capability::CAP_CHOWN];
/// Needed once, to make the collector's network namespace.
const STARTING: Capability = Capability::CAP_SYS_ADMIN;

/// The process lacks capabilities, or could not give some up.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// Run as root, or grant them: `AmbientCapabilities=` in a systemd unit, or `setcap` on the binary.
    #[error(
        "the process lacks the capabilities {missing}; run as root, or grant them with AmbientCapabilities= in a systemd unit"
    )]
    Missing {
        /// Their names, with commas.
        missing: String,
    },
    /// The kernel refused.
    #[error("can't change the capabilities of the thread: {0}")]
    Refused(#[from] caps::errors::CapsError),
}

/// Says which capabilities the start would fail without.
pub(crate) fn check() -> Result<(), PrivilegeError> {
    let have = caps::read(None, CapSet::Effective)?;
    let missing: Vec<String> = RUNNING
        .iter()
        .chain(&[STARTING])
        .filter(|needed| !have.contains(needed))
        .map(ToString::to_string)
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(PrivilegeError::Missing { missing: missing.join(", ") }) }
}

/// Gives up, for this thread and those it will start, all that a running switch does not need.
pub(crate) fn keep_for_running() -> Result<(), PrivilegeError> {
    let mut keep = CapsHashSet::from(RUNNING);
    let have = caps::read(None, CapSet::Permitted)?;
    keep.extend(WANTED.into_iter().filter(|wanted| have.contains(wanted)));
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
    caps::set(None, CapSet::Permitted, &keep)?;
    Ok(())
}
