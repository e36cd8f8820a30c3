//! What can go wrong between us and the kernel while something is set up.

use std::io;

use forebay_control::IfIndex;

/// A BPF object, map, program or link could not be had.
#[derive(Debug, thiserror::Error)]
pub enum DatapathError {
    /// libbpf refused; usually a missing capability (CAP_BPF, CAP_NET_ADMIN) or an old kernel.
    #[error("{what}: {source}")]
    Bpf {
        /// The step.
        what: &'static str,
        /// libbpf's account of it.
        source: libbpf_rs::Error,
    },
    /// A system call failed for a netdev.
    #[error("{what} on interface {ifindex}: {source}")]
    Netdev {
        /// The step.
        what: &'static str,
        /// Interface index.
        ifindex: IfIndex,
        /// What the kernel said.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The step.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The compiled object has no program or map of this name.
    #[error("the BPF object has no {what}")]
    Object {
        /// Its name.
        what: &'static str,
    },
}

impl DatapathError {
    pub(crate) fn bpf(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |source| Self::Bpf { what, source }
    }

    pub(crate) fn netdev(what: &'static str, ifindex: IfIndex, result: i32) -> Self {
        Self::Netdev { what, ifindex, source: io::Error::from_raw_os_error(-result) }
    }
}
