//! From one daemon to the next.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_control::Config;
use forebay_kernel::{DatapathError, Pins};
use forebay_switch::Handover;
use forebay_switch::private_file;

use crate::cli::RunArgs;
use crate::socket::Holder;

/// How long a daemon that was asked to leave may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest configuration that is read back.
const MAX_APPLIED_BYTES: u64 = 256 << 20;

/// What a daemon leaves to the next, and whether it is to.
#[derive(Debug, Clone)]
pub(super) struct Leaving {
    pin_dir: PathBuf,
    saved_in: PathBuf,
    applied_in: PathBuf,
    is_wanted: bool,
    is_clean: bool,
    /// Once there is something to leave.
    pins: Option<Pins>,
}

impl Leaving {
    /// Each socket's switch has a directory and a file of its own.
    pub(super) fn new(args: &RunArgs, socket: &Path) -> Leaving {
        // A BPF file system takes no dots in names.
        let name: String = socket
            .to_string_lossy()
            .chars()
            .map(|character| if character.is_ascii_alphanumeric() { character } else { '-' })
            .collect();
        let beside = |ending: &str| {
            let mut path = socket.as_os_str().to_owned();
            path.push(ending);
            PathBuf::from(path)
        };
        Leaving {
            pin_dir: args.pin_dir.join(name.trim_matches('-')),
            saved_in: beside(".saved"),
            applied_in: beside(".applied"),
            is_wanted: args.handover,
            is_clean: args.clean,
            pins: None,
        }
    }

    /// Whether this daemon leaves something to the next.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Asks the daemon at the socket to leave, and waits until it has. A process that does not hold the socket's lock, or
    /// would not understand, is left alone.
    pub(super) fn ask_for(&self, socket: &Path) {
        if !self.is_wanted {
            return;
        }
        match Holder::find(socket) {
            Ok(Some(holder)) => {
                tracing::info!(pid = holder.pid(), "asked the running daemon to end and leave its ports");
                holder.ask_to_leave(LEAVE_TIMEOUT);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the process that holds the socket is not asked to leave"),
        }
    }

    /// What the configuration file asked for when the last daemon read it, if there is something to take up.
    pub(super) fn applied(&self) -> Option<Config> {
        let path = self.applied_in.display();
        let read = private_file::read(&self.applied_in, MAX_APPLIED_BYTES)
            .and_then(|bytes| bytes.map(|bytes| Ok(serde_json::from_slice(&bytes)?)).transpose());
        read.unwrap_or_else(|error| {
            tracing::warn!(%error, %path, "what the file asked for before is not known; nothing of it is taken back");
            None
        })
    }

    /// Tells the next daemon what the configuration file asked for.
    pub(super) fn note_applied(&self, applied: &Config) {
        if !self.is_wanted {
            return;
        }
        let write = || private_file::replace(&self.applied_in, &serde_json::to_vec(applied)?);
        if let Err(error) = write() {
            tracing::warn!(%error, path = %self.applied_in.display(), "can't write the applied configuration; the next daemon will not delete ports that leave the file");
        }
    }

    /// Nobody is to take up anything. That comes first when the daemon stops, and does not wait for the switch: to detach
    /// a thousand ports takes seconds, and if the daemon is killed meanwhile, pinned programs would go on taking packets
    /// for nobody.
    pub(super) fn forget(&self) {
        if let Some(pins) = &self.pins {
            pins.close();
        }
        for file in [&self.applied_in, &self.saved_in] {
            let _ = std::fs::remove_file(file);
        }
    }

    /// Where to leave and take up, if that is wanted. What must not be taken up is removed: pins also where the file beside
    /// them is gone, as after a stop that was cut short.
    pub(super) fn prepare(&mut self) -> Result<Option<Handover>, DatapathError> {
        if self.is_clean || !self.is_wanted {
            self.forget();
            Pins::remove_at(&self.pin_dir)?;
        }
        if !self.is_wanted {
            return Ok(None);
        }
        let pins = Pins::open(&self.pin_dir)?;
        self.pins = Some(pins.clone());
        Ok(Some(Handover { pins, saved_in: self.saved_in.clone() }))
    }
}
