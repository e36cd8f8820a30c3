//! Files that one daemon leaves to the next. Only their owner may read or write them.
//!
//! The next daemon does what these files say, so they count only where nobody else can have written them: the file is a
//! regular one and not a link, it belongs to this user, root or the directory's owner, nobody else may write it, and nobody
//! else may put another file in its place. A file is replaced in one step: who reads it finds the old or the new one.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

const MODE: u32 = 0o600;
/// Group and others may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In a directory that all may write: only its owner moves or removes a file.
const STICKY: u32 = 0o1000;

/// What is in the file, at most `max_bytes`; `None` if there is no file.
///
/// # Errors
/// Somebody else can have written it, it is longer, or it cannot be read.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let opened = File::options().read(true).custom_flags(no_link()).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let owner = check_directory(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(refused("it is no regular file; remove it"));
    }
    if ![owner, geteuid().as_raw(), 0].contains(&found.uid()) {
        return Err(refused(&format!("it belongs to the user with id {}; remove it", found.uid())));
    }
    if found.mode() & WRITABLE_BY_OTHERS != 0 {
        let mode = found.mode() & 0o7777;
        return Err(refused(&format!(
            "its mode is {mode:04o}, so that others may write it; remove it or chmod go-w"
        )));
    }
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(refused(&format!("it is longer than {max_bytes} bytes; remove it")));
    }
    Ok(Some(bytes))
}

/// Puts a file with these bytes in the place of the one that is there, and returns it for writing on.
///
/// # Errors
/// Others may change the directory, or the file cannot be written; the one before stays.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    check_directory(path)?;
    let beside = beside(path);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // New: neither what somebody else made beforehand nor what a link leads to.
    let mut file =
        File::options().append(true).create_new(true).mode(MODE).custom_flags(no_link()).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&beside, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    Ok(file)
}

/// The owner of the file's directory, in which nobody else may put another file in its place.
fn check_directory(path: &Path) -> io::Result<u32> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let found = fs::metadata(directory)?;
    if found.mode() & WRITABLE_BY_OTHERS != 0 && found.mode() & STICKY == 0 {
        let (shown, mode) = (directory.display(), found.mode() & 0o7777);
        return Err(refused(&format!(
            "others may write its directory {shown} (mode {mode:04o}); chmod go-w"
        )));
    }
    Ok(found.uid())
}

fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    beside.into()
}

fn no_link() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A directory of the test's own, removed at the end.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let path = std::env::temp_dir().join(format!("fb-private-{}-{name}", std::process::id()));
            fs::create_dir(&path).unwrap();
            chmod(&path, 0o755);
            Dir(path)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn only_the_owner_may_read_what_is_written() {
        let dir = Dir::new("mode");
        let path = dir.0.join("saved");
        fs::write(&path, "readable by all").unwrap();
        chmod(&path, 0o644);
        let mut file = replace(&path, b"one\n").unwrap();
        file.write_all(b"two\n").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, MODE);
        assert_eq!(read(&path, 8).unwrap().unwrap(), b"one\ntwo\n");
        assert!(read(&path, 7).unwrap_err().to_string().contains("longer than 7 bytes"));
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn links_are_neither_followed_nor_written_through() {
        let dir = Dir::new("links");
        let (path, precious) = (dir.0.join("saved"), dir.0.join("precious"));
        fs::write(&precious, "precious").unwrap();
        chmod(&precious, 0o600);
        symlink(&precious, &path).unwrap();
        symlink(&precious, beside(&path)).unwrap();
        assert!(read(&path, 100).is_err());
        drop(replace(&path, b"mine").unwrap());
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(read(&path, 100).unwrap().unwrap(), b"mine");
    }

    #[test]
    fn what_others_may_have_written_is_refused() {
        let dir = Dir::new("others");
        let path = dir.0.join("saved");
        assert!(read(&path, 100).unwrap().is_none(), "there is none");
        drop(replace(&path, b"mine").unwrap());
        chmod(&path, 0o660);
        assert!(read(&path, 100).unwrap_err().to_string().contains("0660"));
        chmod(&path, 0o600);
        chmod(&dir.0, 0o777);
        assert!(read(&path, 100).unwrap_err().to_string().contains("0777"));
        assert!(replace(&path, b"more").is_err());
        chmod(&dir.0, 0o1777);
        assert!(read(&path, 100).unwrap().is_some(), "only its owner removes a file here");
    }
}
