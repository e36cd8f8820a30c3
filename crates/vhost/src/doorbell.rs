//! Descriptors that a front end passes: for kicks, for calls, for requests of the back end.
//!
//! Whoever uses them must never wait for the front end. So only kinds are taken that can be made not to block. Both
//! ends share that setting: a front end has to poll its eventfds before it reads them, as all do that are known here.

use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};

use crate::error::VhostError;
use crate::message::{CONFIG_CHANGED, Header, VERSION};

/// Takes an eventfd, a pipe or a socket (which is what pipes of Linux in user mode are), and makes it not block.
///
/// An eventfd has no type in its mode (fs/anon_inodes.c). A file or a device could hold a reader up for as long as its
/// server likes.
pub(crate) fn check(file: OwnedFd) -> Result<OwnedFd, VhostError> {
    let failed = |error: rustix::io::Errno| VhostError::Socket(error.into());
    let mode = fstat(&file).map_err(failed)?.st_mode;
    let kind = FileType::from_raw_mode(mode);
    if !matches!(kind, FileType::Unknown | FileType::Fifo | FileType::Socket) {
        return Err(VhostError::BadDoorbell { mode: mode & 0o170_000 });
    }
    let flags = fcntl_getfl(&file).map_err(failed)?;
    fcntl_setfl(&file, flags | OFlags::NONBLOCK).map_err(failed)?;
    Ok(file)
}

/// Tells the front end that the configuration has changed. It is lost if the front end does not read.
pub(crate) fn tell_config_changed(channel: &OwnedFd) {
    let header = Header { request: CONFIG_CHANGED, flags: VERSION, len: 0 };
    let _ = rustix::io::write(channel, &header.to_bytes());
}
