//! Removing what dead labs left behind. The owner's process id is in every name: `fb-<pid>-<number>-<part>`.

use std::path::Path;

use crate::measure::huge_pages;
use crate::{bpffs, cgroup, netns};

/// The names' first part.
pub const PREFIX: &str = "fb-";

/// Removes namespaces, directories and control groups of labs whose owner is dead; returns their names.
pub fn dead_labs() -> Vec<String> {
    remove_where(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Removes this process's labs, for use when it is about to exit without dropping them.
pub fn own_labs() -> Vec<String> {
    remove_where(|pid| pid == std::process::id())
}

/// Cleans up and exits with status 130 on SIGINT, SIGTERM and SIGHUP.
///
/// # Errors
/// When another handler is installed already.
pub fn on_signals() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| {
        own_labs();
        huge_pages::give_back();
        std::process::exit(130);
    })
}

fn remove_where(is_wanted: impl Fn(u32) -> bool) -> Vec<String> {
    let namespaces = names_in(Path::new("/run/netns"), &is_wanted);
    namespaces.iter().for_each(|name| netns::remove(name));
    let temporary = std::env::temp_dir();
    let directories = names_in(&temporary, &is_wanted);
    for name in &directories {
        // Another process may be cleaning up as well.
        bpffs::clean(&temporary.join(name));
        let _ = std::fs::remove_dir_all(temporary.join(name));
    }
    cgroup::clean(|name| owner(name).is_some_and(&is_wanted));
    [namespaces, directories].concat()
}

fn names_in(folder: &Path, is_wanted: impl Fn(u32) -> bool) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| owner(name).is_some_and(&is_wanted)).collect()
}

/// The process a lab's name says it belongs to.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_lab_gives_have_an_owner() {
        assert_eq!(owner("fb-17-0-sw"), Some(17));
        assert_eq!(owner("fb-17-0-system-Xy4"), Some(17));
        for name in ["fb-experiment", "fb-", "prod", "17-fb", "fb-x17-0"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }
}
