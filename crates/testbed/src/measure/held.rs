//! What a process holds of the kernel, to compare before and after: none of it is to stay when its purpose has gone.

use std::time::Duration;

use super::memory;
use crate::{LabError, Result, wait};

/// What a process holds at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Open file descriptors.
    pub files: usize,
    /// Threads.
    pub threads: usize,
    /// Mappings of files without a name, as guests' memory is.
    pub mappings: usize,
}

impl Held {
    /// What this process holds now; nothing when it is gone.
    pub fn by(pid: u32) -> Held {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let mappings = maps.lines().filter(|line| line.ends_with(" (deleted)")).count();
        Held { files: memory::open_files(pid), threads, mappings }
    }

    /// Waits until the process holds this much again, and no more.
    ///
    /// # Errors
    /// It does not; with what it holds.
    pub fn wait_until_again_by(&self, pid: u32, limit: Duration) -> Result<()> {
        wait::until("a process to hold as much as before", limit, || Held::by(pid) == *self).map_err(
            |error| {
                LabError::output(
                    "what a process holds",
                    format!("{:?} after {self:?}: {error}", Held::by(pid)),
                )
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_named_and_what_is_let_go_is_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let before = Held::by(child.id());
        assert!(before.files >= 3 && before.threads == 1, "{before:?}");
        before.wait_until_again_by(child.id(), Duration::from_secs(5)).unwrap();
        let other = Held { files: before.files - 1, ..before };
        let error = other.wait_until_again_by(child.id(), Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains(&format!("files: {}", before.files)), "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Held::by(child.id()), Held { files: 0, threads: 0, mappings: 0 });
    }
}
