//! Whose packets decisions are about.

use forebay_policy::Nanos;
use forebay_pool::Arena;

use crate::topology::{PortEntry, Topology};

/// What the decisions about one port's packets have in common.
pub(super) struct Scene<'t> {
    /// Where the packets lie.
    pub(super) arena: &'t Arena,
    pub(super) topology: &'t Topology,
    /// Where the packets came in.
    pub(super) port: &'t PortEntry,
    pub(super) now: Nanos,
}
