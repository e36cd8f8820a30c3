//! The system calls of an AF_XDP socket, each with its errors turned into [`XskError`].
#![allow(unsafe_code, reason = "system calls")]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::XskError;

/// Opens a socket of `family` and `kind` that a child process does not inherit.
pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, XskError> {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(XskError::last(format!("open a socket of family {family}")));
    }
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets socket option `name` to the bytes of `value`.
pub(crate) fn set_option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &T,
    what: impl FnOnce() -> String,
) -> Result<(), XskError> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, which the kernel only reads.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(XskError::last(what())) }
}

/// Types of C structs of integers, for which zero bytes are a valid value.
///
/// # Safety
/// All-zero bytes, and any bytes the kernel writes, must be a valid value of the type.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: structs of integers.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: a struct of integers.
unsafe impl Plain for libc::xdp_statistics {}

/// Reads AF_XDP socket option `name`. A kernel that knows a shorter struct leaves the rest zero.
pub(crate) fn xdp_option<T: Plain>(socket: BorrowedFd<'_>, name: i32, what: &str) -> Result<T, XskError> {
    // SAFETY: `Plain` promises that zeroes are a value.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`; the kernel writes at most `len` bytes.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            name,
            std::ptr::from_mut(&mut value).cast(),
            std::ptr::from_mut(&mut len),
        )
    };
    if done == 0 { Ok(value) } else { Err(XskError::last(what)) }
}

/// Binds an AF_XDP socket; the plain errno, so that the caller can retry.
pub(crate) fn bind_xdp(socket: BorrowedFd<'_>, address: &libc::sockaddr_xdp) -> std::io::Result<()> {
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: pointer and length describe `address`, which the kernel only reads.
    let done = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(address).cast(), len) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Asks the kernel to look at the TX ring (`sendto` of nothing). Busy and full rings are no errors here.
pub(crate) fn kick(socket: BorrowedFd<'_>) {
    // SAFETY: a null buffer of length 0 and no address.
    unsafe { libc::sendto(socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
}
