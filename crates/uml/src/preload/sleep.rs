//! A sleep that no interrupt misses.
//!
//! User-mode Linux has its devices' interrupts by SIGIO. While it has interrupts off, its handler only notes that there was
//! one. It goes to sleep with interrupts off, by `sigsuspend`, and looks at no note before: an interrupt that comes on the way
//! there waits for the next one, or for the timer, up to 10 ms later. (`um_idle_sleep` and `sig_handler` in arch/um, Linux 6.1.)
//! So this `sigsuspend` does not sleep if there was a SIGIO since it was called last. The kernel then looks at its notes, finds
//! nothing more to do, and comes again.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use std::ffi::{c_int, c_long, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// `SYS_rt_sigsuspend` on x86-64, and the bytes of a set as the kernel knows it.
const RT_SIGSUSPEND: c_long = 130;
const SET_BYTES: usize = 8;
const SIGIO: c_int = 29;
const BLOCK: c_int = 0;
const SET: c_int = 2;
const INTERRUPTED: c_int = 4;

/// `sigset_t`.
type Signals = [u64; 16];
type Handler = extern "C" fn(c_int, *mut c_void, *mut c_void);

/// `struct sigaction` on x86-64.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Action {
    pub(crate) handler: usize,
    pub(crate) mask: Signals,
    pub(crate) flags: c_int,
    pub(crate) restorer: usize,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn sigprocmask(how: c_int, new: *const Signals, before: *mut Signals) -> c_int;
    /// The C library's own name of `sigaction`.
    fn __sigaction(signal: c_int, new: *const Action, before: *mut Action) -> c_int;
    fn __errno_location() -> *mut c_int;
}

/// Address of the handler of SIGIO. 0 (`SIG_DFL`) and 1 (`SIG_IGN`) are no handlers.
static HANDLER: AtomicUsize = AtomicUsize::new(0);
static HAS_COME: AtomicBool = AtomicBool::new(false);

extern "C" fn on_sigio(signal: c_int, info: *mut c_void, context: *mut c_void) {
    HAS_COME.store(true, Ordering::SeqCst);
    // SAFETY: this function is installed only in the place of a handler, which takes these arguments.
    let handler: Handler = unsafe { std::mem::transmute(HANDLER.load(Ordering::SeqCst)) };
    handler(signal, info, context);
}

fn own() -> usize {
    on_sigio as Handler as usize
}

/// As in sigaction(2). A handler of SIGIO is called by one that takes a note.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, before: *mut Action) -> c_int {
    if signal != SIGIO {
        // SAFETY: the caller answers for the arguments.
        return unsafe { __sigaction(signal, new, before) };
    }
    let handler = HANDLER.load(Ordering::SeqCst);
    // SAFETY: the caller passes an action or nothing.
    let mut noting = unsafe { new.as_ref() }.copied();
    if let Some(noting) = noting.as_mut().filter(|action| action.handler > 1) {
        HANDLER.store(noting.handler, Ordering::SeqCst);
        noting.handler = own();
    }
    let new = noting.as_ref().map_or(null_mut(), |noting| std::ptr::from_ref(noting).cast_mut());
    // SAFETY: as above.
    let done = unsafe { __sigaction(signal, new, before) };
    // SAFETY: the caller passes room for an action or nothing.
    if let Some(before) = unsafe { before.as_mut() }
        && before.handler == own()
    {
        before.handler = handler;
    }
    done
}

/// As in sigsuspend(2), but comes back at once if there was a SIGIO since it came back last.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigsuspend(mask: *const Signals) -> c_int {
    let (mut only, mut before) = ([0; 16], [0; 16]);
    only[0] = 1 << (SIGIO - 1);
    // SAFETY: both sets are ours. From here on a SIGIO waits, until the kernel sets the caller's mask and sleeps, in one.
    unsafe { sigprocmask(BLOCK, &raw const only, &raw mut before) };
    if !HAS_COME.load(Ordering::SeqCst) {
        // SAFETY: the caller answers for the mask.
        unsafe { syscall(RT_SIGSUSPEND, mask, SET_BYTES) };
    }
    HAS_COME.store(false, Ordering::SeqCst);
    // SAFETY: a set of ours, and the number of this thread.
    unsafe {
        sigprocmask(SET, &raw const before, null_mut());
        *__errno_location() = INTERRUPTED;
    }
    -1
}
