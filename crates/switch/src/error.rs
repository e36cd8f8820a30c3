//! Why a switch could not start.

use forebay_control::ApiError;
use forebay_kernel::DatapathError;
use forebay_kernel::netlink::NetlinkError;
use forebay_pool::ArenaError;
use forebay_xsk::XskError;

/// The switch did not start; nothing of it is left behind. `forebay doctor` tells what the machine lacks.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// No packet memory.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// An AF_XDP or packet socket could not be had.
    #[error(transparent)]
    Xsk(#[from] XskError),
    /// A BPF program, map or link could not be had.
    #[error(transparent)]
    Datapath(#[from] DatapathError),
    /// The collector could not be made.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The configured spool mode could not be had.
    #[error(transparent)]
    Mode(#[from] ApiError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The step.
        what: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A configured number is out of its range.
    #[error("{what} is {value}; {limit}")]
    Setting {
        /// Its name.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// What is possible.
        limit: &'static str,
    },
}

impl SwitchError {
    pub(crate) fn system<E: Into<std::io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
