//! The daemon's socket: one daemon per path, no leftovers in the way.
//!
//! A lock file beside the socket says who serves it. The kernel frees the lock when the daemon dies, however it dies,
//! so a socket whose lock is free is stale and is replaced; nobody has to be asked whether they are still there.

mod holder;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::unistd::Group;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

pub(crate) use holder::Holder;

/// Who may connect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access<'a> {
    /// By name or number; empty: the daemon's own.
    pub(crate) group: &'a str,
    /// Permission bits.
    pub(crate) mode: u32,
}

/// Why the socket could not be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error("another forebay daemon{pid} serves {path}; stop it, or choose another socket with --socket")]
    Taken { path: PathBuf, pid: String },
    #[error("{0} exists and is not a socket; remove it, or choose another socket with --socket")]
    NotASocket(PathBuf),
    #[error(
        "there is no group `{group}` for the socket {path}; make the group with `groupadd --system {group}`, or change group or read_only_group in [api]"
    )]
    NoGroup { group: String, path: PathBuf },
    #[error(
        "can't give {path} to the group `{group}`: {source}; make the daemon's user a member (SupplementaryGroups= in its unit), or change group or read_only_group in [api]"
    )]
    Group { group: String, path: PathBuf, source: io::Error },
    #[error("can't {what} {path}: {source}; choose a socket in a writable directory with --socket")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

/// The socket and the lock on it; dropping removes the socket and frees the lock.
#[derive(Debug)]
pub(crate) struct OwnedSocket {
    path: PathBuf,
    _lock: File,
}

impl OwnedSocket {
    /// Takes the path and listens there, with `access` from the first moment on.
    pub(crate) fn bind(path: &Path, access: Access<'_>) -> Result<(OwnedSocket, UnixListener), SocketError> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(io_error("create", directory))?;
        }
        let lock = take_lock(path)?;
        remove_stale(path)?;
        let listener = bind_for(path, access)?;
        Ok((OwnedSocket { path: path.to_owned(), _lock: lock }, listener))
    }
}

impl Drop for OwnedSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn take_lock(socket: &Path) -> Result<File, SocketError> {
    let path = beside(socket, ".lock");
    let open = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = open.map_err(io_error("open", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(taken(socket, file)),
        Err(error) => return Err(io_error("lock", &path)(error.into())),
    }
    // The pid is there for the message of a second daemon only, so failing to note it changes nothing.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn taken(socket: &Path, lock: File) -> SocketError {
    let mut text = String::new();
    let _ = lock.take(32).read_to_string(&mut text);
    let pid = text.trim().parse::<u32>().map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    SocketError::Taken { path: socket.to_owned(), pid }
}

fn remove_stale(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error("look at", path)(error)),
        Ok(found) if !found.file_type().is_socket() => Err(SocketError::NotASocket(path.to_owned())),
        Ok(_) => fs::remove_file(path).map_err(io_error("remove", path)),
    }
}

/// Binds under another name first: between `bind` and `chmod` the socket has the mode that the umask left.
fn bind_for(path: &Path, access: Access<'_>) -> Result<UnixListener, SocketError> {
    let nascent = beside(path, ".new");
    remove_stale(&nascent)?;
    let listener = UnixListener::bind(&nascent).map_err(io_error("listen on", path))?;
    if !access.group.is_empty() {
        give_to(&nascent, path, access.group)?;
    }
    fs::set_permissions(&nascent, fs::Permissions::from_mode(access.mode))
        .map_err(io_error("set the mode of", path))?;
    fs::rename(&nascent, path).map_err(io_error("create", path))?;
    listener.set_nonblocking(true).map_err(io_error("listen on", path))?;
    Ok(listener)
}

fn give_to(nascent: &Path, path: &Path, group: &str) -> Result<(), SocketError> {
    let (name, path) = (group.to_owned(), path.to_owned());
    let Some(id) = group_id(group) else { return Err(SocketError::NoGroup { group: name, path }) };
    std::os::unix::fs::chown(nascent, None, Some(id)).map_err(|source| SocketError::Group {
        group: name,
        path,
        source,
    })
}

fn group_id(group: &str) -> Option<u32> {
    let named = || Group::from_name(group).ok().flatten().map(|found| found.gid.as_raw());
    group.parse().ok().or_else(named)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |source| SocketError::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp_dir::TempDir;

    const OURS: Access<'_> = Access { group: "", mode: 0o660 };

    #[test]
    fn a_second_daemon_is_refused_and_the_first_is_named() {
        let dir = TempDir::new();
        let path = dir.path().join("a.sock");
        let (_owned, _listener) = OwnedSocket::bind(&path, OURS).unwrap();
        let message = OwnedSocket::bind(&path, OURS).unwrap_err().to_string();
        assert!(
            message.contains(&format!("(pid {})", std::process::id())) && message.contains("--socket"),
            "{message}"
        );
        assert!(path.exists(), "the refused daemon removed the first one's socket");
    }

    #[test]
    fn a_socket_left_by_a_killed_daemon_is_replaced() {
        let dir = TempDir::new();
        let path = dir.path().join("a.sock");
        drop(UnixListener::bind(&path).unwrap());
        let (owned, _listener) = OwnedSocket::bind(&path, OURS).unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop(owned);
        assert!(!path.exists(), "a stopped daemon leaves no socket behind");
    }

    #[test]
    fn only_owner_and_group_may_connect() {
        let dir = TempDir::new();
        let path = dir.path().join("deep/er/a.sock");
        let (_owned, _listener) = OwnedSocket::bind(&path, OURS).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let dir = TempDir::new();
        let path = dir.path().join("a.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(OwnedSocket::bind(&path, OURS), Err(SocketError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn a_socket_belongs_to_the_group_and_has_the_mode_that_were_asked_for() {
        use std::os::unix::fs::MetadataExt;
        let dir = TempDir::new();
        let path = dir.path().join("a.sock");
        let own = rustix::process::getgid().as_raw().to_string();
        let (_owned, _listener) = OwnedSocket::bind(&path, Access { group: &own, mode: 0o606 }).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.gid().to_string(), found.mode() & 0o777), (own, 0o606));
    }

    #[test]
    fn a_group_that_is_not_there_is_named_with_the_way_out() {
        let dir = TempDir::new();
        let path = dir.path().join("a.sock");
        let access = Access { group: "no-such-group", mode: 0o660 };
        let message = OwnedSocket::bind(&path, access).unwrap_err().to_string();
        assert!(
            message.contains("groupadd --system no-such-group") && message.contains("[api]"),
            "{message}"
        );
        assert!(!path.exists(), "nobody may connect");
    }
}
