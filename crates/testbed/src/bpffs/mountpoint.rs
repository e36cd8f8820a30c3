//! Where a lab mounts its BPF file system, and how it is unmounted.

use std::path::Path;
use std::process::Command;

use crate::command;

/// The folder in the lab's directory.
pub(super) const NAME: &str = "bpf";

/// Unmounts what a dead lab left in its directory.
pub(crate) fn clean(directory: &Path) {
    let path = directory.join(NAME);
    if path.exists() {
        unmount(&path);
    }
}

pub(super) fn unmount(path: &Path) {
    let mut umount = Command::new("umount");
    umount.arg("--lazy").arg(path);
    let _ = command::run_ok(umount);
}
