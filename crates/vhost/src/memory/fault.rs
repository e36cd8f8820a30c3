//! Faults in guest memory: a front end may truncate the file that is mapped here.
//!
//! The kernel then sends SIGBUS to the thread that touches a page beyond the end. The handler looks the address up in a
//! table of watched mappings. If it is there, the handler puts zeroed memory in the place of the whole mapping, notes
//! that it is broken, and returns: the copy goes on. Any other address is left to the handler that was there before.
#![allow(unsafe_code, reason = "handles SIGBUS and replaces mappings")]

use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Mappings that may be watched at once in a process.
pub(super) const MAX_MAPPINGS: usize = 4096;

/// One watched mapping. `len` is zero while nothing is watched.
struct Slot {
    is_taken: AtomicBool,
    start: AtomicUsize,
    len: AtomicUsize,
    is_broken: AtomicBool,
}

static SLOTS: [Slot; MAX_MAPPINGS] = [const { Slot::new() }; MAX_MAPPINGS];
/// Slots below this index may be in use; the handler looks no further.
static USED: AtomicUsize = AtomicUsize::new(0);
static INSTALL: Once = Once::new();
/// The handler before ours, allocated once and never freed.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

impl Slot {
    const fn new() -> Self {
        Self {
            is_taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            is_broken: AtomicBool::new(false),
        }
    }

    fn contains(&self, address: usize) -> bool {
        let len = self.len.load(Ordering::Acquire);
        address.wrapping_sub(self.start.load(Ordering::Relaxed)) < len
    }
}

/// A mapping's entry in the table.
#[derive(Debug)]
pub(super) struct Watch {
    slot: usize,
}

impl Watch {
    /// Watches a mapping. `None`: the table is full.
    pub(super) fn new(start: NonNull<u8>, len: usize) -> Option<Self> {
        INSTALL.call_once(install);
        let slot = SLOTS.iter().position(|slot| !slot.is_taken.swap(true, Ordering::AcqRel))?;
        SLOTS[slot].is_broken.store(false, Ordering::Relaxed);
        SLOTS[slot].start.store(start.addr().get(), Ordering::Relaxed);
        SLOTS[slot].len.store(len, Ordering::Release);
        USED.fetch_max(slot + 1, Ordering::AcqRel);
        Some(Self { slot })
    }

    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        SLOTS[self.slot].is_broken.load(Ordering::Relaxed)
    }

    /// Forgets the mapping; nobody touches it any more.
    pub(super) fn end(&mut self) {
        SLOTS[self.slot].len.store(0, Ordering::Release);
        SLOTS[self.slot].is_taken.store(false, Ordering::Release);
    }
}

/// Installs the handler, once in a process.
fn install() {
    // SAFETY: an all-zero sigaction is a valid value: no handler, no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both point to valid values, and the handler is safe to run in a signal: it uses atomics and mmap only.
    // Asking for the former action first means that it is known before our handler can run.
    unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) };
    PREVIOUS.store(Box::into_raw(Box::new(before)), Ordering::Release);
    // SAFETY: as above.
    unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) };
}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler with SA_SIGINFO, and SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let used = USED.load(Ordering::Acquire);
    match SLOTS[..used].iter().find(|slot| slot.contains(address)) {
        Some(slot) if replace(slot) => {}
        _ => pass_on(signal, info, context),
    }
}

/// Puts zeroed memory in the place of a mapping. It stays the same range of addresses, which its owner unmaps.
fn replace(slot: &Slot) -> bool {
    slot.is_broken.store(true, Ordering::Relaxed);
    let (start, len) = (slot.start.load(Ordering::Relaxed), slot.len.load(Ordering::Relaxed));
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the range is a mapping of ours as long as it is in the table, and only copies and atomic accesses
    // reach it. mmap is one system call and touches no state of this process but errno, which is put back.
    unsafe {
        let errno = *libc::__errno_location();
        let address = libc::mmap(start as *mut _, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        *libc::__errno_location() = errno;
        address != libc::MAP_FAILED
    }
}

/// Leaves a fault that is not in guest memory to the former handler, or lets it end the process as it would have.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the pointer was made from a box that is never freed, before the handler was installed.
    let before = unsafe { &*PREVIOUS.load(Ordering::Acquire) };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: setting the default action; the faulting instruction is run again, faults, and ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: a handler that was installed with SA_SIGINFO has this signature.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: a handler that was installed without SA_SIGINFO has this signature.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, ProtFlags, mmap};

    use super::*;

    const CHILD: &str = "FOREBAY_VHOST_FAULTS";

    /// The test runs itself as a child, which faults in memory that no guest has.
    #[test]
    fn a_fault_outside_of_guest_memory_still_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            return fault();
        }
        let name = "memory::fault::tests::a_fault_outside_of_guest_memory_still_ends_the_process";
        let output = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", name])
            .env(CHILD, "1")
            .output()
            .expect("a child");
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{output:?}");
    }

    fn fault() {
        let file = memfd_create("nobody's", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, 8192).expect("two pages");
        let map = || {
            let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
            // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
            let start = unsafe { mmap(std::ptr::null_mut(), 4096, read, shared, &file, 0) };
            NonNull::new(start.expect("a mapping").cast::<u8>()).expect("not the null page")
        };
        let (watched, unwatched) = (map(), map());
        let watch = Watch::new(watched, 4096).expect("the table is empty");
        ftruncate(&file, 0).expect("the file is ours");
        // SAFETY: one byte of a mapping that stays; the fault is what is tested.
        let byte = unsafe { watched.as_ptr().read_volatile() };
        assert!(byte == 0 && watch.is_broken());
        // SAFETY: as above; this one is not watched, so the process ends here.
        unsafe { unwatched.as_ptr().read_volatile() };
    }
}
