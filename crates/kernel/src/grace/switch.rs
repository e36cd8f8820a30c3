//! The kernel's switch for short grace periods, which several processes share.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// The switch, and the file that names the processes of ours that want it on, one a line. While there is that file, the
/// switch is on because of us. A process that was killed could not take its name out.
pub(super) struct Switch<'a> {
    pub(super) value: &'a Path,
    pub(super) owners: &'a Path,
}

impl Switch<'_> {
    /// Switches on for `pid`. False if the switch cannot be written, or if another program has switched it on.
    pub(super) fn join(&self, pid: u32) -> bool {
        self.change(|was_ours, owners| {
            if !was_ours && !self.is_off() {
                return false;
            }
            owners.push(pid);
            true
        })
    }

    /// Switches off if nobody but `pid` wants it on.
    pub(super) fn leave(&self, pid: u32) {
        self.change(|_, owners| {
            owners.retain(|owner| *owner != pid);
            true
        });
    }

    /// Switches off if only processes that were killed wanted it on. Whether it was so.
    pub(super) fn recover(&self) -> bool {
        self.owners.exists() && self.change(|was_ours, owners| was_ours && owners.is_empty())
    }

    fn is_off(&self) -> bool {
        fs::read_to_string(self.value).is_ok_and(|value| value.trim() == "0")
    }

    /// Lets `change` say who wants it on: it is told whether it is on because of us, and the owners that live. Says what
    /// `change` said, or false if it cannot be switched on.
    fn change(&self, change: impl FnOnce(bool, &mut Vec<u32>) -> bool) -> bool {
        let Ok(mut file) = lock(self.owners) else { return false };
        let named = io::read_to_string(&file).unwrap_or_default();
        let mut owners: Vec<u32> = named.lines().filter_map(|pid| pid.parse().ok()).filter(lives).collect();
        let done = change(!named.is_empty(), &mut owners);
        // The owners are named first, so that there is no moment in which the switch is on and nobody knows why.
        if !owners.is_empty() && rewrite(&mut file, &owners).is_ok() && write(self.value, b"1") {
            return done;
        }
        if !named.is_empty() {
            write(self.value, b"0");
        }
        let _ = fs::remove_file(self.owners);
        done && owners.is_empty()
    }
}

/// Opens the file and locks it. Only root can open it, so no other user can hold the lock.
fn lock(path: &Path) -> io::Result<File> {
    loop {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        // Who had it before may have removed it.
        let locked = file.metadata()?;
        if fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (locked.dev(), locked.ino())) {
            return Ok(file);
        }
    }
}

/// Whether it still does something: a killed process may take seconds to die.
fn lives(pid: &u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before may have any character.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn rewrite(file: &mut File, owners: &[u32]) -> io::Result<()> {
    let text: String = owners.iter().map(|pid| format!("{pid}\n")).collect();
    io::Seek::rewind(file)?;
    file.set_len(0)?;
    file.write_all(text.as_bytes())
}

fn write(path: &Path, value: &[u8]) -> bool {
    let file = File::options().write(true).truncate(true).open(path);
    file.and_then(|mut file| file.write_all(value)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A switch and an owners' file in a folder of the test's own.
    struct Files {
        folder: PathBuf,
        value: PathBuf,
        owners: PathBuf,
    }

    impl Files {
        fn new(test: &str, value: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("forebay-grace-{test}-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a temporary folder");
            let files = Self { value: folder.join("switch"), owners: folder.join("owners"), folder };
            fs::write(&files.value, value).expect("a temporary file");
            files
        }

        fn switch(&self) -> Switch<'_> {
            Switch { value: &self.value, owners: &self.owners }
        }

        /// The switch's value, and whether it is on because of us.
        fn state(&self) -> (String, bool) {
            let value = fs::read_to_string(&self.value).expect("it was written");
            (value.trim().to_owned(), self.owners.exists())
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    /// A process that waits for the end of its input.
    fn process() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().expect("there is a cat")
    }

    fn me() -> u32 {
        std::process::id()
    }

    #[test]
    fn what_was_switched_on_is_switched_off() {
        let files = Files::new("off", "0\n");
        assert!(files.switch().join(me()));
        assert_eq!(files.state(), ("1".to_owned(), true));
        assert!(!files.switch().recover(), "its owner lives");
        assert_eq!(files.state(), ("1".to_owned(), true));
        files.switch().leave(me());
        assert_eq!(files.state(), ("0".to_owned(), false));
    }

    #[test]
    fn what_two_processes_want_on_stays_on_until_both_have_left() {
        let files = Files::new("two", "0\n");
        let mut other = process();
        assert!(files.switch().join(other.id()) && files.switch().join(me()));
        files.switch().leave(other.id());
        assert_eq!(files.state(), ("1".to_owned(), true));
        files.switch().leave(me());
        assert_eq!(files.state(), ("0".to_owned(), false));
        drop(other.stdin.take());
        other.wait().expect("it ends");
    }

    #[test]
    fn what_was_on_already_stays() {
        let files = Files::new("on", "1\n");
        assert!(!files.switch().join(me()));
        assert!(!files.switch().recover());
        files.switch().leave(me());
        assert_eq!(files.state(), ("1".to_owned(), false));
    }

    #[test]
    fn what_a_killed_process_left_on_is_switched_off() {
        let files = Files::new("killed", "0\n");
        let mut killed = process();
        assert!(files.switch().join(killed.id()));
        killed.kill().expect("it is ours");
        // Not yet waited for, it is a process that takes long to die.
        rustix::process::waitid(
            rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&killed)),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        )
        .expect("it ends");
        assert!(files.switch().recover());
        assert_eq!(files.state(), ("0".to_owned(), false));
        assert!(!files.switch().recover(), "there is nothing left to do");
        killed.wait().expect("it has ended");
    }

    #[test]
    fn a_switch_that_cannot_be_written_is_nobodys() {
        let files = Files::new("none", "0\n");
        fs::remove_file(&files.value).expect("it was written");
        assert!(!files.switch().join(me()));
        assert!(!files.owners.exists());
    }
}
