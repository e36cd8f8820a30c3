//! The socket where a virtual machine connects: made where nothing is in the way, and removed with its port.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use forebay_control::{ApiError, ErrorCode};
use rustix::fs::{Mode, chmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};

/// Connections that wait; one is served at a time.
const BACKLOG: i32 = 1;
/// Owner and group may connect.
const MODE: Mode = Mode::from_raw_mode(0o660);

/// A listening socket.
pub(crate) struct Listener(OwnedFd);

/// A listening socket's path, removed when this is dropped.
pub(crate) struct GuestSocket {
    path: PathBuf,
    /// Device and inode of the file that was made.
    file: (u64, u64),
}

impl Listener {
    /// The next connection, if one waits.
    pub(crate) fn accept(&self) -> io::Result<Option<UnixStream>> {
        match accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(stream) => Ok(Some(stream.into())),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl GuestSocket {
    /// Listens at `path`. A socket there that nobody listens at any more is replaced.
    ///
    /// # Errors
    /// Something else is there, or the kernel refuses.
    pub(crate) fn listen(path: &str) -> Result<(Self, Listener), ApiError> {
        let path = Path::new(path);
        make_way(path)?;
        let made = make(path).map_err(|error| refuse(path, format!("cannot listen there: {error}")))?;
        let file = identity(path).map_err(|error| refuse(path, error.to_string()))?;
        Ok((Self { path: path.to_owned(), file }, made))
    }
}

impl Drop for GuestSocket {
    fn drop(&mut self) {
        // A file that another program has put there stays.
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

fn make(path: &Path) -> io::Result<Listener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Nobody can connect before it listens.
    chmod(path, MODE)?;
    listen(&socket, BACKLOG)?;
    Ok(Listener(socket))
}

fn make_way(path: &Path) -> Result<(), ApiError> {
    let there = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refuse(path, error.to_string())),
        Ok(there) => there,
    };
    if !there.file_type().is_socket() {
        return Err(refuse(path, "something that is no socket is there".to_owned()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|error| refuse(path, error.to_string()))
        }
        _ => Err(refuse(path, "another program listens there".to_owned())),
    }
}

fn refuse(path: &Path, message: String) -> ApiError {
    let error = ApiError::new(ErrorCode::InvalidValue, format!("{}: {message}", path.display()));
    let error = error.with_field("vhost_user").with_value(path.display());
    error.with_remedy("choose another path, in a directory that the daemon may write to")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_there_while_its_port_is_and_replaces_one_that_a_killed_process_left() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("vm.sock");
        let text = path.to_str().expect("it is UTF-8");
        let (socket, listener) = GuestSocket::listen(text).expect("nothing is there");
        assert!(listener.accept().is_ok_and(|stream| stream.is_none()));
        let _stream = UnixStream::connect(&path).expect("it listens");
        assert!(listener.accept().is_ok_and(|stream| stream.is_some()));
        let refused = GuestSocket::listen(text).err().expect("somebody listens");
        assert!(refused.to_string().contains("another program listens there"), "{refused}");
        drop(listener);
        std::mem::forget(socket);
        let (socket, _listener) = GuestSocket::listen(text).expect("nobody listens");
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("vm.sock");
        std::fs::write(&path, "precious").expect("it can be written");
        let refused =
            GuestSocket::listen(path.to_str().expect("it is UTF-8")).err().expect("it is in the way");
        assert!(refused.to_string().contains("no socket"), "{refused}");
        assert!(path.exists());
        let missing = directory.path().join("missing/vm.sock");
        let refused = GuestSocket::listen(missing.to_str().expect("it is UTF-8")).err();
        assert!(refused.is_some_and(|error| error.to_string().contains("cannot listen there")));
    }
}
