//! The few system calls that no library in use wraps safely.
#![allow(unsafe_code, reason = "system calls without a safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Moves the calling thread, alone, into a new and empty network namespace.
pub(super) fn unshare_netns() -> io::Result<()> {
    // SAFETY: unshare takes no pointer. CLONE_NEWNET changes this thread's nsproxy only: memory, descriptors and
    // the other threads' namespaces stay as they are.
    cvt(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// Sets a socket's receive buffer: past net.core.rmem_max with CAP_NET_ADMIN, as far as that limit without.
pub(super) fn set_receive_buffer(socket: BorrowedFd<'_>, bytes: libc::c_int) -> io::Result<()> {
    set_int_option(socket, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| set_int_option(socket, libc::SO_RCVBUF, bytes))
}

/// Waits up to a second for something to read.
#[cfg(test)]
pub(super) fn wait_readable(socket: BorrowedFd<'_>) {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the pointer is to one pollfd, as the count says, and it lives until the call returns.
    unsafe { libc::poll(&raw mut poll, 1, 1000) };
}

fn set_int_option(socket: BorrowedFd<'_>, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the pointer and length describe `value`, which outlives the call; the kernel only reads it.
    cvt(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const value).cast(), length)
    })
}

fn cvt(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
