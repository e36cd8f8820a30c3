//! A `ptrace` for user-mode Linux 6.1, which takes the registers of a process to be no more than AVX-512's.
//!
//! It reads the first 2,696 bytes of their state, and writes them back. The kernel below reads out as much as is asked for, but
//! takes nothing less than all (`xstateregs_set` in arch/x86/kernel/fpu/regset.c, Linux 6.18), and on a processor with AMX that
//! is 11,008 bytes. So each write gets a rest behind it. What stands there does not count: the state's header, which is among the
//! first bytes, says that the process has used none of those registers.
#![allow(unsafe_code, reason = "stands in for a function of the C library")]

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// `SYS_ptrace` on x86-64.
const PTRACE: c_long = 101;
/// `PTRACE_PEEKTEXT` up to `PTRACE_PEEKUSER`: the C library returns what the kernel writes to where `data` points.
const PEEKS: std::ops::RangeInclusive<c_uint> = 1..=3;
const GETREGSET: c_uint = 0x4204;
const SETREGSET: c_uint = 0x4205;
/// `NT_X86_XSTATE`, include/uapi/linux/elf.h.
const XSTATE: usize = 0x202;
/// More than any processor has so far.
const ROOM: usize = 64 << 10;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// `struct iovec`.
#[repr(C)]
struct Stretch {
    start: *mut c_void,
    len: usize,
}

/// A state in full. Its owner traces its processes from one thread, as `ptrace` demands.
struct Whole(UnsafeCell<[u8; ROOM]>);

// SAFETY: one thread uses it.
unsafe impl Sync for Whole {}

static WHOLE: Whole = Whole(UnsafeCell::new([0; ROOM]));
/// Bytes of a state, or 0 before the first was written.
static LEN: AtomicUsize = AtomicUsize::new(0);

/// As in ptrace(2).
///
/// # Safety
/// As there: `address` and `data` are what the request asks for.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ptrace(
    request: c_uint,
    process: c_int,
    address: *mut c_void,
    data: *mut c_void,
) -> c_long {
    // SAFETY: a system call with the arguments of our caller, who answers for them.
    let pass = |data: *mut c_void| unsafe {
        syscall(PTRACE, c_long::from(request), c_long::from(process), address, data)
    };
    if PEEKS.contains(&request) {
        let mut word: c_long = 0;
        return match pass((&raw mut word).cast()) {
            0 => word,
            error => error,
        };
    }
    if (request, address.addr()) != (SETREGSET, XSTATE) {
        return pass(data);
    }
    let room: *mut u8 = WHOLE.0.get().cast();
    let mut whole = Stretch { start: room.cast(), len: LEN.load(Ordering::Relaxed) };
    if whole.len == 0 {
        whole.len = ROOM;
        // SAFETY: asks for the state of a process that the caller traces; the kernel writes at most ROOM bytes, and how many
        // they are.
        let got = unsafe {
            syscall(PTRACE, c_long::from(GETREGSET), c_long::from(process), address, &raw mut whole)
        };
        if got != 0 {
            return got;
        }
        LEN.store(whole.len, Ordering::Relaxed);
    }
    // SAFETY: with this request `data` points to a `struct iovec`.
    let given = unsafe { &*data.cast::<Stretch>() };
    if given.len >= whole.len {
        return pass(data);
    }
    // SAFETY: `given` describes bytes of the caller's, fewer than there is room for.
    unsafe { std::ptr::copy_nonoverlapping(given.start.cast(), room, given.len) };
    pass((&raw mut whole).cast())
}
