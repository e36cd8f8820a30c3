//! A BPF file system of a lab's own, for programs and maps that outlive a daemon.

mod mountpoint;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab::Lab;
use crate::{LabError, Result, command};

pub(crate) use mountpoint::clean;
use mountpoint::{NAME, unmount};

/// The mounted file system; unmounted when dropped, and with it goes what nobody else holds.
#[derive(Debug)]
pub struct BpfFs {
    path: PathBuf,
}

impl BpfFs {
    /// Mounts one in the lab's directory. Before the daemon is started: a namespace has the mounts of when it was entered.
    ///
    /// # Errors
    /// Without root, mostly.
    pub fn mount(lab: &Lab) -> Result<BpfFs> {
        let path = lab.path(NAME);
        std::fs::create_dir(&path).map_err(|error| LabError::system("making a directory", error))?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "bpf", "bpffs"]).arg(&path);
        command::run_ok(mount)?;
        Ok(BpfFs { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Everything that is pinned, by name.
    pub fn pinned(&self) -> Vec<String> {
        let folders = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let folders = folders.filter(|entry| entry.path().is_dir());
        let entries =
            folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// The path of what is pinned under this name.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        let folders = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        folders.map(|folder| folder.path().join(name)).find(|path| path.exists())
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        unmount(&self.path);
        // What the lab could not remove, if it went before, because this was mounted there.
        let _ = std::fs::remove_dir(&self.path);
        if let Some(directory) = self.path.parent() {
            let _ = std::fs::remove_dir(directory);
        }
    }
}
