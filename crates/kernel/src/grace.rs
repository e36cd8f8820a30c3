//! Grace periods: waiting until no kernel program that runs now runs any more.
//!
//! Attaching or detaching a tcx program waits for one inside the kernel, under the lock that guards all netdevs, so
//! that a thousand ports wait a thousand times one after the other: measured 14 ms each at 250 Hz. The kernel can end
//! grace periods in microseconds by interrupting the CPUs instead of waiting for their ticks.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};

const SWITCH: &str = "/sys/kernel/rcu_expedited";

/// While a process of ours has switched them on, its process id: a process that was killed could not put them back.
const OWNER: &str = "/run/forebay-rcu-expedited.pid";

/// Waits until every kernel program that ran when this was called has ended; some milliseconds.
///
/// # Panics
/// When the kernel offers no way to: to go on would be to use again what a program may still look at.
pub fn grace_period() {
    // SAFETY: membarrier takes three integers. MEMBARRIER_CMD_GLOBAL is 1 (include/uapi/linux/membarrier.h).
    let failed = unsafe { libc::syscall(libc::SYS_membarrier, 1, 0, 0) } < 0;
    // Kernels with CPUs that have no tick (nohz_full) do not offer it.
    if failed {
        wait_by_map().expect("a kernel without membarrier has maps of maps");
    }
}

/// Changes an entry of a map of maps: the kernel answers when no program runs any more that could have the old one
/// (`maybe_wait_bpf_programs`, kernel/bpf/syscall.c, Linux 6.18).
fn wait_by_map() -> libbpf_rs::Result<()> {
    const WORD: u32 = size_of::<u32>() as u32;
    let options = |inner_map_fd| libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        inner_map_fd,
        ..Default::default()
    };
    let inner = MapHandle::create(MapType::Array, Some("waits_inner"), WORD, WORD, 1, &options(0))?;
    let fd = inner.as_fd().as_raw_fd();
    let outer = MapHandle::create(MapType::ArrayOfMaps, Some("waits"), WORD, WORD, 1, &options(fd as u32))?;
    outer.update(&0u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}

/// Whether one of us has switched them on and not yet off.
static SWITCHED_ON: AtomicBool = AtomicBool::new(false);

/// While it lives, grace periods are short on this machine, at the cost of an interrupt to each CPU.
///
/// Where the kernel's switch cannot be written, or is on already, nothing is changed and nothing is put back.
#[derive(Debug)]
#[must_use = "grace periods are long again when this is dropped"]
pub struct ShortGracePeriods {
    put_back: bool,
}

impl ShortGracePeriods {
    /// Switches them on, unless they are.
    pub fn begin() -> Self {
        let put_back = switch_on(Path::new(SWITCH), Path::new(OWNER));
        SWITCHED_ON.fetch_or(put_back, Ordering::AcqRel);
        Self { put_back }
    }

    /// For a process that ends without dropping what it has: puts the switch back, if it is on because of us.
    pub fn put_back() {
        if SWITCHED_ON.swap(false, Ordering::AcqRel) {
            switch_off(Path::new(SWITCH), Path::new(OWNER));
        }
    }

    /// Puts the switch back for a process that was killed before it could. Says whether there was one.
    pub fn recover() -> bool {
        recover(Path::new(SWITCH), Path::new(OWNER))
    }
}

impl Drop for ShortGracePeriods {
    fn drop(&mut self) {
        if self.put_back {
            Self::put_back();
        }
    }
}

/// The owner is named first, so that there is no moment in which the switch is on and nobody knows why.
fn switch_on(switch: &Path, owner: &Path) -> bool {
    if fs::read_to_string(switch).is_ok_and(|value| value.trim() == "0")
        && fs::write(owner, std::process::id().to_string()).is_ok()
    {
        if write(switch, b"1") {
            return true;
        }
        let _ = fs::remove_file(owner);
    }
    false
}

fn switch_off(switch: &Path, owner: &Path) {
    write(switch, b"0");
    let _ = fs::remove_file(owner);
}

fn recover(switch: &Path, owner: &Path) -> bool {
    let Ok(pid) = fs::read_to_string(owner) else { return false };
    if Path::new("/proc").join(pid.trim()).join("stat").exists() {
        return false;
    }
    switch_off(switch, owner);
    true
}

fn write(switch: &Path, value: &[u8]) -> bool {
    let file = fs::File::options().write(true).truncate(true).open(switch);
    file.and_then(|mut file| file.write_all(value)).is_ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A switch and an owner's file in a folder of the test's own.
    struct Files(PathBuf);

    impl Files {
        fn new(test: &str, value: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("forebay-grace-{test}-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a temporary folder");
            let files = Self(folder);
            fs::write(files.switch(), value).expect("a temporary file");
            files
        }

        fn switch(&self) -> PathBuf {
            self.0.join("switch")
        }

        fn owner(&self) -> PathBuf {
            self.0.join("owner")
        }

        fn value(&self) -> String {
            fs::read_to_string(self.switch()).expect("it was written")
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn where_there_is_no_membarrier_a_map_of_maps_waits() {
        wait_by_map().expect("the kernel has maps of maps");
    }

    #[test]
    fn what_was_switched_on_is_switched_off() {
        let files = Files::new("off", "0\n");
        assert!(switch_on(&files.switch(), &files.owner()));
        assert_eq!(files.value(), "1");
        assert!(!recover(&files.switch(), &files.owner()), "its owner lives");
        switch_off(&files.switch(), &files.owner());
        assert_eq!((files.value().as_str(), files.owner().exists()), ("0", false));
    }

    #[test]
    fn what_was_on_already_stays() {
        let files = Files::new("on", "1\n");
        assert!(!switch_on(&files.switch(), &files.owner()));
        assert!(!recover(&files.switch(), &files.owner()));
        assert_eq!((files.value().as_str(), files.owner().exists()), ("1\n", false));
    }

    #[test]
    fn what_a_killed_process_left_on_is_switched_off() {
        let files = Files::new("killed", "1\n");
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        child.wait().expect("it ends");
        fs::write(files.owner(), child.id().to_string()).expect("a temporary file");
        assert!(recover(&files.switch(), &files.owner()));
        assert_eq!((files.value().as_str(), files.owner().exists()), ("0", false));
    }
}
