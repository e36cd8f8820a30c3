//! What can go wrong while a socket is set up. Nothing on the packet path returns one of these.

/// A socket could not be made, or a ring not mapped.
#[derive(Debug, thiserror::Error)]
pub enum XskError {
    /// A system call failed; the text says which and for what.
    #[error("{what}: {source}")]
    System {
        /// The step, with its arguments.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A ring must have a power of two of entries.
    #[error("a ring of {entries} entries is not possible; use a power of two from 2 to 65536")]
    RingSize {
        /// What was asked for.
        entries: u32,
    },
    /// The queue stayed busy: another AF_XDP socket is bound to it.
    #[error("queue {queue} of interface {ifindex} is taken by another AF_XDP socket")]
    QueueBusy {
        /// Interface index.
        ifindex: u32,
        /// Queue number.
        queue: u32,
    },
}

impl XskError {
    pub(crate) fn last(what: impl Into<String>) -> Self {
        Self::System { what: what.into(), source: std::io::Error::last_os_error() }
    }
}
