//! `[api]`: who may ask the daemon, and for what.
//!
//! The daemon listens at two sockets. Members of the first one's group may change everything; members of the second
//! one's group may only read. The file system keeps others away, so access is group and mode of a socket.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// `[api]`: what can change only with a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiConfig {
    /// Whether clients may give the daemon XDP programs to load. Such a program can read kernel memory.
    pub allow_programs: bool,
    /// Group of the socket, by name or number; empty: the daemon's own.
    pub group: String,
    /// Mode of the socket, in octal digits.
    pub mode: String,
    /// Group of the read-only socket, by name or number; empty: the daemon's own.
    pub read_only_group: String,
    /// Mode of the read-only socket, in octal digits.
    pub read_only_mode: String,
}

impl Default for ApiConfig {
    fn default() -> Self {
        ApiConfig {
            allow_programs: false,
            group: String::new(),
            mode: "0660".to_owned(),
            read_only_group: String::new(),
            read_only_mode: "0660".to_owned(),
        }
    }
}

/// The permissions that a mode in octal digits says; `None` for anything but 0000 to 0777.
pub(crate) fn mode_bits(mode: &str) -> Option<u32> {
    let is_octal = (3..=4).contains(&mode.len()) && mode.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let bits = u32::from_str_radix(mode, 8).ok().filter(|_| is_octal)?;
    (bits <= 0o777).then_some(bits)
}

impl ApiConfig {
    /// Permissions of the socket.
    pub fn mode_bits(&self) -> u32 {
        mode_bits(&self.mode).expect("the configuration is validated")
    }

    /// Permissions of the read-only socket.
    pub fn read_only_mode_bits(&self) -> u32 {
        mode_bits(&self.read_only_mode).expect("the configuration is validated")
    }
}

/// Path of the read-only socket of the daemon at `socket`: `forebay-ro.sock` beside `forebay.sock`.
pub fn read_only_socket(socket: &Path) -> PathBuf {
    let is_plain = socket.extension() == Some(OsStr::new("sock"));
    let stem = if is_plain { socket.with_extension("") } else { socket.to_owned() };
    let mut path = stem.into_os_string();
    path.push("-ro.sock");
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_three_or_four_octal_digits() {
        for (text, bits) in
            [("0660", Some(0o660)), ("600", Some(0o600)), ("0000", Some(0)), ("0777", Some(0o777))]
        {
            assert_eq!(mode_bits(text), bits, "{text}");
        }
        for text in ["", "66", "0800", "1777", "+660", "0o660", "rw-"] {
            assert_eq!(mode_bits(text), None, "{text}");
        }
    }

    #[test]
    fn the_read_only_socket_lies_beside_the_other_one() {
        let beside = |path: &str| read_only_socket(Path::new(path)).display().to_string();
        assert_eq!(beside("/run/forebay/forebay.sock"), "/run/forebay/forebay-ro.sock");
        assert_eq!(beside("/tmp/a.b/lab"), "/tmp/a.b/lab-ro.sock");
    }
}
