//! Control groups: one for each service manager, so that all that it starts can be ended and found.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{LabError, Result, wait};

const END_LIMIT: Duration = Duration::from_secs(5);

/// A control group, gone with those below it when dropped.
#[derive(Debug)]
pub(crate) struct Cgroup {
    pub(crate) path: PathBuf,
}

impl Cgroup {
    /// Makes it, with this name.
    ///
    /// # Errors
    /// Without cgroup2.
    pub(crate) fn create(name: &str) -> Result<Cgroup> {
        let hierarchy = hierarchy().ok_or_else(|| {
            let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
            LabError::system("no cgroup2 is mounted, which a service manager needs", missing)
        })?;
        let path = hierarchy.join(name);
        std::fs::create_dir(&path).map_err(|error| LabError::system("making a control group", error))?;
        Ok(Cgroup { path })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Whoever was in it was killed, and is in it until it is waited for.
        let _ = wait::until("an empty control group", END_LIMIT, || remove(&self.path).is_ok());
    }
}

/// Removes what dead labs left.
pub(crate) fn clean(is_meant: impl Fn(&str) -> bool) {
    let groups = hierarchy().and_then(|root| std::fs::read_dir(root).ok()).into_iter().flatten().flatten();
    for group in groups.filter(|group| group.file_name().to_str().is_some_and(&is_meant)) {
        // Another process may be cleaning up as well.
        let _ = remove(&group.path());
    }
}

/// Where cgroup2 is mounted.
fn hierarchy() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    mounts.find(|fields| fields.get(2) == Some(&"cgroup2")).map(|fields| fields[1].into())
}

fn remove(group: &Path) -> std::io::Result<()> {
    for below in std::fs::read_dir(group)?.flatten().filter(|entry| entry.path().is_dir()) {
        remove(&below.path())?;
    }
    std::fs::remove_dir(group)
}
