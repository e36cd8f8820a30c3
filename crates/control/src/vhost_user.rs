//! Ports of virtual machines: what is asked for, and what is shown.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::mode_bits;
use crate::error::ApiError;

/// The longest path of a unix socket, in bytes: the kernel's `sun_path` less the terminating zero.
pub const SOCKET_PATH_MAX_BYTES: usize = 107;
/// Most pairs of queues that a guest may have at one port.
pub const MAX_QUEUE_PAIRS: u16 = 16;
/// Longest packet of a guest without its Ethernet header, in bytes, unless something else is asked for.
pub const MTU: u16 = 1500;
/// Bounds of what may be asked for: what IPv4 needs, and what jumbo frames usually have.
pub const MTU_BOUNDS: std::ops::RangeInclusive<u16> = 68..=9216;
/// Permissions of a socket that the switch listens at: its owner and its group may connect.
pub const SOCKET_MODE: u32 = 0o660;

/// The socket by which a virtual machine becomes a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VhostUser {
    /// Absolute path of the socket. The switch listens there, or connects to it with `client`.
    pub path: String,
    /// Whether the switch connects to a socket where the front end listens. It tries again until that works.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub client: bool,
    /// Owner of the socket where the switch listens, and group, as in `libvirt-qemu:kvm`, by name or number. Empty: the
    /// daemon's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Permissions of the socket where the switch listens, in octal digits, as in `0660`. Empty: 0660.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Pairs of queues that the guest may use.
    #[serde(default = "one")]
    pub queues: u16,
    /// MTU that the guest is offered.
    #[serde(default = "mtu", skip_serializing_if = "is_usual_mtu")]
    pub mtu: u16,
    /// Features that the guest is not offered, as in `-mrg,-event-idx`. Empty: all are offered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub features: String,
}

fn one() -> u16 {
    1
}

fn mtu() -> u16 {
    MTU
}

fn is_usual_mtu(mtu: &u16) -> bool {
    *mtu == MTU
}

impl VhostUser {
    /// A socket for a guest with one pair of queues and all features.
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            client: false,
            owner: String::new(),
            mode: String::new(),
            queues: 1,
            mtu: MTU,
            features: String::new(),
        }
    }

    /// User and group that the socket is to have; an empty one stays the daemon's own.
    pub fn user_and_group(&self) -> (&str, &str) {
        self.owner.split_once(':').unwrap_or((&self.owner, ""))
    }

    /// Permissions that the socket is to have.
    pub fn mode_bits(&self) -> u32 {
        mode_bits(&self.mode).unwrap_or(SOCKET_MODE)
    }

    /// Checks path, queues, and what is said of the socket. Only the switch knows features and users, and whether the path
    /// can be used.
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
        if !MTU_BOUNDS.contains(&self.mtu) {
            let limit = format!("{} to {}", MTU_BOUNDS.start(), MTU_BOUNDS.end());
            let error = ApiError::invalid("mtu", self.mtu, limit);
            return Err(error.with_remedy("give the MTU of the netdevs that the guest talks with"));
        }
        self.check_access()
    }

    fn check_access(&self) -> Result<(), ApiError> {
        let asked = if self.mode.is_empty() { ("owner", &self.owner) } else { ("mode", &self.mode) };
        if self.client && !asked.1.is_empty() {
            let error = ApiError::invalid(asked.0, asked.1, "none, where the front end makes the socket");
            return Err(error.with_remedy("leave it out, or leave client out so that the switch listens"));
        }
        if !self.mode.is_empty() && mode_bits(&self.mode).is_none() {
            let error = ApiError::invalid("mode", &self.mode, "octal digits from 0000 to 0777");
            return Err(error.with_remedy("write it as in 0660"));
        }
        let (user, group) = self.user_and_group();
        let is_name = |name: &str| !name.chars().any(|character| character.is_control() || character == ':');
        let has_end = !self.owner.is_empty() && (user.is_empty() && group.is_empty());
        if has_end || !is_name(user) || !is_name(group) {
            let error = ApiError::invalid("owner", self.owner.escape_debug(), "USER, USER:GROUP or :GROUP");
            return Err(error.with_remedy("name them as in libvirt-qemu:kvm, or by number"));
        }
        Ok(())
    }
}

/// What there is of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct VhostUserShow {
    /// Path of the socket.
    pub path: String,
    /// Whether the switch connects to the socket, instead of listening.
    #[serde(default)]
    pub client: bool,
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
            (VhostUser { mtu: 67, ..socket("/run/vm1.sock", 1) }, "mtu"),
            (VhostUser { mtu: 9217, ..socket("/run/vm1.sock", 1) }, "mtu"),
        ];
        for (socket, field) in bad {
            let refused = socket.validate().map_err(|error| error.field);
            assert_eq!(refused, Err(Some(field.into())), "{socket:?}");
        }
    }

    #[test]
    fn owner_and_mode_are_those_of_a_socket_that_the_switch_makes() {
        let socket = |client, owner: &str, mode: &str| VhostUser {
            client,
            owner: owner.to_owned(),
            mode: mode.to_owned(),
            ..VhostUser::new("/run/vm1.sock")
        };
        let good = [("", "", ("", "")), ("vm", "0600", ("vm", "")), (":kvm", "", ("", "kvm"))];
        for (owner, mode, parts) in good.into_iter().chain([("64055:108", "666", ("64055", "108"))]) {
            let socket = socket(false, owner, mode);
            assert_eq!((socket.validate(), socket.user_and_group()), (Ok(()), parts));
        }
        assert_eq!(socket(false, "", "").mode_bits(), 0o660);
        assert_eq!(socket(false, "", "0600").mode_bits(), 0o600);
        assert_eq!(socket(true, "", "").validate(), Ok(()));
        let bad = [
            (socket(true, "vm", ""), "owner"),
            (socket(true, "", "0660"), "mode"),
            (socket(false, "", "rw"), "mode"),
            (socket(false, "", "1777"), "mode"),
            (socket(false, ":", ""), "owner"),
            (socket(false, "a:b:c", ""), "owner"),
            (socket(false, "a\n", ""), "owner"),
        ];
        for (socket, field) in bad {
            let refused = socket.validate().map_err(|error| error.field);
            assert_eq!(refused, Err(Some(field.into())), "{socket:?}");
        }
    }
}
