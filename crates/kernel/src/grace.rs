//! Grace periods: waiting until no kernel program that runs now runs any more.
//!
//! Attaching or detaching a tcx program waits for one inside the kernel, under the lock that guards all netdevs, so
//! that a thousand ports wait a thousand times one after the other: measured 14 ms each at 250 Hz. The kernel can end
//! grace periods in microseconds by interrupting the CPUs instead of waiting for their ticks.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

mod switch;

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};

use switch::Switch;

/// The kernel's switch, and the file that names the processes that want it on.
fn switch() -> Switch<'static> {
    Switch {
        value: Path::new("/sys/kernel/rcu_expedited"),
        owners: Path::new("/run/forebay-rcu-expedited.pid"),
    }
}

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

/// How many of this process want them short.
static WANTED: Mutex<usize> = Mutex::new(0);

/// While it lives, grace periods are short on this machine, at the cost of an interrupt to each CPU.
///
/// Several daemons may want it at once: at a takeover one leaves its ports while the next attaches to them. Grace
/// periods are long again when the last of them is done. If the kernel's switch cannot be written, or another program
/// has switched it on, this changes nothing and puts nothing back.
#[derive(Debug)]
#[must_use = "grace periods are long again when this is dropped"]
pub struct ShortGracePeriods {
    wanted: bool,
}

impl ShortGracePeriods {
    /// Switches them on, unless they are.
    pub fn begin() -> Self {
        let mut count = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = *count > 0 || switch().join(std::process::id());
        *count += usize::from(wanted);
        Self { wanted }
    }

    /// For a process that ends without dropping what it has: puts the switch back, if it is on because of us.
    pub fn put_back() {
        let mut count = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut *count) > 0 {
            switch().leave(std::process::id());
        }
    }

    /// Puts the switch back for a process that was killed before it could. Says whether it was on because of one.
    pub fn recover() -> bool {
        switch().recover()
    }
}

impl Drop for ShortGracePeriods {
    fn drop(&mut self) {
        let mut count = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
        // After `put_back` there is nothing left to count.
        if self.wanted && *count > 0 {
            *count -= 1;
            if *count == 0 {
                switch().leave(std::process::id());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_membarrier_a_map_of_maps_waits() {
        wait_by_map().expect("the kernel has maps of maps");
    }
}
