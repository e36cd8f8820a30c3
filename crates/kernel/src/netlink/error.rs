//! What can go wrong between the switch and the kernel's account of its netdevs.

use std::io;

/// Why a question about a netdev, or a change to one, failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel said no. Its reason is in `source`, its explanation, if it gave one, in `hint`.
    /// Tell the user; the same request will fail again until something else changes.
    #[error("can't {what} netdev {netdev}: {source}{}", with_hint(.hint))]
    Refused {
        /// What was asked, as a verb: "set MTU of".
        what: &'static str,
        /// The netdev, by the name or number the caller gave.
        netdev: String,
        /// The kernel's extended acknowledgement, empty if it gave none.
        hint: String,
        /// The errno.
        source: io::Error,
    },
    /// No netdev has this name or number in this network namespace. It may come (back): wait for its event.
    #[error("there is no netdev {netdev} in this network namespace")]
    NoSuchNetdev {
        /// The name or number that was asked for.
        netdev: String,
    },
    /// A name that no netdev can have. Nothing was sent.
    #[error(
        "`{name}` can't be a netdev's name: 1 to {limit} bytes, without `/`, `:`, white space or NUL, not `.` or `..`"
    )]
    BadName {
        /// What was given.
        name: String,
        /// The longest name in bytes.
        limit: usize,
    },
    /// The kernel has no such generic netlink family: it is too old, or built without it.
    #[error("this kernel has no netlink family `{family}`")]
    NoFamily {
        /// The family's name.
        family: String,
    },
    /// A socket could not be made or used; see the errno. Nothing was changed.
    #[error("can't {what}: {source}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// The errno.
        source: io::Error,
    },
    /// The kernel's answer can't be read. This is a defect, here or there; what was asked may have been done.
    #[error("can't read the kernel's answer to {what}: {detail}")]
    Malformed {
        /// What was asked.
        what: &'static str,
        /// What is wrong with the answer.
        detail: String,
    },
    /// A network namespace of our own could not be made. Without CAP_SYS_ADMIN at start there is none.
    #[error("can't make a network namespace ({what}): {source}")]
    Netns {
        /// The step that failed.
        what: &'static str,
        /// The errno.
        source: io::Error,
    },
}

impl NetlinkError {
    /// The errno behind this error, if there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            NetlinkError::Refused { source, .. }
            | NetlinkError::Socket { source, .. }
            | NetlinkError::Netns { source, .. } => source.raw_os_error(),
            NetlinkError::NoSuchNetdev { .. } => Some(libc::ENODEV),
            NetlinkError::NoFamily { .. } => Some(libc::ENOENT),
            NetlinkError::BadName { .. } | NetlinkError::Malformed { .. } => None,
        }
    }
}

fn with_hint(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!(" ({hint})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_netdev_the_reason_and_the_kernels_words() {
        let source = io::Error::from_raw_os_error(libc::EINVAL);
        let error = |hint: &str| NetlinkError::Refused {
            what: "set the MTU of",
            netdev: "eth0".to_owned(),
            hint: hint.to_owned(),
            source: io::Error::from_raw_os_error(libc::EINVAL),
        };
        assert_eq!(error("").to_string(), format!("can't set the MTU of netdev eth0: {source}"));
        assert!(
            error("mtu greater than device maximum")
                .to_string()
                .ends_with("(mtu greater than device maximum)")
        );
        assert_eq!(error("").errno(), Some(libc::EINVAL));
    }
}
