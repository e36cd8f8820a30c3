//! Ports of virtual machines: what is asked for, and what is shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;

/// The longest path of a unix socket, in bytes: the kernel's `sun_path` less the terminating zero.
pub const SOCKET_PATH_MAX_BYTES: usize = 107;
/// Most pairs of queues that a guest may have at one port.
pub const MAX_QUEUE_PAIRS: u16 = 16;

/// The socket by which a virtual machine becomes a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VhostUser {
    /// Absolute path of the socket. The switch listens there.
    pub path: String,
    /// Pairs of queues that the guest may use.
    #[serde(default = "one")]
    pub queues: u16,
    /// Features that the guest is not offered, as in `-mrg,-event-idx`. Empty: all are offered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub features: String,
}

fn one() -> u16 {
    1
}

impl VhostUser {
    /// A socket for a guest with one pair of queues and all features.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), queues: 1, features: String::new() }
    }

    /// Checks path and queues. Only the switch knows features, and whether the path can be used.
    ///
    /// # Errors
    /// Names the field, the value and the limit.
    pub fn validate(&self) -> Result<(), ApiError> {
        let is_path = self.path.starts_with('/')
            && !self.path.ends_with('/')
            && self.path.len() <= SOCKET_PATH_MAX_BYTES
            && !self.path.chars().any(char::is_control);
        if !is_path {
            let limit = format!(
                "an absolute path of at most {SOCKET_PATH_MAX_BYTES} bytes, without control characters"
            );
            let error = ApiError::invalid("vhost_user", self.path.escape_debug(), limit);
            return Err(error.with_remedy("choose a path below /run, as in /run/vm1.sock"));
        }
        if !(1..=MAX_QUEUE_PAIRS).contains(&self.queues) {
            let error = ApiError::invalid("queues", self.queues, format!("1 to {MAX_QUEUE_PAIRS}"));
            return Err(error.with_remedy("a guest uses a pair of queues for each of its processors at most"));
        }
        Ok(())
    }
}

/// What there is of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct VhostUserShow {
    /// Path of the socket.
    pub path: String,
    /// Pairs of queues that the guest may use.
    pub queues: u16,
    /// Virtqueues that are served now: even numbers lead to the guest, odd ones from it.
    pub running: Vec<u32>,
    /// Features that switch and guest have agreed on.
    pub features: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_socket_could_have_is_refused() {
        let socket = |path: &str, queues| VhostUser { queues, ..VhostUser::new(path) };
        let longest = format!("/{}", "a".repeat(SOCKET_PATH_MAX_BYTES - 1));
        for good in [socket("/run/vm1.sock", 1), socket(&longest, MAX_QUEUE_PAIRS)] {
            assert_eq!(good.validate(), Ok(()));
        }
        let too_long = format!("{longest}a");
        let bad = [
            (socket("vm1.sock", 1), "vhost_user"),
            (socket("", 1), "vhost_user"),
            (socket("/run/", 1), "vhost_user"),
            (socket("/run/\n", 1), "vhost_user"),
            (socket(&too_long, 1), "vhost_user"),
            (socket("/run/vm1.sock", 0), "queues"),
            (socket("/run/vm1.sock", MAX_QUEUE_PAIRS + 1), "queues"),
        ];
        for (socket, field) in bad {
            let refused = socket.validate().map_err(|error| error.field);
            assert_eq!(refused, Err(Some(field.into())), "{socket:?}");
        }
    }
}
