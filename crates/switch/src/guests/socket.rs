//! Where the switch meets the front end of a virtual machine: a socket that is made where nothing is in the way, and removed
//! with its port; or one where the front end listens.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use forebay_control::ApiError;
use forebay_control::vhost_user::VhostUser;
use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};

use super::access::{Owner, check_directory, refuse};

/// Connections that wait; one is served at a time.
const BACKLOG: i32 = 1;
/// Neither the switch nor a program that it starts waits for a front end.
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A listening socket.
pub(crate) struct Listener(OwnedFd);

/// A listening socket's path, removed when this is dropped.
pub(crate) struct GuestSocket {
    path: PathBuf,
    /// Device and inode of the file that was made.
    file: (u64, u64),
}

/// How a port meets its front ends.
pub(crate) enum Meeting {
    /// They connect.
    Listens(Listener),
    /// The switch connects to the socket of this path.
    Connects(PathBuf),
}

impl Listener {
    /// The next connection, if one waits.
    pub(crate) fn accept(&self) -> io::Result<Option<UnixStream>> {
        match accept_with(&self.0, FLAGS) {
            Ok(stream) => Ok(Some(stream.into())),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Meeting {
    /// Listens where it was asked for, or will connect there. The socket's file is to be kept while the port lives.
    ///
    /// # Errors
    /// The switch cannot listen there as it was asked to.
    pub(crate) fn arrange(asked: &VhostUser) -> Result<(Option<GuestSocket>, Self), ApiError> {
        if asked.client {
            return Ok((None, Self::Connects(PathBuf::from(&asked.path))));
        }
        let (socket, listener) = GuestSocket::listen(asked)?;
        Ok((Some(socket), Self::Listens(listener)))
    }
}

/// Connects to a front end that listens at `path`. Does not wait: a front end whose connections all wait says so.
pub(crate) fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

impl GuestSocket {
    /// Listens as it was asked for. A socket there that nobody listens at any more is replaced.
    ///
    /// # Errors
    /// Something else is there, its directory is no place for it, its owner is not known, or the kernel refuses.
    pub(crate) fn listen(asked: &VhostUser) -> Result<(Self, Listener), ApiError> {
        let path = Path::new(&asked.path);
        let owner = Owner::find(asked)?;
        check_directory(path)?;
        make_way(path)?;
        let listener = make(path).map_err(|error| refuse(path, format!("cannot listen there: {error}")))?;
        let file = identity(path).map_err(|error| refuse(path, error.to_string()))?;
        // Whatever fails from here on takes the file away again.
        let socket = Self { path: path.to_owned(), file };
        let failed = |error: Errno| refuse(path, format!("cannot listen there: {error}"));
        // Only its owner may change its mode. Nobody can connect before it listens.
        chmod(path, Mode::from_raw_mode(asked.mode_bits())).map_err(failed)?;
        owner.own(path)?;
        listen(&listener.0, BACKLOG).map_err(failed)?;
        Ok((socket, listener))
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
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn at(path: &Path) -> VhostUser {
        VhostUser::new(path.to_str().expect("it is UTF-8"))
    }

    #[test]
    fn a_socket_is_there_while_its_port_is_and_replaces_one_that_a_killed_process_left() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("vm.sock");
        let (socket, listener) = GuestSocket::listen(&at(&path)).expect("nothing is there");
        assert!(listener.accept().is_ok_and(|stream| stream.is_none()));
        let _stream = UnixStream::connect(&path).expect("it listens");
        assert!(listener.accept().is_ok_and(|stream| stream.is_some()));
        let refused = GuestSocket::listen(&at(&path)).err().expect("somebody listens");
        assert!(refused.to_string().contains("another program listens there"), "{refused}");
        drop(listener);
        std::mem::forget(socket);
        let (socket, _listener) = GuestSocket::listen(&at(&path)).expect("nobody listens");
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("vm.sock");
        std::fs::write(&path, "precious").expect("it can be written");
        let refused = GuestSocket::listen(&at(&path)).err().expect("it is in the way");
        assert!(refused.to_string().contains("no socket"), "{refused}");
        assert!(path.exists());
    }

    #[test]
    fn a_socket_has_the_owner_and_the_mode_that_were_asked_for() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("vm.sock");
        let (_socket, _listener) = GuestSocket::listen(&at(&path)).expect("nothing is there");
        let mode = |path: &Path| path.metadata().expect("it is there").permissions().mode() & 0o7777;
        assert_eq!(mode(&path), 0o660);
        let other = directory.path().join("other.sock");
        let ours = format!("{}:{}", rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let asked = VhostUser { owner: ours, mode: "0606".to_owned(), ..at(&other) };
        let (_socket, _listener) = GuestSocket::listen(&asked).expect("nothing is there");
        assert_eq!(mode(&other), 0o606);
        if rustix::process::getuid().is_root() {
            let given = directory.path().join("given.sock");
            let asked = VhostUser { owner: "nobody:12".to_owned(), ..at(&given) };
            let (_socket, _listener) = GuestSocket::listen(&asked).expect("nothing is there");
            let owned = given.metadata().expect("it is there");
            let nobody = nix::unistd::User::from_name("nobody").ok().flatten().expect("every system has one");
            assert_eq!((owned.uid(), owned.gid()), (nobody.uid.as_raw(), 12));
        } else {
            println!("SKIP: only root can give a file away");
        }
    }

    #[test]
    fn a_socket_that_cannot_be_given_away_is_not_left_behind() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("vm.sock");
        let asked = VhostUser { owner: "no-such-user".to_owned(), ..at(&path) };
        let refused = GuestSocket::listen(&asked).err().expect("there is no such user");
        assert_eq!(refused.field.as_deref(), Some("owner"), "{refused}");
        assert!(!path.exists());
    }

    #[test]
    fn a_front_end_that_listens_is_connected_to_and_nobody_waits_for_one_that_does_not() {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let path = directory.path().join("vm.sock");
        let missing = connect_to(&path).expect_err("nothing is there");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("nothing is there");
        let _stream = connect_to(&path).expect("it listens");
        listener.accept().expect("it was connected to");
        drop(listener);
        let refused = connect_to(&path).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
