//! Grace periods: waiting until no kernel program that runs now runs any more.
//!
//! Attaching or detaching a tcx program waits for one inside the kernel, under the lock that guards all netdevs, so
//! that a thousand ports wait a thousand times one after the other: measured 14 ms each at 250 Hz. The kernel can end
//! grace periods in microseconds by interrupting the CPUs instead of waiting for their ticks.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

const SWITCH: &str = "/sys/kernel/rcu_expedited";

/// Waits until every kernel program that ran when this was called has ended; some milliseconds.
pub fn grace_period() {
    // SAFETY: membarrier takes three integers. MEMBARRIER_CMD_GLOBAL is 1 (include/uapi/linux/membarrier.h).
    unsafe { libc::syscall(libc::SYS_membarrier, 1, 0, 0) };
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
        let off = std::fs::read_to_string(SWITCH).is_ok_and(|value| value.trim() == "0");
        let put_back = off && write(b"1");
        SWITCHED_ON.fetch_or(put_back, Ordering::AcqRel);
        Self { put_back }
    }

    /// For a process that ends without dropping what it has: puts the switch back, if it is on because of us.
    pub fn put_back() {
        if SWITCHED_ON.swap(false, Ordering::AcqRel) {
            write(b"0");
        }
    }
}

impl Drop for ShortGracePeriods {
    fn drop(&mut self) {
        if self.put_back {
            Self::put_back();
        }
    }
}

fn write(value: &[u8]) -> bool {
    let file = std::fs::File::options().write(true).open(SWITCH);
    file.and_then(|mut file| file.write_all(value)).is_ok()
}
